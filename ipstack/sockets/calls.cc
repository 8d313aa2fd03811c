// calls.cc - the calls of BSD sockets, by calls of the stack.
#include "ipstack/sockets/calls.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "ipstack/sockets/sockaddr.h"

namespace unet::sockets {
namespace {

// Linux's names, by tcp::Algorithm.
constexpr std::array<std::string_view, 3> kCongestionNames{"reno", "cubic", "bbr"};
constexpr Nanoseconds kForever = ~Nanoseconds{0};
constexpr Nanoseconds kRunEvery = 50 * kMicrosecond;  // the stack runs so often even if calls never wait

int64_t answer(int64_t result) noexcept {
  if (result >= 0) return result;
  errno = static_cast<int>(-result);
  return -1;
}
int answer(int result) noexcept { return static_cast<int>(answer(int64_t{result})); }

// Reads an address. False: errno is set.
bool read_address(const sockaddr* address, socklen_t length, bool six, bool either, Address& into) noexcept {
  errno = read_sockaddr(address, length, six, either, into);
  return errno == 0;
}

// While it exists, the stack knows that a call waits for arrivals at the socket; -1: at none.
struct Awaiting {
  Stack& stack;
  int socket;
  void into(MutableBytes room) const noexcept { stack.await(socket, room); }
  ~Awaiting() { stack.await(-1, {}); }
};

struct OptionName {
  int level, name;
  Stack::Option option;
};
// Options with an int that Stack::set_option() takes unchanged.
constexpr OptionName kOptions[] = {
    {SOL_SOCKET, SO_ERROR, Stack::Option::error},
    {SOL_SOCKET, SO_ACCEPTCONN, Stack::Option::accepts},
    {SOL_SOCKET, SO_REUSEADDR, Stack::Option::reuse_address},
    {SOL_SOCKET, SO_REUSEPORT, Stack::Option::reuse_port},
    {SOL_SOCKET, SO_SNDBUF, Stack::Option::send_buffer},
    {SOL_SOCKET, SO_RCVBUF, Stack::Option::receive_buffer},
    {SOL_SOCKET, SO_PEEK_OFF, Stack::Option::peek_offset},
    {SOL_SOCKET, SO_KEEPALIVE, Stack::Option::keep_alive},
    {SOL_SOCKET, SO_BROADCAST, Stack::Option::broadcast},
    {SOL_SOCKET, SO_ZEROCOPY, Stack::Option::zero_copy},
    {SOL_SOCKET, SO_OOBINLINE, Stack::Option::urgent_inline},
    {IPPROTO_TCP, TCP_NODELAY, Stack::Option::no_delay},
    {IPPROTO_TCP, TCP_CORK, Stack::Option::cork},
    {IPPROTO_TCP, TCP_MAXSEG, Stack::Option::max_segment},
    {IPPROTO_TCP, TCP_KEEPIDLE, Stack::Option::keep_idle},
    {IPPROTO_TCP, TCP_KEEPINTVL, Stack::Option::keep_interval},
    {IPPROTO_TCP, TCP_KEEPCNT, Stack::Option::keep_count},
    {IPPROTO_TCP, TCP_USER_TIMEOUT, Stack::Option::user_timeout},
    {IPPROTO_TCP, TCP_FASTOPEN, Stack::Option::fast_open},
    {IPPROTO_TCP, TCP_FASTOPEN_CONNECT, Stack::Option::fast_open_connect},
    {IPPROTO_IP, IP_TTL, Stack::Option::hop_limit},
    {IPPROTO_IP, IP_TOS, Stack::Option::traffic_class},
    {IPPROTO_IP, IP_MTU_DISCOVER, Stack::Option::path_discovery4},
    {IPPROTO_IP, IP_MTU, Stack::Option::path_mtu},
    {IPPROTO_IP, IP_RECVERR, Stack::Option::queue_errors4},
    {IPPROTO_IP, IP_MULTICAST_TTL, Stack::Option::group_hops},
    {IPPROTO_IP, IP_MULTICAST_LOOP, Stack::Option::group_loop},
    {IPPROTO_IPV6, IPV6_MULTICAST_HOPS, Stack::Option::group_hops},
    {IPPROTO_IPV6, IPV6_MULTICAST_LOOP, Stack::Option::group_loop},
    {IPPROTO_IPV6, IPV6_UNICAST_HOPS, Stack::Option::hop_limit},
    {IPPROTO_IPV6, IPV6_TCLASS, Stack::Option::traffic_class},
    {IPPROTO_IPV6, IPV6_MTU_DISCOVER, Stack::Option::path_discovery6},
    {IPPROTO_IPV6, IPV6_MTU, Stack::Option::path_mtu},
    {IPPROTO_IPV6, IPV6_RECVERR, Stack::Option::queue_errors6},
    {IPPROTO_IPV6, IPV6_V6ONLY, Stack::Option::only_ipv6},
    {IPPROTO_UDP, UDP_CORK, Stack::Option::cork},
    {IPPROTO_UDP, UDP_SEGMENT, Stack::Option::udp_segment},
    {IPPROTO_UDP, UDP_GRO, Stack::Option::udp_gro},
};

// The option of a stream or datagram socket. A stream has no options of UDP, a datagram socket none of TCP.
const OptionName* find_option(int level, int name, bool datagram) noexcept {
  if (level == (datagram ? IPPROTO_TCP : IPPROTO_UDP)) return nullptr;
  const auto at = std::find_if(std::begin(kOptions), std::end(kOptions),
                               [&](const OptionName& each) { return each.level == level && each.name == name; });
  return at == std::end(kOptions) ? nullptr : at;
}

}  // namespace

Result<std::unique_ptr<Sockets>> Sockets::open(Context& context, const SocketsOptions& options) {
  auto network = EndpointNetwork::open(context, options.network);
  if (!network) return tl::unexpected(network.error());
  return std::unique_ptr<Sockets>(new Sockets(std::move(*network), options));
}

Sockets::Sockets(std::unique_ptr<EndpointNetwork> network, const SocketsOptions& options)
    : options_(options), network_(std::move(network)), stack_(std::make_unique<Stack>(*network_, options.stack, clock_.now())) {}

// Frees nothing, as that would copy pages that the child shares with its parent.
void Sockets::leave(std::unique_ptr<Sockets> sockets) { static_cast<void>(sockets->stack_.release()); }

void Sockets::forget(std::unique_ptr<Sockets> sockets) {
  sockets->stack_->forget();
  sockets->stack_.reset();
}

Sockets::~Sockets() {
  if (stack_ == nullptr) return;
  std::vector<int> open;
  stack_->for_each([&](int s, const Socket& socket) {
    if (socket.is_owned()) open.push_back(s);
  });
  for (const int s : open) stack_->close(s);
  await_ends(options_.linger);
}

bool Sockets::await_ends(Nanoseconds within) {
  const Nanoseconds until = clock_.now() + within;
  // Runs the stack before the first sleep, as that may finish the streams.
  for (poll_network(); !stack_->idle() && clock_.now() < until && wait(until); poll_network()) {}
  return stack_->idle();
}

// Initializes the state of a new socket's number, which older sockets may have used.
void Sockets::begin(int s, bool nonblocking) {
  const auto index = static_cast<size_t>(s);
  if (index >= nonblocking_.size()) nonblocking_.resize(index + 1);
  nonblocking_[index] = nonblocking;
  within_.erase(s);
}

Sockets::Within Sockets::within(int s) const noexcept {
  if (within_.empty()) return {};
  const auto at = within_.find(s);
  return at == within_.end() || !is_known(s) ? Within{} : at->second;
}

uint32_t Sockets::poll_network(uint32_t local_peers) {
  stack_->set_time(clock_.now());
  const uint32_t count = network_->poll(*stack_, local_peers);
  stack_->run();
  ran_at_ = clock_.now();
  return count;
}

uint32_t Sockets::due_intake(bool late) noexcept {
  constexpr uint64_t kMore = 4, kMost = EndpointNetwork::kPollMost;
  const uint64_t all = stack_->datagrams().read(), reads = all - std::exchange(reads_seen_, all);
  return static_cast<uint32_t>(late || reads == 0 ? kMost : std::min(reads + kMore, kMost));
}

// Runs the stack and waits until something may have changed. False: the network interface is gone.
bool Sockets::wait(Nanoseconds until) {
  if (poll_network() != 0) return true;
  const Nanoseconds now = clock_.now();
  const Nanoseconds next = std::min(until, stack_->next_event());
  return next <= now || network_->wait(*stack_, next == kForever ? kForever : next - now);
}

// Calls `attempt` until it does not return -EAGAIN, or the call may not wait.
template <typename Try>
int64_t Sockets::block(bool waits, Nanoseconds within, Try attempt) {
  const Nanoseconds began = clock_.now();  // reading the clock costs as much as the rest of a call without data
  stack_->set_time(began);
  if (began - ran_at_ > kRunEvery) poll_network(due_intake(began - ran_at_ > 2 * kRunEvery));
  int64_t result = attempt();
  if (result != -EAGAIN) return answer(result);
  // Takes in arrivals, also for a non-blocking call: they may answer it. The application's next data then carries the acknowledgement.
  if (network_->poll_for_answer(*stack_) != 0 || waits) result = attempt();
  const Nanoseconds until = within == 0 ? kForever : clock_.now() + within;
  while (result == -EAGAIN && waits && clock_.now() < until) {
    stack_->run();
    const Nanoseconds next = std::min(until, stack_->next_event());
    const Nanoseconds now = clock_.now();
    if (next > now && !network_->wait(*stack_, next == kForever ? kForever : next - now)) {
      result = -ENETDOWN;
      break;
    }
    stack_->set_time(clock_.now());
    network_->poll_for_answer(*stack_);
    result = attempt();
  }
  if (result == -EAGAIN && stack_->is_due()) stack_->run();
  return answer(result);
}

int Sockets::socket(int domain, int type, int protocol) {
  if (domain != AF_INET && domain != AF_INET6) return answer(-EAFNOSUPPORT);
  const int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (kind != SOCK_STREAM && kind != SOCK_DGRAM) return answer(-ESOCKTNOSUPPORT);
  if (protocol != 0 && protocol != (kind == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP)) return answer(-EPROTONOSUPPORT);
  const int s = stack_->socket(kind == SOCK_STREAM ? Type::stream : Type::datagram, domain == AF_INET6);
  if (s >= 0) begin(s, (type & SOCK_NONBLOCK) != 0);
  return answer(s);
}

int Sockets::bind(int s, const sockaddr* address, socklen_t length) {
  Address to;
  if (!is_known(s)) return answer(-EBADF);
  return read_address(address, length, stack_->is_ipv6(s), false, to) ? answer(stack_->bind(s, to)) : -1;
}

int Sockets::listen(int s, int backlog) { return answer(stack_->listen(s, backlog)); }

int Sockets::accept(int s, sockaddr* address, socklen_t* length, int flags) {
  Address peer;
  const auto made = static_cast<int>(block(!is_nonblocking(s), within(s).receive, [&]() -> int64_t { return stack_->accept(s, &peer); }));
  if (made < 0) return -1;
  begin(made, (flags & SOCK_NONBLOCK) != 0);
  write_sockaddr(peer, stack_->is_ipv6(made), address, length);
  return made;
}

int Sockets::connect(int s, const sockaddr* address, socklen_t length) {
  Address to;
  if (!is_known(s)) return answer(-EBADF);
  stack_->set_time(clock_.now());
  if (!read_address(address, length, stack_->is_ipv6(s), stack_->is_datagram(s), to)) {
    return errno == EAFNOSUPPORT && family_of(address) == AF_UNSPEC ? answer(stack_->disconnect(s)) : -1;
  }
  const int result = stack_->connect(s, to);
  if (result != -EINPROGRESS && result != -EALREADY) return answer(result);
  if (is_nonblocking(s)) return answer(result);
  const int64_t done = block(true, within(s).send, [&]() -> int64_t {
    const int more = stack_->connect(s, to);
    if (more == -EISCONN) return 0;  // the stream uses TCP now, and its SYN waits for data
    return more == -EINPROGRESS || more == -EALREADY ? -EAGAIN : more;
  });
  if (done < 0 && errno == EAGAIN) errno = -result;  // SO_SNDTIMEO: Linux returns this error, too
  return static_cast<int>(done);
}

// Linux refuses MSG_OOB for datagrams of IPv4, and ignores it for those of IPv6.
bool Sockets::is_refused_as_urgent(int s, int flags) const noexcept {
  return (flags & MSG_OOB) != 0 && stack_->is_datagram(s) && !stack_->is_ipv6(s);
}

ssize_t Sockets::send(int s, const void* data, size_t length, int flags) {
  if (is_refused_as_urgent(s, flags)) return answer(-EOPNOTSUPP);
  const Bytes bytes{static_cast<const std::byte*>(data), length};
  size_t sent = 0;
  const bool waits = (flags & MSG_DONTWAIT) == 0 && !is_nonblocking(s);
  // A blocking call sends all bytes.
  const ssize_t result = block(waits, within(s).send, [&]() -> int64_t {
    const int64_t more = stack_->send(s, bytes.subspan(sent), (flags & MSG_MORE) != 0, (flags & MSG_OOB) != 0);
    if (more < 0) return more;
    sent += static_cast<size_t>(more);
    return sent < length && waits ? -EAGAIN : static_cast<int64_t>(sent);
  });
  if (result >= 0 || sent == 0) return end_zero_copy(s, result, flags);
  stack_->return_error(s, errno);
  return end_zero_copy(s, static_cast<ssize_t>(sent), flags);
}

// Completes a call with MSG_ZEROCOPY at once, as its data is copied already.
ssize_t Sockets::end_zero_copy(int s, ssize_t sent, int flags) {
  if (sent > 0 && (flags & MSG_ZEROCOPY) != 0) stack_->end_zero_copy(s);
  return sent;
}

ssize_t Sockets::recv(int s, void* data, size_t length, int flags) { return recvfrom(s, data, length, flags, nullptr, nullptr); }

ssize_t Sockets::sendto(int s, const void* data, size_t length, int flags, const sockaddr* to, socklen_t to_length) {
  const bool fast_open = (flags & MSG_FASTOPEN) != 0 && !stack_->is_datagram(s);
  if (!fast_open && (to == nullptr || !stack_->is_datagram(s))) return send(s, data, length, flags);
  Address address;
  if (!read_address(to, to_length, stack_->is_ipv6(s), !fast_open, address)) return -1;
  if (is_refused_as_urgent(s, flags)) return answer(-EOPNOTSUPP);
  if (fast_open) {
    const ssize_t sent = connect_with(s, {static_cast<const std::byte*>(data), length}, flags & ~MSG_ZEROCOPY, address);
    return end_zero_copy(s, sent, flags);
  }
  const Stack::Sending how{.more = (flags & MSG_MORE) != 0};
  const ssize_t sent = block((flags & MSG_DONTWAIT) == 0 && !is_nonblocking(s), within(s).send,
                             [&] { return stack_->send_to(s, {static_cast<const std::byte*>(data), length}, address, how); });
  return end_zero_copy(s, sent, flags);
}

ssize_t Sockets::sendto(int s, const void* data, size_t length, int flags, const sockaddr* to, socklen_t to_length,
                        Stack::Sending how) {
  Address address;
  if (!stack_->is_datagram(s)) return answer(is_known(s) ? -EOPNOTSUPP : -EBADF);
  if (is_refused_as_urgent(s, flags)) return answer(-EOPNOTSUPP);
  if (to != nullptr && !read_address(to, to_length, stack_->is_ipv6(s), true, address)) return -1;
  if (to == nullptr && stack_->remote_address(s, address) != 0) return answer(-EDESTADDRREQ);
  how.more = how.more || (flags & MSG_MORE) != 0;
  const ssize_t sent = block((flags & MSG_DONTWAIT) == 0 && !is_nonblocking(s), within(s).send,
                             [&] { return stack_->send_to(s, {static_cast<const std::byte*>(data), length}, address, how); });
  return end_zero_copy(s, sent, flags);
}

// Data that did not leave with the SYN follows on the open connection, if the call may wait for that.
ssize_t Sockets::connect_with(int s, Bytes data, int flags, const Address& to) {
  stack_->set_time(clock_.now());
  const int64_t begun = stack_->connect_with(s, data, to);
  const bool waits = (flags & MSG_DONTWAIT) == 0 && !is_nonblocking(s);
  if (!waits || (begun < 0 && begun != -EINPROGRESS && begun != -EALREADY && begun != -EAGAIN)) return answer(begun);
  const size_t sent = begun > 0 ? static_cast<size_t>(begun) : 0;
  if (sent == data.size() && begun >= 0) return begun;
  const ssize_t more = send(s, data.data() + sent, data.size() - sent, flags & ~MSG_FASTOPEN);
  if (more >= 0 || sent == 0) return more < 0 ? more : static_cast<ssize_t>(sent) + more;
  stack_->return_error(s, errno);
  return static_cast<ssize_t>(sent);
}

ssize_t Sockets::recvfrom(int s, void* data, size_t length, int flags, sockaddr* from, socklen_t* from_length, Stack::Received* what) {
  const MutableBytes room{static_cast<std::byte*>(data), length};
  const bool peek = (flags & MSG_PEEK) != 0, waits = (flags & MSG_DONTWAIT) == 0 && !is_nonblocking(s);
  if ((flags & MSG_OOB) != 0 && !stack_->is_datagram(s)) {  // reading urgent data never waits
    poll_network();
    return answer(stack_->receive_urgent(s, room, peek));
  }
  const Awaiting awaiting{*stack_, peek ? -1 : s};
  if (stack_->is_datagram(s)) {
    Address address;
    Stack::Received known;
    Stack::Received& told = what != nullptr ? *what : known;
    const ssize_t got = block(waits, within(s).receive, [&] {
      const int64_t result = stack_->receive_from(s, room, &address, peek, &told);
      if (result == -EAGAIN) awaiting.into(room);
      return result;
    });
    if (got < 0) return got;
    write_sockaddr(address, stack_->is_ipv6(s), from, from_length);
    return (flags & MSG_TRUNC) != 0 ? static_cast<ssize_t>(told.whole) : got;
  }
  size_t received = 0;
  const bool all = (flags & MSG_WAITALL) != 0 && !peek && waits;
  const bool marked = stack_->is_at_urgent(s);
  const ssize_t result = block(waits, within(s).receive, [&]() -> int64_t {
    while (true) {  // data that was received directly may not be all that has arrived
      const bool at_urgent = !peek && stack_->is_at_urgent(s);
      if (at_urgent && received != 0) return static_cast<int64_t>(received);
      if (at_urgent && !marked && !waits) return -EAGAIN;  // a handler of SIGURG may want it before it is passed
      const int64_t more = stack_->receive(s, room.subspan(received), peek);
      if (more == -EAGAIN) awaiting.into(room.subspan(received));
      if (more <= 0) return more;
      received += static_cast<size_t>(more);
      if (!all || received == length) return static_cast<int64_t>(received);
    }
  });
  if (result > 0 || received == 0) return result;
  if (result < 0) stack_->return_error(s, errno);
  return static_cast<ssize_t>(received);
}

int Sockets::shutdown(int s, int how) {
  if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return answer(-EINVAL);
  stack_->set_time(clock_.now());
  return answer(stack_->shutdown(s, how == SHUT_RD ? Stack::How::read : how == SHUT_WR ? Stack::How::write : Stack::How::both));
}

int Sockets::close(int s) {
  if (const Nanoseconds time = stack_->linger_time(s); time != 0) {
    stack_->set_time(clock_.now());
    static_cast<void>(stack_->shutdown(s, Stack::How::write));
    block(true, time, [&]() -> int64_t { return is_ending(*stack_, s) ? -EAGAIN : 0; });
  }
  return drop(s);
}

int Sockets::drop(int s) {
  stack_->set_time(clock_.now());
  within_.erase(s);
  return answer(stack_->close(s));
}

int Sockets::getsockname(int s, sockaddr* address, socklen_t* length) {
  Address own;
  const int result = stack_->local_address(s, own);
  if (result == 0) write_sockaddr(own, stack_->is_ipv6(s), address, length);
  return answer(result);
}

int Sockets::getpeername(int s, sockaddr* address, socklen_t* length) {
  Address peer;
  const int result = stack_->remote_address(s, peer);
  if (result == 0) write_sockaddr(peer, stack_->is_ipv6(s), address, length);
  return answer(result);
}

// ---- options

int Sockets::setsockopt(int s, int level, int name, const void* value, socklen_t length) {
  if (!is_known(s)) return answer(-EBADF);
  if (value == nullptr) return answer(-EFAULT);
  if (level == SOL_SOCKET && (name == SO_RCVTIMEO || name == SO_SNDTIMEO)) {
    timeval time;
    if (length < sizeof time) return answer(-EINVAL);
    std::memcpy(&time, value, sizeof time);
    if (time.tv_usec < 0 || time.tv_usec >= 1'000'000 || time.tv_sec < 0) return answer(-EDOM);
    const Nanoseconds within = static_cast<Nanoseconds>(time.tv_sec) * kSecond + static_cast<Nanoseconds>(time.tv_usec) * kMicrosecond;
    Within& both = within_[s];
    (name == SO_RCVTIMEO ? both.receive : both.send) = within;
    if (both.receive == 0 && both.send == 0) within_.erase(s);
    return 0;
  }
  if (level == SOL_SOCKET && name == SO_LINGER) {
    linger value_;
    if (length < sizeof value_) return answer(-EINVAL);
    std::memcpy(&value_, value, sizeof value_);
    return answer(stack_->set_option(s, Stack::Option::linger, value_.l_onoff == 0 ? -1 : value_.l_linger));
  }
  if (level == SOL_SOCKET && name == SO_MAX_PACING_RATE) {
    uint64_t rate = 0;  // Linux takes 8 bytes or, in its older form, 4; all ones: unlimited
    if (length < sizeof(uint32_t)) return answer(-EINVAL);
    const bool wide = length >= sizeof rate;
    std::memcpy(&rate, value, wide ? sizeof rate : sizeof(uint32_t));
    const uint64_t any = wide ? ~uint64_t{0} : ~uint32_t{0};
    const auto most = static_cast<int64_t>(std::min<uint64_t>(std::max<uint64_t>(rate, 1), INT64_MAX));
    return answer(stack_->set_option(s, Stack::Option::max_pacing_rate, rate == any ? 0 : most));
  }
  if (level == IPPROTO_TCP && name == TCP_CONGESTION) {
    const std::string_view text(static_cast<const char*>(value), ::strnlen(static_cast<const char*>(value), length));
    for (size_t i = 0; i < kCongestionNames.size(); ++i) {
      if (text != kCongestionNames[i]) continue;
      stack_->set_time(clock_.now());
      return answer(stack_->set_option(s, Stack::Option::congestion, static_cast<int64_t>(i)));
    }
    return answer(-ENOENT);
  }
  if (const std::optional<int> result = set_group(s, level, name, value, length)) return answer(*result);
  const OptionName* const option = find_option(level, name, stack_->is_datagram(s));
  if (option == nullptr) return answer(-ENOPROTOOPT);
  int number;
  if (level == IPPROTO_IP && length == 1) {  // Linux accepts an unsigned char here, for programs from other systems
    number = *static_cast<const uint8_t*>(value);
  } else {
    if (length < sizeof number) return answer(-EINVAL);
    std::memcpy(&number, value, sizeof number);
  }
  if (level == IPPROTO_IP && name == IP_TOS) number &= 0xFF;  // Linux ignores the other bits
  stack_->set_time(clock_.now());
  return answer(stack_->set_option(s, option->option, number));
}

int Sockets::getsockopt(int s, int level, int name, void* value, socklen_t* length) {
  if (!is_known(s)) return answer(-EBADF);
  if (value == nullptr || length == nullptr) return answer(-EFAULT);
  const auto put = [&](const void* from, socklen_t size) {
    std::memcpy(value, from, std::min(*length, size));
    *length = std::min(*length, size);
    return 0;
  };
  if (level == SOL_SOCKET && (name == SO_RCVTIMEO || name == SO_SNDTIMEO)) {
    const Nanoseconds within = name == SO_RCVTIMEO ? this->within(s).receive : this->within(s).send;
    const timeval time{.tv_sec = static_cast<time_t>(within / kSecond),
                       .tv_usec = static_cast<suseconds_t>(within % kSecond / kMicrosecond)};
    return put(&time, sizeof time);
  }
  if (level == SOL_SOCKET && name == SO_LINGER) {
    const int64_t seconds = stack_->option(s, Stack::Option::linger);
    const linger value_{.l_onoff = seconds >= 0, .l_linger = static_cast<int>(std::max<int64_t>(seconds, 0))};
    return put(&value_, sizeof value_);
  }
  if (level == SOL_SOCKET && name == SO_MAX_PACING_RATE) {
    const int64_t most = stack_->option(s, Stack::Option::max_pacing_rate);
    if (most < 0) return answer(static_cast<int>(most));
    const uint64_t rate = most == 0 ? ~uint64_t{0} : static_cast<uint64_t>(most);
    const auto narrow = static_cast<uint32_t>(std::min<uint64_t>(rate, ~uint32_t{0}));
    return *length >= sizeof rate ? put(&rate, sizeof rate) : put(&narrow, sizeof narrow);
  }
  if (level == IPPROTO_TCP && name == TCP_CONGESTION) {
    const int64_t which = stack_->option(s, Stack::Option::congestion);
    if (which < 0) return answer(static_cast<int>(which));
    const std::string_view text = kCongestionNames[static_cast<size_t>(which)];
    std::array<char, 16> padded{};  // Linux returns names padded to 16 bytes
    std::copy(text.begin(), text.end(), padded.begin());
    return put(padded.data(), padded.size());
  }
  if (level == IPPROTO_TCP && name == TCP_INFO) {
    if (stack_->is_datagram(s)) return answer(-ENOPROTOOPT);
    stack_->set_time(clock_.now());
    Address peer;
    const bool ipv6 = stack_->remote_address(s, peer) == 0 && !peer.host.is_ipv4();
    *length = write_tcp_info(stack_->info(s), ipv6, value, *length);
    return 0;
  }
  if (level == IPPROTO_TCP && name == TCP_CC_INFO) {
    if (stack_->is_datagram(s)) return answer(-ENOPROTOOPT);
    stack_->set_time(clock_.now());
    *length = write_congestion_info(stack_->info(s), value, *length);
    return 0;
  }
  if (level == SOL_SOCKET && name == SO_TYPE) {
    const int type = stack_->is_datagram(s) ? SOCK_DGRAM : SOCK_STREAM;
    return put(&type, sizeof type);
  }
  if (level == SOL_SOCKET && (name == SO_DOMAIN || name == SO_PROTOCOL)) {
    const int family = stack_->is_ipv6(s) ? AF_INET6 : AF_INET, protocol = stack_->is_datagram(s) ? IPPROTO_UDP : IPPROTO_TCP;
    return put(name == SO_DOMAIN ? &family : &protocol, sizeof family);
  }
  const OptionName* const option = find_option(level, name, stack_->is_datagram(s));
  if (option == nullptr) return answer(-ENOPROTOOPT);
  const int64_t number = stack_->option(s, option->option);
  if (number < 0 && option->option != Stack::Option::peek_offset) return answer(static_cast<int>(number));
  const auto result = static_cast<int>(number);
  const auto byte = static_cast<uint8_t>(result);
  // For an IPv4 option without room for an int, Linux returns a byte if the value fits.
  if (level == IPPROTO_IP && *length > 0 && *length < sizeof result && result == byte) return put(&byte, sizeof byte);
  return put(&result, sizeof result);
}

int Sockets::set_nonblocking(int s, bool on) {
  if (!is_known(s)) return answer(-EBADF);
  const auto index = static_cast<size_t>(s);
  if (index >= nonblocking_.size()) nonblocking_.resize(index + 1);  // for a socket that stack() made
  nonblocking_[index] = on;
  return 0;
}

bool Sockets::is_known(int s) const noexcept { return stack_->is_open(s); }

int Sockets::poll(pollfd* sockets, nfds_t count, int timeout_ms) {
  const Nanoseconds until = timeout_ms < 0 ? kForever : clock_.now() + static_cast<Nanoseconds>(timeout_ms) * kMillisecond;
  poll_network();
  while (true) {
    int ready = 0;
    for (nfds_t i = 0; i < count; ++i) {
      pollfd& each = sockets[i];
      each.revents = 0;
      if (each.fd < 0) continue;
      if (is_known(each.fd)) {
        const uint32_t wanted = static_cast<uint16_t>(each.events) | Events::kError | Events::kHangUp;
        uint32_t events = stack_->events(each.fd);
        if ((events & Events::kIn) != 0) events |= POLLRDNORM;
        if ((events & Events::kOut) != 0) events |= POLLWRNORM;
        each.revents = static_cast<short>(events & wanted);
      } else {
        each.revents = POLLNVAL;
      }
      if (each.revents != 0) ++ready;
    }
    if (ready != 0 || clock_.now() >= until) return ready;
    if (!wait(until)) return answer(-ENETDOWN);
  }
}

}  // namespace unet::sockets
