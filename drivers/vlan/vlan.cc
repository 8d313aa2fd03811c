// vlan.cc - adds tags to frames and removes them.
#include "drivers/vlan/vlan.h"

#include <algorithm>
#include <cstring>

#include "unet/base/bytes.h"
#include "unet/base/check.h"

namespace unet::drivers {
namespace {

constexpr uint32_t kAddresses = 12;
constexpr uint32_t kTag = 4;
constexpr uint32_t kBurstMax = 64;
constexpr uint16_t kTagType = 0x8100;

struct Tag8021q {
  be16 type;
  be16 control;  // 3 bits of priority, 1 bit drop eligible, 12 bits VLAN
};
static_assert(sizeof(Tag8021q) == kTag);

}  // namespace

Vlan::Vlan(std::unique_ptr<Driver> wire, const VlanOptions& options)
    : Wrapper(std::move(wire)), options_(options) {
  UNET_CHECK(options_.id >= 1 && options_.id <= kVlanMax && options_.priority <= 7);
  capabilities_.mtu -= kTag;  // ports count the tag as payload
}

uint32_t Vlan::receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept {
  const uint32_t count = wire_->receive(frames, now);
  for (ReceivedFrame& frame : frames.first(count)) {
    if (!take_tag_off(frame)) frame.length = 0;  // stays in the burst with length 0: the engine counts and releases it
  }
  return count;
}

bool Vlan::take_tag_off(ReceivedFrame& frame) noexcept {
  Tag8021q tag;
  if (frame.length < kAddresses + kTag) {
    ++untagged_;
    return false;
  }
  std::memcpy(&tag, frame.data + kAddresses, sizeof tag);
  if (tag.type != kTagType) {
    ++untagged_;
    return false;
  }
  if ((tag.control & 0xFFF) != options_.id) {
    ++other_;
    return false;
  }
  ++received_;
  // The driver's memory is writable, and ours until release() (driver.h).
  std::memmove(const_cast<std::byte*>(frame.data) + kTag, frame.data, kAddresses);
  frame.data += kTag;
  frame.length -= kTag;
  return true;
}

uint32_t Vlan::allocate(std::span<TransmitFrame> frames) noexcept {
  const uint32_t count = wire_->allocate(frames);
  for (TransmitFrame& frame : frames.first(count)) frame.data += kTag;
  return count;
}

uint32_t Vlan::transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept {
  const Tag8021q tag{.type = kTagType, .control = static_cast<uint16_t>(options_.priority << 13 | options_.id)};
  uint32_t done = 0;
  while (done < frames.size()) {
    TransmitFrame burst[kBurstMax];
    const auto count = static_cast<uint32_t>(std::min<size_t>(frames.size() - done, kBurstMax));
    for (uint32_t i = 0; i < count; ++i) {
      TransmitFrame& out = burst[i] = frames[done + i];
      out.data -= kTag;
      out.length += kTag;
      std::memmove(out.data, out.data + kTag, kAddresses);
      std::memcpy(out.data + kAddresses, &tag, sizeof tag);
    }
    const uint32_t taken = wire_->transmit({burst, count}, now);
    // The engine gets the refused frames back as it wrote them.
    for (uint32_t i = taken; i < count; ++i) std::memmove(burst[i].data + kTag, burst[i].data, kAddresses);
    done += taken;
    if (taken < count) break;
  }
  return done;
}

std::vector<std::unique_ptr<Driver>> Vlan::take_queues() {
  std::vector<std::unique_ptr<Driver>> all = wire_->take_queues();
  for (std::unique_ptr<Driver>& queue : all) queue = std::make_unique<Vlan>(std::move(queue), options_);
  return all;
}

std::vector<DriverCounter> Vlan::counters() const {
  std::vector<DriverCounter> all = wire_->counters();
  all.push_back({"vlan_received", received_});
  all.push_back({"vlan_untagged", untagged_});
  all.push_back({"vlan_other", other_});
  return all;
}

std::string Vlan::description() const { return "vlan " + std::to_string(options_.id) + " over " + wire_->description(); }

}  // namespace unet::drivers
