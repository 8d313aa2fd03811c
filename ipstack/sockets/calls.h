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

#include <memory>
#include <vector>

#include "ipstack/sockets/endpoint_stack.h"

namespace unet::sockets {

class Sockets : public EndpointStack {
 public:
  using EndpointStack::EndpointStack;
  // Errors: those of EndpointNetwork::open().
  static Result<std::unique_ptr<Sockets>> open(Context& context, const SocketsOptions& options = {});
  // These delete an EndpointStack, which has no virtual destructor.
  static void leave(std::unique_ptr<EndpointStack> it) = delete;
  static void forget(std::unique_ptr<EndpointStack> it) = delete;

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
  ssize_t recvfrom(int s, void* data, size_t length, int flags, sockaddr* from, socklen_t* from_length);
  int shutdown(int s, int how);
  // With SO_LINGER it waits for so long, also if it is non-blocking, as Linux's does.
  int close(int s);
  int getsockname(int s, sockaddr* address, socklen_t* length);
  int getpeername(int s, sockaddr* address, socklen_t* length);
  int setsockopt(int s, int level, int name, const void* value, socklen_t length);
  int getsockopt(int s, int level, int name, void* value, socklen_t* length);
  int set_nonblocking(int s, bool on);
  // Waits as poll(2) does, for sockets of this object alone.
  int poll(pollfd* sockets, nfds_t count, int timeout_ms);

 private:
  // How long calls on a socket wait.
  struct Patience {
    bool none = false;                  // it is non-blocking
    Nanoseconds receive = 0, send = 0;  // SO_RCVTIMEO, SO_SNDTIMEO; 0: for ever
  };

  template <typename Try>
  int64_t block(bool waits, Nanoseconds within, Try once);
  int64_t send_all(int s, Bytes data, int flags);
  int64_t send_to(int s, Bytes data, int flags, const sockaddr* to, socklen_t to_length);
  int64_t connect_with(int s, Bytes data, int flags, const Address& to);
  ssize_t answer_sent(int s, int64_t sent, int flags);
  int64_t receive_stream(int s, MutableBytes room, int flags);
  int set_timeout(int s, int name, const void* value, socklen_t length);
  Patience& patience(int s);
  Patience patience_of(int s) const noexcept {
    return static_cast<size_t>(s) < patience_.size() ? patience_[static_cast<size_t>(s)] : Patience{};
  }
  bool waits(int s, int flags) const noexcept { return (flags & MSG_DONTWAIT) == 0 && !patience_of(s).none; }
  bool is_known(int s) const noexcept { return stack().is_open(s); }

  std::vector<Patience> patience_;  // by socket
};

}  // namespace unet::sockets
