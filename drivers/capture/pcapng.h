// pcapng.h - a pcapng file (draft-ietf-opsawg-pcapng) that is being written; used by CaptureFile and unetctl.
//
// libpcap writes only the older format, which has neither the direction of a frame nor the number of dropped frames. Blocks are in the byte
// order of the machine; the section header tells readers which. Timestamps are nanoseconds since 1970.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ni/driver.h"
#include "unet/base/bytes.h"
#include "unet/base/result.h"
#include "unet/capture_memory.h"

namespace unet::drivers {

class PcapngFile {
 public:
  // Description of the one interface.
  struct Interface {
    std::string name;      // description of the wire
    std::string filter;    // empty: none
    MacAddress address{};
    uint32_t snap_length = 0;
  };

  // Writes to `descriptor`, which stays the caller's, at most `limit` bytes; 0: no limit.
  PcapngFile(int descriptor, uint64_t limit, const Interface& interface);

  // Appends a frame; `epoch` plus the record's time is its time. False: the limit leaves no room.
  bool add(const CaptureRecord& record, Bytes frame, uint64_t epoch);
  // Appends the statistics block at the end of the file, unless the limit leaves no room: how many frames were seen and how many dropped.
  void add_statistics(uint64_t time, uint64_t seen, uint64_t dropped);
  // Whether enough is waiting for a system call.
  bool is_due() const noexcept { return out_.size() >= kWriteAt; }
  // Writes what was appended. `wait(context)` is called when the descriptor takes nothing now; false: give up. After an error a regular
  // file ends with a whole block, so that every reader accepts it.
  Status flush(bool (*wait)(void*) = [](void*) { return false; }, void* context = nullptr);
  uint64_t written() const noexcept { return written_.load(std::memory_order_relaxed); }  // bytes; any thread may call this

 private:
  static constexpr size_t kWriteAt = 256 << 10;  // bytes per system call, if as many are waiting

  const int descriptor_;
  const uint64_t limit_;
  std::vector<std::byte> out_;
  std::atomic<uint64_t> written_{0};
};

}  // namespace unet::drivers
