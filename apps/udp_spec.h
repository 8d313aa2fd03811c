// udp_spec.h - the options of the udp wrapper in a driver specification; used by wrapper_spec.cc.
#pragma once

#include <string_view>

#include "apps/wrapper_spec.h"

namespace unet::apps {

// "address=10.0.1.2/24,gateway=10.0.1.1,peers=10.0.2.2+10.0.3.2"
Result<Wrapper> parse_udp(std::string_view text);

}  // namespace unet::apps
