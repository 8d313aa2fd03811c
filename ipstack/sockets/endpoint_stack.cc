// endpoint_stack.cc - polls of the stack, its end, and calls that do not wait.
#include "ipstack/sockets/endpoint_stack.h"

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "ipstack/sockets/sockaddr.h"

namespace unet::sockets {
namespace {

constexpr Nanoseconds kRunEvery = 50 * kMicrosecond;  // the stack runs so often even if calls never wait

// While a call polls, data for its socket is copied straight to the call's memory. Socket -1: none is.
struct Awaiting {
  Stack& stack;
  int socket;
  MutableBytes room;
  int64_t if_nothing(int64_t result) const noexcept {
    if (result == -EAGAIN) stack.await(socket, room);
    return result;
  }
  ~Awaiting() { stack.await(-1, {}); }
};

// Linux refuses MSG_OOB for datagrams of IPv4, and ignores it for those of IPv6.
bool refuses_urgent(const Stack& stack, int s, int flags) noexcept {
  return (flags & MSG_OOB) != 0 && stack.is_datagram(s) && !stack.is_ipv6(s);
}

}  // namespace

EndpointStack::EndpointStack(std::unique_ptr<EndpointNetwork> network, const SocketsOptions& options)
    : clock_(options.clock), linger_(options.linger), network_(std::move(network)),
      stack_(std::make_unique<Stack>(*network_, options.stack, now())) {}

// Frees nothing, as that would copy pages that the child shares with its parent.
void EndpointStack::leave(std::unique_ptr<EndpointStack> it) { static_cast<void>(it->stack_.release()); }

void EndpointStack::forget(std::unique_ptr<EndpointStack> it) {
  it->stack_->forget();
  it->stack_.reset();
}

EndpointStack::~EndpointStack() {
  if (stack_ == nullptr) return;
  std::vector<int> open;
  stack_->for_each([&](int s, const Socket& socket) {
    if (socket.is_owned()) open.push_back(s);
  });
  for (const int s : open) stack_->close(s);
  await_ends(linger_);
}

bool EndpointStack::await_ends(Nanoseconds within) {
  const Nanoseconds until = now() + within;
  // Runs the stack before the first sleep, as that may finish the streams.
  for (poll_network(); !stack_->idle() && now() < until && wait(until); poll_network()) {}
  return stack_->idle();
}

bool EndpointStack::wait(Nanoseconds until) {
  if (poll_network() != 0) return true;
  const Nanoseconds next = std::min(until, stack_->next_event()), at = now();
  return next <= at || network_->wait(*stack_, next == kForever ? kForever : next - at);
}

uint32_t EndpointStack::poll_network(uint32_t local_peers) {
  const uint32_t count = network_->poll(timed_stack(), local_peers);
  stack_->run();
  ran_at_ = now();
  return count;
}

uint32_t EndpointStack::due_intake(bool late) noexcept {
  constexpr uint64_t kMore = 4, kMost = EndpointNetwork::kPollMost;
  const uint64_t all = stack_->datagrams().read(), reads = all - std::exchange(reads_seen_, all);
  return static_cast<uint32_t>(late || reads == 0 ? kMost : std::min(reads + kMore, kMost));
}

// Calls `attempt` once, or twice if something has come meanwhile.
template <typename Attempt>
int64_t EndpointStack::attempt(Attempt attempt) {
  const Nanoseconds began = now();  // reading the clock costs as much as the rest of a call without data
  stack_->set_time(began);
  if (began - ran_at_ > kRunEvery) poll_network(due_intake(began - ran_at_ > 2 * kRunEvery));
  int64_t result = attempt();
  if (result != -EAGAIN) return result;
  // Arrivals may satisfy the call, and the application's next data carries their acknowledgement.
  if (network_->poll_for_answer(*stack_) != 0) result = attempt();
  if (result == -EAGAIN && stack_->is_due()) stack_->run();
  return result;
}

int EndpointStack::accept_now(int s, Address* peer) {
  return static_cast<int>(attempt([&] { return stack_->accept(s, peer); }));
}

int64_t EndpointStack::send_now(int s, Bytes data, int flags) {
  if (refuses_urgent(*stack_, s, flags)) return -EOPNOTSUPP;
  return attempt([&] { return stack_->send(s, data, (flags & MSG_MORE) != 0, (flags & MSG_OOB) != 0); });
}

int64_t EndpointStack::send_to_now(int s, Bytes data, int flags, const Address& to, Stack::Sending how) {
  if (refuses_urgent(*stack_, s, flags)) return -EOPNOTSUPP;
  how.more = how.more || (flags & MSG_MORE) != 0;
  return attempt([&] { return stack_->send_to(s, data, to, how); });
}

int64_t EndpointStack::receive_now(int s, MutableBytes room, int flags) {
  const bool peek = (flags & MSG_PEEK) != 0;
  if ((flags & MSG_OOB) != 0) {
    poll_network();
    return stack_->receive_urgent(s, room, peek);
  }
  const bool passes = peek || (flags & MSG_DONTWAIT) == 0 || stack_->is_at_urgent(s);
  const Awaiting awaiting{*stack_, peek ? -1 : s, room};
  return attempt([&]() -> int64_t {
    if (!passes && stack_->is_at_urgent(s)) return -EAGAIN;  // a handler of SIGURG may want it before it is passed
    return awaiting.if_nothing(stack_->receive(s, room, peek));
  });
}

int64_t EndpointStack::receive_from_now(int s, MutableBytes room, int flags, sockaddr* from, socklen_t* from_length,
                                        Stack::Received& what) {
  const bool peek = (flags & MSG_PEEK) != 0;
  const Awaiting awaiting{*stack_, peek ? -1 : s, room};
  Address peer;
  const int64_t got = attempt([&] { return awaiting.if_nothing(stack_->receive_from(s, room, &peer, peek, &what)); });
  if (got < 0) return got;
  write_sockaddr(peer, stack_->is_ipv6(s), from, from_length);
  return (flags & MSG_TRUNC) != 0 ? int64_t{what.whole} : got;
}

int EndpointStack::name_of(int s, bool local, sockaddr* address, socklen_t* length) const {
  Address name;
  const int result = local ? stack_->local_address(s, name) : stack_->remote_address(s, name);
  if (result == 0) write_sockaddr(name, stack_->is_ipv6(s), address, length);
  return result;
}

int EndpointStack::shut_down(int s, int how) {
  if (how < SHUT_RD || how > SHUT_RDWR) return -EINVAL;
  return timed_stack().shutdown(s, how == SHUT_RD ? Stack::How::read : how == SHUT_WR ? Stack::How::write : Stack::How::both);
}

}  // namespace unet::sockets
