// wrapper_spec.h - the wrappers of a driver specification, by name; used by drivers.cc.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "ni/driver.h"
#include "unet/base/result.h"

namespace unet::apps {

// Puts the wrapper around a wire.
using Wrapper = std::function<Result<std::unique_ptr<Driver>>(std::unique_ptr<Driver>)>;

struct WrapperKind {
  std::string_view form;  // its name, and ":OPTIONS" if it needs some
  Result<Wrapper> (*parse)(std::string_view options);
  bool takes_queues = false;     // it can wrap each queue of a wire separately
  bool needs_all_types = false;  // of Ethernet frames
  bool takes_segments = false;   // also larger than the MTU
};

// The kind that a specification names: "faulty" or "faulty:loss=1%". nullptr: there is none.
const WrapperKind* wrapper_kind(std::string_view text);

// "faulty:loss=1%": checks all that can be checked without the wire.
Result<Wrapper> parse_wrapper(std::string_view text);

// The forms of all wrappers: for error messages.
std::string wrapper_forms();

}  // namespace unet::apps
