// connect.cc - sockets opened, connected and closed again.
#include "apps/bench/paths/kernel/connect.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cerrno>

#include "apps/bench/workloads/connect.h"

namespace unet::bench {

namespace {

bool complain(const RunContext& context, const char* call) {
  if (!context.stop.raised()) context.control.fail(Error(fail_errno(call, errno).value()).text);
  return false;
}

struct SocketCaller {
  const sockaddr* address;
  socklen_t length;
  RunContext& context;
  int fd = -1;

  bool create() {
    fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd >= 0 || complain(context, "socket");
  }
  bool connect() {
    // A call that a signal interrupted goes on when it is made again.
    while (::connect(fd, address, length) != 0) {
      if (errno != EINTR || context.stop.raised()) return complain(context, "connect");
    }
    return true;
  }
  void close() {
    // Closes with a reset: there are thousands of connections a second, and none may leave a port in TIME-WAIT.
    const linger at_once{1, 0};
    if (address->sa_family == AF_INET) setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    ::close(fd);
  }
};

struct SocketListener {
  int listener;
  RunContext& context;
  int fd = -1;

  bool accept() {
    while ((fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)) < 0) {
      if (context.stop.raised()) return false;
      if (errno == EAGAIN || errno == EWOULDBLOCK) context.stop.yield_if_alone();
      else if (errno != EINTR) return complain(context, "accept");
    }
    return true;
  }
  void close() { ::close(fd); }
};

}  // namespace

KernelListener::~KernelListener() {
  if (fd_ >= 0) close(fd_);
}

Status KernelListener::open(int family, bool busy) {
  busy_ = busy;
  fd_ = socket(family, SOCK_STREAM | SOCK_CLOEXEC | (busy ? SOCK_NONBLOCK : 0), 0);
  if (fd_ < 0) return fail_errno("socket", errno);
  address_.ss_family = static_cast<sa_family_t>(family);
  length_ = sizeof(sa_family_t);  // of a Unix socket: the kernel chooses a name
  if (family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(&address_)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    length_ = sizeof(sockaddr_in);
  }
  auto* address = reinterpret_cast<sockaddr*>(&address_);
  if (bind(fd_, address, length_) != 0) return fail_errno("bind", errno);
  length_ = sizeof(address_);
  if (getsockname(fd_, address, &length_) != 0) return fail_errno("getsockname", errno);
  if (listen(fd_, 1) != 0) return fail_errno("listen", errno);
  return {};
}

Outcome KernelListener::run(const Slice& slice, RunContext& context) {
  if (context.side == Side::a) {
    SocketCaller caller{reinterpret_cast<const sockaddr*>(&address_), length_, context};
    return make_calls(caller, slice, !busy_, context);
  }
  SocketListener listener{fd_, context};
  return take_calls(listener, slice, context);
}

}  // namespace unet::bench
