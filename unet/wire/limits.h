// limits.h - the maxima that a packet format needs; unet/limits.h includes it, and has all others.
#pragma once

#include <cstdint>

namespace unet {

constexpr uint32_t kMessageMax = 64 * 1024;  // bytes of one message

}  // namespace unet
