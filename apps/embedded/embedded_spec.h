// embedded_spec.h - the specification of an embedded NI: drivers and options in one text, of the form in embedded_abi.h.
#pragma once

#include <string_view>

#include "ni/service/config.h"
#include "unet/base/result.h"

namespace unet::embedded {

// Parses the text. Errors: invalid_argument, with the option and its allowed values.
Result<service::Config> parse_embedded(std::string_view text);

}  // namespace unet::embedded
