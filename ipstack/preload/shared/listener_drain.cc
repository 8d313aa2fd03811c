// listener_drain.cc - a closing listener passes its accept queue to its other owners; a busy one gives a connection to an owner that waits.
// On the kernel's sockets all owners would have one queue.
//
// A closed listener takes no new connections. Connections that the network interface has given it are still under way, and so are
// handshakes that peers began: so the listener stays for a moment. Each connection goes to the listener's owner, as the end of a pair. This
// process's helper carries its bytes. The owner gives it to its own program, or passes it on to another process that serves the listener,
// as one of its own. A busy process is told when another waits, and gives one.
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "ipstack/preload/calls.h"
#include "ipstack/preload/real.h"
#include "ipstack/preload/shared/socket_proxies.h"

namespace unet::preload {
namespace {

// Longer than the network interface needs to stop new flows, and than an earlier connection waits for a core, or for the last segment of
// its handshake. (A handshake by a SYN cookie leaves no state here.) On a busy machine 10 ms were too short.
constexpr Nanoseconds kQuietFor = 100 * kMillisecond;
constexpr Nanoseconds kDrainsFor = 3 * kSecond;  // a handshake may need a retransmission
constexpr size_t kLeftMost = 256;                // connections of a listener: each takes a descriptor of its owner

}  // namespace

bool SocketProxies::has_other_owners(const File& file) noexcept {
  return file.listens && file.in_stack() && !file.draining && ParentChannels::origin_of(file) != nullptr;
}

void SocketProxies::drain(File& listener) {
  Runtime& runtime = Runtime::get();
  listener.draining = true;
  ++listener.holds;
  if (listener.fds.empty()) EpollSet::forget(listener);
  // Connections of another process's stack go back to it.
  std::erase_if(listener.pending_accepts, [](const File::PendingAccept& each) {
    if (each.from.channel != nullptr) ParentChannels::refuse(each);
    return each.from.channel != nullptr;
  });
  static_cast<void>(runtime.stack().end_new_flows(listener.socket));
  watch(listener);
  draining_.push_back({&listener, runtime.now() + kQuietFor, runtime.now() + kDrainsFor});
  runtime.poll_all();
  while (pass_next(listener)) continue;
  runtime.poller().kick_helper();
}

void SocketProxies::handle_want(File& listener) {
  listener.wanted = true;
  sleeper_.wake();
}

// A program that is in a call accepts it without the helper, which looks only after a while.
void SocketProxies::handle_arrival(File& listener) {
  if (!is_waited_for(listener)) sleeper_.wake();
}

// Another process waits for a connection of this listener: gives it one that this program does not accept. Later arrivals are for others
// until the program is back. True: call it again later.
bool SocketProxies::give_up_connection(File& listener) {
  Runtime& runtime = Runtime::get();
  if (!listener.listens || listener.draining) return false;
  if ((runtime.events(listener) & EPOLLIN) == 0 || is_waited_for(listener)) {
    listener.busy_since = 0;
    return false;
  }
  if (listener.busy_since == 0) listener.busy_since = runtime.now();
  if (listener.receives && runtime.now() - listener.busy_since < kBusyFor) return true;
  const auto handed = std::find_if(listener.pending_accepts.begin(), listener.pending_accepts.end(), [](const File::PendingAccept& each) {
    return each.from.channel != nullptr;
  });
  if (handed == listener.pending_accepts.end()) {
    if (!pass_next(listener)) return false;  // a later event tries again
  } else {
    ParentChannels::refuse(*handed);
    listener.pending_accepts.erase(handed);
  }
  listener.wanted = false;
  listener.busy_since = 0;
  runtime.reception().give_up(listener);
  return false;
}

// Passes one connection to another owner. False: there is none, or it must wait.
bool SocketProxies::pass_next(File& listener) {
  const std::optional<File::PendingAccept> next = next_of(listener);
  if (!next) return false;
  for (const File::Origin& each : listener.origins) {
    const ParentMessage head{.kind = ParentMessage::Kind::passed, .socket = each.socket};
    std::byte message[sizeof head + sizeof next->names];
    std::memcpy(message, &head, sizeof head);
    std::memcpy(message + sizeof head, &next->names, sizeof next->names);
    if (each.channel->fd < 0 || !give(*next, each.channel->fd, message)) continue;
    if (next->own == nullptr) real().close(next->fd);
    return true;
  }
  put_back(listener, *next);
  return false;
}

// Passes on the queues of closed listeners. True: connections may still arrive.
bool SocketProxies::drain_closed() {
  Runtime& runtime = Runtime::get();
  // A connection may have come since the last poll, as this process may have had no core for longer than kQuietFor.
  if (!draining_.empty()) runtime.poll_all();
  for (size_t i = 0; i < draining_.size();) {
    auto& [listener, until, last] = draining_[i];
    File& file = *listener;
    if (file.in_stack()) {
      while (pass_next(file)) continue;
      const auto queued = runtime.stack().queued(file.socket);
      if (queued.receive + queued.send != 0 || !file.pending_accepts.empty()) until = std::min(runtime.now() + kQuietFor, last);
    }
    if (file.in_stack() && ParentChannels::origin_of(file) != nullptr && runtime.now() < until) {
      ++i;
      continue;
    }
    draining_.erase(draining_.begin() + static_cast<ptrdiff_t>(i));
    std::erase(file.sleepers, &sleeper_);
    if (!file.fds.empty()) {  // this process ends, and its listener must get no more connections
      ParentChannels::send_to_all(file, ParentMessage::Kind::close);
      runtime.close_socket(file);
    }
    let_go(file);
  }
  return !draining_.empty();
}

// Takes a connection that another process passed on. It sets a descriptor that it takes over to -1.
void SocketProxies::take_passed(File& listener, std::span<const std::byte> behind, int& fd) {
  File::PendingAccept left;
  const auto passed = std::count_if(in_flight_.begin(), in_flight_.end(), [&](const InFlight& each) { return each.listener == &listener; });
  if (!listener.listens || behind.size() != sizeof left.names) return;
  if (listener.pending_accepts.size() + static_cast<size_t>(passed) >= kLeftMost) return;
  if (!is_socket(fd, AF_UNIX, SOCK_STREAM)) return;
  std::memcpy(&left.names, behind.data(), sizeof left.names);
  left.fd = std::exchange(fd, -1);
  listener.pending_accepts.push_back(std::move(left));
  Runtime::get().notify_and_signal(listener, true);
}

}  // namespace unet::preload
