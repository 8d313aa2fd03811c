// wrapper_spec.h - the wrappers of a driver specification, by name; used by drivers.cc.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "ni/driver.h"
#include "unet/base/result.h"

namespace unet::apps {

// Puts the wrapper around a wire.
using Wrapper = std::function<Result<std::unique_ptr<Driver>>(std::unique_ptr<Driver>)>;

// "faulty:loss=1%": checks all that can be checked without the wire.
Result<Wrapper> parse_wrapper(std::string_view text);

// Whether there is a wrapper of this name.
bool is_wrapper(std::string_view name);

}  // namespace unet::apps
