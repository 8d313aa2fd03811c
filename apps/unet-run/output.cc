// output.cc - one thread reads the pipes of all ranks and writes whole lines.
#include "apps/unet-run/output.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace unet::run {
namespace {

constexpr int kReadsMax = 8;  // at a time: more than a pipe holds, so that a process that never ends a line does not block the others

}  // namespace

Result<LabelledOutput::Ends> LabelledOutput::add() {
  const size_t rank = streams_.size() / 2;
  Ends ends;
  for (const int to : {STDOUT_FILENO, STDERR_FILENO}) {
    int both[2];
    if (pipe2(both, O_CLOEXEC) != 0) return fail_errno("a pipe for the output of rank " + std::to_string(rank), errno);
    Stream stream{Descriptor(both[0]), to, "[" + std::to_string(rank) + "] ", {}};
    (to == STDOUT_FILENO ? ends.out : ends.errors) = Descriptor(both[1]);
    if (fcntl(both[0], F_SETFL, O_NONBLOCK) != 0) return fail_errno("fcntl", errno);
    streams_.push_back(std::move(stream));
  }
  return ends;
}

Status LabelledOutput::start() {
  int both[2];
  if (pipe2(both, O_CLOEXEC) != 0) return fail_errno("pipe", errno);
  end_ = {Descriptor(both[0]), Descriptor(both[1])};
  thread_ = std::thread([this] { relay(); });
  return {};
}

void LabelledOutput::finish() noexcept {
  if (!thread_.joinable()) return;
  end_[1].reset();
  thread_.join();
}

// The thread that waits for the processes handles signals. If our own output is closed, EPIPE tells us.
void LabelledOutput::relay() noexcept {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  std::vector<pollfd> polled;
  for (bool last = false; !last;) {
    polled.assign(1, {.fd = end_[0].get(), .events = POLLIN, .revents = 0});
    for (const Stream& stream : streams_) polled.push_back({.fd = stream.from.get(), .events = POLLIN, .revents = 0});
    if (poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) break;
    last = polled[0].revents != 0;  // still prints the pending output
    for (size_t i = 0; i < streams_.size(); ++i) {
      Stream& stream = streams_[i];
      if (!stream.from.valid() || (polled[i + 1].revents == 0 && !last)) continue;
      if (!take(stream)) stream.from.reset();
    }
  }
  for (Stream& stream : streams_) {
    if (stream.from.valid() && !stream.line.empty()) print(stream, "\n", 1);
    stream.from.reset();
  }
}

// Prints the pending output of a stream. Returns false if its writers or our reader are gone.
bool LabelledOutput::take(Stream& stream) {
  char text[16 * 1024];
  for (int i = 0; i < kReadsMax; ++i) {
    const ssize_t size = read(stream.from.get(), text, sizeof text);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return errno == EAGAIN;
    if (size == 0) {
      if (!stream.line.empty()) print(stream, "\n", 1);
      return false;
    }
    print(stream, text, static_cast<size_t>(size));
    if (stream.to < 0) return false;
  }
  return true;
}

// Prints the lines that end in `text`; the rest waits for its newline.
void LabelledOutput::print(Stream& stream, const char* text, size_t size) {
  std::string out;
  const auto end_line = [&] {
    out += stream.label + stream.line + '\n';
    stream.line.clear();
  };
  while (size != 0) {
    const auto* const newline = static_cast<const char*>(std::memchr(text, '\n', size));
    const size_t length = newline == nullptr ? size : static_cast<size_t>(newline - text);
    const size_t taken = std::min(length, kLineMax - stream.line.size());
    stream.line.append(text, taken);
    const bool ended = newline != nullptr && taken == length;
    if (ended || stream.line.size() == kLineMax) end_line();
    text += taken + (ended ? 1 : 0);
    size -= taken + (ended ? 1 : 0);
  }
  if (!write_all(stream.to, out)) stream.to = -1;
}

bool LabelledOutput::write_all(int to, const std::string& text) noexcept {
  for (size_t at = 0; at < text.size();) {
    const ssize_t written = write(to, text.data() + at, text.size() - at);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {  // another process has made our output non-blocking
      pollfd room{.fd = to, .events = POLLOUT, .revents = 0};
      poll(&room, 1, -1);
      continue;
    }
    if (written < 0) return false;
    at += static_cast<size_t>(written);
  }
  return true;
}

}  // namespace unet::run
