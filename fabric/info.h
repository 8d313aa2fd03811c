// info.h - what the provider offers, and fi_getinfo(): which hints it can meet.
#pragma once

#include <rdma/fabric.h>

#include <cstddef>
#include <cstdint>

namespace unet::fabric {

constexpr size_t kEagerMax = 16 * 1024;       // the limit of fi_inject(), and of bytes with an envelope on a host
constexpr size_t kTransmitSize = 1024;        // what a program plans with; more operations may be under way
constexpr size_t kReceiveSize = 16 * 1024;    // posted receives of an endpoint
constexpr size_t kUnexpectedMax = 128 * 1024; // messages of one peer that no receive has matched, before it must wait
constexpr size_t kIovMax = 8;                 // pieces of a local buffer
constexpr size_t kMessageMax = size_t{1} << 40;  // bytes
constexpr uint64_t kOrder = FI_ORDER_SAS;

// fi_provider::getinfo.
int get_info(uint32_t version, const char* node, const char* service, uint64_t flags, const fi_info* hints, fi_info** info);

}  // namespace unet::fabric
