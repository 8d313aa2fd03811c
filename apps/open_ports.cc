// open_ports.cc - make_driver() for a list.
#include "apps/open_ports.h"

#if __has_include("apps/drivers.h")
#include "apps/drivers.h"
#define UNET_HAVE_DRIVERS 1
#else
#define UNET_HAVE_DRIVERS 0
#endif

namespace unet::apps {

Result<std::vector<std::unique_ptr<Driver>>> open_ports(const std::vector<std::string>& specifications) {
  std::vector<std::unique_ptr<Driver>> drivers;
  for (const std::string& specification : specifications) {
#if UNET_HAVE_DRIVERS
    Result<std::unique_ptr<Driver>> driver = make_driver(specification);
    if (!driver) return fail(driver.error().code, "port '" + specification + "': " + driver.error().text);
    drivers.push_back(std::move(*driver));
#else
    return fail(Errc::unavailable, "port '" + specification + "': this build has no drivers");
#endif
  }
  return drivers;
}

}  // namespace unet::apps
