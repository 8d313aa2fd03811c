// data_calls.cc - read() and write() to sendmmsg().
#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>

#include "ipstack/preload/calls.h"
#include "ipstack/preload/shared/passing.h"
#include "ipstack/preload/transfer.h"
#include "ipstack/sockets/sockaddr.h"

using namespace unet::preload;
using unet::sockets::is_nowhere;

namespace {

msghdr message_of(const iovec* pieces, int count) noexcept {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces);
  message.msg_iovlen = static_cast<size_t>(count);
  return message;
}

// A message without room: read() and readv() then return 0, and neither wait nor take a datagram.
bool asks_for_nothing(const msghdr& message) noexcept {
  if (message.msg_iovlen != 0 && is_nowhere(message.msg_iov)) return false;
  return std::all_of(message.msg_iov, message.msg_iov + message.msg_iovlen, [](const iovec& each) { return each.iov_len == 0; });
}

int64_t receive_pieces(File& file, const iovec* pieces, int count, int flags) {
  if (count < 0 || static_cast<size_t>(count) > kIovecsMax) return -EINVAL;
  msghdr message = message_of(pieces, count);
  return asks_for_nothing(message) ? 0 : receive_message(file, message, flags);
}
int64_t send_pieces(File& file, const iovec* pieces, int count, int flags) {
  if (count < 0 || static_cast<size_t>(count) > kIovecsMax) return -EINVAL;
  return send_message(file, message_of(pieces, count), flags);
}

template <typename Kernel>
auto at_kernel(Kernel kernel) {
  const AtKernel noted;
  return kernel();
}

// Calls ours() under the lock if the stack has the socket by now, or may get it while the call waits (`may_become`). Else calls the kernel.
template <typename MayBecome, typename Ours, typename Kernel>
auto call_in_stack_if(int fd, MayBecome may_become, Ours ours, Kernel kernel) {
  return call_on<true>(
      fd, [&](File& file) { return file.in_stack() || file.lost || may_become(file) ? int64_t{ours(file)} : kAskKernel; },
      [&] { return at_kernel(kernel); });
}
// A call that sends. The kernel must not send while a datagram socket waits for the network interface.
template <typename Ours, typename Kernel>
auto sending_call(int fd, Ours ours, Kernel kernel) {
  return call_in_stack_if(fd, [](const File& file) { return !file.is_stream() && file.waits_back(); }, ours, kernel);
}
// A call that receives, and may wait for a datagram.
template <typename Ours, typename Kernel>
auto receiving_call(int fd, int flags, Ours ours, Kernel kernel) {
  const auto may_become = [=](const File& file) {
    const bool may = file.is_undecided() || (!file.is_stream() && file.waits_back());
    return may && waits(file, flags) && (flags & MSG_ERRQUEUE) == 0;
  };
  return call_in_stack_if(fd, may_become, ours, kernel);
}

// The first datagram, or a first byte by MSG_FASTOPEN, may route an undecided socket to the stack. 0, or -errno.
int route_sender(int fd, int flags, const sockaddr* to, socklen_t length) {
  if (to == nullptr || file_of(fd) == nullptr) return 0;
  const Runtime::Guard guard;
  File* const file = Runtime::get().file(fd);
  unet::sockets::Address remote;
  const bool routes = file != nullptr && !file->in_stack() && (!file->is_stream() || (flags & MSG_FASTOPEN) != 0);
  if (!routes || read_address(*file, to, length, remote) != 0) return 0;
  const int result = route_for(*file, remote);
  return result == kAskKernel ? 0 : result;
}

// sendmmsg() for messages that pass sockets.
int pass_each(int fd, mmsghdr* messages, unsigned count, int flags) {
  unsigned sent = 0;
  for (; sent < count; ++sent) {
    const ssize_t went = ::sendmsg(fd, &messages[sent].msg_hdr, flags);
    if (went < 0) break;
    messages[sent].msg_len = static_cast<unsigned>(went);
  }
  return sent != 0 ? static_cast<int>(sent) : -1;
}

}  // namespace

UNET_PRELOAD ssize_t read(int fd, void* data, size_t length) {
  const auto ours = [&](File& file) { return length == 0 ? 0 : receive_bytes(file, data, length, 0); };
  return receiving_call(fd, 0, ours, [&] { return real().read(fd, data, length); });
}

UNET_PRELOAD ssize_t readv(int fd, const iovec* pieces, int count) {
  return receiving_call(
      fd, 0, [&](File& file) { return receive_pieces(file, pieces, count, 0); }, [&] { return real().readv(fd, pieces, count); });
}

UNET_PRELOAD ssize_t recv(int fd, void* data, size_t length, int flags) { return recvfrom(fd, data, length, flags, nullptr, nullptr); }

UNET_PRELOAD ssize_t recvfrom(int fd, void* data, size_t length, int flags, sockaddr* from, socklen_t* from_length) {
  return receiving_call(
      fd, flags,
      [&](File& file) {
        if (from != nullptr && from_length != nullptr && static_cast<int>(*from_length) < 0) return int64_t{-EINVAL};
        const int64_t got = receive_bytes(file, data, length, flags, from, from_length);
        if (got >= 0 && file.is_stream() && from != nullptr && from_length != nullptr) *from_length = 0;
        return got;
      },
      [&] { return real().recvfrom(fd, data, length, flags, from, from_length); });
}

UNET_PRELOAD ssize_t recvmsg(int fd, msghdr* message, int flags) {
  return receiving_call(
      fd, flags, [&](File& file) { return is_nowhere(message) ? -EFAULT : receive_message(file, *message, flags); },
      [&] {
        const ssize_t got = real().recvmsg(fd, message, flags);
        if (got >= 0) take_sockets(*message, (flags & MSG_PEEK) != 0);
        return got;
      });
}

UNET_PRELOAD int recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
  return receiving_call(
      fd, flags,
      [&](File& file) -> int64_t {
        if (timeout != nullptr && is_nowhere(timeout)) return -EFAULT;
        if (timeout != nullptr && !is_valid(*timeout)) return -EINVAL;
        Runtime& runtime = Runtime::get();
        const unet::Nanoseconds until = timeout == nullptr ? kForever : runtime.now() + nanoseconds_of(*timeout);
        unsigned got = 0;
        int64_t last = 0;
        while (got < count) {
          const int how = (flags & ~MSG_WAITFORONE) | (got != 0 && (flags & MSG_WAITFORONE) != 0 ? MSG_DONTWAIT : 0);
          last = is_nowhere(messages + got) ? -EFAULT : receive_message(file, messages[got].msg_hdr, how);
          if (last < 0) break;
          messages[got++].msg_len = static_cast<unsigned>(last);
          this_call.has_part = true;
          if (runtime.now() >= until) break;
        }
        return got != 0 ? static_cast<int64_t>(got) : last;
      },
      [&] {
        const int got = real().recvmmsg(fd, messages, count, flags, timeout);
        for (int i = 0; i < got; ++i) take_sockets(messages[i].msg_hdr, (flags & MSG_PEEK) != 0);
        return got;
      });
}

UNET_PRELOAD ssize_t write(int fd, const void* data, size_t length) {
  return sending_call(fd, [&](File& file) { return send_bytes(file, data, length, 0); }, [&] { return real().write(fd, data, length); });
}

// The C library's eventfd_write() makes the system call itself.
UNET_PRELOAD int eventfd_write(int fd, eventfd_t value) { return write(fd, &value, sizeof value) == sizeof value ? 0 : -1; }

UNET_PRELOAD ssize_t writev(int fd, const iovec* pieces, int count) {
  return sending_call(
      fd, [&](File& file) { return send_pieces(file, pieces, count, 0); }, [&] { return real().writev(fd, pieces, count); });
}

UNET_PRELOAD ssize_t send(int fd, const void* data, size_t length, int flags) { return sendto(fd, data, length, flags, nullptr, 0); }

UNET_PRELOAD ssize_t sendto(int fd, const void* data, size_t length, int flags, const sockaddr* to, socklen_t to_length) {
  if (const int wrong = route_sender(fd, flags, to, to_length); wrong < 0) return answer(wrong);
  return sending_call(
      fd, [&](File& file) { return send_bytes(file, data, length, flags, to, to_length); },
      [&] { return real().sendto(fd, data, length, flags, to, to_length); });
}

UNET_PRELOAD ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  const auto* const to = is_nowhere(message) ? nullptr : static_cast<const sockaddr*>(message->msg_name);
  if (const int wrong = to == nullptr ? 0 : route_sender(fd, flags, to, name_length(*message)); wrong < 0) return answer(wrong);
  return sending_call(
      fd, [&](File& file) { return is_nowhere(message) ? -EFAULT : send_message(file, *message, flags); },
      [&] {
        if (!is_nowhere(message) && passes_sockets(*message)) return answer(pass_sockets(fd, *message, flags));
        return real().sendmsg(fd, message, flags);
      });
}

UNET_PRELOAD int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  if (count != 0 && !is_nowhere(messages)) {
    const auto* const to = static_cast<const sockaddr*>(messages[0].msg_hdr.msg_name);
    if (const int wrong = route_sender(fd, flags, to, name_length(messages[0].msg_hdr)); wrong < 0) return answer(wrong);
  }
  return sending_call(
      fd,
      [&](File& file) -> int64_t {
        unsigned sent = 0;
        int64_t last = 0;
        for (; sent < std::min(count, static_cast<unsigned>(kIovecsMax)); ++sent) {
          last = is_nowhere(messages + sent) ? -EFAULT : send_message(file, messages[sent].msg_hdr, flags);
          if (last < 0) break;
          messages[sent].msg_len = static_cast<unsigned>(last);
          this_call.has_part = true;
        }
        return sent != 0 ? static_cast<int64_t>(sent) : last;
      },
      [&] {
        const auto passes = [](const mmsghdr& each) { return passes_sockets(each.msg_hdr); };
        const unsigned some = is_nowhere(messages) ? 0 : std::min(count, static_cast<unsigned>(kIovecsMax));
        return std::any_of(messages, messages + some, passes) ? pass_each(fd, messages, some, flags)
                                                             : real().sendmmsg(fd, messages, count, flags);
      });
}

// Why a socket refuses `at`, an offset in a file, and `flags`: -errno. 0: `at` is -1, which means no offset.
static int64_t refused_at(off64_t at, int flags) noexcept {
  if (at != -1) return -ESPIPE;
  return (flags & ~(RWF_HIPRI | RWF_NOWAIT)) != 0 ? -EOPNOTSUPP : 0;
}

UNET_PRELOAD ssize_t preadv64v2(int fd, const iovec* pieces, int count, off64_t at, int flags) {
  const auto kernel = [&] { return real().preadv64v2(fd, pieces, count, at, flags); };
  if (file_of(fd) == nullptr) return kernel();
  if (const int64_t why = refused_at(at, flags); why != 0) return answer(why);
  const int how = (flags & RWF_NOWAIT) != 0 ? MSG_DONTWAIT : 0;
  return receiving_call(fd, how, [&](File& file) { return receive_pieces(file, pieces, count, how); }, kernel);
}

UNET_PRELOAD ssize_t pwritev64v2(int fd, const iovec* pieces, int count, off64_t at, int flags) {
  const auto kernel = [&] { return real().pwritev64v2(fd, pieces, count, at, flags); };
  if (file_of(fd) == nullptr) return at_kernel(kernel);
  if (const int64_t why = refused_at(at, flags); why != 0) return answer(why);
  const int how = (flags & RWF_NOWAIT) != 0 ? MSG_DONTWAIT : 0;
  return sending_call(fd, [&](File& file) { return send_pieces(file, pieces, count, how); }, kernel);
}

UNET_PRELOAD ssize_t preadv2(int fd, const iovec* pieces, int count, off_t at, int flags) {
  return preadv64v2(fd, pieces, count, at, flags);
}
UNET_PRELOAD ssize_t pwritev2(int fd, const iovec* pieces, int count, off_t at, int flags) {
  return pwritev64v2(fd, pieces, count, at, flags);
}

// Programs built with _FORTIFY_SOURCE call these instead. The compiler has checked the sizes that it knows.
UNET_PRELOAD ssize_t __read_chk(int fd, void* data, size_t length, size_t) { return read(fd, data, length); }
UNET_PRELOAD ssize_t __recv_chk(int fd, void* data, size_t length, size_t, int flags) { return recv(fd, data, length, flags); }
UNET_PRELOAD ssize_t __recvfrom_chk(int fd, void* data, size_t length, size_t, int flags, sockaddr* from, socklen_t* from_length) {
  return recvfrom(fd, data, length, flags, from, from_length);
}
