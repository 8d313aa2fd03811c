// top.h - `unetctl top`: the picture of rates.h again and again.
#pragma once

#include "apps/unetctl/interface.h"
#include "apps/unetctl/options.h"

namespace unet::unetctl {

// Until the user ends it, or --count tables are printed. Errors: the NI's, or output that cannot be written.
Status top(Interface& ni, const TopOptions& options);

}  // namespace unet::unetctl
