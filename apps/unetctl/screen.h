// screen.h - the terminal while `unetctl top` draws on it: set up, redrawn in place, and restored.
#pragma once

#include <termios.h>

#include <string>

#include "unet/base/result.h"
#include "unet/mapping.h"

namespace unet::unetctl {

class Screen {
 public:
  // Sets up the terminal at stdin and stdout. From now on, signals that end or stop the program wait for sleep().
  static Result<Screen> open();
  ~Screen();
  Screen(Screen&& other) noexcept;
  Screen& operator=(Screen&&) = delete;

  // Draws over the last picture, as much as fits. False: the terminal is gone.
  bool draw(const std::string& text);

  // Why a sleep ended.
  enum class Woken { time, resized, quit };
  // Sleeps until the time is over, q is pressed or a signal comes. Ctrl-Z restores the terminal until the program continues.
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
