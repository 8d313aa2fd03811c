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
#include <optional>
#include <string>
#include <vector>

#include "drivers/capture/packet_filter.h"
#include "drivers/capture/pcapng.h"
#include "unet/base/result.h"
#include "unet/capture_memory.h"

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
  // A position between two frames that are not published yet, for take_back().
  const CapturePositions& mark() const noexcept { return at_; }
  void take_back(const CapturePositions& mark) noexcept { at_ = mark; }
  // Copies the frame if the filter wants it; `more` follows `data` on the wire. The writer sees it after publish().
  void offer(bool outbound, Bytes data, Bytes more, Nanoseconds now) noexcept;
  void publish() noexcept;

  // ---- any thread
  uint64_t frames() const noexcept { return seen() - dropped(); }  // wanted by the filter and handed to the writer
  uint64_t seen() const noexcept { return header_.frames.load(std::memory_order_relaxed); }
  uint64_t dropped() const noexcept { return header_.dropped.load(std::memory_order_relaxed); }  // the ring had no room
  uint64_t written() const noexcept { return file_->written(); }  // bytes of the file

 private:
  explicit CaptureFile(const CaptureOptions& options);
  Status start_thread();
  static void* run(void* self) noexcept;
  void write_all() noexcept;
  void drain() noexcept;
  void flush() noexcept;
  static bool wait_for_reader(void* self) noexcept;
  void wake() noexcept;
  void sleep() noexcept;
  void stop_because(const std::string& why) noexcept;

  const CaptureOptions options_;
  PacketFilter filter_;
  CaptureHeader header_{};
  const std::unique_ptr<std::byte[]> memory_;
  const CaptureRing ring_;
  // The engine's
  alignas(kCacheLine) CapturePositions at_;
  std::vector<std::byte> whole_;  // a frame in one piece, for the filter
  uint64_t epoch_ = 0;            // time of day minus a frame's time; set before the first frame is published
  // The writer's
  alignas(kCacheLine) CaptureReader reader_{ring_};
  std::optional<PcapngFile> file_;
  std::atomic<bool> running_{true};  // cleared by the writer
  std::atomic<bool> asleep_{false};  // the writer sleeps; cleared by the thread that wakes it
  std::atomic<bool> stop_{false};
  int descriptor_ = -1;
  int wake_ = -1;
  bool started_ = false;
  pthread_t thread_{};
};

}  // namespace unet::drivers
