// stack_core.h - what every part of a stack needs: its sockets, its clock, timers, and the queues of sockets that have something to do or
// to report. The parts share one core; a part knows the core and the parts below it, and never the stack.
//
// The stack sets the clock. A part that changes a socket calls notify(); a part that could not send all calls make_due().
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "ipstack/sockets/datagram_queue.h"
#include "ipstack/sockets/error_queues.h"
#include "ipstack/sockets/flow_table.h"
#include "ipstack/sockets/host_addresses.h"
#include "ipstack/sockets/index_queue.h"
#include "ipstack/sockets/network.h"
#include "ipstack/sockets/read_positions.h"
#include "ipstack/sockets/slab.h"
#include "ipstack/sockets/socket.h"
#include "ipstack/sockets/socket_events.h"
#include "ipstack/sockets/socket_reports.h"
#include "ipstack/sockets/socket_tables.h"
#include "ipstack/sockets/stack_counters.h"
#include "ipstack/sockets/stack_options.h"
#include "ipstack/sockets/stream_memory.h"
#include "ipstack/sockets/timer_heap.h"
#include "unet/base/time.h"

namespace unet::sockets {

struct Change {
  int socket = -1;
  uint32_t events = 0;
  bool urgent = false;  // its peer has told of urgent data since the last change, as SIGURG says
  bool came = false;    // data, a connection to accept or an error has come since: more than that something is ready, as SIGIO says
};

// Stack::await(), and what has come.
struct Awaited {
  int socket = -1;
  int64_t came = -1;               // bytes in `room`; -1: nothing
  MutableBytes room{};
  DatagramQueue::Datagram datagram{};  // if it was one; its payload is no more, but was so long
};

struct StackCore {
  static constexpr uint32_t kNone = ~uint32_t{0};

  StackCore(Network& network, StreamMemory& memory, const StackOptions& options, const HashKey& flow_key, Nanoseconds now);

  // The socket, if the application has it; else nullptr.
  Socket* owned(int number) noexcept {
    const auto index = static_cast<uint32_t>(number);
    return sockets.has(index) && sockets[index].is_owned() ? &sockets[index] : nullptr;
  }
  const Socket* owned(int number) const noexcept { return const_cast<StackCore*>(this)->owned(number); }
  // A new socket, a stream's without options. kNone: there are as many as there may be.
  uint32_t make(Type type, bool ipv6);
  // The socket is no more, and its number is free. Its port and its place among those of a port have been given back.
  void drop(uint32_t index);

  // The socket of the stream between these ends; kNone: there is none. `hash`: flows.hash() of both.
  uint32_t flow(uint32_t hash, const Address& local, const Address& remote) const noexcept {
    return flows.find(hash, [&](uint32_t item) { return sockets[item].local == local && sockets[item].remote == remote; });
  }
  uint32_t flow(const Address& local, const Address& remote) const noexcept { return flow(flows.hash(local, remote), local, remote); }
  void add_flow(uint32_t index);
  void remove_flow(uint32_t index) noexcept;  // if it is there

  // Something has happened to the socket that the application may want to know. `came`: Change::came.
  void notify(uint32_t index, bool came = false);
  // The next call of next_change() reports the socket, whatever its events are.
  void list(uint32_t index) {
    sockets[index].changed = true;
    changed.push(index);
  }
  // The next socket with changed events, and all its events now. False: there is none.
  bool next_change(Change& change);
  uint32_t events_of(uint32_t index) const noexcept;
  // The stream's peer tells of an urgent byte, `before` bytes behind what was read last; `there` bytes had come before. True: an older
  // urgent byte is the next of the stream, which leaves it out: the caller consumes that byte.
  [[nodiscard]] bool set_urgent(uint32_t index, uint32_t before, uint32_t there);
  // Queues an error for recvmsg() with MSG_ERRQUEUE.
  void report_error(uint32_t index, QueuedError error);
  // Writes the socket's record for other processes.
  void show(uint32_t index) { reports.show(index, now); }

  // The socket may have something to send: the next run of the stack tries.
  void make_due(uint32_t index) {
    if (sockets[index].due) return;
    sockets[index].due = true;
    due.push_back(index);
  }
  // Notifies the streams that waited for chunks. One that still has none waits again, behind these.
  void notify_starved();

  // A message to this socket goes into the room that await() gave.
  bool is_awaited(uint32_t index) const noexcept {
    return awaited.socket == static_cast<int>(index) && awaited.came < 0 && !sockets[index].peeks_behind && !sockets[index].urgent;
  }
  bool has_awaited(int number) const noexcept { return awaited.socket == number && awaited.came >= 0; }
  int64_t take_awaited() noexcept { return std::exchange(awaited.came, -1); }

  Network& network;
  StreamMemory& memory;
  const HostAddresses addresses{network};
  const StackOptions options;
  Nanoseconds now;
  StackCounters counters;
  Slab<Socket> sockets;
  FlowTable flows;                  // streams by both ends
  TimerHeap timers;                 // of streams
  ReadPositions positions{sockets};
  ErrorQueues errors{sockets};
  Awaited awaited;
  SocketTables tables;
  SocketReports reports{tables, sockets, counters, memory.counters};
  std::vector<uint32_t> due;        // sockets that may have something to send
  IndexQueue starved;               // streams that would take more of their applications, but for chunks, which others still use
  IndexQueue changed;               // for next_change()
};

}  // namespace unet::sockets
