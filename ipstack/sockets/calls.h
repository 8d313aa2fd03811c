// calls.h - sockets with the calls, arguments and errors of BSD's, blocking or not, over a stack of this process; the API that existing
// programs are moved to. C++: each call is a member function of its usual name; what is less usual is done through stack().
//
//   auto sockets = Sockets::open(context);
//   const int s = (*sockets)->socket(AF_INET, SOCK_STREAM, 0);
//   (*sockets)->connect(s, reinterpret_cast<sockaddr*>(&address), sizeof address);
//   (*sockets)->send(s, data, length, 0);
//
// They return what Linux's return: -1 and errno. Numbers are of their own: no descriptors of the kernel. An object belongs to one thread at
// a time. Segments are acknowledged and sent again while a thread is in a call: a thread that computes for long calls poll() with time-out
// 0 in between.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "ipstack/sockets/endpoint_network.h"
#include "ipstack/sockets/stack.h"

namespace unet::sockets {

struct SocketsOptions {
  EndpointNetworkOptions network{};
  StackOptions stack{};
  Nanoseconds linger = 5 * kSecond;  // how long the destructor waits for connections to end
  Clock clock{};                     // a caller that also runs the stack passes its own clock, as time must not go back
};

class Sockets {
 public:
  // Errors: those of EndpointNetwork::open().
  static Result<std::unique_ptr<Sockets>> open(Context& context, const SocketsOptions& options = {});
  // Closes all sockets, and waits until their streams have ended.
  ~Sockets();
  // In a child after fork(): sends nothing and ends no connection, as all are the parent's; unmaps and closes what it can.
  static void leave(std::unique_ptr<Sockets> sockets);
  // After the network interface is gone: no ends of streams can be sent.
  static void forget(std::unique_ptr<Sockets> sockets);
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;

  // SOCK_STREAM and SOCK_DGRAM of AF_INET and AF_INET6, with SOCK_NONBLOCK.
  int socket(int domain, int type, int protocol);
  int bind(int s, const sockaddr* address, socklen_t length);
  int listen(int s, int backlog);
  int accept(int s, sockaddr* address, socklen_t* length, int flags = 0);
  int connect(int s, const sockaddr* address, socklen_t length);
  // Flags: MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL, MSG_TRUNC, MSG_MORE, MSG_OOB, MSG_ZEROCOPY, and MSG_FASTOPEN of sendto(). Nothing raises
  // SIGPIPE nor SIGURG (Change::urgent). Stack::take_queued_error() returns the errors that recvmsg() reads with MSG_ERRQUEUE.
  ssize_t send(int s, const void* data, size_t length, int flags);
  ssize_t recv(int s, void* data, size_t length, int flags);
  ssize_t sendto(int s, const void* data, size_t length, int flags, const sockaddr* to, socklen_t to_length);
  ssize_t recvfrom(int s, void* data, size_t length, int flags, sockaddr* from, socklen_t* from_length, Stack::Received* what = nullptr);
  // Sends a datagram as sendmsg() with ancillary data does. recvfrom() returns a received datagram's ancillary data in `what`.
  ssize_t sendto(int s, const void* data, size_t length, int flags, const sockaddr* to, socklen_t to_length, Stack::Sending how);
  int shutdown(int s, int how);
  // With SO_LINGER it waits for so long, also if it is non-blocking, as Linux's does.
  int close(int s);
  // close() without the wait, for a caller that has waited.
  int drop(int s);
  int getsockname(int s, sockaddr* address, socklen_t* length);
  int getpeername(int s, sockaddr* address, socklen_t* length);
  int setsockopt(int s, int level, int name, const void* value, socklen_t length);
  int getsockopt(int s, int level, int name, void* value, socklen_t* length);
  int set_nonblocking(int s, bool on);
  // Waits as poll(2) does, for sockets of this object alone.
  int poll(pollfd* sockets, nfds_t count, int timeout_ms);

  Stack& stack() noexcept { return *stack_; }
  EndpointNetwork& network() noexcept { return *network_; }
  // Waits up to `within` until the closed streams have ended. False: a peer has not acknowledged all data.
  bool await_ends(Nanoseconds within);
  // Processes arrived messages, at most `local_peers` of local peers, and runs timers. Returns about how many messages arrived.
  uint32_t poll_network(uint32_t local_peers = EndpointNetwork::kPollMost);
  // How many messages of local peers poll_network() should take in while the program finds data anyway. It is a few more than the datagrams
  // that the program has read since the last poll: a full queue would drop further ones, so their senders should wait. `late`: the last
  // poll was long ago.
  uint32_t due_intake(bool late) noexcept;
  // The caller has run the stack itself at that time.
  void set_run_time(Nanoseconds at) noexcept { ran_at_ = at; }

 private:
  std::optional<int> set_group(int s, int level, int name, const void* value, socklen_t length);
  struct Within {
    Nanoseconds receive = 0, send = 0;  // SO_RCVTIMEO, SO_SNDTIMEO; 0: for ever
  };

  Sockets(std::unique_ptr<EndpointNetwork> network, const SocketsOptions& options);

  template <typename Try>
  int64_t block(bool waits, Nanoseconds within, Try attempt);
  bool is_own(const ip::IpAddress& address) const noexcept;
  bool is_link(uint32_t number) const noexcept;
  bool is_refused_as_urgent(int s, int flags) const noexcept;
  ssize_t connect_with(int s, Bytes data, int flags, const Address& to);
  ssize_t end_zero_copy(int s, ssize_t sent, int flags);
  bool wait(Nanoseconds until);
  void begin(int s, bool nonblocking);
  bool is_nonblocking(int s) const noexcept { return static_cast<size_t>(s) < nonblocking_.size() && nonblocking_[static_cast<size_t>(s)]; }
  Within within(int s) const noexcept;
  bool is_known(int s) const noexcept;

  const SocketsOptions options_;
  const Clock& clock_ = options_.clock;
  std::unique_ptr<EndpointNetwork> network_;
  std::unique_ptr<Stack> stack_;
  std::vector<bool> nonblocking_;   // by socket
  std::map<int, Within> within_;    // only sockets with a time-out
  Nanoseconds ran_at_ = 0;
  uint64_t reads_seen_ = 0;         // of Datagrams::read(), by due_intake()
};

// Whether the peer has not acknowledged the stream's end. A caller waits for that for Stack::linger_time().
inline bool is_ending(const Stack& stack, int s) noexcept {
  const tcp::Connection* const it = stack.connection(s);
  return it != nullptr && tcp::is_ending(it->state());
}

// Writes struct tcp_info of <linux/tcp.h>, cut to `length`. Returns the number of bytes.
socklen_t write_tcp_info(const tcp::Info& info, bool ipv6, void* into, socklen_t length) noexcept;
// Writes the data of TCP_CC_INFO, which Linux has for BBR alone. Returns the number of bytes.
socklen_t write_congestion_info(const tcp::Info& info, void* into, socklen_t length) noexcept;

}  // namespace unet::sockets
