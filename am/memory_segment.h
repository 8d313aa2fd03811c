// memory_segment.h - the memory that peers' long messages write and that their gets read; used by Endpoint.
#pragma once

#include <optional>

#include "am/packet.h"
#include "am/status.h"
#include "unet/base/bytes.h"
#include "unet/endpoint.h"

namespace unet::am {

class MemorySegment {
 public:
  MutableBytes memory() const noexcept { return memory_; }
  // Makes `bytes` of memory, which local peers access directly.
  Result<MutableBytes> expose(unet::Endpoint& endpoint, uint64_t bytes) {
    if (!memory_.empty()) return fail(Errc::already_exists, "this endpoint has a segment already");
    auto memory = endpoint.expose(bytes);
    if (memory) memory_ = *memory;
    exposed_ = memory.has_value();
    return memory;
  }
  Status set(MutableBytes memory) noexcept {
    if (exposed_) return fail(Errc::already_exists, "this endpoint exposes its segment, which stays");
    memory_ = memory;
    return {};
  }

  // Returns why [offset, offset + length) is not part of the segment; nullopt: it is.
  std::optional<ReturnStatus> outside(uint64_t offset, uint64_t length) const noexcept {
    return outside_segment(memory_.size(), offset, length);
  }
  MutableBytes part(uint64_t offset, uint64_t length) const noexcept { return memory_.subspan(offset, length); }
  // Copies a piece to the end of its transfer, which lies in the segment. Without a payload, a local peer has written the bytes itself.
  MutableBytes deposit(const PacketFields& fields, Bytes payload) const noexcept {
    const MutableBytes whole = part(fields.offset, fields.total);
    copy_bytes(whole.last(payload.size()).data(), payload.data(), payload.size());
    return whole;
  }

 private:
  MutableBytes memory_;
  bool exposed_ = false;  // expose() made the memory
};

}  // namespace unet::am
