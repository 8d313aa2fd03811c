// result.cc - the error text of a failed system call.
#include "unet/base/result.h"

#include <system_error>

namespace unet {

tl::unexpected<Error> fail_errno(std::string_view call, int errno_value) {
  return fail(Errc::system,
              std::string(call) + ": " + std::error_code(errno_value, std::system_category()).message());
}

}  // namespace unet
