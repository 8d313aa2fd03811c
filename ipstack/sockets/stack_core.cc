// stack_core.cc - sockets by number and by flow, and what the application is told of them.
#include "ipstack/sockets/stack_core.h"

#include <memory>
#include <utility>

namespace unet::sockets {
namespace {

// The stream would take data of its application, but has no chunk for it.
bool is_starved(const Socket& socket, uint32_t events) noexcept {
  return (events & Events::kOut) == 0 && socket.has_connection() && !socket.tcp.connection->has_memory();
}

}  // namespace

StackCore::StackCore(Network& to, StreamMemory& of_streams, const StackOptions& chosen, const HashKey& flow_key, Nanoseconds at)
    : network(to), memory(of_streams), options(chosen), now(at), sockets(chosen.sockets), flows(flow_key), tables(to) {}

uint32_t StackCore::make(Type type, bool ipv6) {
  const uint32_t index = sockets.make();
  if (index == kNone) return kNone;
  timers.reserve(sockets.end());
  changed.reserve(sockets.end());
  starved.reserve(sockets.end());
  Socket& made = sockets[index];
  made.type = type;
  made.ipv6 = ipv6;
  if (type == Type::datagram) made.datagram = std::make_unique<DatagramPart>();
  return index;
}

void StackCore::drop(uint32_t index) {
  timers.remove(index);
  remove_flow(index);
  tables.give_back(sockets[index].told_at);
  errors.forget(index);
  positions.forget(index);
  sockets.drop(index);
}

void StackCore::add_flow(uint32_t index) {
  Socket& socket = sockets[index];
  socket.hash = flows.hash(socket.local, socket.remote);
  flows.insert(socket.hash, index);
  socket.found = true;
}

void StackCore::remove_flow(uint32_t index) noexcept {
  Socket& socket = sockets[index];
  if (!socket.found) return;
  flows.remove(socket.hash, index);
  socket.found = false;
}

// ---- what the application is told

// The urgent byte alone is nothing to read.
uint32_t StackCore::events_of(uint32_t index) const noexcept {
  const Socket& socket = sockets[index];
  uint32_t events = socket_events(socket);
  if (!socket.urgent) [[likely]] return events;
  const Urgent& urgent = positions.urgent(index);
  const uint32_t there = socket.unread();
  if (there > urgent.before && !urgent.taken) events |= Events::kUrgent;
  return positions.is_passed_over(index) && there == 1 && (events & Events::kEnded) == 0 ? events & ~Events::kIn : events;
}

void StackCore::notify(uint32_t index, bool came) {
  Socket& socket = sockets[index];
  if (!socket.is_owned()) return;
  if (came) socket.came = true;
  if (socket.changed) return;
  const uint32_t events = events_of(index);
  // For example, it has just been connected, and its application has not tried to send.
  if (is_starved(socket, events)) [[unlikely]] starved.push(index);
  if ((events & ~socket.told) == 0 && (events & (Events::kIn | Events::kError)) == 0) {
    socket.told = static_cast<uint16_t>(events);
    return;
  }
  list(index);
}

bool StackCore::next_change(Change& change) {
  while (!changed.empty()) {
    const uint32_t index = changed.pop();
    if (!sockets.has(index) || !sockets[index].changed) continue;
    Socket& socket = sockets[index];
    socket.changed = false;
    if (!socket.is_owned()) continue;
    socket.told = static_cast<uint16_t>(events_of(index));
    if (is_starved(socket, socket.told)) [[unlikely]] starved.push(index);  // it had memory when it was listed
    change = {static_cast<int>(index), socket.told, socket.urgent_news, socket.came};
    socket.urgent_news = socket.came = false;
    return true;
  }
  return false;
}

void StackCore::report_error(uint32_t index, QueuedError error) {
  errors.push(index, std::move(error));
  notify(index, true);
}

// The older urgent byte is a byte like any other from now on, unless it is the next byte and has come.
bool StackCore::set_urgent(uint32_t index, uint32_t before, uint32_t there) {
  Socket& socket = sockets[index];
  if (socket.urgent && before <= positions.urgent(index).before) return false;
  const bool leaves_out = positions.is_passed_over(index) && there != 0;
  positions.set_urgent(index, before);
  if (socket.is_owned()) {
    socket.urgent_news = true;
    socket.told = static_cast<uint16_t>(socket.told & ~Events::kUrgent);  // a further one is told of anew
    list(index);
  }
  return leaves_out;
}

void StackCore::notify_starved() {
  for (size_t count = starved.size(); count != 0; --count) {
    const uint32_t index = starved.pop();
    if (sockets.has(index)) notify(index);
  }
}

}  // namespace unet::sockets
