// open_ports.cc - make_driver() for a list of specifications, once or until the wires are free.
#include "apps/open_ports.h"

#include <ctime>

#include "apps/drivers.h"
#include "unet/limits.h"

namespace unet::apps {
namespace {

// Whether retrying is useless: only another configuration, other rights or more memory would help, or the caller is gone.
bool lasts(Errc code) {
  return code == Errc::invalid_argument || code == Errc::not_permitted || code == Errc::out_of_memory || code == Errc::disconnected;
}

}  // namespace

OpenedPorts open_ports(const std::vector<std::string>& specifications, uint32_t with_ip) {
  std::vector<std::unique_ptr<Driver>> drivers;
  for (const std::string& specification : specifications) {
    Result<std::unique_ptr<Driver>> driver = make_driver(specification, drivers.size() < kPortsMax && (with_ip >> drivers.size() & 1) != 0);
    if (!driver) return fail(driver.error().code, "port '" + specification + "': " + driver.error().text);
    if (*driver != nullptr) drivers.push_back(std::move(*driver));  // "none" makes no wire
  }
  return drivers;
}

OpenedPorts open_when_free(const std::function<OpenedPorts()>& open, Nanoseconds patience,
                           const std::function<void(const Error&)>& on_first) {
  constexpr Nanoseconds kEvery = 20 * kMillisecond;
  const Nanoseconds begin = monotonic_now();
  for (bool first = true;; first = false) {
    OpenedPorts drivers = open();
    if (drivers || lasts(drivers.error().code) || !can_open_later() || monotonic_now() - begin >= patience) return drivers;
    if (first) on_first(drivers.error());
    const timespec pause{.tv_sec = 0, .tv_nsec = static_cast<long>(kEvery)};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace unet::apps
