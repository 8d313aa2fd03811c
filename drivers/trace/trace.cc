// trace.cc - writes lines of text about frames.
#include "drivers/trace/trace.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "drivers/private_file.h"
#include "drivers/trace/frame_text.h"

namespace unet::drivers {

namespace {

constexpr Nanoseconds kFlushAfter = 100 * kMillisecond;
constexpr size_t kFrameMax = 16384;

// Length of the whole lines within the first `most` bytes; at least one line fits.
size_t whole_lines(std::string_view text, size_t most) noexcept {
  return text.size() <= most ? text.size() : text.substr(0, most).rfind('\n') + 1;
}

}  // namespace

Result<std::unique_ptr<Driver>> Trace::wrap(std::unique_ptr<Driver> wire, const std::string& file) {
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  int descriptor = -1;
  if (file.empty()) {
    // Open stderr anew: O_NONBLOCK must not affect other writers. A socket cannot be opened, and is used as it is.
    descriptor = open("/proc/self/fd/2", kFlags);
    if (descriptor < 0) descriptor = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    if (descriptor < 0) return fail_errno("trace to stderr", errno);
  } else {
    const Result<int> opened = open_private_file(file, O_APPEND | O_NONBLOCK, false);
    if (!opened) return fail(opened.error().code, "trace: file=" + opened.error().text);
    descriptor = *opened;
  }
  return std::unique_ptr<Driver>(new Trace(std::move(wire), file, descriptor));
}

Trace::Trace(std::unique_ptr<Driver> wire, std::string file, int descriptor)
    : Wrapper(std::move(wire)), file_(std::move(file)), descriptor_(descriptor), whole_(new std::byte[kFrameMax]) {}

Trace::~Trace() {
  flush();
  close(descriptor_);
}

void Trace::note(const char* direction, std::span<const std::byte> data, std::span<const std::byte> more, Nanoseconds now) noexcept {
  if (!begun_) {
    begun_ = true;
    start_ = now;
  }
  if (!more.empty() && data.size() + more.size() <= kFrameMax) {
    std::memcpy(whole_.get(), data.data(), data.size());
    std::memcpy(whole_.get() + data.size(), more.data(), more.size());
    data = {whole_.get(), data.size() + more.size()};
  }
  if (used_ + kLineMax > out_.size()) flush();
  const Nanoseconds time = now - start_;
  char* const line = out_.data() + used_;
  size_t length = static_cast<size_t>(std::snprintf(line, kLineMax, "%6llu.%06llu %s ", static_cast<unsigned long long>(time / kSecond),
                                                    static_cast<unsigned long long>(time % kSecond / kMicrosecond), direction));
  length += describe_frame(data, {line + length, kLineMax - 1 - length});
  line[length++] = '\n';
  used_ += length;
  ++lines_in_out_;
  next_flush_ = std::min(next_flush_, now + kFlushAfter);
}

// Whether write() would neither wait nor raise SIGPIPE.
bool Trace::writable() const noexcept {
  pollfd ready{descriptor_, POLLOUT, 0};
  return ::poll(&ready, 1, 0) == 1 && ready.revents == POLLOUT;
}

// Writes what it can without waiting; returns like write(2).
ssize_t Trace::put(std::string_view text) const noexcept {
  const ssize_t sent = send(descriptor_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent < 0 && errno == ENOTSOCK ? write(descriptor_, text.data(), text.size()) : sent;
}

// Must not wait: stderr may be a pipe without a reader.
void Trace::flush() noexcept {
  next_flush_ = ~Nanoseconds{0};
  if (used_ == 0) return;
  size_t done = 0;
  while (done < used_ && writable()) {
    // A ready pipe has room for at least PIPE_BUF bytes; a longer write could wait.
    const std::string_view rest(out_.data() + done, used_ - done);
    const ssize_t n = put(rest.substr(0, whole_lines(rest, 4096)));
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  const auto written = static_cast<uint64_t>(std::count(out_.data(), out_.data() + done, '\n'));
  lines_ += written;
  lost_ += lines_in_out_ - written;
  lines_in_out_ = 0;
  used_ = 0;
}

uint32_t Trace::receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept {
  const uint32_t count = wire_->receive(frames, now);
  for (const ReceivedFrame& frame : frames.first(count)) note("rx", {frame.data, frame.length}, {}, now);
  return count;
}

// Sends frames one by one: a frame that the wire has taken can no longer be read, and a refused frame gets no line.
uint32_t Trace::transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept {
  uint32_t done = 0;
  for (TransmitFrame& frame : frames) {
    const size_t used = used_;
    const uint64_t lines = lines_in_out_;
    if (used + kLineMax > out_.size()) flush();
    const size_t before = used_;
    note("tx", {frame.data, frame.length}, {frame.external, frame.external_length}, now);
    if (wire_->transmit({&frame, 1}, now) == 0) {
      used_ = before;
      lines_in_out_ = before == used ? lines : 0;
      break;
    }
    ++done;
  }
  return done;
}

void Trace::poll(Nanoseconds now) noexcept {
  wire_->poll(now);
  if (now >= next_flush_) flush();
}

Nanoseconds Trace::next_event() const noexcept { return std::min(wire_->next_event(), next_flush_); }

std::vector<DriverCounter> Trace::counters() const {
  std::vector<DriverCounter> all = wire_->counters();
  all.push_back({"trace_lines", lines_ + lines_in_out_});
  all.push_back({"trace_lost", lost_});
  return all;
}

std::string Trace::description() const { return "trace to " + (file_.empty() ? "stderr" : file_) + " over " + wire_->description(); }

}  // namespace unet::drivers
