// accept_transfer.cc - handles messages of processes that share our sockets, and transfers connections of our listeners to them.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "ipstack/preload/description.h"
#include "ipstack/preload/real.h"
#include "ipstack/preload/shared/socket_proxies.h"

namespace unet::preload {
namespace {

constexpr size_t kChannelsMax = 4096;

// The first pending connection that another process returned or passed on.
auto find_back(File& listener) {
  const auto is_back = [](const File::PendingAccept& each) { return each.from.channel == nullptr; };
  return std::find_if(listener.pending_accepts.begin(), listener.pending_accepts.end(), is_back);
}

}  // namespace

// Takes a pending connection, else the next one of the stack's accept queue. Nothing: there is none.
std::optional<File::PendingAccept> SocketProxies::next_of(File& listener) {
  if (const auto back = find_back(listener); back != listener.pending_accepts.end()) {
    const File::PendingAccept next = std::move(*back);
    listener.pending_accepts.erase(back);
    if (next.own != nullptr) --next.own->holds;
    return next;
  }
  Runtime& runtime = Runtime::get();
  listener.unserved_since = 0;
  const int made = runtime.endpoint_stack().accept_now(listener.socket);
  if (made < 0) return std::nullopt;
  auto* const file = new File(listener.domain, SOCK_STREAM);
  file->kernel = false;
  file->bound = true;
  runtime.table().give_socket(*file, made);
  return File::PendingAccept{.names = names_of(*file), .own = file};
}

// Undoes next_of(), for a connection that was not sent.
void SocketProxies::put_back(File& listener, const File::PendingAccept& next) {
  if (next.own != nullptr) ++next.own->holds;
  listener.pending_accepts.push_front(next);
}

// Sends a connection by a channel, with the descriptor for its bytes. False: it was not sent.
bool SocketProxies::give(const File::PendingAccept& next, int channel, std::span<const std::byte> message) {
  if (next.own == nullptr) return send_on(channel, message.data(), message.size(), next.fd);  // another process carries its bytes
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
  ends[0] = out_of_the_way(ends[0]);
  const bool sent = send_on(channel, message.data(), message.size(), ends[1]);
  real().close(ends[1]);
  if (!sent) return real().close(ends[0]), false;
  add_proxy(*next.own, ends[0], true);
  proxies_.back().handed = true;
  return true;
}

// ---- channels

void SocketProxies::add_channel(int fd, std::span<File* const> files) {
  ChildChannel& channel = channels_.emplace_back(ChildChannel{.number = ++last_channel_, .fd = fd});
  for (File* each : files) {
    ++each->holds;
    channel.held.push_back({each, each->socket});
  }
}

// The process at `channel` forked: its child has the same sockets. Connections that are pairs by now are shared without a channel's help.
void SocketProxies::fork_channel(const ChildChannel& channel, int fd) {
  ChildChannel& child = new_channels_.emplace_back(ChildChannel{.number = ++last_channel_, .fd = fd, .pairs = channel.pairs});
  for (const Held& each : channel.held) {
    const auto is_pair = [&](const SocketProxy& proxy) { return proxy.channel == channel.number && proxy.file == each.file; };
    if (std::any_of(proxies_.begin(), proxies_.end(), is_pair)) {
      child.pairs.push_back(each.socket);
      continue;
    }
    ++each.file->holds;
    child.held.push_back({each.file, each.socket});
  }
}

// False: the other process is gone.
bool SocketProxies::process_channel(ChildChannel& channel) {
  for (int i = 0; i < kMessagesAtOnce; ++i) {
    const std::span<std::byte> memory = message_memory();
    ParentMessage said;
    int fd = -1;
    const ssize_t got = receive_on(channel.fd, memory.data(), memory.size(), fd);
    if (got <= 0) return got == -EAGAIN || got == -EINTR;
    if (got >= static_cast<ssize_t>(sizeof said)) {
      std::memcpy(&said, memory.data(), sizeof said);
      handle(channel, said, memory.subspan(sizeof said, static_cast<size_t>(got) - sizeof said), fd);
    } else if (fd >= 0) {
      real().close(fd);
    }
  }
  return true;
}

// Takes over the descriptor. An invalid message changes nothing.
void SocketProxies::handle(ChildChannel& channel, const ParentMessage& said, std::span<const std::byte> behind, int fd) {
  using Kind = ParentMessage::Kind;
  const auto held = std::find_if(channel.held.begin(), channel.held.end(), [&](const Held& each) { return each.socket == said.socket; });
  const bool joined = held != channel.held.end() && held->file->is_joined(), connection = held != channel.held.end() && !joined;
  if (said.kind == Kind::fork && fd >= 0 && channels_.size() + new_channels_.size() < kChannelsMax) {
    fork_channel(channel, std::exchange(fd, -1));
  } else if ((said.kind == Kind::take || said.kind == Kind::take_unused) && fd >= 0 && connection) {
    add_proxy(*held->file, std::exchange(fd, -1), said.kind == Kind::take);
    proxies_.back().channel = channel.number;
  } else if ((said.kind == Kind::move || said.kind == Kind::owned) && connection) {
    handle_move(channel, *held->file, said, behind, fd);
  } else if (said.kind == Kind::close && held != channel.held.end()) {
    release(channel, static_cast<size_t>(held - channel.held.begin()));
  } else if (said.kind == Kind::want && joined) {
    held->receives = held->wants = true;
    held->told = false;
    watch(*held->file);
    update_claims(*held->file);
  } else if (said.kind == Kind::datagram) {
    if (File* const file = joined ? held->file : closed_there(channel, said.socket)) take_in(*file, behind);
  } else if (said.kind == Kind::passed && fd >= 0 && joined) {
    held->receives = held->wants = held->told = false;
    take_passed(*held->file, behind, fd);
  } else if (said.kind == Kind::end) {
    const bool by_fork = std::find(channel.pairs.begin(), channel.pairs.end(), said.socket) != channel.pairs.end();
    for (SocketProxy& each : proxies_) {
      if (each.file->socket == said.socket && (by_fork || each.channel == channel.number)) each.told_end = true;
    }
  } else if (said.kind == Kind::took) {
    for (SocketProxy& each : proxies_) {
      if (each.channel == channel.number && each.file->socket == said.socket) each.listener = nullptr;
    }
    forget_in_flight(channel, said.socket, true);
  } else if (said.kind == Kind::refused) {
    forget_in_flight(channel, said.socket, false);
  }
  if (fd >= 0) real().close(fd);
}

void SocketProxies::release(ChildChannel& channel, size_t at) {
  File& file = *channel.held[at].file;
  if (!file.is_stream()) channel.closed.push_back(channel.held[at]);
  take_back(channel, &file);
  channel.held.erase(channel.held.begin() + static_cast<ptrdiff_t>(at));
  if (file.is_joined() && served_by(file) == 0) std::erase(file.sleepers, &sleeper_);
  update_claims(file);
  let_go(file);
}

void SocketProxies::end_channel(ChildChannel& channel) {
  take_back(channel, nullptr);
  if (channel.moved_at != 0 && Runtime::get().now() - channel.moved_at > kSecond) moves_left_ = std::min(moves_left_ + 1, kMovesMost);
  while (!channel.held.empty()) release(channel, channel.held.size() - 1);
  real().close(channel.fd);
}

bool SocketProxies::is_held(const File& file) const noexcept {
  return has_held([&](const Held& each) { return each.file == &file; });
}

// Number of other processes that serve the listener or datagram socket.
size_t SocketProxies::served_by(const File& file) const noexcept {
  const auto serves = [&](const Held& each) { return each.file == &file && each.receives; };
  return static_cast<size_t>(std::count_if(channels_.begin(), channels_.end(), [&](const ChildChannel& channel) {
    return std::any_of(channel.held.begin(), channel.held.end(), serves);
  }));
}

// ---- connections that came to a listener, and datagrams (datagrams.cc)

// Wakes the helper when a connection arrives.
void SocketProxies::watch(File& listener) {
  const auto at = std::find(listener.sleepers.begin(), listener.sleepers.end(), &sleeper_);
  if (at == listener.sleepers.end()) listener.sleepers.push_back(&sleeper_);
}

// Sends one connection to each channel that waits, in turn, while there are any. True: call it again, as some may be sent later.
bool SocketProxies::transfer_accepts() {
  bool later = false;
  for (size_t idle = 0; idle < channels_.size(); ++turn_) {
    ChildChannel& channel = channels_[turn_ % channels_.size()];
    bool handed = false;
    for (Held& each : channel.held) {
      if (each.wants && may_hand(*each.file, later)) handed = hand_to(channel, each) || handed;
    }
    idle = handed ? 0 : idle + 1;
  }
  ask_back();
  return later;
}

// If a child or our program waits for a connection, and none is here, asks the other processes for connections at their own listeners. Each
// is asked once, whether or not it has any.
void SocketProxies::ask_back() {
  const auto is_served_here = [](const File& listener) { return listener.receives && !listener.fds.empty(); };
  if (!has_held([&](const Held& each) { return each.file->listens && (each.wants || is_served_here(*each.file)); })) return;
  for (ChildChannel& channel : channels_) {
    for (Held& held : channel.held) {
      if (held.told || !held.file->listens || (Runtime::get().events(*held.file) & EPOLLIN) != 0) continue;
      const auto wants_it = [&](const Held& each) { return each.file == held.file && each.wants; };
      const bool wanted = is_served_here(*held.file) || std::any_of(channels_.begin(), channels_.end(), [&](const ChildChannel& other) {
        return &other != &channel && std::any_of(other.held.begin(), other.held.end(), wants_it);
      });
      const ChildMessage said{.kind = ChildMessage::Kind::wanted, .socket = held.socket};
      if (wanted) held.told = send_on(channel.fd, &said, sizeof said);
    }
  }
}

bool SocketProxies::may_hand(File& file, bool& later) {
  if (find_back(file) != file.pending_accepts.end()) return true;
  Runtime& runtime = Runtime::get();
  if (!file.is_joined() || (runtime.events(file) & EPOLLIN) == 0) {
    file.unserved_since = 0;
    return false;
  }
  if (!file.receives || file.fds.empty()) return true;
  if (file.unserved_since == 0) file.unserved_since = runtime.now();
  const bool due = runtime.now() - file.unserved_since >= kOursFor;
  later = later || !due;
  return due;
}

bool SocketProxies::hand_to(const ChildChannel& channel, Held& held) {
  if (!held.file->is_stream()) return hand_datagrams(channel, held);
  File& listener = *held.file;
  const std::optional<File::PendingAccept> next = next_of(listener);
  if (!next) return false;
  const int number = next->own != nullptr ? next->own->socket : next_in_flight_;
  const ChildMessage message{.socket = held.socket, .connection = number,
                              .local = next->names.local, .remote = next->names.remote};
  if (!give(*next, channel.fd, std::as_bytes(std::span(&message, 1)))) {
    put_back(listener, *next);
    return false;
  }
  held.wants = false;
  if (next->own == nullptr) {
    in_flight_.push_back({.channel = channel.number, .number = number, .listener = &listener, .accept = *next});
    next_in_flight_ = number == INT_MIN ? -2 : number - 1;
    return true;
  }
  proxies_.back().channel = channel.number;
  proxies_.back().listener = &listener;
  return true;
}

// A connection in flight is accepted, or must be sent again.
void SocketProxies::forget_in_flight(const ChildChannel& channel, int number, bool taken) {
  const auto it = std::find_if(in_flight_.begin(), in_flight_.end(), [&](const InFlight& each) {
    return each.channel == channel.number && each.number == number;
  });
  if (it == in_flight_.end()) return;
  if (taken) real().close(it->accept.fd);
  else take_back(*it);
  in_flight_.erase(it);
}

// The process returned or refused a connection, so it may be asked again.
void SocketProxies::forget_told(uint64_t number, const File& listener) noexcept {
  for (ChildChannel& channel : channels_) {
    for (Held& each : channel.held) {
      if (channel.number == number && each.file == &listener) each.told = false;
    }
  }
}

void SocketProxies::take_back(InFlight& in_flight) {
  in_flight.listener->pending_accepts.push_back(in_flight.accept);
  forget_told(in_flight.channel, *in_flight.listener);
  Runtime::get().notify_and_signal(*in_flight.listener, true);
}

// The process that was sent the connection has ended or closed the listener: another may get it.
void SocketProxies::take_back(SocketProxy& proxy) {
  File& listener = *std::exchange(proxy.listener, nullptr);
  ++proxy.file->holds;
  listener.pending_accepts.push_back({.names = names_of(*proxy.file), .own = proxy.file});
  forget_told(proxy.channel, listener);
  Runtime::get().notify_and_signal(listener, true);
}

// Takes back all connections that the channel was sent, or those of one listener.
void SocketProxies::take_back(const ChildChannel& channel, const File* listener) {
  for (size_t i = 0; i < proxies_.size();) {
    SocketProxy& each = proxies_[i];
    if (each.channel != channel.number || each.listener == nullptr || (listener != nullptr && each.listener != listener)) {
      ++i;
      continue;
    }
    take_back(each);
    drop(each);
    proxies_.erase(proxies_.begin() + static_cast<ptrdiff_t>(i));
  }
  std::erase_if(in_flight_, [&](InFlight& each) {
    const bool ends = each.channel == channel.number && (listener == nullptr || each.listener == listener);
    if (ends) take_back(each);
    return ends;
  });
}

}  // namespace unet::preload
