// top.h - `unetctl top`: shows the picture of rates.h repeatedly.
#pragma once

#include "apps/unetctl/interface.h"
#include "apps/unetctl/options.h"

namespace unet::unetctl {

// Runs until the user ends it, or --count tables are printed. Errors: the NI's, or failed output.
Status top(Interface& ni, const TopOptions& options);

}  // namespace unet::unetctl
