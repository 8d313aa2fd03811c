// top.cc - redraws in place on a terminal that can do so; elsewhere prints one table after the other.
#include "apps/unetctl/top.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "apps/unetctl/display.h"
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

// Changes the options as the key says. False: the key ends the program.
bool obey(char key, DisplayOptions& options) {
  switch (key) {
    case 'q':
    case 'Q': return false;
    case 'm': options.sort = Sort::messages; break;
    case 'b': options.sort = Sort::bytes; break;
    case 'd': options.sort = Sort::drops; break;
    case 'n': options.sort = Sort::name; break;
    case 'p': options.programs = !options.programs; break;
    case '+': options.interval = std::min(options.interval * 2, kIntervalMax); break;
    case '-': options.interval = std::max(options.interval / 2, kIntervalMin); break;
    default: break;
  }
  return true;
}

Status top_on_screen(Interface& ni, const TopOptions& given) {
  Result<json> now = ni.report();
  if (!now) return tl::unexpected(now.error());
  Result<Screen> screen = Screen::open();
  if (!screen) return tl::unexpected(screen.error());
  DisplayOptions options{.sort = given.sort, .interval = given.interval};
  History history;
  Rates rates;
  for (;;) {
    options.columns = screen->columns();
    screen->draw(display(*now, rates, history, options));
    const auto since = Screen::Time::now();
    const auto due = [&] { return since + std::chrono::ceil<Screen::Time::duration>(std::chrono::duration<double>(options.interval)); };
    while (const char key = screen->key(due())) {
      if (!obey(key, options)) return {};
      options.columns = screen->columns();
      screen->draw(display(*now, rates, history, options));
    }
    Result<json> next = ni.report();
    if (!next) return tl::unexpected(next.error());
    rates = rates_between(*now, *next);
    history.add(rates);
    now = std::move(next);
  }
}

// Whether standard output is a terminal that can draw in place.
bool has_screen() {
  const char* const kind = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && kind != nullptr && std::string_view(kind) != "dumb";
}

}  // namespace

Status top(Interface& ni, const TopOptions& options) {
  return options.count || !has_screen() ? top_plain(ni, options) : top_on_screen(ni, options);
}

}  // namespace unet::unetctl
