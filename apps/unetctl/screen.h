// screen.h - the terminal while `unetctl top` draws on it, by ncurses: set up, redrawn in place, and restored.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "unet/base/result.h"
#include "unet/mapping.h"

struct screen;  // ncurses' own

namespace unet::unetctl {

class Screen {
 public:
  using Time = std::chrono::steady_clock;

  // Sets up the terminal at stdin and stdout. From now on, signals that end the program wait for key().
  static Result<Screen> open();

  size_t columns() const noexcept;
  // Draws over the last picture, as much as fits.
  void draw(const std::string& text);
  // Waits for a key until that time; 0: the time is over. A new size of the terminal is the key \f.
  // key() returns q after a signal that ends the program, or when the terminal has ended.
  char key(Time::time_point until);

 private:
  struct End {
    void operator()(screen* terminal) const noexcept;
  };
  Screen(Descriptor signals, bool has_keys, screen* terminal) : signals_(std::move(signals)), has_keys_(has_keys), terminal_(terminal) {}

  Descriptor signals_;
  bool has_keys_;  // stdin is a terminal, too
  std::unique_ptr<screen, End> terminal_;
};

}  // namespace unet::unetctl
