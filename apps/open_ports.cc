// open_ports.cc - make_driver() for a list.
#include "apps/open_ports.h"

#include "apps/drivers.h"

namespace unet::apps {

Result<std::vector<std::unique_ptr<Driver>>> open_ports(const std::vector<std::string>& specifications) {
  std::vector<std::unique_ptr<Driver>> drivers;
  for (const std::string& specification : specifications) {
    Result<std::unique_ptr<Driver>> driver = make_driver(specification);
    if (!driver) return fail(driver.error().code, "port '" + specification + "': " + driver.error().text);
    if (*driver != nullptr) drivers.push_back(std::move(*driver));  // "none" is no wire
  }
  return drivers;
}

}  // namespace unet::apps
