// message_window_test.cc - which messages of a channel are over, as their numbers go on and around.
#include "ni/engine/message_window.h"

#include <catch2/catch.hpp>

namespace unet::engine::message_window_test {

using Fate = MessageWindow::Fate;

TEST_CASE("a message is open until it is closed, and then as it was closed") {
  const uint32_t start = GENERATE(0u, 5u, 0x7FFFFFF0u, 0xFFFFFFE0u);
  MessageWindow window;
  for (uint32_t i = 0; i < 100; ++i) {
    const uint32_t message = start + i;
    window.see(message);
    CHECK(window.fate(message) == Fate::open);
    if (i % 3 != 0) window.close(message, i % 3 == 1 ? Fate::arrived : Fate::dropped);
  }
  for (uint32_t i = 40; i < 100; ++i) {
    const Fate expected = i % 3 == 0 ? Fate::open : i % 3 == 1 ? Fate::arrived : Fate::dropped;
    CHECK(window.fate(start + i) == expected);
  }
  CHECK(window.fate(start) == Fate::open);  // too long ago to know
  CHECK(window.fate(start + 100) == Fate::open);
}

TEST_CASE("messages are closed in any order") {
  MessageWindow window;
  window.see(10);
  window.close(7, Fate::dropped);
  window.close(9, Fate::arrived);
  window.close(12, Fate::arrived);
  CHECK(window.fate(7) == Fate::dropped);
  CHECK(window.fate(8) == Fate::open);
  CHECK(window.fate(9) == Fate::arrived);
  CHECK(window.fate(11) == Fate::open);
  CHECK(window.fate(12) == Fate::arrived);
}

TEST_CASE("a message is superseded when a newer one has been seen") {
  MessageWindow window;
  window.see(10);
  CHECK_FALSE(window.superseded(10));
  CHECK_FALSE(window.superseded(11));
  CHECK(window.superseded(9));
  window.see(0xF0000000);  // far ahead: single frames in between have numbers, too
  window.see(0xFFFFFFFF);
  CHECK(window.superseded(0xFFFFFFF0));
  window.see(3);
  CHECK(window.superseded(0xFFFFFFFF));
  CHECK_FALSE(window.superseded(3));
}

}  // namespace unet::engine::message_window_test
