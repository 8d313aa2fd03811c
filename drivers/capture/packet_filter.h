// packet_filter.h - a filter in libpcap's language, compiled; used by captures.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "unet/base/result.h"

struct bpf_program;

namespace unet::drivers {

class PacketFilter {
 public:
  // An empty expression wants every frame. Errors: invalid_argument.
  static Result<PacketFilter> compile(const std::string& expression, uint32_t snap_length);

  // Whether the filter accepts a frame of `length` bytes, of which `bytes` are stored.
  bool wants(std::span<const std::byte> bytes, uint32_t length) const noexcept;

 private:
  std::unique_ptr<bpf_program, void (*)(bpf_program*)> program_{nullptr, nullptr};
};

}  // namespace unet::drivers
