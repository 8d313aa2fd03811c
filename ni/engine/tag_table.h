// tag_table.h - from the tag of an arriving frame to the channel it belongs to; filled by commands, read by the demux.
//
// The low 16 bits of a tag are the index of its entry; the rest is a random generation, so a tag of a closed channel, or
// a guessed one, does not match the channel that uses the entry now.
#pragma once

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "ni/engine/endpoint_state.h"
#include "unet/base/check.h"
#include "unet/wire/frame.h"

namespace unet::engine {

// An address and a port in one word, as in memory: one comparison checks the source of a frame.
constexpr bool kLittle = std::endian::native == std::endian::little;
constexpr uint64_t kAddressMask = kLittle ? 0x0000'FFFF'FFFF'FFFF : 0xFFFF'FFFF'FFFF'0000;

constexpr uint64_t port_key(uint32_t port) noexcept { return uint64_t{port} << (kLittle ? 48 : 0); }

inline uint64_t source_key(const MacAddress& address, uint32_t port) noexcept {
  uint64_t key = 0;
  std::memcpy(&key, address.data(), address.size());
  return key | port_key(port);
}
// The address part of that word, from a frame: one load, as two more bytes follow.
inline uint64_t address_key(const std::byte* address) noexcept {
  uint64_t key;
  std::memcpy(&key, address, sizeof key);
  return key & kAddressMask;
}

// Reads the tag of a frame of ours, before other checks; false: not a frame of ours.
inline bool read_tag(Bytes frame, Tag& tag) noexcept {
  if (frame.size() < kFrameOverhead) return false;
  be16 type;
  be32 value;
  std::memcpy(&type, frame.data() + offsetof(EthernetHeader, type), sizeof type);
  std::memcpy(&value, frame.data() + sizeof(EthernetHeader) + offsetof(FrameHeader, tag), sizeof value);
  tag = Tag{uint32_t{value}};
  return type == kEtherType;
}

struct TagEntry {
  EndpointState* endpoint = nullptr;  // nullptr: no channel, or one of another engine
  uint64_t source = 0;                // source_key
  Tag tag{};
  uint32_t channel = 0;               // the endpoint's number for it; without endpoint: which engine has it
};

class TagTable {
 public:
  // From calloc(): pages of tags that are never used are never touched.
  TagTable() : entries_(static_cast<TagEntry*>(std::calloc(kChannelsMax, sizeof(TagEntry)))) { UNET_CHECK(entries_ != nullptr); }

  const TagEntry& entry(Tag tag) const noexcept { return entries_[index(tag)]; }

  void open(Tag tag, const TagEntry& entry) noexcept {
    UNET_CHECK(tag != kSignallingTag && entries_[index(tag)].tag == kSignallingTag);
    entries_[index(tag)] = entry;
  }
  void close(Tag tag) noexcept { entries_[index(tag)] = TagEntry{}; }

 private:
  static uint32_t index(Tag tag) noexcept { return static_cast<uint32_t>(tag) & (kChannelsMax - 1); }

  struct Free {
    void operator()(TagEntry* entries) const noexcept { std::free(entries); }
  };
  std::unique_ptr<TagEntry[], Free> entries_;
};
static_assert(kChannelsMax == 64 * 1024);

}  // namespace unet::engine
