// capture_writer.cc - the thread that writes a capture.
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include <spdlog/spdlog.h>

#include "drivers/capture/capture_file.h"

namespace unet::drivers {

namespace {

constexpr size_t kWriteAt = 256 << 10;     // bytes per system call, if as many are waiting
constexpr int kLookEveryMs = 20;
constexpr int kLastWaitMs = 1000;          // how long the end of a capture waits for a FIFO's reader

// Bytes of the whole blocks among the first `size` bytes.
size_t whole_blocks(const std::vector<std::byte>& blocks, size_t size) noexcept {
  size_t at = 0;
  for (uint32_t length = 0; at + 8 <= size; at += length) {
    std::memcpy(&length, blocks.data() + at + 4, sizeof length);
    if (length > size - at) break;
  }
  return at;
}

}  // namespace

void* CaptureFile::run(void* self) noexcept {
  prctl(PR_SET_NAME, "unet-capture");
  static_cast<CaptureFile*>(self)->write_all();
  return nullptr;
}

void CaptureFile::write_all() noexcept {
  flush();  // the head: a FIFO's reader learns the format at once
  while (!stop_.load(std::memory_order_acquire) && running()) {
    drain();
    sleep();
  }
  drain();
  if (running() && (options_.limit == 0 || file_size_ + pcapng::statistics_size() <= options_.limit)) {
    pcapng::append_statistics(out_, wall_now(), seen(), dropped());
    file_size_ += pcapng::statistics_size();
    flush();
  }
}

void CaptureFile::drain() noexcept {
  CaptureRing::Record record;
  std::span<const std::byte> bytes;
  while (ring_.next(record, bytes)) {
    if (running()) {
      const size_t size = pcapng::packet_size(bytes.size());
      if (options_.limit != 0 && file_size_ + size > options_.limit) {
        flush();
        stop_because("its limit of " + std::to_string(options_.limit) + " bytes is reached");
      } else {
        pcapng::append_packet(out_, record.direction, epoch_ + record.time, bytes, record.length);
        file_size_ += size;
        if (out_.size() >= kWriteAt) flush();
      }
    }
    ring_.consumed(record);
  }
  flush();
}

void CaptureFile::flush() noexcept {
  size_t done = 0;
  while (running() && done < out_.size()) {
    const ssize_t n = write(file_, out_.data() + done, out_.size() - done);
    if (n >= 0) {
      done += static_cast<size_t>(n);
    } else if (errno == EAGAIN && wait_for_reader()) {
      continue;
    } else if (errno != EINTR) {
      const int error = errno;
      // End the file with a whole block, so that every reader accepts it.
      const uint64_t whole = written() + whole_blocks(out_, done);
      struct stat status{};
      const bool regular = fstat(file_, &status) == 0 && S_ISREG(status.st_mode);
      if (regular && ftruncate(file_, static_cast<off_t>(whole)) == 0) done = whole_blocks(out_, done);
      written_.store(written() + done, std::memory_order_relaxed);
      stop_because(error == EAGAIN ? "it has no reader" : std::generic_category().message(error));
      done = 0;
      break;
    }
  }
  written_.store(written() + done, std::memory_order_relaxed);
  out_.clear();
}

// The FIFO is full: waits for its reader. Returns false when the capture is ending and the reader does not go on.
bool CaptureFile::wait_for_reader() noexcept {
  const bool last = stop_.load(std::memory_order_acquire);
  pollfd wait[2] = {{file_, POLLOUT, 0}, {last ? -1 : wake_, POLLIN, 0}};
  const int ready = ::poll(wait, 2, last ? kLastWaitMs : -1);
  uint64_t count = 0;
  if (wait[1].revents != 0) static_cast<void>(!read(wake_, &count, sizeof count));
  errno = EAGAIN;
  return !last || ready != 0;
}

void CaptureFile::sleep() noexcept {
  pollfd wait{wake_, POLLIN, 0};
  asleep_.store(true, std::memory_order_relaxed);
  ::poll(&wait, 1, kLookEveryMs);
  asleep_.store(false, std::memory_order_relaxed);
  uint64_t count = 0;
  if (wait.revents != 0) static_cast<void>(!read(wake_, &count, sizeof count));
}

void CaptureFile::stop_because(const std::string& why) noexcept {
  running_.store(false, std::memory_order_release);
  spdlog::warn("capture to {} stopped: {}; {} bytes are in it", options_.file, why, written());
}

}  // namespace unet::drivers
