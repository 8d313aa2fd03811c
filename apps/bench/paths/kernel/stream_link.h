// stream_link.h - a byte stream of the kernel as a Link of workloads/messages.h; its two descriptors may block or not.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "apps/bench/paths/kernel/sockets.h"
#include "apps/bench/workloads/messages.h"

namespace unet::bench {

// A call that cannot go on now: waits by trying again (blocking descriptors have waited inside the call).
inline bool may_retry(const RunContext& context, const char* call) {
  if (context.stop.raised()) return false;
  if (errno == EINTR) return true;
  if (errno == EAGAIN || errno == EWOULDBLOCK) {
    context.stop.yield_if_alone();
    return true;
  }
  context.control.fail(Error(fail_errno(call, errno).value()).text);
  return false;
}

struct StreamLink {
  static constexpr bool kLossless = true;
  KernelEnd end;
  RunContext& context;
  std::vector<std::byte>& rest;  // bytes of a message that a burst cut

  bool send(const std::byte* data, size_t size) {
    while (size > 0) {
      const ssize_t n = write(end.out, data, size);
      if (n > 0) {
        data += n;
        size -= static_cast<size_t>(n);
      } else if (!may_retry(context, "write")) {
        return false;
      }
    }
    return true;
  }
  bool receive(std::byte* into, size_t size) {
    while (size > 0) {
      const ssize_t n = read(end.in, into, size);
      if (n > 0) {
        into += n;
        size -= static_cast<size_t>(n);
      } else if (!may_retry(context, "read")) {
        return false;
      }
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
      const ssize_t n = read(end.in, into + have, size * count - have);
      if (n > 0) have += static_cast<size_t>(n);
      else if (!may_retry(context, "read")) return 0;
    }
    const size_t whole = have / size;
    rest.assign(into + whole * size, into + have);
    return whole;
  }
};

}  // namespace unet::bench
