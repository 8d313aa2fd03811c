// ports.h - the kinds of flow of message ports that `ports` compares.
#pragma once

#include <array>
#include <cstdint>

namespace unet::bench {

// Slice::condition of the paths ports-*, and their metrics.
enum class PortFlowKind : uint32_t { windowed, one_message, stop_and_wait };
inline constexpr std::array kPortFlows{"windowed", "one_message", "stop_and_wait"};

}  // namespace unet::bench
