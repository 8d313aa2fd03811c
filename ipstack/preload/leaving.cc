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
#include "ipstack/preload/relays.h"

namespace unet::preload {
namespace {

// Longer than the network interface takes to hear that nothing more is wanted, and than what it has given before waits for a core, or for
// the last segment of a handshake by a cookie, of which nobody knows: on a busy machine ten milliseconds were not.
constexpr Nanoseconds kQuietFor = 100 * kMillisecond;
constexpr Nanoseconds kLeavesFor = 3 * kSecond;  // a handshake may need a segment that is sent again
constexpr size_t kLeftMost = 256;                // of a listener: each is a descriptor of whose it is

}  // namespace

bool Relays::has_heirs(const File& file) noexcept {
  return file.listens && file.is_ours() && !file.leaves && Ancestors::origin_of(file) != nullptr;
}

void Relays::leave(File& listener) {
  Host& host = Host::get();
  listener.leaves = true;
  ++listener.holds;
  if (listener.fds.empty()) EpollSet::forget(listener);
  // Of another's, which has kept them: they come back to it.
  std::erase_if(listener.waiting, [](const File::Waiting& each) {
    if (each.from.link != nullptr) Ancestors::refuse(each);
    return each.from.link != nullptr;
  });
  static_cast<void>(host.sockets().stack().set_accepts_new_flows(listener.socket, false));
  watch(listener);
  leaving_.push_back({&listener, host.now() + kQuietFor, host.now() + kLeavesFor});
  host.turn();
  while (leave_next(listener)) continue;
}

void Relays::note_want(File& listener) {
  listener.wanted = true;
  sleeper_.wake();
}

// Whose program is in a call does without the helper: that is to look in a while.
void Relays::note_arrival(File& listener) {
  if (!is_waited_for(listener)) sleeper_.wake();
}

// Of a listener of which another process waits for a connection: one that this one's program does not accept is that one's. What comes
// next is others' until the program is back. True: perhaps later.
bool Relays::give_up_connection(File& listener) {
  Host& host = Host::get();
  if (!listener.listens || listener.leaves) return false;
  if ((host.events(listener) & EPOLLIN) == 0 || is_waited_for(listener)) {
    listener.busy_since = 0;
    return false;
  }
  if (listener.busy_since == 0) listener.busy_since = host.now();
  if (listener.serves && host.now() - listener.busy_since < kBusyFor) return true;
  const auto handed = std::find_if(listener.waiting.begin(), listener.waiting.end(), [](const File::Waiting& each) {
    return each.from.link != nullptr;
  });
  if (handed == listener.waiting.end()) {
    if (!leave_next(listener)) return false;  // and is tried again when something happens
  } else {
    Ancestors::refuse(*handed);
    listener.waiting.erase(handed);
  }
  listener.wanted = false;
  listener.busy_since = 0;
  host.give_up(listener);
  return false;
}

// False: there is nothing, or it must wait.
bool Relays::leave_next(File& listener) {
  const std::optional<File::Waiting> next = next_of(listener);
  if (!next) return false;
  for (const File::Origin& each : listener.origins) {
    const LinkMessage head{.kind = LinkMessage::Kind::left, .socket = each.socket};
    std::byte message[sizeof head + sizeof next->names];
    std::memcpy(message, &head, sizeof head);
    std::memcpy(message + sizeof head, &next->names, sizeof next->names);
    if (each.link->fd < 0 || !give(*next, each.link->fd, message)) continue;
    if (next->own == nullptr) real().close(next->fd);
    return true;
  }
  put_back(listener, *next);
  return false;
}

// True: something may still come.
bool Relays::leave_what_came() {
  Host& host = Host::get();
  for (size_t i = 0; i < leaving_.size();) {
    auto& [listener, until, last] = leaving_[i];
    File& file = *listener;
    if (file.is_ours()) {
      while (leave_next(file)) continue;
      const auto queued = host.sockets().stack().queued(file.socket);
      if (queued.receive + queued.send != 0 || !file.waiting.empty()) until = std::min(host.now() + kQuietFor, last);
    }
    if (file.is_ours() && Ancestors::origin_of(file) != nullptr && host.now() < until) {
      ++i;
      continue;
    }
    leaving_.erase(leaving_.begin() + static_cast<ptrdiff_t>(i));
    std::erase(file.sleepers, &sleeper_);
    if (!file.fds.empty()) {  // this process ends; nothing more is to come meanwhile
      Ancestors::say_all(file, LinkMessage::Kind::close);
      host.close_socket(file);
    }
    let_go(file);
  }
  return !leaving_.empty();
}

// What another process had of a listener of ours. The descriptor is this process's if it is what it should be, and -1 then.
void Relays::take_left(File& listener, std::span<const std::byte> behind, int& fd) {
  File::Waiting left;
  const auto passed = std::count_if(passed_.begin(), passed_.end(), [&](const Passed& each) { return each.listener == &listener; });
  if (!listener.listens || behind.size() != sizeof left.names) return;
  if (listener.waiting.size() + static_cast<size_t>(passed) >= kLeftMost) return;
  if (!is_socket(fd, AF_UNIX, SOCK_STREAM)) return;
  std::memcpy(&left.names, behind.data(), sizeof left.names);
  left.fd = std::exchange(fd, -1);
  listener.waiting.push_back(std::move(left));
  Host::get().tell_owner_too(listener, true);
}

}  // namespace unet::preload
