// socket_reports.h - what others are told of a stack's sockets: the network interface, when this process is gone, and unetctl; used by the
// stack.
#pragma once

#include "ipstack/sockets/slab.h"
#include "ipstack/sockets/socket.h"
#include "ipstack/sockets/socket_tables.h"
#include "ipstack/sockets/stack_counters.h"
#include "ipstack/tcp/info.h"
#include "unet/socket_table.h"

namespace unet::sockets {

SocketState state_of(const Socket& socket) noexcept;
void fill_queues(const Socket& socket, SocketRecord& record) noexcept;
// A message of a local stream is its segment, and what was sent is at its peer. There are no round trips, no acknowledgements and no
// congestion window.
tcp::Info local_stream_info(const LocalStream& part, tcp::State state, Nanoseconds now) noexcept;
// Whether the network interface can finish the connection from its last record: the application has closed it, and the peer has all data.
bool is_left_to_interface(const Socket& socket, Nanoseconds now) noexcept;

class SocketReports {
 public:
  SocketReports(SocketTables& tables, Slab<Socket>& sockets, const StackCounters& counters, const tcp::Counters& tcp_counters) noexcept
      : tables_(tables), sockets_(sockets), counters_(counters), tcp_counters_(tcp_counters) {}

  // Writes the socket's record.
  void show(uint32_t index, Nanoseconds now);
  // If a reader asks, updates the records of all sockets, some in each call, as there may be a hundred thousand.
  void run(Nanoseconds now);

 private:
  SocketTables& tables_;
  Slab<Socket>& sockets_;
  const StackCounters& counters_;
  const tcp::Counters& tcp_counters_;
  uint64_t telling_ = 0;  // the request (SocketTables::asked()) that run() is answering, at place telling_at_
  uint32_t telling_at_ = 0;
};

}  // namespace unet::sockets
