// relays.cc - carries bytes between connections and socket pairs.
#include "ipstack/preload/relays.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ipstack/preload/calls.h"

namespace unet::preload {
namespace {

constexpr size_t kPiece = 64 * 1024;
constexpr int kPieces = 16;  // of one connection, before another's turn

std::byte* piece() noexcept {
  static std::byte memory[kPiece];  // of who has the host's lock
  return memory;
}

// The descriptor that came with a message; -1: none.
int descriptor_of(msghdr& message) noexcept {
  const cmsghdr* const control = CMSG_FIRSTHDR(&message);
  int fd = -1;
  if (control != nullptr && control->cmsg_level == SOL_SOCKET && control->cmsg_type == SCM_RIGHTS) {
    std::memcpy(&fd, CMSG_DATA(control), sizeof fd);
  }
  return fd;
}

// Nobody has the other end of a pair any longer. shutdown() of both directions looks like it.
bool is_closed(int fd) noexcept {
  pollfd end{.fd = fd, .events = 0, .revents = 0};
  return real().poll(&end, 1, 0) == 1 && (end.revents & POLLHUP) != 0;
}

}  // namespace

void Relays::let_go(File& file) {
  --file.holds;
  Host::get().let_go(file);
}

void Relays::add_link(int fd, std::span<File* const> connections) {
  for (File* each : connections) ++each->holds;
  links_.push_back({++last_link_, fd, {connections.begin(), connections.end()}});
}

void Relays::add_relay(File& file, int fd, bool used) {
  ++file.holds;
  file.sleepers.push_back(&sleeper_);
  real().fcntl(fd, F_SETFL, real().fcntl(fd, F_GETFL) | O_NONBLOCK);
  relays_.push_back({.fd = fd, .file = &file, .used = used});
}

void Relays::append(std::vector<pollfd>& to) const {
  for (const Link& each : links_) to.push_back({.fd = each.fd, .events = POLLIN, .revents = 0});
  for (const Relay& each : relays_) {
    const int in = each.ended_in || (Host::get().events(*each.file) & EPOLLOUT) == 0 ? 0 : POLLIN;
    to.push_back({.fd = each.fd, .events = static_cast<short>(in | (each.wants_out ? POLLOUT : 0)), .revents = 0});
  }
}

void Relays::serve(std::span<const pollfd> ready) {
  const auto hung_up = [&](int fd) {
    const auto at = std::find_if(ready.begin(), ready.end(), [&](const pollfd& each) { return each.fd == fd; });
    return at != ready.end() && (at->revents & (POLLHUP | POLLERR)) != 0;
  };
  sleeper_.woken = false;
  for (size_t i = 0; i < links_.size();) {
    if (serve_link(links_[i])) {
      ++i;
      continue;
    }
    for (File* each : links_[i].held) let_go(*each);
    real().close(links_[i].fd);
    links_.erase(links_.begin() + static_cast<ptrdiff_t>(i));
  }
  for (size_t i = 0; i < relays_.size();) {
    if (carry(relays_[i], hung_up(relays_[i].fd))) {
      ++i;
      continue;
    }
    drop(relays_[i]);
    relays_.erase(relays_.begin() + static_cast<ptrdiff_t>(i));
  }
}

void Relays::drop(Relay& relay) noexcept {
  File& file = *relay.file;
  const auto sleeper = std::find(file.sleepers.begin(), file.sleepers.end(), &sleeper_);  // one: another process may have it, too
  if (sleeper != file.sleepers.end()) file.sleepers.erase(sleeper);
  real().close(relay.fd);
  // The child that had asked for it has closed it.
  const auto link = std::find_if(links_.begin(), links_.end(), [&](const Link& each) { return each.number == relay.link; });
  if (link != links_.end() && std::erase(link->held, &file) != 0) let_go(file);
  let_go(file);
}

// False: the child is gone.
bool Relays::serve_link(Link& link) {
  while (true) {
    LinkMessage said;
    iovec data{.iov_base = &said, .iov_len = sizeof said};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = real().recvmsg(link.fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    const int fd = descriptor_of(message);
    const auto at = std::find_if(link.held.begin(), link.held.end(), [&](const File* each) { return each->socket == said.socket; });
    if (static_cast<size_t>(got) < sizeof said || at == link.held.end()) {
      if (fd >= 0) real().close(fd);
      continue;
    }
    if (said.kind == LinkMessage::Kind::end) {
      for (Relay& each : relays_) each.told_end = each.told_end || (each.link == link.number && each.file == *at);
    } else if (said.kind != LinkMessage::Kind::close && fd >= 0) {
      add_relay(**at, fd, said.kind == LinkMessage::Kind::take);
      relays_.back().link = link.number;
    } else {
      File& file = **at;
      link.held.erase(at);
      let_go(file);
    }
  }
}

// False: nothing is left to be carried.
bool Relays::carry(Relay& relay, bool hung_up) {
  const bool out = carry_out(relay), in = carry_in(relay);
  if (!out || !in) return false;
  if (hung_up && relay.ended_in) return false;
  return !(relay.ended_in && relay.ended_out);
}

// From the connection into the pair. False: the other process is gone.
bool Relays::carry_out(Relay& relay) {
  sockets::Sockets& sockets = Host::get().sockets();
  relay.wants_out = false;
  if (!relay.used && !relay.file->fds.empty()) return true;
  for (int i = 0; i < kPieces && !relay.ended_out; ++i) {
    const int64_t there = result_of(sockets.recv(relay.file->socket, piece(), kPiece, MSG_PEEK | MSG_DONTWAIT));
    if (there == -EAGAIN) return true;
    if (there <= 0) {  // the end, or a reset, of which a pair can say no more
      relay.ended_out = true;
      real().shutdown(relay.fd, SHUT_WR);
      if (there < 0) return false;
      break;
    }
    const ssize_t went = real().send(relay.fd, piece(), static_cast<size_t>(there), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (went < 0) {
      relay.wants_out = errno == EAGAIN;
      return errno == EAGAIN;
    }
    sockets.recv(relay.file->socket, piece(), static_cast<size_t>(went), MSG_DONTWAIT);
  }
  return true;
}

// The other way. False: the connection takes no more.
bool Relays::carry_in(Relay& relay) {
  sockets::Sockets& sockets = Host::get().sockets();
  for (int i = 0; i < kPieces && !relay.ended_in; ++i) {
    if ((Host::get().events(*relay.file) & (EPOLLOUT | EPOLLERR | EPOLLHUP)) == 0) return true;
    const ssize_t there = real().recv(relay.fd, piece(), kPiece, MSG_PEEK | MSG_DONTWAIT);
    if (there < 0) return errno == EAGAIN;
    if (there == 0) {
      // Closed there, which is no end for this process if it still has it; but the link is to be read first.
      if (!relay.told_end && !relay.file->fds.empty() && is_closed(relay.fd)) return !std::exchange(relay.seems_closed, true);
      relay.ended_in = true;
      sockets.shutdown(relay.file->socket, SHUT_WR);
      return true;
    }
    relay.used = true;
    const int64_t went = result_of(sockets.send(relay.file->socket, piece(), static_cast<size_t>(there), MSG_DONTWAIT | MSG_NOSIGNAL));
    if (went < 0) return went == -EAGAIN;
    real().recv(relay.fd, piece(), static_cast<size_t>(went), MSG_DONTWAIT);
  }
  return true;
}

void Relays::forget() noexcept {
  for (const Link& each : links_) real().close(each.fd);
  for (const Relay& each : relays_) real().close(each.fd);
  links_.clear();
  relays_.clear();
}

}  // namespace unet::preload
