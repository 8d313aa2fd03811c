// call_status.h - how a call ended, and whether its procedure may have run; part of the public API of calls.
#pragma once

#include <cstdint>
#include <string_view>

namespace unet::rpc {

// The numbers travel in answers: only append within a group.
enum class CallStatus : uint8_t {
  ok = 0,
  // The procedure has not run.
  unavailable = 1,    // no server has the name or takes the channel, or the server is gone
  not_admitted = 2,   // the server does not give this caller a binding
  no_interface = 3,   // the server exports no interface of this name and version
  revoked = 4,        // the server does not know the binding: revoked, or of an earlier server
  no_procedure = 5,   // the interface has no procedure of this number
  bad_arguments = 6,  // the arguments do not decode as those of the procedure
  too_long = 7,       // the arguments are longer than the server accepts
  overloaded = 8,     // the server has too many calls, bindings or bytes under way
  expired = 9,        // the deadline passed before the procedure began
  cancelled = 10,     // the caller cancelled before the procedure began
  // The procedure may have run.
  lost = 32,          // the server died, closed, or cannot be reached any more
  timed_out = 33,     // the deadline passed while the call was under way
  abandoned = 34,     // the caller cancelled while the call was under way
  // The procedure has run.
  bad_result = 64,    // the result does not decode, or is longer than the caller or the server's backlog accepts
  failed = 65,        // the procedure says so, with a number of its own
};

constexpr bool may_have_run(CallStatus status) noexcept { return status == CallStatus::ok || status >= CallStatus::lost; }

constexpr std::string_view to_string(CallStatus status) noexcept {
  switch (status) {
    case CallStatus::ok: return "ok";
    case CallStatus::unavailable: return "unavailable";
    case CallStatus::not_admitted: return "not_admitted";
    case CallStatus::no_interface: return "no_interface";
    case CallStatus::revoked: return "revoked";
    case CallStatus::no_procedure: return "no_procedure";
    case CallStatus::bad_arguments: return "bad_arguments";
    case CallStatus::too_long: return "too_long";
    case CallStatus::overloaded: return "overloaded";
    case CallStatus::expired: return "expired";
    case CallStatus::cancelled: return "cancelled";
    case CallStatus::lost: return "lost";
    case CallStatus::timed_out: return "timed_out";
    case CallStatus::abandoned: return "abandoned";
    case CallStatus::bad_result: return "bad_result";
    case CallStatus::failed: return "failed";
  }
  return "unknown";
}

}  // namespace unet::rpc
