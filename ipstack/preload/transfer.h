// transfer.h - receives and sends on a file, for all calls that read and write; used by data_calls.cc, ancillary.cc and file_calls.cc under
// the runtime's lock. Functions return the number of bytes, or -errno.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "ipstack/preload/file.h"
#include "unet/base/bytes.h"

namespace unet::preload {

// The most bytes of a call, as Linux's MAX_RW_COUNT.
constexpr size_t kTransferMax = 0x7FFF'F000;
constexpr size_t kIovecsMax = 1024;  // UIO_MAXIOV

// How much of a name sendmsg() reads: at most the longest address.
inline socklen_t name_length(const msghdr& message) noexcept {
  constexpr socklen_t kMost = sizeof(sockaddr_storage);
  const bool long_ = message.msg_namelen > kMost && static_cast<int>(message.msg_namelen) >= 0;
  return message.msg_name == nullptr ? 0 : long_ ? kMost : message.msg_namelen;
}

// Memory for data that a call needs in one piece. Each thread has one for reuse; a signal handler's call within another call makes its own.
class Piece {
 public:
  static constexpr size_t kSize = 64 * 1024;

  Piece();
  ~Piece();
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;
  std::byte* data() const noexcept { return memory_->data(); }

 private:
  using Memory = std::array<std::byte, kSize>;
  struct Spare {
    std::unique_ptr<Memory> memory;
  };
  std::unique_ptr<Memory> memory_;
};

// Receives as recvmsg() does: into `message`, with its name, flags and control data.
int64_t receive_message(File& file, msghdr& message, int flags);
// Sends as sendmsg() does.
int64_t send_message(File& file, const msghdr& message, int flags);
// receive_message() and send_message() for one piece of memory.
int64_t receive_bytes(File& file, void* data, size_t length, int flags, sockaddr* from = nullptr, socklen_t* from_length = nullptr);
int64_t send_bytes(File& file, const void* data, size_t length, int flags, const sockaddr* to = nullptr, socklen_t to_length = 0);

// Copies `all` into the pieces of a message. Returns the rest that does not fit.
Bytes scatter(Bytes all, const msghdr& message) noexcept;

// SIGPIPE, unless MSG_NOSIGNAL forbids it, when a stream answers -EPIPE.
int64_t with_signal(const File& file, int64_t result, int flags) noexcept;

}  // namespace unet::preload
