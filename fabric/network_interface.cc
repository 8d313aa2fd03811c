// network_interface.cc - see network_interface.h.
#include "fabric/network_interface.h"

namespace unet::fabric {

Result<NetworkInterface> open_network_interface() {
  auto context = Context::open();
  if (!context) return tl::unexpected(context.error());
  const Result<std::string> report = context->report();
  if (!report) return tl::unexpected(report.error());
  // The report begins with the host. Names of hosts have no characters that JSON escapes.
  constexpr std::string_view kBegin = "{\"host\":\"";
  const size_t end = report->find('"', kBegin.size());
  if (report->compare(0, kBegin.size(), kBegin) != 0 || end == std::string::npos) {
    return fail(Errc::protocol, "the network interface does not tell the name of its host");
  }
  return NetworkInterface{std::move(*context), report->substr(kBegin.size(), end - kBegin.size())};
}

}  // namespace unet::fabric
