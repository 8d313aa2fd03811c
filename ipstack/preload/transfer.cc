// transfer.cc - data between the memory of a program and the stack.
//
// The stack copies each payload byte as stack.h says. A message of several pieces, of up to kGather bytes, is first copied into one piece.
#include "ipstack/preload/transfer.h"

#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "ipstack/preload/ancillary.h"
#include "ipstack/preload/calls.h"
#include "ipstack/preload/thread_specific.h"
#include "ipstack/preload/shared/adoption.h"
#include "ipstack/preload/shared/socket_proxies.h"
#include "ipstack/preload/signals.h"
#include "ipstack/sockets/sockaddr.h"

namespace unet::preload {

using sockets::is_nowhere;
using sockets::Stack;

namespace {

sockets::EndpointStack& ours() noexcept { return Runtime::get().endpoint_stack(); }

constexpr size_t kGather = Piece::kSize;
constexpr short kNoKernelEvents = 0;  // a send waits for the stack alone, as the shadow of a datagram socket is always writable

// The length of all pieces; one call moves kTransferMax bytes at most, as in the kernel.
size_t bytes_of(const msghdr& message) noexcept {
  size_t sum = 0;
  for (size_t i = 0; i < message.msg_iovlen; ++i) sum += std::min(message.msg_iov[i].iov_len, kTransferMax - sum);
  return sum;
}

// Checks a message as the kernel does before it reads the data: 0, or -errno.
int64_t check(const msghdr& message) noexcept {
  if (message.msg_iovlen > kIovecsMax) return -EMSGSIZE;
  if (message.msg_iovlen != 0 && is_nowhere(message.msg_iov)) return -EFAULT;
  for (size_t i = 0; i < message.msg_iovlen; ++i) {
    if (message.msg_iov[i].iov_len > static_cast<size_t>(SSIZE_MAX)) return -EINVAL;
    if (message.msg_iov[i].iov_len != 0 && is_nowhere(message.msg_iov[i].iov_base)) return -EFAULT;
  }
  return 0;
}

// Receives a datagram of the stack, or else by `kernels()`. Does not wait.
template <typename Kernels>
int64_t receive_datagram(File& file, MutableBytes room, int flags, sockaddr* from, socklen_t* from_length, Stack::Received& what,
                         Kernels kernels) {
  if (file.left_to_kernel) return kAskKernel;
  if (file.waits_back()) static_cast<void>(Adoption::adopt(file));
  if (!file.in_stack() && !file.is_undecided() && !file.waits_back()) return Runtime::result_of_lost(file, false);
  const int64_t got = !file.in_stack() ? -EAGAIN : ours().receive_from_now(file.socket, room, flags, from, from_length, what);
  if (got >= 0) file.received_at = what.came;
  if (got != -EAGAIN || !file.kernel) return got;
  const int64_t other = kernels();
  if (other >= 0) file.received_at = 0;
  return other;
}

// Sends all of `data` if the call may wait, else as much as there is room for.
int64_t send_stream(File& file, Bytes data, int flags) {
  Runtime& runtime = Runtime::get();
  const bool may_wait = waits(file, flags);
  size_t sent = 0;
  const int64_t result = runtime.block_on(file, POLLOUT, may_wait, file.send_timeout, [&](bool) -> int64_t {
    if (!file.in_stack()) return Runtime::result_of_lost(file, true);
    const auto send = [&] { return ours().send_now(file.socket, data.subspan(sent), flags); };
    int64_t more = send();
    if (more == -EAGAIN && runtime.poll() && file.in_stack()) more = send();  // an arrival may make room, or end the stream
    if (more == -EAGAIN || (more >= 0 && static_cast<size_t>(more) < data.size() - sent)) rearm_room_signal(file);
    if (more < 0) return more;
    sent += static_cast<size_t>(more);
    this_call.has_part = sent != 0;
    return sent < data.size() && may_wait ? -EAGAIN : static_cast<int64_t>(sent);
  });
  if (result >= 0 || sent == 0) return result;
  runtime.defer_error(file, result);
  return static_cast<int64_t>(sent);
}

// Queues the notice of MSG_ZEROCOPY at the end of a call: the stack has copied the data already.
int64_t end_zero_copy(const File& file, int64_t sent, int flags) {
  if (sent > 0 && (flags & MSG_ZEROCOPY) != 0 && file.in_stack()) Runtime::get().stack().end_zero_copy(file.socket);
  return sent;
}

// MSG_FASTOPEN. The rest of the data follows the SYN once the connection is established, if the call may wait.
int64_t connect_and_send(File& file, Bytes data, int flags, const sockaddr* to, socklen_t to_length) {
  sockets::Address remote;
  if (const int wrong = read_address(file, to, to_length, remote); wrong < 0) return wrong;
  const int64_t begun = ours().timed_stack().connect_with(file.socket, data, remote);
  if (begun == -EINPROGRESS) file.signalled = 0;
  if (!waits(file, flags) || (begun < 0 && begun != -EINPROGRESS && begun != -EALREADY && begun != -EAGAIN)) return begun;
  const auto sent = static_cast<size_t>(std::max<int64_t>(begun, 0));
  if (begun >= 0 && sent == data.size()) return begun;
  const int64_t more = send_stream(file, data.subspan(sent), flags & ~MSG_FASTOPEN);
  if (more >= 0 && file.in_stack()) static_cast<void>(Runtime::get().stack().connect(file.socket, remote));  // reports that it is connected
  return more < 0 && sent == 0 ? more : static_cast<int64_t>(sent) + std::max<int64_t>(more, 0);
}

// Routes a datagram, and reads its address `to` (null: the socket is connected). 0: the stack sends it; or kAskKernel, or -errno.
int route_datagram(File& file, const sockaddr* to, socklen_t to_length, sockets::Address& remote) {
  if (to == nullptr) {
    if (file.kernel_peer) return kAskKernel;
    if (file.in_stack()) static_cast<void>(Runtime::get().stack().remote_address(file.socket, remote));
    return 0;
  }
  const int wrong = read_address(file, to, to_length, remote);
  // On an IPv6 socket, sendto() has another error in Linux than other calls have.
  if (wrong < 0) return wrong == -EAFNOSUPPORT && file.domain == AF_INET6 ? -EINVAL : wrong;
  return route_for(file, remote);
}

// `ancillary`: the message of a datagram with control data; else null.
int64_t send_datagram(File& file, Bytes data, int flags, const sockaddr* to, socklen_t to_length, const msghdr* ancillary = nullptr) {
  Runtime& runtime = Runtime::get();
  sockets::Address remote;
  const int route = route_datagram(file, to, to_length, remote);
  if (route == kAskKernel && ancillary != nullptr) return Kernel::sendmsg(file.fd(), ancillary, flags);
  if (route == kAskKernel) return Kernel::sendto(file.fd(), data.data(), data.size(), flags, to, to_length);
  if (route < 0) return route;
  Stack::Sending how;
  const bool ipv4 = file.domain == AF_INET || remote.host.is_ipv4(), connected = to == nullptr;
  if (const int64_t wrong = ancillary == nullptr ? 0 : read_control(file, *ancillary, ipv4, how); wrong < 0) return wrong;
  const int64_t sent = runtime.block_on(file, kNoKernelEvents, waits(file, flags), file.send_timeout, [&](bool) -> int64_t {
    if (!file.in_stack()) return Runtime::result_of_lost(file, true);
    if (connected && ancillary != nullptr && runtime.stack().remote_address(file.socket, remote) != 0) return -EDESTADDRREQ;
    const int64_t result = connected && ancillary == nullptr ? ours().send_now(file.socket, data, flags)
                                                          : ours().send_to_now(file.socket, data, flags, remote, how);
    if (result == -EAGAIN) rearm_room_signal(file);
    return result;
  });
  return end_zero_copy(file, sent, flags);
}

// Whether SO_RCVLOWAT applies to a call with room for `length` bytes.
bool waits_for_low_water(const File& file, size_t length) noexcept {
  return file.receive_low_water > 1 && length >= static_cast<size_t>(file.receive_low_water);
}

// Receives a datagram by `attempt`, and waits for one if the call may. Arrivals for other owners of the socket come here meanwhile.
template <typename Attempt>
int64_t receive_waiting(File& file, int flags, Attempt attempt) {
  Runtime& runtime = Runtime::get();
  file.unserved_since = 0;
  runtime.reception().start(file);
  return runtime.block_on(file, POLLIN, waits(file, flags), file.receive_timeout, [&](bool kernel) -> int64_t {
    if (file.in_stack() && !file.receives) runtime.reception().start(file);  // the stack may have got it meanwhile
    const int64_t got = attempt(kernel);
    const bool another_asked = got >= 0 && !file.origins.empty() && runtime.proxies().is_waited_for(file);
    if (another_asked) runtime.reception().start(file);
    return got;
  });
}

// A call without room waits for data, too, as in Linux.
int64_t receive_stream(File& file, MutableBytes room, int flags) {
  Runtime& runtime = Runtime::get();
  const bool may_wait = waits(file, flags), all = (flags & MSG_WAITALL) != 0 && (flags & MSG_PEEK) == 0 && may_wait;
  size_t received = 0;
  const int64_t result = runtime.block_on(file, POLLIN, may_wait, file.receive_timeout, [&](bool) -> int64_t {
    if (!file.in_stack()) return Runtime::result_of_lost(file, false);
    if (waits_for_low_water(file, room.size()) && (runtime.events(file) & EPOLLIN) == 0) runtime.poll();
    if (waits_for_low_water(file, room.size()) && may_wait && (runtime.events(file) & (EPOLLIN | EPOLLERR)) == 0) return -EAGAIN;
    do {
      const bool at_urgent = (flags & MSG_PEEK) == 0 && runtime.stack().is_at_urgent(file.socket);
      if (at_urgent && received != 0) break;
      // The handler of SIGURG must find the urgent byte, or must interrupt this call before it.
      if (at_urgent && Runtime::this_thread().ends_call) return -EAGAIN;
      if (at_urgent) take_pending_signals();
      const bool handled = at_urgent && signals_deferred && runtime.let_handlers_run();
      if (handled && may_wait && (file.receive_timeout != 0 || !signals_restart())) return -EINTR;
      if (!file.in_stack()) return Runtime::result_of_lost(file, false);
      const int64_t more = ours().receive_now(file.socket, room.subspan(received), flags | MSG_DONTWAIT);
      if (more <= 0) return more;
      received += static_cast<size_t>(more);
      this_call.has_part = true;
    } while (all && received < room.size());
    return static_cast<int64_t>(received);
  });
  if (result > 0 || received == 0) return result;
  runtime.defer_error(file, result);
  return static_cast<int64_t>(received);
}

}  // namespace

Piece::Piece() : memory_(std::move(ThreadSpecific<Spare>::get().memory)) {
  if (memory_ == nullptr) memory_.reset(new Memory);
}
Piece::~Piece() {
  Spare& spare = ThreadSpecific<Spare>::get();
  if (spare.memory == nullptr) spare.memory = std::move(memory_);
}

int64_t with_signal(const File& file, int64_t result, int flags) noexcept {
  if (result == -EPIPE && file.is_stream() && (flags & MSG_NOSIGNAL) == 0) ::pthread_kill(::pthread_self(), SIGPIPE);
  return result;
}

int64_t receive_bytes(File& file, void* data, size_t length, int flags, sockaddr* from, socklen_t* from_length) {
  length = std::min(length, kTransferMax);
  if (file.in_stack() && (flags & MSG_ERRQUEUE) != 0) {
    if (from != nullptr && (is_nowhere(from) || is_nowhere(from_length))) return -EFAULT;
    iovec room{.iov_base = data, .iov_len = length};
    msghdr message{};
    message.msg_name = from;
    message.msg_namelen = from != nullptr ? *from_length : 0;
    message.msg_iov = &room;
    message.msg_iovlen = 1;
    const int64_t got = receive_message(file, message, flags);
    if (got >= 0 && from != nullptr) *from_length = message.msg_namelen;
    return got;
  }
  const bool no_data = length != 0 && is_nowhere(data);
  const MutableBytes room{static_cast<std::byte*>(data), no_data ? 0 : length};
  if (file.is_stream() && no_data) return -EFAULT;
  if (file.in_stack() && file.is_stream() && (flags & MSG_OOB) != 0) {
    return ours().receive_now(file.socket, room, flags);
  }
  if (file.is_stream() && (flags & MSG_TRUNC) != 0) {
    const Piece away;
    return receive_stream(file, {away.data(), std::min(length, kGather)}, flags);
  }
  if (file.is_stream()) return receive_stream(file, room, flags);
  // Bytes that cannot be stored are lost with the datagram, as in the kernel.
  const bool no_name = from != nullptr && (is_nowhere(from) || is_nowhere(from_length));
  if (no_name) from = nullptr;
  Stack::Received what;
  const int64_t got = receive_waiting(file, flags, [&](bool kernel) {
    return receive_datagram(file, room, flags, from, from_length, what, [&]() -> int64_t {
      return kernel ? Kernel::recvfrom(file.fd(), room.data(), room.size(), flags | MSG_DONTWAIT, from, from_length) : -EAGAIN;
    });
  });
  return got >= 0 && (no_data || no_name) ? -EFAULT : got;
}

int64_t send_bytes(File& file, const void* data, size_t length, int flags, const sockaddr* to, socklen_t to_length) {
  length = std::min(length, kTransferMax);
  if (is_nowhere(data) && length != 0) return -EFAULT;
  const Bytes bytes{static_cast<const std::byte*>(data), length};
  if (!file.is_stream()) return send_datagram(file, bytes, flags, to, to_length);
  if (file.in_stack() && (flags & MSG_FASTOPEN) != 0) {
    return with_signal(file, end_zero_copy(file, connect_and_send(file, bytes, flags, to, to_length), flags), flags);
  }
  return with_signal(file, end_zero_copy(file, send_stream(file, bytes, flags), flags), flags);
}

Bytes scatter(Bytes all, const msghdr& message) noexcept {
  for (size_t i = 0; i < message.msg_iovlen && !all.empty(); ++i) {
    const size_t part = std::min(all.size(), message.msg_iov[i].iov_len);
    if (part != 0) std::memcpy(message.msg_iov[i].iov_base, all.data(), part);
    all = all.subspan(part);
  }
  return all;
}

// From a stream into each of many pieces, one after another: only for the first does it wait, if it is not to wait for all.
static int64_t receive_pieces(File& file, const msghdr& message, int flags) {
  const size_t whole = bytes_of(message);
  int64_t got = 0;
  for (size_t i = 0; i < message.msg_iovlen; ++i) {
    const iovec& each = message.msg_iov[i];
    const size_t length = std::min(each.iov_len, whole - static_cast<size_t>(got));
    if (length == 0) continue;
    const int how = got == 0 || (flags & MSG_WAITALL) != 0 ? flags : flags | MSG_DONTWAIT;
    const int64_t more = receive_bytes(file, each.iov_base, length, how);
    if (more < 0 && got == 0) return more;
    Runtime::get().defer_error(file, more);
    got += std::max<int64_t>(more, 0);
    if (more < static_cast<int64_t>(length) || (flags & (MSG_PEEK | MSG_OOB)) != 0) break;
    if (file.in_stack() && Runtime::get().stack().is_at_urgent(file.socket)) break;
  }
  return got;
}

static int64_t receive_stream_message(File& file, msghdr& message, int flags) {
  const size_t whole = bytes_of(message);
  int64_t got;
  if (message.msg_iovlen == 1) {
    got = receive_bytes(file, message.msg_iov[0].iov_base, whole, flags);
  } else if (whole > kGather) {
    got = receive_pieces(file, message, flags);
  } else {
    const Piece into;
    got = receive_bytes(file, into.data(), whole, flags);
    if (got > 0) scatter({into.data(), static_cast<size_t>(got)}, message);
  }
  if (got < 0) return got;
  message.msg_namelen = 0;
  message.msg_flags |= flags & MSG_OOB;
  tell_of_stream(file, message);
  return got;
}

static int64_t receive_datagram_message(File& file, msghdr& message, int flags) {
  const bool one = message.msg_iovlen == 1, no_name = message.msg_name != nullptr && is_nowhere(message.msg_name);
  std::optional<Piece> gathered;
  if (!one) gathered.emplace();
  std::byte* const into = one ? static_cast<std::byte*>(message.msg_iov[0].iov_base) : gathered->data();
  const size_t room = std::min(bytes_of(message), kGather);
  auto* const name = no_name ? nullptr : static_cast<sockaddr*>(message.msg_name);
  Stack::Received what;
  bool kernels = false;
  const int64_t got = receive_waiting(file, flags, [&](bool kernel) {
    return receive_datagram(file, {into, room}, flags & ~MSG_TRUNC, name, &message.msg_namelen, what, [&]() -> int64_t {
      const int64_t other = kernel ? Kernel::recvmsg(file.fd(), &message, flags | MSG_DONTWAIT) : -EAGAIN;
      kernels = other >= 0;
      return other;
    });
  });
  if (got < 0 || kernels) return got;
  if (!one) scatter({into, static_cast<size_t>(got)}, message);
  if (what.cut) message.msg_flags |= MSG_TRUNC;
  tell_of_datagram(file, what, message);
  if (no_name) return -EFAULT;
  return (flags & MSG_TRUNC) != 0 ? static_cast<int64_t>(what.whole) : got;
}

int64_t receive_message(File& file, msghdr& message, int flags) {
  if (const int64_t wrong = check(message); wrong < 0) return wrong;
  message.msg_flags = 0;
  if (file.in_stack() && (flags & MSG_ERRQUEUE) != 0) {
    if (message.msg_name != nullptr && is_nowhere(message.msg_name)) return -EFAULT;
    Runtime::get().poll();
    if (!file.in_stack()) return -EAGAIN;
    const int64_t got = receive_error(file, message);
    return got == -EAGAIN && file.kernel ? Kernel::recvmsg(file.fd(), &message, flags) : got;
  }
  return file.is_stream() ? receive_stream_message(file, message, flags) : receive_datagram_message(file, message, flags);
}

int64_t send_message(File& file, const msghdr& message, int flags) {
  if (const int64_t wrong = check(message); wrong < 0) return wrong;
  const bool has_ancillary = message.msg_controllen != 0 && !file.is_stream();
  Stack::Sending none;
  if (const int64_t wrong = has_ancillary ? 0 : read_control(file, message, false, none); wrong < 0) return wrong;
  const size_t whole = bytes_of(message);
  const auto* const to = static_cast<const sockaddr*>(message.msg_name);
  const socklen_t to_length = name_length(message);
  if (message.msg_iovlen == 1 && !has_ancillary) return send_bytes(file, message.msg_iov[0].iov_base, whole, flags, to, to_length);
  if (!file.is_stream() && whole > kGather) return -EMSGSIZE;
  if (whole <= kGather) {
    const Piece all;
    size_t at = 0;
    for (size_t i = 0; i < message.msg_iovlen; ++i) {
      if (message.msg_iov[i].iov_len == 0) continue;
      std::memcpy(all.data() + at, message.msg_iov[i].iov_base, message.msg_iov[i].iov_len);
      at += message.msg_iov[i].iov_len;
    }
    if (has_ancillary) return send_datagram(file, {all.data(), at}, flags, to, to_length, &message);
    return send_bytes(file, all.data(), at, flags, to, to_length);
  }
  int64_t sent = 0;
  for (size_t i = 0; i < message.msg_iovlen; ++i) {
    const iovec& each = message.msg_iov[i];
    const size_t length = std::min(each.iov_len, whole - static_cast<size_t>(sent));
    if (length == 0) continue;
    const bool last = static_cast<size_t>(sent) + length == whole;  // its last byte may be urgent
    const int no = last ? MSG_ZEROCOPY : MSG_ZEROCOPY | MSG_OOB;
    const int how = (sent == 0 ? flags : flags | MSG_NOSIGNAL) & ~no;
    const int64_t more = send_bytes(file, each.iov_base, length, how, to, to_length);
    if (more < 0 && sent == 0) return more;
    sent += std::max<int64_t>(more, 0);
    if (more < static_cast<int64_t>(length)) break;
  }
  return end_zero_copy(file, sent, flags);
}

}  // namespace unet::preload
