// capture_file.h - a running capture: the engine hands it frames and never waits, a thread writes them to a pcapng file; used by the
// capture wrapper.
//
// Frames are copied (at most `snap_length` bytes) into a ring of fixed size. When the disk is slower than the wire the ring fills, and
// further frames are dropped from the capture and counted. When the disk is full, or the limit is reached, the capture stops with a line in
// the log. The file then ends with a whole block, and the wire goes on.
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
  std::string file;              // replaced if it exists; only its owner may read it. A FIFO needs a reader
  std::string filter;            // in libpcap's language; empty: all frames
  uint32_t snap_length = 65535;  // bytes stored of a frame
  uint64_t limit = 0;            // maximum bytes of the file; 0: no limit
  uint32_t ring_bytes = 4 << 20; // a power of two
};

class CaptureFile {
 public:
  // Opens the file and starts the thread. Errors: invalid_argument (filter), unavailable (file).
  static Result<std::unique_ptr<CaptureFile>> start(const CaptureOptions& options, const std::string& wire, const MacAddress& address);
  // Writes the frames that are in the ring, then ends the thread and the file.
  ~CaptureFile();
  CaptureFile(const CaptureFile&) = delete;
  CaptureFile& operator=(const CaptureFile&) = delete;

  // ---- the engine's thread

  // False: the capture has stopped, and ignores further frames.
  bool running() const noexcept { return running_.load(std::memory_order_acquire); }  // acquire: the final written() is visible

  // A position between two frames, for take_back().
  struct Mark {
    uint64_t position, seen, dropped;
  };
  Mark mark() const noexcept { return {ring_.staged(), seen_.load(std::memory_order_relaxed), dropped_.load(std::memory_order_relaxed)}; }
  void take_back(const Mark& mark) noexcept;

  // Copies the frame if the filter wants it; `more` follows `data` on the wire. The writer sees it after publish().
  void offer(pcapng::Direction direction, std::span<const std::byte> data, std::span<const std::byte> more, Nanoseconds now) noexcept;
  void publish() noexcept;

  // ---- any thread
  uint64_t frames() const noexcept { return seen() - dropped(); }  // wanted by the filter and handed to the writer
  uint64_t seen() const noexcept { return seen_.load(std::memory_order_relaxed); }
  uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }  // the ring had no room
  uint64_t written() const noexcept { return written_.load(std::memory_order_relaxed); }  // bytes of the file

 private:
  explicit CaptureFile(const CaptureOptions& options) : options_(options), ring_(options.ring_bytes) {}
  Status open_file();
  Status start_thread();

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
  std::atomic<bool> asleep_{false};   // the writer sleeps; cleared by the thread that wakes it
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> seen_{0}, dropped_{0};  // written by the engine
  std::atomic<uint64_t> written_{0};            // written by the writer
  uint64_t epoch_ = 0;  // time of day minus a frame's time; the engine sets it before it publishes the first frame

  int file_ = -1;
  int wake_ = -1;
  bool started_ = false;
  pthread_t thread_{};
  // Used by the writer only
  std::vector<std::byte> out_;
  uint64_t file_size_ = 0;     // including the bytes in out_
};

}  // namespace unet::drivers
