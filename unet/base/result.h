// result.h - the result of set-up calls: a value, or an Error with a text for the user; used everywhere outside the data path.
#pragma once

#if __cplusplus < 202002L
#error "U-Net's C++ headers need C++20: compile with -std=c++20. Programs in C include unet/unet.h."
// A missing file ends the compilation here, instead of hundreds of errors.
#include "-std=c++20"  // tidy: allow include because no file may have this name
#endif

#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

namespace unet {

// Why a set-up call failed. The values are part of the C ABI (unet.h) and of the control protocol: append only.
enum class Errc : int {
  ok = 0,
  invalid_argument = 1,    // a malformed option, name or address; the text says what is allowed
  not_permitted = 2,       // the policy or the kernel does not allow it to this user
  quota_exceeded = 3,      // a policy limit or a limit of limits.h is reached
  not_found = 4,           // no such name, host, endpoint or channel
  already_exists = 5,      // the name is in use
  refused = 6,             // the peer did not accept the channel
  timed_out = 7,           // no answer within the time allowed
  disconnected = 8,        // the NI or the peer is gone
  unavailable = 9,         // this machine lacks something: an interface, a driver, a library
  out_of_memory = 10,      // the kernel gave no memory or descriptors
  protocol = 11,           // the other side broke the control protocol
  system = 12,             // a system call failed; the text names it and its errno
};

// One word for an Errc, as logs and JSON print it.
constexpr std::string_view to_string(Errc code) noexcept {
  switch (code) {
    case Errc::ok: return "ok";
    case Errc::invalid_argument: return "invalid_argument";
    case Errc::not_permitted: return "not_permitted";
    case Errc::quota_exceeded: return "quota_exceeded";
    case Errc::not_found: return "not_found";
    case Errc::already_exists: return "already_exists";
    case Errc::refused: return "refused";
    case Errc::timed_out: return "timed_out";
    case Errc::disconnected: return "disconnected";
    case Errc::unavailable: return "unavailable";
    case Errc::out_of_memory: return "out_of_memory";
    case Errc::protocol: return "protocol";
    case Errc::system: return "system";
  }
  return "unknown";
}

struct Error {
  Errc code = Errc::system;
  std::string text;  // a sentence for the user: the fault, and what is allowed or what to do
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = tl::expected<void, Error>;

inline tl::unexpected<Error> fail(Errc code, std::string text) {
  return tl::unexpected<Error>(Error{code, std::move(text)});
}

// Makes an Errc::system error with the call and the text of its errno ("bind(/run/x): Permission denied").
tl::unexpected<Error> fail_errno(std::string_view call, int errno_value);

}  // namespace unet
