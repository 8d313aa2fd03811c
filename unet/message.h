// message.h - messages that applications send and receive, and the outcome of a send; part of the public C++ API of libunet.
#pragma once

#include <cstdint>
#include <string_view>

#include "unet/base/bytes.h"

namespace unet {

// An endpoint's number for one channel: small, and meaningful only together with its endpoint.
enum class Channel : uint32_t {};

enum class MessageKind : uint8_t {
  message,   // data sent to this endpoint
  put_done,  // a put with notification has arrived in the exposed region, at region_offset, with `length` bytes
  headed,    // like a message, with a head beside the data: Endpoint::head(); on local channels only
};

// A received message, in place. It is valid until it is released or its channel is closed. On a local channel the peer can still write the
// bytes: a program that does not trust its peer must copy them before it checks them.
struct Message {
  const std::byte* data = nullptr;  // nullptr for put_done
  uint32_t length = 0;              // bytes
  Channel channel{};                // the channel that it came by
  MessageKind kind = MessageKind::message;
  bool from_local = false;          // used by release(), like `position`
  uint32_t position = 0;
  uint64_t region_offset = 0;       // put_done only

  Bytes bytes() const noexcept { return {data, data == nullptr ? 0 : length}; }
};

// The outcome of a send. Only `sent` takes the message.
enum class SendOutcome : uint8_t {
  sent,
  full,           // no room now: receive, or wait_room(), and try again
  too_long,       // more than kMessageMax bytes (IP: kIpMessageMax), or more than the endpoint's send memory holds
  no_channel,     // no such channel, or it is closed
  out_of_bounds,  // a put outside the peer's exposed region (or it exposes none)
};

constexpr std::string_view to_string(SendOutcome outcome) noexcept {
  switch (outcome) {
    case SendOutcome::sent: return "sent";
    case SendOutcome::full: return "full";
    case SendOutcome::too_long: return "too_long";
    case SendOutcome::no_channel: return "no_channel";
    case SendOutcome::out_of_bounds: return "out_of_bounds";
  }
  return "unknown";
}

}  // namespace unet
