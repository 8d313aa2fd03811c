// views_test.cc - unetctl's output of texts that clients chose.
#include "apps/unetctl/views.h"

#include <catch2/catch.hpp>

namespace unet::unetctl::views_test {

TEST_CASE("a client's name for itself does not command the terminal") {
  const nlohmann::json report = {
      {"clients", {{{"client", 0}, {"pid", 7}, {"uid", 1000}, {"program", "\x1b[2Jevil\r\n\x7f"}, {"endpoints", 0}}}}};
  const std::string text = show(report, "clients");
  CHECK(text.find("?[2Jevil???") != std::string::npos);
  for (const char c : text) CHECK((c == '\n' || (c >= 0x20 && c != 0x7f)));
  CHECK(select(report, "clients")[0]["program"] == "\x1b[2Jevil\r\n\x7f");  // JSON escapes it by itself
}

}  // namespace unet::unetctl::views_test
