// links.h - sockets of ipstack as a Link of workloads/messages.h, and as Ends of workloads/connections.h; calls of the BSD shape that do
// not block, made again by a process that polls.
#pragma once

#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <vector>

#include "apps/bench/workloads/connections.h"
#include "apps/bench/workloads/messages.h"
#include "ipstack/sockets/calls.h"
#include "unet/wire/address.h"

namespace unet::bench {

struct SocketName {
  sockaddr_in bytes{};
  SocketName(const std::string& address, uint16_t port) {
    const ip::IpAddress host = *ip::parse_ip(address);
    bytes.sin_family = AF_INET;
    bytes.sin_port = htons(port);
    std::memcpy(&bytes.sin_addr, host.wire(), sizeof bytes.sin_addr);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
};

struct SocketCalls {
  sockets::Sockets& sockets;
  RunContext& context;
  bool yields;        // an engine may want this core
  uint32_t tries = 0;

  static constexpr uint32_t kTriesPerYield = 4;

  void poll() {
    sockets.poll_network();
    if (yields && ++tries % kTriesPerYield == 0) sched_yield();
  }
  // Whether to try again.
  bool may_retry(const char* call) {
    if (context.stop.raised()) return false;
    if (errno == EAGAIN) {
      if (yields && ++tries % kTriesPerYield == 0) sched_yield();
      return true;
    }
    context.control.fail(Error(fail_errno(call, errno).value()).text);
    return false;
  }
};

struct TcpLink : SocketCalls {
  static constexpr bool kLossless = true;
  int s;
  std::vector<std::byte>& rest;  // bytes of a message that a burst cut

  bool send(const std::byte* data, size_t size) {
    while (size > 0) {
      const ssize_t n = sockets.send(s, data, size, MSG_DONTWAIT);
      if (n < 0 && !may_retry("send")) return false;
      if (n <= 0) continue;
      data += n;
      size -= static_cast<size_t>(n);
    }
    return true;
  }
  bool receive(std::byte* into, size_t size) {
    while (size > 0) {
      const ssize_t n = sockets.recv(s, into, size, MSG_DONTWAIT);
      if (n < 0 && !may_retry("recv")) return false;
      if (n == 0) return context.control.fail("the stream has ended"), false;
      if (n < 0) continue;
      into += n;
      size -= static_cast<size_t>(n);
    }
    return true;
  }
  size_t send_burst(const std::byte* data, size_t size, size_t count) { return send(data, size * count) ? count : 0; }
  bool flush() { return true; }
  size_t receive_burst(std::byte* into, size_t size, size_t count) {
    size_t have = rest.size();
    std::copy(rest.begin(), rest.end(), into);
    rest.clear();
    while (have < size) {
      const ssize_t n = sockets.recv(s, into + have, size * count - have, MSG_DONTWAIT);
      if (n > 0) have += static_cast<size_t>(n);
      else if (n == 0 || !may_retry("recv")) return 0;
    }
    const size_t whole = have / size;
    rest.assign(into + whole * size, into + have);
    return whole;
  }
};

struct UdpLink : SocketCalls {
  static constexpr bool kLossless = false;
  int s;
  uint64_t last_message = 0;
  Nanoseconds quiet = 0;  // what is on its way when the sender is done may come for so long; 0: it is there then

  bool send(const std::byte* data, size_t size) {
    while (sockets.send(s, data, size, MSG_DONTWAIT) < 0) {
      if (!may_retry("send")) return false;
    }
    return true;
  }
  bool receive(std::byte* into, size_t size) {
    while (true) {
      const ssize_t n = sockets.recv(s, into, size, MSG_DONTWAIT);
      if (n == static_cast<ssize_t>(size)) return true;
      if (n < 0 && !may_retry("recv")) return false;
    }
  }
  size_t send_burst(const std::byte* data, size_t size, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      if (!send(data + i * size, size)) return 0;
    }
    return count;
  }
  bool flush() { return true; }
  void wake_receiver() {}
  size_t receive_burst(std::byte* into, size_t size, size_t count) {
    QuietTimer quiet_timer;
    while (true) {
      const bool sender_done = context.control.sent.load(std::memory_order_acquire) >= last_message;
      size_t n = 0;
      for (; n < count && sockets.recv(s, into + n * size, size, MSG_DONTWAIT) == static_cast<ssize_t>(size); ++n) continue;
      if (n != 0) return n;
      if (sender_done && quiet_timer.expired(quiet)) return 0;
      if (!may_retry("recv")) return 0;
    }
  }
};

// Ends of connections to `peer`, or of the listeners of side B.
struct SocketEnds : SocketCalls {
  const std::vector<SocketName>& names;  // of side B's ports
  const std::vector<int>& listeners;     // side B
  std::vector<int>& held;                // by slot; -1: none

  void slots(size_t count) {
    for (const int s : held) {
      if (s < 0) continue;
      const linger at_once{1, 0};
      sockets.setsockopt(s, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
      sockets.close(s);
    }
    held.assign(count, -1);
  }
  bool start(size_t slot, uint64_t number) {
    const SocketName& to = names[number % names.size()];
    const int s = held[slot] = sockets.socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (s >= 0 && (sockets.connect(s, to.get(), sizeof to.bytes) == 0 || errno == EINPROGRESS)) return true;
    return complain(s < 0 ? "socket" : "connect");
  }
  bool connected(size_t slot) {
    const std::byte nothing{};
    return until_done("connect", [&] { return sockets.send(held[slot], &nothing, 0, MSG_DONTWAIT) == 0; });
  }
  bool say(size_t slot) {
    const std::byte byte{};
    return until_done("send", [&] { return sockets.send(held[slot], &byte, 1, MSG_DONTWAIT) == 1; });
  }
  bool finish(size_t slot) { return hear(slot, 1) && close_slot(slot); }
  bool accept(size_t slot, uint64_t number) {
    const int listener = listeners[number % listeners.size()];
    return until_done("accept", [&] { return (held[slot] = sockets.accept(listener, nullptr, nullptr, SOCK_NONBLOCK)) >= 0; });
  }
  bool answer(size_t slot) { return hear(slot, 1) && say(slot); }
  bool end(size_t slot) { return hear(slot, 0) && close_slot(slot); }

 private:
  bool complain(const char* call) {
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
  bool hear(size_t slot, ssize_t bytes) {
    std::byte byte;
    return until_done("recv", [&] { return sockets.recv(held[slot], &byte, 1, MSG_DONTWAIT) == bytes; });
  }
  bool close_slot(size_t slot) {
    sockets.close(held[slot]);
    held[slot] = -1;
    return true;
  }
};

}  // namespace unet::bench
