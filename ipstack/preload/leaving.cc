// leaving.cc - a listener that several processes have, of which one closes it, or ends, or is busy elsewhere while another waits: what came
// to that one's own, and it has not accepted, is for those who still have it, or for who waits. On the kernel's sockets they would have one
// queue.
//
// One that is closed takes nothing new from then on. But what the network interface has given it is under way, and so are handshakes that
// peers have begun: so the listener stays for a moment. Each connection goes to whose the listener was, as the end of a pair of which this
// process's helper carries the bytes; that one gives it to its own program, or passes it on to another that serves the listener, as it
// would one of its own. A process that is busy is told when another waits, and gives one.
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "ipstack/preload/calls.h"
#include "ipstack/preload/real.h"
#include "ipstack/preload/socket_proxies.h"

namespace unet::preload {
namespace {

// Longer than the network interface takes to hear that nothing more is wanted, and than what it has given before waits for a core, or for
// the last segment of a handshake by a cookie, of which nobody knows: on a busy machine ten milliseconds were not.
constexpr Nanoseconds kQuietFor = 100 * kMillisecond;
constexpr Nanoseconds kLeavesFor = 3 * kSecond;  // a handshake may need a segment that is sent again
constexpr size_t kLeftMost = 256;                // of a listener: each is a descriptor of whose it is

}  // namespace

bool SocketProxies::has_heirs(const File& file) noexcept {
  return file.listens && file.in_stack() && !file.leaves && ParentChannels::origin_of(file) != nullptr;
}

void SocketProxies::leave(File& listener) {
  Runtime& runtime = Runtime::get();
  listener.leaves = true;
  ++listener.holds;
  if (listener.fds.empty()) EpollSet::forget(listener);
  // Of another's, which has kept them: they come back to it.
  std::erase_if(listener.waiting, [](const File::Waiting& each) {
    if (each.from.channel != nullptr) ParentChannels::refuse(each);
    return each.from.channel != nullptr;
  });
  static_cast<void>(runtime.sockets().stack().set_takes_new(listener.socket, false));
  watch(listener);
  leaving_.push_back({&listener, runtime.now() + kQuietFor, runtime.now() + kLeavesFor});
  runtime.turn();
  while (leave_next(listener)) continue;
}

void SocketProxies::note_want(File& listener) {
  listener.wanted = true;
  sleeper_.wake();
}

// Whose program is in a call does without the helper: that is to look in a while.
void SocketProxies::note_arrival(File& listener) {
  if (!is_waited_for(listener)) sleeper_.wake();
}

// Of a listener of which another process waits for a connection: one that this one's program does not accept is that one's. What comes
// next is others' until the program is back. True: perhaps later.
bool SocketProxies::give_up_connection(File& listener) {
  Runtime& runtime = Runtime::get();
  if (!listener.listens || listener.leaves) return false;
  if ((runtime.events(listener) & EPOLLIN) == 0 || is_waited_for(listener)) {
    listener.busy_since = 0;
    return false;
  }
  if (listener.busy_since == 0) listener.busy_since = runtime.now();
  if (listener.serves && runtime.now() - listener.busy_since < kBusyFor) return true;
  const auto handed = std::find_if(listener.waiting.begin(), listener.waiting.end(), [](const File::Waiting& each) {
    return each.from.channel != nullptr;
  });
  if (handed == listener.waiting.end()) {
    if (!leave_next(listener)) return false;  // and is tried again when something happens
  } else {
    ParentChannels::refuse(*handed);
    listener.waiting.erase(handed);
  }
  listener.wanted = false;
  listener.busy_since = 0;
  runtime.give_up(listener);
  return false;
}

// False: there is nothing, or it must wait.
bool SocketProxies::leave_next(File& listener) {
  const std::optional<File::Waiting> next = next_of(listener);
  if (!next) return false;
  for (const File::Origin& each : listener.origins) {
    const ParentMessage head{.kind = ParentMessage::Kind::left, .socket = each.socket};
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

// True: something may still come.
bool SocketProxies::leave_what_came() {
  Runtime& runtime = Runtime::get();
  for (size_t i = 0; i < leaving_.size();) {
    auto& [listener, until, last] = leaving_[i];
    File& file = *listener;
    if (file.in_stack()) {
      while (leave_next(file)) continue;
      const auto queued = runtime.sockets().stack().queued(file.socket);
      if (queued.receive + queued.send != 0 || !file.waiting.empty()) until = std::min(runtime.now() + kQuietFor, last);
    }
    if (file.in_stack() && ParentChannels::origin_of(file) != nullptr && runtime.now() < until) {
      ++i;
      continue;
    }
    leaving_.erase(leaving_.begin() + static_cast<ptrdiff_t>(i));
    std::erase(file.sleepers, &sleeper_);
    if (!file.fds.empty()) {  // this process ends; nothing more is to come meanwhile
      ParentChannels::say_all(file, ParentMessage::Kind::close);
      runtime.close_socket(file);
    }
    let_go(file);
  }
  return !leaving_.empty();
}

// What another process had of a listener of ours. The descriptor is this process's if it is what it should be, and -1 then.
void SocketProxies::take_left(File& listener, std::span<const std::byte> behind, int& fd) {
  File::Waiting left;
  const auto passed = std::count_if(passed_.begin(), passed_.end(), [&](const Passed& each) { return each.listener == &listener; });
  if (!listener.listens || behind.size() != sizeof left.names) return;
  if (listener.waiting.size() + static_cast<size_t>(passed) >= kLeftMost) return;
  if (!is_socket(fd, AF_UNIX, SOCK_STREAM)) return;
  std::memcpy(&left.names, behind.data(), sizeof left.names);
  left.fd = std::exchange(fd, -1);
  listener.waiting.push_back(std::move(left));
  Runtime::get().tell_owner_too(listener, true);
}

}  // namespace unet::preload
