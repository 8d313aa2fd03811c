// embedded_spec.h - the specification of an embedded NI: drivers and options in one text (embedded_abi.h says the form).
#pragma once

#include <string_view>

#include "ni/service/config.h"
#include "unet/base/result.h"

namespace unet::embedded {

// The configuration the text describes. Errors: invalid_argument, with the option and what is allowed.
Result<service::Config> parse_embedded(std::string_view text);

}  // namespace unet::embedded
