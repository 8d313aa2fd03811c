// capture_file.cc - a capture: the engine's side, and the thread that writes the file.
#include "drivers/capture/capture_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <csignal>

#include <spdlog/spdlog.h>

#include "drivers/private_file.h"
#include "unet/base/check.h"

namespace unet::drivers {

namespace {

constexpr int kLookEveryMs = 20;
constexpr int kLastWaitMs = 1000;  // how long the end of a capture waits for a FIFO's reader

}  // namespace

CaptureFile::CaptureFile(const CaptureOptions& options)
    : options_(options), memory_(new std::byte[options.ring_bytes]), ring_(header_, memory_.get(), options.ring_bytes) {
  if (!options.filter.empty()) whole_.reserve(64 << 10);
}

Result<std::unique_ptr<CaptureFile>> CaptureFile::start(const CaptureOptions& options, const std::string& wire, const MacAddress& address) {
  UNET_CHECK(std::has_single_bit(options.ring_bytes));
  std::unique_ptr<CaptureFile> capture(new CaptureFile(options));
  Result<PacketFilter> filter = PacketFilter::compile(options.filter, options.snap_length);
  if (!filter) return tl::unexpected(filter.error());
  capture->filter_ = std::move(*filter);
  // O_NONBLOCK matters only for a FIFO: opening or writing it must not wait for its reader.
  const Result<int> file = open_private_file(options.file, O_NONBLOCK, true);
  if (!file) return fail(file.error().code, "capture: file=" + file.error().text);
  capture->descriptor_ = *file;
  const PcapngFile::Interface interface{.name = wire, .filter = options.filter, .address = address, .snap_length = options.snap_length};
  capture->file_.emplace(*file, options.limit, interface);
  if (Status status = capture->start_thread(); !status) return tl::unexpected(status.error());
  return capture;
}

CaptureFile::~CaptureFile() {
  if (started_) {
    stop_.store(true, std::memory_order_release);  // after the last publish()
    wake();
    pthread_join(thread_, nullptr);
  }
  if (descriptor_ >= 0) close(descriptor_);
  if (wake_ >= 0) close(wake_);
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

void CaptureFile::wake() noexcept {
  const uint64_t one = 1;
  static_cast<void>(!write(wake_, &one, sizeof one));
}

// The filter sees the whole frame, even if less of it is stored.
void CaptureFile::offer(bool outbound, Bytes data, Bytes more, Nanoseconds now) noexcept {
  const auto length = static_cast<uint32_t>(data.size() + more.size());
  if (more.empty() || options_.filter.empty()) {
    if (!filter_.wants(data, length)) return;
  } else {
    whole_.assign(data.begin(), data.end());
    whole_.insert(whole_.end(), more.begin(), more.end());
    if (!filter_.wants(whole_, length)) return;
  }
  if (epoch_ == 0) epoch_ = wall_now() - now;
  const CaptureRecord record{.time = now,
                             .length = length,
                             .captured = std::min(length, options_.snap_length),
                             .port = 0,
                             .outbound = static_cast<uint8_t>(outbound ? 1 : 0),
                             .unused = {}};
  ring_.put(at_, record, {{data, more}});
}

// The writer checks the ring every few milliseconds. It is woken only when the ring is half full, so a frame costs no system call.
void CaptureFile::publish() noexcept {
  ring_.publish(at_);
  if (!ring_.has_room(at_, options_.ring_bytes / 2) && asleep_.load(std::memory_order_relaxed)) {
    asleep_.store(false, std::memory_order_relaxed);
    wake();
  }
}

// ---- the writer's thread

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
  if (!running()) return;
  file_->add_statistics(wall_now(), seen(), dropped());
  flush();
}

void CaptureFile::drain() noexcept {
  while (reader_.next()) {
    if (!running()) continue;
    if (!file_->add(reader_.record(), reader_.frame(), epoch_)) {
      flush();
      stop_because("its limit of " + std::to_string(options_.limit) + " bytes is reached");
    } else if (file_->is_due()) {
      flush();
    }
  }
  flush();
}

void CaptureFile::flush() noexcept {
  if (!running()) return;
  if (const Status status = file_->flush(wait_for_reader, this); !status) stop_because(status.error().text);
}

// The FIFO is full: waits for its reader. Returns false when the capture is ending and the reader does not go on.
bool CaptureFile::wait_for_reader(void* self) noexcept {
  const CaptureFile& capture = *static_cast<CaptureFile*>(self);
  const bool last = capture.stop_.load(std::memory_order_acquire);
  pollfd wait[2] = {{capture.descriptor_, POLLOUT, 0}, {last ? -1 : capture.wake_, POLLIN, 0}};
  const int ready = ::poll(wait, 2, last ? kLastWaitMs : -1);
  uint64_t count = 0;
  if (wait[1].revents != 0) static_cast<void>(!read(capture.wake_, &count, sizeof count));
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
