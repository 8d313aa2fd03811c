// top.cc - redraws in place on a terminal; elsewhere prints one table after the other.
#include "apps/unetctl/top.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "apps/unetctl/rates.h"
#include "apps/unetctl/screen.h"

namespace unet::unetctl {
namespace {

using nlohmann::json;

Status top_plain(Interface& ni, const TopOptions& options) {
  Result<json> before = ni.report();
  for (uint32_t i = 0; before && (!options.count || i < *options.count); ++i) {
    usleep(static_cast<useconds_t>(options.interval * 1e6));
    Result<json> now = ni.report();
    if (!now) return tl::unexpected(now.error());
    const std::string text = (i == 0 ? "" : "\n") + picture(*now, rates_between(*before, *now), options.sort);
    if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) return fail_errno("write(standard output)", errno);
    before = std::move(now);
  }
  if (!before) return tl::unexpected(before.error());
  return {};
}

Status top_on_screen(Interface& ni, const TopOptions& options) {
  Result<json> before = ni.report();
  if (!before) return tl::unexpected(before.error());
  Result<Screen> screen = Screen::open();
  if (!screen) return tl::unexpected(screen.error());
  std::string text = "looking for the first time ... (q quits)\n";
  for (;;) {
    if (!screen->draw(text)) return fail_errno("write(terminal)", errno);
    switch (screen->sleep(options.interval)) {
      case Screen::Woken::quit:
        return {};
      case Screen::Woken::resized:
        continue;
      case Screen::Woken::time:
        break;
    }
    Result<json> now = ni.report();
    if (!now) return tl::unexpected(now.error());
    text = picture(*now, rates_between(*before, *now), options.sort);
    before = std::move(now);
  }
}

}  // namespace

Status top(Interface& ni, const TopOptions& options) {
  const bool plain = options.count || isatty(STDOUT_FILENO) == 0;
  return plain ? top_plain(ni, options) : top_on_screen(ni, options);
}

}  // namespace unet::unetctl
