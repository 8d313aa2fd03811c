// calls.cc - the calls of BSD sockets, by calls of the stack.
#include "ipstack/sockets/calls.h"

#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "ipstack/sockets/sockaddr.h"

namespace unet::sockets {
namespace {

// The only place that sets errno: all else here has an error as -errno.
template <typename T>
T answer(T result) noexcept {
  if (result >= 0) return result;
  errno = static_cast<int>(-result);
  return -1;
}

bool is_timeout(int level, int name) noexcept { return level == SOL_SOCKET && (name == SO_RCVTIMEO || name == SO_SNDTIMEO); }

}  // namespace

Result<std::unique_ptr<Sockets>> Sockets::open(Context& context, const SocketsOptions& options) {
  auto network = EndpointNetwork::open(context, options.network);
  if (!network) return tl::unexpected(network.error());
  return std::make_unique<Sockets>(std::move(*network), options);
}

// The socket is open.
Sockets::Patience& Sockets::patience(int s) {
  const auto index = static_cast<size_t>(s);
  if (index >= patience_.size()) patience_.resize(index + 1);
  return patience_[index];
}

// Calls `once`, which polls, until it can do what it is to do, or may not wait.
template <typename Try>
int64_t Sockets::block(bool waits, Nanoseconds within, Try once) {
  int64_t result = once();
  if (result != -EAGAIN || !waits) return result;
  const Nanoseconds until = within == 0 ? kForever : now() + within;
  while (result == -EAGAIN && now() < until) {
    stack().run();
    const Nanoseconds next = std::min(until, stack().next_event()), at = now();
    if (next > at && !network().wait(stack(), next == kForever ? kForever : next - at)) return -ENETDOWN;
    set_run_time(now());  // so `once` polls with its room awaited: the message is copied there at once
    result = once();
  }
  return result;
}

int Sockets::socket(int domain, int type, int protocol) {
  if (domain != AF_INET && domain != AF_INET6) return answer(-EAFNOSUPPORT);
  const int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (kind != SOCK_STREAM && kind != SOCK_DGRAM) return answer(-ESOCKTNOSUPPORT);
  if (protocol != 0 && protocol != (kind == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP)) return answer(-EPROTONOSUPPORT);
  const int s = stack().socket(kind == SOCK_STREAM ? Type::stream : Type::datagram, domain == AF_INET6);
  if (s >= 0) patience(s) = {.none = (type & SOCK_NONBLOCK) != 0};
  return answer(s);
}

int Sockets::bind(int s, const sockaddr* address, socklen_t length) {
  Address to;
  if (!is_known(s)) return answer(-EBADF);
  const int wrong = read_sockaddr(address, length, stack().is_ipv6(s), false, to);
  return answer(wrong != 0 ? wrong : stack().bind(s, to));
}

int Sockets::listen(int s, int backlog) { return answer(stack().listen(s, backlog)); }

int Sockets::accept(int s, sockaddr* address, socklen_t* length, int flags) {
  Address peer;
  const auto made = static_cast<int>(block(waits(s, 0), patience_of(s).receive, [&] { return accept_now(s, &peer); }));
  if (made < 0) return answer(made);
  patience(made) = {.none = (flags & SOCK_NONBLOCK) != 0};
  write_sockaddr(peer, stack().is_ipv6(made), address, length);
  return made;
}

int Sockets::connect(int s, const sockaddr* address, socklen_t length) {
  Address to;
  if (!is_known(s)) return answer(-EBADF);
  const int wrong = read_sockaddr(address, length, stack().is_ipv6(s), stack().is_datagram(s), to);
  if (wrong != 0) return answer(wrong == -EAFNOSUPPORT && family_of(address) == AF_UNSPEC ? timed_stack().disconnect(s) : wrong);
  const int result = timed_stack().connect(s, to);
  if ((result != -EINPROGRESS && result != -EALREADY) || !waits(s, 0)) return answer(result);
  const auto done = static_cast<int>(block(true, patience_of(s).send, [&] {
    network().poll_for_answer(timed_stack());
    const int more = stack().connect(s, to);
    if (more == -EISCONN) return 0;  // the stream uses TCP now, and its SYN waits for data
    return more == -EINPROGRESS || more == -EALREADY ? -EAGAIN : more;
  }));
  return answer(done == -EAGAIN ? result : done);  // SO_SNDTIMEO: Linux returns this error, too
}

// A blocking call sends all bytes.
int64_t Sockets::send_all(int s, Bytes data, int flags) {
  size_t sent = 0;
  const bool waits = this->waits(s, flags);
  const int64_t result = block(waits, patience_of(s).send, [&]() -> int64_t {
    const int64_t more = send_now(s, data.subspan(sent), flags);
    if (more < 0) return more;
    sent += static_cast<size_t>(more);
    return sent < data.size() && waits ? -EAGAIN : static_cast<int64_t>(sent);
  });
  if (result >= 0 || sent == 0) return result;
  stack().return_error(s, static_cast<int>(-result));
  return static_cast<int64_t>(sent);
}

// Data that did not leave with the SYN follows on the open connection, if the call may wait for that.
int64_t Sockets::connect_with(int s, Bytes data, int flags, const Address& to) {
  const int64_t begun = timed_stack().connect_with(s, data, to);
  if (!waits(s, flags) || (begun < 0 && begun != -EINPROGRESS && begun != -EALREADY && begun != -EAGAIN)) return begun;
  const auto sent = static_cast<size_t>(std::max<int64_t>(begun, 0));
  if (sent == data.size() && begun >= 0) return begun;
  const int64_t more = send_all(s, data.subspan(sent), flags & ~MSG_FASTOPEN);
  if (more >= 0 || sent == 0) return more < 0 ? more : static_cast<int64_t>(sent) + more;
  stack().return_error(s, static_cast<int>(-more));
  return static_cast<int64_t>(sent);
}

int64_t Sockets::send_to(int s, Bytes data, int flags, const sockaddr* to, socklen_t to_length) {
  const bool datagram = stack().is_datagram(s), fast_open = (flags & MSG_FASTOPEN) != 0 && !datagram;
  if (!fast_open && (to == nullptr || !datagram)) return send_all(s, data, flags);
  Address address;
  if (const int wrong = read_sockaddr(to, to_length, stack().is_ipv6(s), !fast_open, address); wrong != 0) return wrong;
  if (fast_open) return connect_with(s, data, flags, address);
  return block(waits(s, flags), patience_of(s).send, [&] { return send_to_now(s, data, flags, address); });
}

// After a call that has sent something with MSG_ZEROCOPY: its data is copied already.
ssize_t Sockets::answer_sent(int s, int64_t sent, int flags) {
  if (sent > 0 && (flags & MSG_ZEROCOPY) != 0) stack().end_zero_copy(s);
  return answer(sent);
}

ssize_t Sockets::send(int s, const void* data, size_t length, int flags) {
  return answer_sent(s, send_all(s, {static_cast<const std::byte*>(data), length}, flags), flags);
}

ssize_t Sockets::sendto(int s, const void* data, size_t length, int flags, const sockaddr* to, socklen_t to_length) {
  return answer_sent(s, send_to(s, {static_cast<const std::byte*>(data), length}, flags, to, to_length), flags);
}

ssize_t Sockets::recv(int s, void* data, size_t length, int flags) { return recvfrom(s, data, length, flags, nullptr, nullptr); }

ssize_t Sockets::recvfrom(int s, void* data, size_t length, int flags, sockaddr* from, socklen_t* from_length) {
  const MutableBytes room{static_cast<std::byte*>(data), length};
  if (!stack().is_datagram(s)) return answer(receive_stream(s, room, flags));
  Stack::Received what;
  return answer(block(waits(s, flags), patience_of(s).receive, [&] { return receive_from_now(s, room, flags, from, from_length, what); }));
}

int64_t Sockets::receive_stream(int s, MutableBytes room, int flags) {
  const bool peek = (flags & MSG_PEEK) != 0, waits = this->waits(s, flags) && (flags & MSG_OOB) == 0;
  const bool all = (flags & MSG_WAITALL) != 0 && !peek && waits;
  const int how = waits ? flags : flags | MSG_DONTWAIT;
  size_t received = 0;
  const int64_t result = block(waits, patience_of(s).receive, [&]() -> int64_t {
    const auto at_mark = [&] { return received != 0 && stack().is_at_urgent(s); };  // which the call does not pass
    while (true) {  // data that was received directly may not be all that has arrived
      if (at_mark()) return static_cast<int64_t>(received);
      const int64_t more = receive_now(s, room.subspan(received), received == 0 ? how : flags | MSG_DONTWAIT);
      if (more == -EAGAIN && at_mark()) continue;
      if (more <= 0) return more;
      received += static_cast<size_t>(more);
      if (!all || received == room.size()) return static_cast<int64_t>(received);
    }
  });
  if (result > 0 || received == 0) return result;
  if (result < 0) stack().return_error(s, static_cast<int>(-result));
  return static_cast<int64_t>(received);
}

int Sockets::shutdown(int s, int how) { return answer(shut_down(s, how)); }

int Sockets::close(int s) {
  if (const Nanoseconds time = stack().linger_time(s); time != 0) {
    static_cast<void>(shut_down(s, SHUT_WR));
    block(true, time, [&] {
      network().poll_for_answer(timed_stack());
      return is_ending(stack(), s) ? -EAGAIN : 0;
    });
  }
  const int result = timed_stack().close(s);
  if (result == 0) patience(s) = {};
  return answer(result);
}

int Sockets::getsockname(int s, sockaddr* address, socklen_t* length) { return answer(name_of(s, true, address, length)); }

int Sockets::getpeername(int s, sockaddr* address, socklen_t* length) { return answer(name_of(s, false, address, length)); }

int Sockets::set_timeout(int s, int name, const void* value, socklen_t length) {
  timeval time;
  if (!is_known(s)) return -EBADF;
  if (value == nullptr) return -EFAULT;
  if (length < sizeof time) return -EINVAL;
  std::memcpy(&time, value, sizeof time);
  if (time.tv_usec < 0 || time.tv_usec >= 1'000'000 || time.tv_sec < 0) return -EDOM;
  (name == SO_RCVTIMEO ? patience(s).receive : patience(s).send) =
      static_cast<Nanoseconds>(time.tv_sec) * kSecond + static_cast<Nanoseconds>(time.tv_usec) * kMicrosecond;
  return 0;
}

int Sockets::setsockopt(int s, int level, int name, const void* value, socklen_t length) {
  return answer(is_timeout(level, name) ? set_timeout(s, name, value, length) : set_option(s, level, name, value, length));
}

int Sockets::getsockopt(int s, int level, int name, void* value, socklen_t* length) {
  if (!is_timeout(level, name) || !is_known(s)) return answer(get_option(s, level, name, value, length));
  if (value == nullptr || length == nullptr) return answer(-EFAULT);
  const Nanoseconds within = name == SO_RCVTIMEO ? patience_of(s).receive : patience_of(s).send;
  const timeval time{.tv_sec = static_cast<time_t>(within / kSecond), .tv_usec = static_cast<suseconds_t>(within % kSecond / kMicrosecond)};
  *length = std::min<socklen_t>(*length, sizeof time);
  std::memcpy(value, &time, *length);
  return 0;
}

int Sockets::set_nonblocking(int s, bool on) {
  if (!is_known(s)) return answer(-EBADF);
  patience(s).none = on;
  return 0;
}

int Sockets::poll(pollfd* sockets, nfds_t count, int timeout_ms) {
  const Nanoseconds until = timeout_ms < 0 ? kForever : now() + static_cast<Nanoseconds>(timeout_ms) * kMillisecond;
  poll_network();
  while (true) {
    int ready = 0;
    for (nfds_t i = 0; i < count; ++i) {
      pollfd& each = sockets[i];
      each.revents = 0;
      if (each.fd < 0) continue;
      if (is_known(each.fd)) {
        const uint32_t wanted = static_cast<uint16_t>(each.events) | Events::kError | Events::kHangUp;
        uint32_t events = stack().events(each.fd);
        if ((events & Events::kIn) != 0) events |= POLLRDNORM;
        if ((events & Events::kOut) != 0) events |= POLLWRNORM;
        each.revents = static_cast<short>(events & wanted);
      } else {
        each.revents = POLLNVAL;
      }
      if (each.revents != 0) ++ready;
    }
    if (ready != 0 || now() >= until) return ready;
    if (!wait(until)) return answer(-ENETDOWN);
  }
}

}  // namespace unet::sockets
