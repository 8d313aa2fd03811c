// socket_proxies.cc - carries bytes between connections and socket pairs; accept_transfer.cc handles the channels' messages.
#include "ipstack/preload/shared/socket_proxies.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "ipstack/preload/calls.h"

namespace unet::preload {
namespace {

constexpr size_t kPiece = 64 * 1024;
constexpr int kPieces = 16;  // most pieces of a connection per turn
// How long bytes of a dead process wait for a peer that takes none.
constexpr Nanoseconds kHangsFor = 60 * kSecond;

std::byte* piece() noexcept {
  static std::byte memory[kPiece];  // under the runtime's lock
  return memory;
}

// Whether no process has the pair's other end any longer. shutdown() of both directions looks the same.
bool is_closed(int fd) noexcept {
  pollfd end{.fd = fd, .events = 0, .revents = 0};
  return real().poll(&end, 1, 0) == 1 && (end.revents & POLLHUP) != 0;
}

}  // namespace

void SocketProxies::let_go(File& file) {
  --file.holds;
  Runtime::get().let_go(file);
}

void SocketProxies::add_proxy(File& file, int fd, bool used) {
  ++file.holds;
  file.sleepers.push_back(&sleeper_);
  real().fcntl(fd, F_SETFL, real().fcntl(fd, F_GETFL) | O_NONBLOCK);
  // Some kernels have urgent data on socket pairs: in line, no byte of it is lost.
  constexpr int kOn = 1;
  real().setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &kOn, sizeof kOn);
  if (file.in_stack()) Runtime::get().endpoint_stack().timed_stack().set_option(file.socket, sockets::Stack::Option::urgent_inline, kOn);
  proxies_.push_back({.fd = fd, .file = &file, .used = used});
}

void SocketProxies::proxy(File& file, int fd, bool used) {
  add_proxy(file, fd, used);
  Runtime::get().poller().kick_helper();
}

void SocketProxies::share(File& file, int fd) {
  File* const all[] = {&file};
  add_channel(fd, all);
  Runtime::get().poller().kick_helper();
}

void SocketProxies::append(std::vector<pollfd>& to) const {
  for (const ChildChannel& each : channels_) to.push_back({.fd = each.fd, .events = POLLIN, .revents = 0});
  for (const SocketProxy& each : proxies_) {
    const int in = each.listener != nullptr || each.ended_in || (Runtime::get().events(*each.file) & EPOLLOUT) == 0 ? 0 : POLLIN;
    // poll() would report the end again and again; room in the connection wakes the helper instead.
    const int fd = each.hung_since != 0 ? -1 : each.fd;
    to.push_back({.fd = fd, .events = static_cast<short>(in | (each.wants_out ? POLLOUT : 0)), .revents = 0});
  }
}

void SocketProxies::append(std::vector<int>& all) const {
  for (const auto& each : channels_) all.push_back(each.fd);
  for (const auto& each : proxies_) all.push_back(each.fd);
  for (const auto& each : in_flight_) all.push_back(each.accept.fd);
  for (const auto& each : moves_) all.push_back(each.fd);
}

bool SocketProxies::process(std::span<const pollfd> ready) {
  const auto hung_up = [&](int fd) {
    const auto at = std::find_if(ready.begin(), ready.end(), [&](const pollfd& each) { return each.fd == fd; });
    return at != ready.end() && (at->revents & (POLLHUP | POLLERR)) != 0;
  };
  sleeper_.woken = false;
  for (size_t i = 0; i < channels_.size();) {
    if (process_channel(channels_[i])) {
      ++i;
      continue;
    }
    end_channel(channels_[i]);
    channels_.erase(channels_.begin() + static_cast<ptrdiff_t>(i));
  }
  std::move(new_channels_.begin(), new_channels_.end(), std::back_inserter(channels_));
  new_channels_.clear();
  for (size_t i = 0; i < proxies_.size();) {
    if (carry(proxies_[i], hung_up(proxies_[i].fd))) {
      ++i;
      continue;
    }
    drop(proxies_[i]);
    proxies_.erase(proxies_.begin() + static_cast<ptrdiff_t>(i));
  }
  const bool moving = process_moves(), given = give_up(), handed = transfer_accepts(), left = drain_closed();
  return moving || given || handed || left;
}

void SocketProxies::drop(SocketProxy& proxy) noexcept {
  File& file = *proxy.file;
  const auto sleeper = std::find(file.sleepers.begin(), file.sleepers.end(), &sleeper_);  // only one: another proxy may have added the same
  if (sleeper != file.sleepers.end()) file.sleepers.erase(sleeper);
  real().close(proxy.fd);
  // The process that asked for the connection has closed it.
  ChildChannel* const channel = find_channel(proxy.channel);
  if (find_held(channel, file) != nullptr) {
    erase_held(*channel, file);
    let_go(file);
  }
  let_go(file);
}

// Carries bytes in both directions. False: both have ended.
bool SocketProxies::carry(SocketProxy& proxy, bool hung_up) {
  if (proxy.listener != nullptr) {
    if (!hung_up) return true;
    take_back(proxy);
    return false;
  }
  hung_up = hung_up || proxy.hung_since != 0;
  const bool out = carry_out(proxy), in = carry_in(proxy);
  if (!out || !in) return false;
  if (hung_up && proxy.ended_in) return false;
  if (proxy.ended_in && proxy.ended_out) return false;
  if (hung_up && proxy.hung_since == 0) proxy.hung_since = Runtime::get().now();
  if (proxy.hung_since == 0 || Runtime::get().now() - proxy.hung_since < kHangsFor) return true;
  Runtime::get().reset_at_close(*proxy.file);  // a FIN would claim that the data is complete
  return false;
}

bool SocketProxies::has_hung() const noexcept {
  return std::any_of(proxies_.begin(), proxies_.end(), [](const SocketProxy& each) { return each.hung_since != 0; });
}

// Carries from the connection into the pair. False: the other process is gone.
bool SocketProxies::carry_out(SocketProxy& proxy) {
  sockets::EndpointStack& stack = Runtime::get().endpoint_stack();
  proxy.wants_out = false;
  if (!proxy.used && !proxy.file->fds.empty()) return true;
  for (int i = 0; i < kPieces && !proxy.ended_out; ++i) {
    const int64_t there = stack.receive_now(proxy.file->socket, {piece(), kPiece}, MSG_PEEK | MSG_DONTWAIT);
    if (there == -EAGAIN) return true;
    if (there <= 0) {  // the end, or a reset, which a pair cannot express
      proxy.ended_out = true;
      real().shutdown(proxy.fd, SHUT_WR);
      if (there < 0) return false;
      break;
    }
    const ssize_t went = Kernel::send(proxy.fd, piece(), static_cast<size_t>(there), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (went < 0) {
      proxy.wants_out = went == -EAGAIN;
      proxy.ended_out = !proxy.wants_out;  // no process reads the pair, but bytes written to it before are still carried
      return true;
    }
    stack.receive_now(proxy.file->socket, {piece(), static_cast<size_t>(went)}, MSG_DONTWAIT);
  }
  return true;
}

// Carries from the pair into the connection. False: the connection takes no more.
bool SocketProxies::carry_in(SocketProxy& proxy) {
  sockets::EndpointStack& stack = Runtime::get().endpoint_stack();
  for (int i = 0; i < kPieces && !proxy.ended_in; ++i) {
    if ((Runtime::get().events(*proxy.file) & (EPOLLOUT | EPOLLERR | EPOLLHUP)) == 0) return true;
    ssize_t there;
    do there = Kernel::recv(proxy.fd, piece(), kPiece, MSG_PEEK | MSG_DONTWAIT);
    while (there == -ECONNRESET);  // a pair closed with unread data reports this once
    if (there < 0) return there == -EAGAIN;
    if (there == 0) {
      // Closed at the other side, which ends nothing if this process still has the connection; but the channel's messages come first.
      if (!proxy.told_end && !proxy.file->fds.empty() && is_closed(proxy.fd)) return !std::exchange(proxy.seems_closed, true);
      proxy.ended_in = true;
      stack.shut_down(proxy.file->socket, SHUT_WR);
      return true;
    }
    proxy.used = true;
    if (proxy.hung_since != 0) proxy.hung_since = Runtime::get().now();
    const int64_t went = stack.send_now(proxy.file->socket, {piece(), static_cast<size_t>(there)}, 0);
    if (went < 0) return went == -EAGAIN;
    real().recv(proxy.fd, piece(), static_cast<size_t>(went), MSG_DONTWAIT);
  }
  return true;
}

// Whether this process holds a socket for others that no process has opened yet, or that still has arrivals.
bool SocketProxies::has_unserved() const noexcept {
  const auto waits = [&](const Held& held) {
    if (!held.file->is_joined() || held.file->receives || !held.file->bound) return false;
    return (Runtime::get().events(*held.file) & EPOLLIN) != 0 || served_by(*held.file) == 0;
  };
  return has_held(waits);
}

bool SocketProxies::is_needed(bool unserved) const noexcept {
  const auto is_connection = [](const Held& held) { return !held.file->is_joined(); };
  const auto is_left = [](const File::PendingAccept& each) { return each.own == nullptr && each.from.channel == nullptr; };
  const auto has_left = [&](const Held& held) {
    return std::any_of(held.file->pending_accepts.begin(), held.file->pending_accepts.end(), is_left);
  };
  return !proxies_.empty() || !in_flight_.empty() || has_held(has_left) || (unserved && has_unserved()) || has_held(is_connection);
}

bool SocketProxies::is_awaited() const noexcept {
  const auto ends = [](const SocketProxy& each) { return each.handed || is_closed(each.fd); };
  return has_unserved() || std::any_of(proxies_.begin(), proxies_.end(), ends);
}

void SocketProxies::hold_alone(std::span<File* const> files) const noexcept {
  for (File* const file : files) {
    if (file == nullptr) continue;
    std::erase_if(file->sleepers, [&](const Sleeper* each) { return each != &sleeper_; });
    file->holds = 0;
  }
  for (const ChildChannel& channel : channels_) {
    for (const Held& each : channel.held) ++each.file->holds;
  }
  for (const SocketProxy& each : proxies_) ++each.file->holds;
  for (const DrainingListener& each : draining_) ++each.file->holds;
  for (const Move& each : moves_) ++each.file->holds;
  for (const File* const file : files) {
    if (file == nullptr) continue;
    for (const File::PendingAccept& each : file->pending_accepts) {
      if (each.own != nullptr) ++each.own->holds;
    }
  }
}

void SocketProxies::forget() noexcept {
  const auto release = [&](File& file) {
    --file.holds;
    std::erase(file.sleepers, &sleeper_);
  };
  for (const ChildChannel& channel : channels_) {
    for (const Held& each : channel.held) release(*each.file);
  }
  for (const SocketProxy& each : proxies_) release(*each.file);
  for (const DrainingListener& each : draining_) release(*each.file);
  for (const Move& each : moves_) release(*each.file);
  for (const ChildChannel& each : channels_) real().close(each.fd);
  for (const SocketProxy& each : proxies_) real().close(each.fd);
  for (const InFlight& each : in_flight_) real().close(each.accept.fd);
  for (const Move& each : moves_) real().close(each.fd);
  channels_.clear();
  proxies_.clear();
  draining_.clear();
  moves_.clear();
  in_flight_.clear();
}

}  // namespace unet::preload
