// capture_file.h - a capture that runs: the engine hands it frames and never waits, a thread of its own writes them to a pcapng
// file; used by the capture wrapper.
//
// Frames are copied (at most `snap_length` bytes) into a ring of fixed size. When the disk is slower than the wire the ring
// fills, and further frames are dropped from the capture and counted. When the disk is full, or the limit is reached, the
// capture stops with a line in the log, the file ends with a whole block, and the wire goes on.
#pragma once

#include <pthread.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "drivers/capture/capture_ring.h"
#include "drivers/capture/packet_filter.h"
#include "unet/base/result.h"

namespace unet::drivers {

struct CaptureOptions {
  std::string file;              // replaced if it is there; readable by its owner only. A FIFO needs a reader
  std::string filter;            // libpcap's language; empty: all frames
  uint32_t snap_length = 65535;  // bytes kept of a frame
  uint64_t limit = 0;            // bytes of the file; 0: none
  uint32_t ring_bytes = 4 << 20; // a power of two
};

class CaptureFile {
 public:
  // Opens the file and starts the thread. Errors: invalid_argument (filter), unavailable (file).
  static Result<std::unique_ptr<CaptureFile>> start(const CaptureOptions& options, const std::string& wire, const MacAddress& address);
  // Writes what is there, and ends the thread and the file.
  ~CaptureFile();
  CaptureFile(const CaptureFile&) = delete;
  CaptureFile& operator=(const CaptureFile&) = delete;

  // ---- the engine's thread

  // False: it has stopped, and offering frames is in vain.
  bool running() const noexcept { return running_.load(std::memory_order_acquire); }  // written() counts first

  // A moment between frames, to which take_back() returns.
  struct Mark {
    uint64_t position, seen, dropped;
  };
  Mark mark() const noexcept { return {ring_.staged(), seen_.load(std::memory_order_relaxed), dropped_.load(std::memory_order_relaxed)}; }
  void take_back(const Mark& mark) noexcept;

  // Keeps a copy of the frame if the filter wants it; `more` follows `data` on the wire. Visible to the writer after publish().
  void offer(pcapng::Direction direction, std::span<const std::byte> data, std::span<const std::byte> more, Nanoseconds now) noexcept;
  void publish() noexcept;

  // ---- any thread
  uint64_t frames() const noexcept { return seen() - dropped(); }  // that the filter wanted and that went to the writer
  uint64_t seen() const noexcept { return seen_.load(std::memory_order_relaxed); }
  uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }  // no room in the ring
  uint64_t written() const noexcept { return written_.load(std::memory_order_relaxed); }  // bytes of the file

 private:
  explicit CaptureFile(const CaptureOptions& options) : options_(options), ring_(options.ring_bytes) {}
  Status open_file();
  Status start_thread();

  static uint64_t time_of_day() noexcept;  // nanoseconds
  static void* run(void* self) noexcept;
  void write_all() noexcept;
  void drain() noexcept;
  void flush() noexcept;
  bool wait_for_reader() noexcept;
  void sleep() noexcept;
  void stop_because(const std::string& why) noexcept;

  const CaptureOptions options_;
  CaptureRing ring_;
  PacketFilter filter_;
  std::atomic<bool> running_{true};   // cleared by the writer
  std::atomic<bool> asleep_{false};   // the writer is; cleared by who wakes it
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> seen_{0}, dropped_{0};  // the engine's
  std::atomic<uint64_t> written_{0};            // the writer's
  uint64_t epoch_ = 0;  // what to add to a frame's time for the time of day; the engine sets it before the first frame is published

  int file_ = -1;
  int wake_ = -1;
  bool started_ = false;
  pthread_t thread_{};
  // The writer's
  std::vector<std::byte> out_;
  uint64_t file_size_ = 0;     // with what is in out_
};

}  // namespace unet::drivers
