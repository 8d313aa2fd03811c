// screen.h - the terminal while `unetctl top` draws on it: taken, redrawn in place, and given back as it was.
#pragma once

#include <termios.h>

#include <string>

#include "unet/base/result.h"
#include "unet/mapping.h"

namespace unet::unetctl {

class Screen {
 public:
  // Takes the terminal at stdin and stdout. From now on signals that end or stop the program wait for sleep().
  static Result<Screen> open();
  ~Screen();
  Screen(Screen&& other) noexcept;
  Screen& operator=(Screen&&) = delete;

  // Draws over what was drawn before, as much as there is room for. False: the terminal is gone.
  bool draw(const std::string& text);

  // What ended a sleep.
  enum class Woken { time, resized, quit };
  // Sleeps until the time is over, q was pressed or a signal came. Ctrl-Z gives the terminal back until the program goes on.
  Woken sleep(double seconds);

 private:
  Screen(Descriptor signals, bool has_keys, const termios& before);
  void take();
  void give_back();
  Woken on_signal();

  Descriptor signals_;
  bool keys_;        // stdin is a terminal, too
  termios before_;
  bool taken_ = false;
};

}  // namespace unet::unetctl
