// socket_tables.h - where a stack tells the network interface of its sockets (unet/socket_table.h); written by the stack.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "ipstack/sockets/network.h"
#include "ipstack/tcp/counters.h"
#include "ipstack/tcp/info.h"
#include "unet/socket_table.h"

namespace unet::sockets {

struct StackCounters;

class SocketTables {
 public:
  explicit SocketTables(Network& network) noexcept : network_(network) {}

  // Tells of a socket, in a further table if it has to be; where there is none to be had, nobody is told.
  void put(uint32_t socket, const SocketRecord& record);
  // The socket is no more.
  void drop(uint32_t socket) noexcept;
  bool has(uint32_t socket) const noexcept { return place_of(socket) != nullptr; }

  // Somebody wants to know all that changes; answered when finish() was called with this.
  uint64_t asked() const noexcept;
  void put_info(uint32_t socket, const SocketInfo& info) noexcept;
  void finish(uint64_t asked, const StackCounters& stack, const tcp::Counters& tcp) noexcept;

 private:
  SocketSlot* place_of(uint32_t socket) const noexcept;

  Network& network_;
  std::array<SocketTableView, kSocketTablesMax> tables_{};
  uint32_t count_ = 0;
  bool refused_ = false;   // there are no more
};

SocketInfo info_of(const tcp::Info& info, uint8_t congestion, uint64_t told) noexcept;

}  // namespace unet::sockets
