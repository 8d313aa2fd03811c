// screen.cc - alternate screen, no echo, signals through a descriptor.
#include "apps/unetctl/screen.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

namespace unet::unetctl {
namespace {

using Time = std::chrono::steady_clock;

bool write_all(const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(STDOUT_FILENO, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

winsize size_of_terminal() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) return {.ws_row = 24, .ws_col = 80};
  return size;
}

}  // namespace

Result<Screen> Screen::open() {
  termios before{};
  const bool has_keys = tcgetattr(STDIN_FILENO, &before) == 0;
  sigset_t caught;
  sigemptyset(&caught);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH}) sigaddset(&caught, signal);
  Descriptor signals(signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals.valid()) return fail_errno("signalfd", errno);
  sigprocmask(SIG_BLOCK, &caught, nullptr);
  Screen screen(std::move(signals), has_keys, before);
  screen.take();
  return screen;
}

Screen::Screen(Descriptor signals, bool has_keys, const termios& before)
    : signals_(std::move(signals)), keys_(has_keys), before_(before) {}

Screen::Screen(Screen&& other) noexcept
    : signals_(std::move(other.signals_)), keys_(other.keys_), before_(other.before_), taken_(std::exchange(other.taken_, false)) {}

Screen::~Screen() { give_back(); }

void Screen::take() {
  taken_ = true;
  if (keys_) {
    termios quiet = before_;
    quiet.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // Ctrl-C stays a signal
    quiet.c_cc[VMIN] = 0;
    quiet.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &quiet);
  }
  write_all("\033[?1049h\033[?25l\033[2J");
}

void Screen::give_back() {
  if (!std::exchange(taken_, false)) return;
  write_all("\033[?25h\033[?1049l");
  if (keys_) tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
}

bool Screen::draw(const std::string& text) {
  const winsize size = size_of_terminal();
  std::string out = "\033[H";
  size_t at = 0;
  for (int row = 0; row < size.ws_row && at < text.size(); ++row) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (row > 0) out += "\r\n";  // not after the last row, which would scroll
    out += text.substr(at, std::min<size_t>(end - at, size.ws_col)) + "\033[K";
    at = end + 1;
  }
  return write_all(out + "\033[J");
}

Screen::Woken Screen::on_signal() {
  signalfd_siginfo info{};
  if (::read(signals_.get(), &info, sizeof info) != sizeof info) return Woken::time;
  if (info.ssi_signo == static_cast<uint32_t>(SIGWINCH)) return Woken::resized;
  if (info.ssi_signo != static_cast<uint32_t>(SIGTSTP)) return Woken::quit;
  give_back();
  raise(SIGSTOP);  // continues here after SIGCONT
  take();
  return Woken::resized;
}

Screen::Woken Screen::sleep(double seconds) {
  const auto until = Time::now() + std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(seconds));
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Time::now()).count();
    if (left <= 0) return Woken::time;
    std::array<pollfd, 2> wait{pollfd{signals_.get(), POLLIN, 0}, pollfd{keys_ ? STDIN_FILENO : -1, POLLIN, 0}};
    if (poll(wait.data(), wait.size(), static_cast<int>(left)) <= 0) continue;
    if (wait[0].revents != 0) return on_signal();
    char key = 0;
    const ssize_t n = ::read(STDIN_FILENO, &key, 1);
    if (n <= 0 || key == 'q' || key == 'Q') return Woken::quit;  // n == 0: the terminal is gone
  }
}

}  // namespace unet::unetctl
