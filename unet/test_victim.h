// test_victim.h - the honest side of a local channel with a lying peer: makes random calls, and checks that all results are in range; for
// unit tests and fuzz targets.
#pragma once

#include <algorithm>
#include <vector>

#include "unet/test_channel.h"

namespace unet {

class Victim {
 public:
  static constexpr uint64_t kRegion = 2 * kPage;  // bytes that each side exposes

  Victim(const ChannelParts& parts, uint32_t side)
      : geometry_(parts.geometry()), side_(side), region_(sealed_memory(kRegion)), channel_(parts.open(side, Channel{5})) {
    channel_->set_peer_region(map_all(region_, kRegion));
    channel_->set_own_region(kRegion);
    // An empty data ring starts at its beginning: this reveals the address of the memory in this process.
    base_ = channel_->reserve(1).data() - geometry_.data[side];
  }

  // Makes one call, chosen and shaped by `choice`. Returns false if a result is out of range.
  bool turn(uint32_t choice) {
    const uint32_t argument = choice >> 4;
    switch (choice & 15) {
      case 0: return is(send(argument % (kInlineMax + 1)));
      case 1: return is(send(argument % (kMessageMax + 1)));
      case 2: return channel_->send(data_.data(), kMessageMax + 1) == SendOutcome::too_long;
      case 3: return reserve(argument % (kMessageMax + 1));
      case 4: {
        const SendOutcome outcome = channel_->post(argument % (reserved_ + 2));
        reserved_ = outcome == SendOutcome::sent ? 0 : reserved_;
        return is(outcome) || outcome == SendOutcome::too_long;
      }
      case 5: return put(argument);
      case 6: channel_->announce_sleep((argument & 1) != 0); return true;
      case 7: channel_->end_sleep(); return true;
      case 8: channel_->flush_credits(); return true;
      case 9: static_cast<void>(channel_->has_room()); return true;
      case 10: static_cast<void>(channel_->has_message()); return true;
      case 11:
      case 12: return release(argument);
      default: return receive();
    }
  }

  // Restores a state in which an honest peer could continue, as far as this side can.
  void release_all() {
    for (const Message& each : held_) channel_->release(each);
    held_.clear();
    channel_->flush_credits();
  }

  LocalChannel& channel() { return *channel_; }
  // The position of the next slot to receive.
  uint32_t next_position() const {
    return static_cast<uint32_t>(channel_->counters().received_messages + channel_->counters().bad_descriptor);
  }
  uint64_t received() const { return received_; }
  uint64_t sum() const { return sum_; }

 private:
  static bool is(SendOutcome outcome) { return outcome == SendOutcome::sent || outcome == SendOutcome::full; }
  SendOutcome send(uint32_t length) {
    if (length > kInlineMax) reserved_ = 0;
    return channel_->send(data_.data(), length);
  }
  bool inside(const std::byte* data, uint64_t length, uint64_t from, uint64_t bytes) const {
    const std::byte* const begin = base_ + from;
    return data >= begin && data <= begin + bytes && length <= static_cast<uint64_t>(begin + bytes - data);
  }
  bool reserve(uint32_t length) {
    reserved_ = 0;
    const MutableBytes room = channel_->reserve(length);
    if (room.empty()) return true;
    std::fill(room.begin(), room.end(), std::byte{1});
    reserved_ = static_cast<uint32_t>(room.size());
    const bool own = length <= kInSlotsMax && !inside(room.data(), room.size(), 0, geometry_.total);
    return room.size() == std::max(length, 1u) && (own || inside(room.data(), room.size(), geometry_.data[side_], geometry_.data_bytes));
  }
  bool put(uint32_t argument) {
    const uint64_t offset = argument % (kRegion + 64), length = argument % 777;
    const SendOutcome outcome = channel_->put(offset, {data_.data(), length}, (argument & 1) != 0);
    return offset + length <= kRegion ? is(outcome) : outcome == SendOutcome::out_of_bounds;
  }
  bool receive() {
    Message message;
    if (!channel_->receive(message)) return true;
    ++received_;
    const uint32_t in = 1 - side_;
    bool right = message.channel == Channel{5} && message.from_local;
    if (message.kind == MessageKind::put_done) {
      right = right && message.data == nullptr && message.region_offset <= kRegion && message.length <= kRegion - message.region_offset;
    } else {
      const bool in_slot = message.length <= kInlineMax && inside(message.data, message.length, geometry_.slots[in],
                                                                  uint64_t{geometry_.depth} * sizeof(Slot));
      // The victim's own memory holds messages that came in several slots.
      const bool own = message.length <= kInSlotsMax && !inside(message.data, message.length, 0, geometry_.total);
      right = right && message.length <= kMessageMax &&
              (in_slot || own || inside(message.data, message.length, geometry_.data[in], geometry_.data_bytes));
      if (right && message.kind == MessageKind::headed) {
        const Bytes head = channel_->head(message);
        right = head.size() <= kHeadedMax &&
                (head.empty() || own || inside(head.data(), head.size(), geometry_.slots[in], uint64_t{geometry_.depth} * sizeof(Slot)));
        for (const std::byte each : head) sum_ += static_cast<uint8_t>(each);
      }
      if (right) {
        for (const std::byte each : message.bytes()) sum_ += static_cast<uint8_t>(each);
      }
    }
    if (held_.size() < 2 * geometry_.depth) held_.push_back(message);
    return right;
  }
  bool release(uint32_t argument) {
    if (held_.empty()) return true;
    const size_t which = argument % held_.size();
    channel_->release(held_[which]);
    if ((argument & 64) != 0) channel_->release(held_[which]);
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(which));
    return true;
  }

  LocalGeometry geometry_;
  uint32_t side_;
  Descriptor region_;
  std::unique_ptr<LocalChannel> channel_;
  const std::byte* base_ = nullptr;
  std::vector<std::byte> data_ = std::vector<std::byte>(kMessageMax + 1);
  std::vector<Message> held_;
  uint32_t reserved_ = 0;
  uint64_t received_ = 0;
  uint64_t sum_ = 0;
};

}  // namespace unet
