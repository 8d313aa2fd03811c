// stream_options.h - options of a stream, for a socket of another stack that goes on with it (StreamMoves::import_stream()).
#pragma once

#include <cstdint>

#include "ipstack/tcp/options.h"

namespace unet::sockets {

struct StreamOptions {
  tcp::Options tcp{};
  uint8_t hop_limit = 0, traffic_class = 0;
  uint16_t max_segment = 0, keep_idle = 0;
  uint32_t linger = 0;
  bool zero_copy = false, urgent_inline = false;
};

}  // namespace unet::sockets
