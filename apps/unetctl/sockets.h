// sockets.h - lists the sockets of all applications of an NI, as Linux's ss lists the kernel's; used by unetctl's main().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "unet/base/result.h"
#include "unet/base/time.h"
#include "unet/socket_table.h"
#include "unet/wire/address.h"

namespace unet::unetctl {

struct SocketsOptions {
  bool tcp = false, udp = false;       // neither: both
  bool listening = false, all = false;  // neither: those with a peer
  bool info = false, processes = false, stacks = false, as_json = false;
  std::vector<std::string> filter{};
};

struct Process {
  int32_t pid = 0, uid = 0;
  uint32_t endpoint = 0;
  std::string program{};
  uint64_t asked = 0;                  // number of the request to update its figures
  bool answered = false;               // whether it has answered that request
};
struct SocketRow {
  size_t process = 0;
  uint32_t number = 0;
  SocketRecord record{};
  std::optional<SocketInfo> info{};
};
struct StackRow {
  size_t process = 0;
  std::vector<uint64_t> counters{};
};
struct SocketList {
  Nanoseconds now = 0;                 // CLOCK_MONOTONIC
  std::vector<Process> processes{};
  std::vector<SocketRow> sockets{};
  std::vector<StackRow> stacks{};
};

// The sockets at the NI at `socket` that this user may see. Waits briefly for processes to update their figures.
Result<SocketList> list_sockets(const std::string& socket);
// Reads the sockets in one table, which may contain anything and change meanwhile.
void read_table(const SocketTableView& table, uint32_t first, size_t process, SocketList& into);

// Conditions that must all hold: `state NAME`, `sport OP :PORT`, `dport OP :PORT`, `src ADDRESS`, `dst ADDRESS`, `pid NUMBER`, with or
// without `and` between them. Errors: invalid_argument.
class SocketFilter {
 public:
  static Result<SocketFilter> parse(const SocketsOptions& options);
  bool shows(const SocketRow& row, const Process& process) const;

 private:
  struct Port {
    bool local = false;
    std::string op{};
    uint32_t port = 0;
  };
  struct Host {
    bool local = false;
    ip::IpAddress address{};
  };

  bool tcp_ = true, udp_ = true;
  uint32_t states_ = 0;                // bits
  std::vector<Port> ports_{};
  std::vector<Host> hosts_{};
  std::vector<int32_t> pids_{};
};

// Text or JSON of the sockets that pass the filter.
std::string show_sockets(const SocketList& list, const SocketFilter& filter, const SocketsOptions& options);

}  // namespace unet::unetctl
