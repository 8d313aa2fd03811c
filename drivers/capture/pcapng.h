// pcapng.h - the blocks of a pcapng file (draft-ietf-opsawg-pcapng) that a capture needs; used by CaptureFile.
//
// Blocks are in the byte order of the machine, which the section header tells. Timestamps are nanoseconds since 1970.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ni/driver.h"

namespace unet::drivers::pcapng {

enum class Direction : uint32_t { inbound = 1, outbound = 2 };  // as epb_flags has them

// Section header and the description of the one interface.
struct Interface {
  std::string name;      // the wire's description
  std::string filter;    // empty: none
  MacAddress address{};
  uint32_t snap_length = 0;
};
void append_head(std::vector<std::byte>& file, const Interface& interface);

// How many bytes append_packet() appends for a frame of which `captured` bytes are kept.
size_t packet_size(size_t captured) noexcept;

// A frame: `bytes` are kept of `length`.
void append_packet(std::vector<std::byte>& file, Direction direction, uint64_t time, std::span<const std::byte> bytes, uint32_t length);

// What was seen in all: for the end of the file.
size_t statistics_size() noexcept;
void append_statistics(std::vector<std::byte>& file, uint64_t time, uint64_t received, uint64_t dropped);

}  // namespace unet::drivers::pcapng
