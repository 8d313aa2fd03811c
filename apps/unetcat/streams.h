// streams.h - standard input and output without blocking, whatever they are: file, pipe, socket, terminal; used by Transfer.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "unet/base/bytes.h"
#include "unet/mapping.h"

namespace unet::unetcat {

// A descriptor with calls that never wait. Its own flags stay, because other processes may share its open file. A pipe or a terminal is
// opened a second time, without blocking. Where that is not allowed, and for other devices, each call asks poll(2) first.
class Stream {
 public:
  Stream(int descriptor, int open_mode);
  int descriptor() const noexcept { return own_.valid() ? own_.get() : descriptor_; }

 protected:
  enum class Kind : uint8_t { never_waits, socket, asks_first };
  bool ready(short events) const noexcept;

  int descriptor_;
  Descriptor own_;
  Kind kind_ = Kind::never_waits;
  size_t write_max_ = SIZE_MAX;  // bytes per call that do not wait
};

class Input : public Stream {
 public:
  explicit Input(int descriptor);
  // Returns the number of bytes, 0 at the end, or an error as -errno; -EAGAIN: nothing now.
  ssize_t read(MutableBytes into) const noexcept;
};

class Output : public Stream {
 public:
  // `storage`: the most bytes that it ever has to store. `usable` is false if the program was started without the descriptor.
  Output(int descriptor, size_t storage, bool usable);
  // Writes what the descriptor takes now, and stores the rest.
  void write(Bytes bytes);
  // Writes what is stored, as far as possible now. Returns whether a byte was written.
  bool flush() noexcept;
  // Closes the descriptor, so that its reader sees the end. Standard output then leads to /dev/null.
  void close() noexcept;

  bool empty() const noexcept { return stored_ == 0; }
  uint64_t written() const noexcept { return written_; }  // bytes
  int error() const noexcept { return error_; }           // the errno of a failed call; 0: none. Later bytes are dropped.

 private:
  size_t write_now(Bytes bytes) noexcept;

  std::vector<std::byte> storage_;  // a ring
  size_t capacity_, first_ = 0, stored_ = 0;
  uint64_t written_ = 0;
  int error_;
};

}  // namespace unet::unetcat
