// datagram_link.h - a datagram socket of the kernel as a Link of workloads/messages.h, many messages per system call in streams; it may
// block or not.
#pragma once

#include <sys/socket.h>

#include <cerrno>

#include "apps/bench/workloads/messages.h"

namespace unet::bench {

template <bool lossless>
struct DatagramLink {
  static constexpr bool kLossless = lossless;
  DatagramLink(int socket_fd, RunContext& run_context) : fd(socket_fd), context(run_context) {}
  int fd;
  RunContext& context;
  uint64_t last_message = 0;
  Nanoseconds quiet = 0;  // as UdpLink::quiet (paths/sockets/links.h)

  // Whether to try the call again; a full queue counts as one that will drain.
  bool may_retry(const char* call) {
    if (context.stop.raised()) return false;
    if (errno == EINTR) return true;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) {
      context.stop.yield_if_alone();
      return true;
    }
    context.control.fail(Error(fail_errno(call, errno).value()).text);
    return false;
  }
  bool send(const std::byte* data, size_t size) {
    while (::send(fd, data, size, 0) < 0) {
      if (!may_retry("send")) return false;
    }
    return true;
  }
  bool receive(std::byte* into, size_t size) {
    for (;;) {
      const ssize_t n = recv(fd, into, size, 0);
      if (n == static_cast<ssize_t>(size)) return true;
      if (n < 0 && !may_retry("recv")) return false;  // other lengths: the end mark of an earlier stream
    }
  }
  size_t send_burst(const std::byte* data, size_t size, size_t count) {
    fill(const_cast<std::byte*>(data), size, count);
    for (;;) {
      const int n = sendmmsg(fd, headers_, static_cast<unsigned>(count), 0);
      if (n > 0) return static_cast<size_t>(n);
      if (!may_retry("sendmmsg")) return 0;
    }
  }
  bool flush() { return true; }
  // A datagram of another length than the messages: wakes a receiver that blocks although nothing more will come.
  void wake_receiver() {
    const std::byte mark{};
    while (::send(fd, &mark, size_ == 0 ? 1 : 0, 0) < 0 && may_retry("send")) {
    }
  }
  size_t receive_burst(std::byte* into, size_t size, size_t count) {
    fill(into, size, count);
    QuietTimer quiet_timer;
    for (;;) {
      // Read before the attempt: what was sent before it is visible to the attempt. A lossy stream is over when the
      // sender is done and a look that began after that finds nothing, so it must not block.
      const bool sender_done = !lossless && context.control.sent.load(std::memory_order_acquire) >= last_message;
      const int flags = MSG_WAITFORONE | (sender_done ? MSG_DONTWAIT : 0);
      const int n = recvmmsg(fd, headers_, static_cast<unsigned>(count), flags, nullptr);
      if (n > 0) {
        const bool marked = headers_[n - 1].msg_len != size;  // the end mark comes last
        if (n > 1 || !marked) return static_cast<size_t>(n) - (marked ? 1 : 0);
        continue;
      }
      if (sender_done && (errno == EAGAIN || errno == EWOULDBLOCK) && quiet_timer.expired(quiet)) return 0;
      if (!may_retry("recvmmsg")) return 0;
    }
  }

 private:
  void fill(std::byte* data, size_t size, size_t count) {
    size_ = size;
    for (size_t i = 0; i < count; ++i) {
      vectors_[i] = {data + i * size, size};
      headers_[i].msg_hdr = {};
      headers_[i].msg_hdr.msg_iov = &vectors_[i];
      headers_[i].msg_hdr.msg_iovlen = 1;
    }
  }
  iovec vectors_[kBurstMessages];
  mmsghdr headers_[kBurstMessages];
  size_t size_ = 0;
};

// Takes out what a stopped or lossy slice left behind.
inline void drain_datagrams(int fd) {
  std::byte byte;
  while (recv(fd, &byte, sizeof(byte), MSG_DONTWAIT | MSG_TRUNC) >= 0) {
  }
}

}  // namespace unet::bench
