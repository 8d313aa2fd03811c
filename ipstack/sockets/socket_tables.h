// socket_tables.h - the stack's socket tables, which the network interface reads (unet/socket_table.h); written by the stack.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ipstack/sockets/network.h"
#include "ipstack/tcp/counters.h"
#include "ipstack/tcp/info.h"
#include "unet/socket_table.h"

namespace unet::sockets {

struct StackCounters;

class SocketTables {
 public:
  explicit SocketTables(Network& network) noexcept : network_(network) {}

  static constexpr uint32_t kNone = ~uint32_t{0};

  // Takes a place for the record of a socket, or of a connection in TIME-WAIT. It opens a further table if the others are full. kNone:
  // there is no room, and the socket has no record.
  uint32_t take();
  // Calls with kNone do nothing.
  void put(uint32_t place, const SocketRecord& record) noexcept;
  // Clears the record and frees its place.
  void give_back(uint32_t place) noexcept;

  // Not 0: a reader asks for records that are up to date. finish() with this value answers it.
  uint64_t asked() const noexcept;
  void put_info(uint32_t place, const SocketInfo& info) noexcept;
  void finish(uint64_t asked, const StackCounters& stack, const tcp::Counters& tcp) noexcept;

 private:
  Network& network_;
  std::array<SocketTableView, kSocketTablesMax> tables_{};
  uint32_t count_ = 0;
  std::vector<uint32_t> free_;  // places below next_
  uint32_t next_ = 0;
  bool refused_ = false;   // no further table can be opened
};

SocketInfo info_of(const tcp::Info& info, uint64_t told) noexcept;

}  // namespace unet::sockets
