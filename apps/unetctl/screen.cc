// screen.cc - ncurses draws, and signals come through a descriptor.
#include "apps/unetctl/screen.h"

#define NCURSES_NOMACROS
#include <ncurses.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <utility>

namespace unet::unetctl {

Result<Screen> Screen::open() {
  sigset_t caught;
  sigemptyset(&caught);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&caught, signal);
  Descriptor signals(signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals.valid()) return fail_errno("signalfd", errno);
  std::setlocale(LC_CTYPE, "");  // ncurses draws names as UTF-8, if the user's locale has it
  screen* terminal = newterm(nullptr, stdout, stdin);
  if (terminal == nullptr) terminal = newterm("xterm", stdout, stdin);  // TERM names no terminal that ncurses knows
  if (terminal == nullptr) return fail(Errc::unavailable, "ncurses knows no terminal: install its terminfo, or use --count");
  sigprocmask(SIG_BLOCK, &caught, nullptr);
  cbreak();
  noecho();
  curs_set(0);
  nodelay(stdscr, true);
  return Screen(std::move(signals), isatty(STDIN_FILENO) == 1, terminal);
}

void Screen::End::operator()(screen* terminal) const noexcept {
  endwin();
  delscreen(terminal);
}

size_t Screen::columns() const noexcept { return static_cast<size_t>(getmaxx(stdscr)); }

void Screen::draw(const std::string& text) {
  erase();
  size_t at = 0;
  for (int row = 0; row < getmaxy(stdscr) && at < text.size(); ++row) {
    const size_t end = std::min(text.find('\n', at), text.size());
    mvaddnstr(row, 0, text.data() + at, static_cast<int>(std::min(end - at, columns())));
    at = end + 1;
  }
  refresh();
}

char Screen::key(Time::time_point until) {
  for (int ready = 0;;) {
    const int key = getch();  // first, as ncurses may have noted a new size since the last call
    if (key == KEY_RESIZE) return '\f';
    if (has_keys_ && key > 0 && key < 128) return static_cast<char>(key);
    if (ready > 0 && key == ERR) return 'q';
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Time::now()).count();
    if (left <= 0) return 0;
    std::array<pollfd, 2> wait{pollfd{signals_.get(), POLLIN, 0}, pollfd{has_keys_ ? STDIN_FILENO : -1, POLLIN, 0}};
    ready = poll(wait.data(), wait.size(), static_cast<int>(left));
    if (ready > 0 && wait[0].revents != 0) return 'q';
  }
}

}  // namespace unet::unetctl
