// connections.cc - many sockets of the kernel, opened and closed in order.
#include "apps/bench/paths/kernel/connections.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace unet::bench {

namespace {

void set_reset(int fd) {
  const linger at_once{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}
void reset(int fd) {
  set_reset(fd);
  close(fd);
}

}  // namespace

struct KernelConnections::Ends {
  KernelConnections& of;
  RunContext& context;

  int& at(size_t slot) { return of.slots_[slot]; }
  void slots(size_t count) {
    for (const int fd : of.slots_) {
      if (fd >= 0) reset(fd);
    }
    of.end_holders();
    of.slots_.assign(count, -1);
  }
  void poll() { context.stop.yield_if_alone(); }

  // Whether to repeat a call that cannot go on now.
  bool may_retry(const char* call) {
    if (context.stop.raised()) return false;
    if (errno == EINTR || (errno == EMFILE && of.hand_over())) return true;
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      context.stop.yield_if_alone();
      return true;
    }
    context.control.fail(Error(fail_errno(call, errno).value()).text);
    return false;
  }
  template <typename Call>
  bool until_done(const char* name, Call call) {
    while (!call()) {
      if (!may_retry(name)) return false;
    }
    return true;
  }
  bool prepare(int fd) const {
    const int on = 1;
    return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0;
  }

  // On loopback connect() is over when it returns, whether it may block or not.
  bool start(size_t slot, uint64_t number) {
    const sockaddr_in& to = of.listeners_[number % kListeners].address;
    const int fd = at(slot) = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return may_retry("socket") && start(slot, number);
    const bool done = until_done("connect", [&] {
      return connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0 || errno == EISCONN;
    });
    if (!done || !prepare(fd)) return false;
    return !of.busy_ || fcntl(fd, F_SETFL, O_NONBLOCK) == 0;
  }
  bool connected(size_t) { return true; }
  bool say(size_t slot) {
    const char byte = 0;
    return until_done("write", [&] { return write(at(slot), &byte, 1) == 1; });
  }
  bool hear(size_t slot, ssize_t bytes) {
    char byte;
    return until_done("read", [&] { return read(at(slot), &byte, 1) == bytes; });
  }
  bool close_slot(size_t slot) {
    close(at(slot));
    at(slot) = -1;
    return true;
  }
  bool finish(size_t slot) { return hear(slot, 1) && close_slot(slot); }
  bool accept(size_t slot, uint64_t number) {
    const int listener = of.listeners_[number % kListeners].socket.get();
    const int flags = SOCK_CLOEXEC | (of.busy_ ? SOCK_NONBLOCK : 0);
    return until_done("accept", [&] { return (at(slot) = accept4(listener, nullptr, nullptr, flags)) >= 0; }) && prepare(at(slot));
  }
  bool answer(size_t slot) { return hear(slot, 1) && say(slot); }
  bool end(size_t slot) { return hear(slot, 0) && close_slot(slot); }
};

// Gives all connections to another process, which resets them when it ends. False: there are no connections, or there is no process.
bool KernelConnections::hand_over() {
  const auto in_use = [](int fd) { return fd >= 0; };
  if (std::none_of(slots_.begin(), slots_.end(), in_use)) return false;
  for (const int fd : slots_) {
    if (in_use(fd)) set_reset(fd);
  }
  const pid_t parent = getpid();
  const pid_t holder = fork();
  if (holder < 0) return false;
  if (holder == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_IGN);
    while (getppid() == parent) pause();
    _exit(0);
  }
  holders_.push_back(holder);
  for (int& fd : slots_) {
    if (in_use(fd)) close(fd);
    fd = -1;
  }
  return true;
}

void KernelConnections::end_holders() {
  for (const int holder : holders_) {
    kill(holder, SIGKILL);
    while (waitpid(holder, nullptr, 0) < 0 && errno == EINTR) continue;
  }
  holders_.clear();
}

KernelConnections::~KernelConnections() {
  end_holders();
  for (const int fd : slots_) {
    if (fd >= 0) reset(fd);
  }
}

Status KernelConnections::open(bool busy) {
  busy_ = busy;
  for (Listener& each : listeners_) {
    each.socket = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | (busy ? SOCK_NONBLOCK : 0), 0));
    if (!each.socket.valid()) return fail_errno("socket", errno);
    each.address.sin_family = AF_INET;
    each.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof each.address;
    auto* const address = reinterpret_cast<sockaddr*>(&each.address);
    const int fd = each.socket.get();
    if (bind(fd, address, length) != 0 || listen(fd, kBacklog) != 0 || getsockname(fd, address, &length) != 0) {
      return fail_errno("listening on loopback", errno);
    }
  }
  return {};
}

Outcome KernelConnections::run(const Slice& slice, RunContext& context) {
  Ends ends{*this, context};
  return run_connections(ends, held_, {}, slice, context);
}

}  // namespace unet::bench
