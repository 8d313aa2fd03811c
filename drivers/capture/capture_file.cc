// capture_file.cc - opening a capture, and the engine's side of it.
#include "drivers/capture/capture_file.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <csignal>

#include "drivers/private_file.h"
#include "unet/base/check.h"

namespace unet::drivers {

Result<std::unique_ptr<CaptureFile>> CaptureFile::start(const CaptureOptions& options, const std::string& wire, const MacAddress& address) {
  UNET_CHECK(std::has_single_bit(options.ring_bytes));
  std::unique_ptr<CaptureFile> capture(new CaptureFile(options));
  Result<PacketFilter> filter = PacketFilter::compile(options.filter, options.snap_length);
  if (!filter) return tl::unexpected(filter.error());
  capture->filter_ = std::move(*filter);
  if (Status status = capture->open_file(); !status) return tl::unexpected(status.error());
  pcapng::append_head(capture->out_, {.name = wire, .filter = options.filter, .address = address, .snap_length = options.snap_length});
  capture->file_size_ = capture->out_.size();
  if (Status status = capture->start_thread(); !status) return tl::unexpected(status.error());
  return capture;
}

CaptureFile::~CaptureFile() {
  if (started_) {
    stop_.store(true, std::memory_order_release);  // after the last publish()
    const uint64_t one = 1;
    static_cast<void>(!write(wake_, &one, sizeof one));
    pthread_join(thread_, nullptr);
  }
  if (file_ >= 0) close(file_);
  if (wake_ >= 0) close(wake_);
}

Status CaptureFile::open_file() {
  // O_NONBLOCK matters only for a FIFO: opening or writing it must not wait for its reader.
  const Result<int> file = open_private_file(options_.file, O_NONBLOCK, true);
  if (!file) return fail(file.error().code, "capture: file=" + file.error().text);
  file_ = *file;
  return {};
}

Status CaptureFile::start_thread() {
  wake_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_ < 0) return fail_errno("eventfd", errno);
  // Leave signals to the program's own threads. A FIFO without a reader shows as EPIPE.
  sigset_t all, before;
  sigfillset(&all);
  for (const int fault : {SIGSYS, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, fault);  // faults of this thread
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(&thread_, nullptr, run, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) return fail_errno("pthread_create", error);
  started_ = true;
  return {};
}

void CaptureFile::offer(pcapng::Direction direction, std::span<const std::byte> data, std::span<const std::byte> more,
                        Nanoseconds now) noexcept {
  const auto length = static_cast<uint32_t>(data.size() + more.size());
  if (more.empty() && !filter_.wants(data, length)) return;
  const uint32_t kept = std::min(length, options_.snap_length);
  // The filter needs the whole frame in one piece, even if less of it is stored.
  std::byte* const room = ring_.room(more.empty() ? kept : length);
  if (room != nullptr) {
    const size_t first = std::min<size_t>(data.size(), more.empty() ? kept : length);
    std::memcpy(room, data.data(), first);
    if (!more.empty()) {
      std::memcpy(room + first, more.data(), more.size());
      if (!filter_.wants({room, length}, length)) return;
    }
    if (epoch_ == 0) epoch_ = wall_now() - now;
    ring_.stage({.time = now, .length = length, .captured = kept, .direction = direction, .size = 0});
  } else {
    dropped_.store(dropped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  seen_.store(seen_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

void CaptureFile::take_back(const Mark& mark) noexcept {
  ring_.take_back(mark.position);
  seen_.store(mark.seen, std::memory_order_relaxed);
  dropped_.store(mark.dropped, std::memory_order_relaxed);
}

// The writer checks the ring every few milliseconds. It is woken only when the ring is half full, so a frame costs no system call.
void CaptureFile::publish() noexcept {
  ring_.publish();
  if (ring_.filling() && asleep_.load(std::memory_order_relaxed)) {
    asleep_.store(false, std::memory_order_relaxed);
    const uint64_t one = 1;
    static_cast<void>(!write(wake_, &one, sizeof one));
  }
}

}  // namespace unet::drivers
