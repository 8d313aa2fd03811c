// endpoint_stack.h - a stack over an endpoint's IP channel, with calls that do not wait; used by Sockets and ipstack/preload, which wait.
//
// It has one clock, and polls when that is due. Calls take Linux's arguments, and return what Linux's return, but an error as -errno. An
// object belongs to one thread at a time.
#pragma once

#include <sys/socket.h>

#include <memory>
#include <optional>

#include "ipstack/sockets/endpoint_network.h"
#include "ipstack/sockets/stack.h"

namespace unet::sockets {

constexpr Nanoseconds kForever = ~Nanoseconds{0};

struct SocketsOptions {
  EndpointNetworkOptions network{};
  StackOptions stack{};
  Nanoseconds linger = 5 * kSecond;  // how long the destructor waits for connections to end
  Clock clock{};                     // a caller that also runs the stack passes its own clock, as time must not go back
};

class EndpointStack {
 public:
  EndpointStack(std::unique_ptr<EndpointNetwork> network, const SocketsOptions& options);
  // Closes all sockets, and waits until their streams have ended.
  ~EndpointStack();
  // In a child after fork(): sends nothing and ends no connection, as all belongs to the parent; unmaps and closes what it can.
  static void leave(std::unique_ptr<EndpointStack> it);
  // After the network interface is gone: no ends of streams can be sent.
  static void forget(std::unique_ptr<EndpointStack> it);
  EndpointStack(const EndpointStack&) = delete;
  EndpointStack& operator=(const EndpointStack&) = delete;

  Stack& stack() const noexcept { return *stack_; }
  EndpointNetwork& network() const noexcept { return *network_; }
  Nanoseconds now() const noexcept { return clock_.now(); }
  // The stack, which knows the time by now, as calls that send need it.
  Stack& timed_stack() const noexcept {
    stack_->set_time(now());
    return *stack_;
  }

  // Processes arrived messages, at most `local_peers` of local peers, and runs timers. Returns about how many messages arrived.
  uint32_t poll_network(uint32_t local_peers = EndpointNetwork::kPollMost);
  // How many messages of local peers poll_network() should take in while the program finds data anyway. It is a few more than the datagrams
  // that the program has read since the last poll: a full queue would drop further ones, so their senders should wait. `late`: the last
  // poll was long ago.
  uint32_t due_intake(bool late) noexcept;
  // The caller has run the stack itself at that time.
  void set_run_time(Nanoseconds at) noexcept { ran_at_ = at; }
  // Runs the stack and waits until something may have changed. False: the network interface is gone.
  bool wait(Nanoseconds until);
  // Waits up to `within` until the closed streams have ended. False: a peer has not acknowledged all data.
  bool await_ends(Nanoseconds within);

  // Each polls first if that is due. If it finds nothing, it takes in what has come, and looks once more. `flags` are those of send() and
  // recv().
  int accept_now(int s, Address* peer = nullptr);
  int64_t send_now(int s, Bytes data, int flags);
  int64_t send_to_now(int s, Bytes data, int flags, const Address& to, Stack::Sending how = {});
  // Receives from a stream. With MSG_DONTWAIT it does not pass an urgent byte that comes meanwhile.
  int64_t receive_now(int s, MutableBytes room, int flags);
  int64_t receive_from_now(int s, MutableBytes room, int flags, sockaddr* from, socklen_t* from_length, Stack::Received& what);

  // These do not poll.

  // getsockname(), or getpeername().
  int name_of(int s, bool local, sockaddr* address, socklen_t* length) const;
  // shutdown().
  int shut_down(int s, int how);
  // setsockopt() and getsockopt(), without SO_RCVTIMEO and SO_SNDTIMEO, which belong to the caller, as it waits.
  int set_option(int s, int level, int name, const void* value, socklen_t length);
  int get_option(int s, int level, int name, void* value, socklen_t* length);

 private:
  template <typename Attempt>
  int64_t attempt(Attempt attempt);
  std::optional<int> set_group(int s, int level, int name, const void* value, socklen_t length);

  const Clock clock_;
  const Nanoseconds linger_;
  std::unique_ptr<EndpointNetwork> network_;
  std::unique_ptr<Stack> stack_;
  Nanoseconds ran_at_ = 0;
  uint64_t reads_seen_ = 0;         // of Datagrams::read(), by due_intake()
};

// Whether the peer has not acknowledged the stream's end. A caller waits for that for Stack::linger_time().
inline bool is_ending(const Stack& stack, int s) noexcept {
  const tcp::Connection* const it = stack.connection(s);
  return it != nullptr && tcp::is_ending(it->state());
}

}  // namespace unet::sockets
