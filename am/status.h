// status.h - the outcome of a call, and the reasons why a message is returned; part of the public API of Active Messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace unet::am {

// The outcome of a request, a reply or a get.
enum class Outcome : uint8_t {
  sent,        // it will be handled, or returned to the error handler
  not_sent,    // only from calls that do not wait: no credit or no room now
  returned,    // undeliverable: the error handler has been called
  bad_call,    // against the rules, nothing was sent: too many arguments, too long a payload, a second reply, a reply from a reply's
               // handler, a request from a handler
};

constexpr std::string_view to_string(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::sent: return "sent";
    case Outcome::not_sent: return "not_sent";
    case Outcome::returned: return "returned";
    case Outcome::bad_call: return "bad_call";
  }
  return "unknown";
}

// Why a message was not handled: the codes of AM-2, as in AMUDP. They go over the wire: only append.
enum class ReturnStatus : uint8_t {
  bad_arguments = 1,       // the message has another number of arguments than the handler takes
  bad_entry = 2,           // no such index in the translation table
  bad_tag = 3,             // the receiver has another tag
  bad_handler = 4,         // no handler has that index
  bad_segment_offset = 5,  // the offset lies beyond the receiver's segment, or there is no segment
  bad_length = 6,          // the transfer passes the segment's end
  bad_endpoint = 7,        // no such endpoint
  congestion = 8,          // the receiver has no room
  unreachable = 9,         // the peer closed, died or restarted, or the wire is lost: the message may have been handled
  reply_rejected = 10,     // a reply that could not be delivered
};
constexpr uint8_t kReturnStatusMax = 10;

// Returns why [offset, offset + length) does not lie in a segment of `size` bytes; nullopt: it does.
constexpr std::optional<ReturnStatus> outside_segment(uint64_t size, uint64_t offset, uint64_t length) noexcept {
  if (offset > size) return ReturnStatus::bad_segment_offset;
  if (length > size - offset) return ReturnStatus::bad_length;
  return std::nullopt;
}

constexpr std::string_view to_string(ReturnStatus status) noexcept {
  switch (status) {
    case ReturnStatus::bad_arguments: return "bad_arguments";
    case ReturnStatus::bad_entry: return "bad_entry";
    case ReturnStatus::bad_tag: return "bad_tag";
    case ReturnStatus::bad_handler: return "bad_handler";
    case ReturnStatus::bad_segment_offset: return "bad_segment_offset";
    case ReturnStatus::bad_length: return "bad_length";
    case ReturnStatus::bad_endpoint: return "bad_endpoint";
    case ReturnStatus::congestion: return "congestion";
    case ReturnStatus::unreachable: return "unreachable";
    case ReturnStatus::reply_rejected: return "reply_rejected";
  }
  return "unknown";
}

}  // namespace unet::am
