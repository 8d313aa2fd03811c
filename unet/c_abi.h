// c_abi.h - conventions of all C interfaces of the project: error texts, no exceptions, structures that grow; not installed.
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>

#include "unet/base/result.h"
#include "unet/context.h"
#include "unet/unet.h"

namespace unet::c_abi {

// ---- types of the C ABI are those of the C++ API: a pointer to one is a pointer to the other

inline Context& of(unet_context* context) noexcept { return *reinterpret_cast<Context*>(context); }
inline const Context& of(const unet_context* context) noexcept { return *reinterpret_cast<const Context*>(context); }

inline Nanoseconds to_timeout(int64_t ns) noexcept { return ns < 0 ? Endpoint::kForever : static_cast<Nanoseconds>(ns); }
inline Nanoseconds to_spin(int64_t ns) noexcept { return ns < 0 ? Endpoint::kDefaultSpin : static_cast<Nanoseconds>(ns); }

inline int to_c(WaitOutcome outcome) noexcept {
  switch (outcome) {
    case WaitOutcome::ready: return UNET_READY;
    case WaitOutcome::room: return UNET_ROOM;
    case WaitOutcome::timed_out: return UNET_TIMED_OUT;
    case WaitOutcome::interrupted: return UNET_EINTERRUPTED;
    case WaitOutcome::disconnected: return UNET_EDISCONNECTED;
  }
  return UNET_ESYSTEM;
}

// ---- errors

// Stores the text that unet_error_text() returns, and returns the code for C programs.
int failed(Errc code, std::string_view text) noexcept;
inline int failed(const Error& error) noexcept { return failed(error.code, error.text); }
int null_argument(const char* name) noexcept;
inline int done(const Status& status) noexcept { return status ? 0 : failed(status.error()); }

// Runs a set-up call. Exceptions of the standard library (memory, threads) become error codes.
template <typename Call>
int guarded(Call&& call) noexcept {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return failed(Errc::out_of_memory, "no memory left in this process");
  } catch (const std::exception& error) {
    return failed(Errc::system, error.what());
  }
}

// ---- structures that may grow

// Copies a structure of the caller's version. Members that the caller does not know become 0; members that this library does not know must
// be 0.
template <typename Options>
int take_options(const Options* from, Options& to) noexcept {
  std::memset(&to, 0, sizeof to);
  if (from == nullptr) return 0;
  size_t size = 0;
  std::memcpy(&size, from, sizeof size);
  if (size < sizeof size) return failed(Errc::invalid_argument, "the options' member size is not set: it is sizeof(the structure)");
  const auto* bytes = reinterpret_cast<const char*>(from);
  if (size > sizeof to && std::any_of(bytes + sizeof to, bytes + size, [](char c) { return c != 0; })) {
    return failed(Errc::invalid_argument, "the options use members that this libunet does not know: it is older than the program");
  }
  std::memcpy(&to, from, std::min(size, sizeof to));
  return 0;
}

// Copy the options; defaults stay in `to`.
int take_endpoint_options(const unet_endpoint_options* from, EndpointOptions& to) noexcept;
int take_connect_options(const unet_connect_options* from, ConnectOptions& to) noexcept;

}  // namespace unet::c_abi
