// pcapng.h - the blocks of a pcapng file (draft-ietf-opsawg-pcapng) that a capture needs; used by CaptureFile.
//
// Blocks are in the byte order of the machine; the section header tells readers which. Timestamps are nanoseconds since 1970.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ni/driver.h"

namespace unet::drivers::pcapng {

enum class Direction : uint32_t { inbound = 1, outbound = 2 };  // values of epb_flags

// The section header and the description of the one interface.
struct Interface {
  std::string name;      // description of the wire
  std::string filter;    // empty: none
  MacAddress address{};
  uint32_t snap_length = 0;
};
void append_head(std::vector<std::byte>& file, const Interface& interface);

// Bytes that append_packet() appends for a frame of which `captured` bytes are stored.
size_t packet_size(size_t captured) noexcept;

// Appends a frame of `length` bytes, of which `bytes` are stored.
void append_packet(std::vector<std::byte>& file, Direction direction, uint64_t time, std::span<const std::byte> bytes, uint32_t length);

// The statistics block at the end of the file: how many frames were seen and how many dropped.
size_t statistics_size() noexcept;
void append_statistics(std::vector<std::byte>& file, uint64_t time, uint64_t received, uint64_t dropped);

}  // namespace unet::drivers::pcapng
