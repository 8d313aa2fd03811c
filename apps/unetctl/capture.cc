// capture.cc - the reading side of a capture: memory shared with the NI, a filter, and a file.
#include "apps/unetctl/capture.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <vector>

#include "drivers/capture/packet_filter.h"
#include "drivers/capture/pcapng.h"
#include "drivers/private_file.h"
#include "unet/capture_memory.h"
#include "unet/connection.h"

namespace unet::unetctl {
namespace {

namespace pcapng = drivers::pcapng;

constexpr uint32_t kNone = ~uint32_t{0};
constexpr useconds_t kLookEvery = 5'000;  // microseconds between polls of an empty buffer
constexpr size_t kWriteAt = 256 << 10;

std::atomic<bool> stop_wanted{false};
void on_signal(int) { stop_wanted.store(true, std::memory_order_relaxed); }

class File {
 public:
  explicit File(const CaptureOptions& options) : name_(options.file), limit_(options.limit) {}
  ~File() {
    if (descriptor_ >= 0 && name_ != "-") close(descriptor_);
  }
  Status open() {
    if (name_ == "-") {
      if (isatty(STDOUT_FILENO) != 0) {
        return fail(Errc::invalid_argument, "a capture cannot go to a terminal: use -w FILE, or pipe it into a program");
      }
      descriptor_ = STDOUT_FILENO;
      return {};
    }
    const Result<int> opened = drivers::open_private_file(name_, 0, true);
    if (!opened) return tl::unexpected(opened.error());
    descriptor_ = *opened;
    return {};
  }
  std::vector<std::byte>& out() noexcept { return out_; }
  bool has_room(size_t more) const noexcept { return limit_ == 0 || size_ + out_.size() + more <= limit_; }
  Status flush() {
    for (size_t done = 0; done < out_.size();) {
      const ssize_t n = write(descriptor_, out_.data() + done, out_.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return fail(Errc::unavailable, name_ + ": " + std::generic_category().message(errno));
      done += static_cast<size_t>(n);
    }
    size_ += out_.size();
    out_.clear();
    return {};
  }

 private:
  const std::string name_;
  const uint64_t limit_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
  std::vector<std::byte> out_;
};

// The reading end of an NI's capture.
class Reader {
 public:
  Reader(const CaptureOptions& options, drivers::PacketFilter filter, File& file)
      : options_(options), filter_(std::move(filter)), file_(file), frame_(65536) {}

  Status start(const std::string& socket) {
    auto connection = Connection::open("unix:" + socket, "unetctl capture");
    if (!connection) return tl::unexpected(connection.error());
    connection_ = std::move(*connection);
    control::CaptureStart request{};
    request.header.op = control::Op::capture_start;
    request.header.endpoint = options_.endpoint.value_or(kNone);
    request.channel = options_.channel.value_or(kNone);
    request.port = options_.port ? static_cast<int32_t>(*options_.port) : -1;
    request.snap_length = options_.snap_length;
    request.bytes = options_.buffer;
    Result<Answer> answer = connection_->call(request);
    if (!answer) return tl::unexpected(answer.error());
    if (answer->descriptors.size() != 1) return fail(Errc::system, "no descriptors are left for the capture's memory");
    bytes_ = answer->reply.capture.bytes;
    epoch_ = answer->reply.capture.epoch;
    number_ = answer->reply.capture.capture;
    Result<Mapping> memory = Mapping::map(answer->descriptors[0].get(), kCapturePage + uint64_t{bytes_});
    if (!memory) return tl::unexpected(memory.error());
    memory_ = std::move(*memory);
    pcapng::append_head(file_.out(), {.name = "unetd, capture " + std::to_string(number_),
                                      .filter = options_.filter,
                                      .address = {},
                                      .snap_length = options_.snap_length});
    return file_.flush();
  }

  // Copies the available records. False: there were none.
  Result<bool> take() {
    const uint64_t written = header().written.load(std::memory_order_acquire);  // before the records
    if (written == position_) return false;
    while (position_ != written && !full_) {
      CaptureRecord record;
      capture_copy_out(ring(), bytes_, position_, &record, sizeof record);
      const uint64_t size = capture_record_size(record.captured);
      if (size > written - position_ || record.captured > frame_.size()) {
        return fail(Errc::protocol, "the network interface wrote a broken record");
      }
      capture_copy_out(ring(), bytes_, position_ + sizeof record, frame_.data(), record.captured);
      position_ += size;
      header().read.store(position_, std::memory_order_release);  // after the copy
      add(record);
      if (file_.out().size() < kWriteAt) continue;
      if (Status status = file_.flush(); !status) return tl::unexpected(status.error());
    }
    if (Status status = file_.flush(); !status) return tl::unexpected(status.error());
    return true;
  }

  bool full() const noexcept { return full_; }
  bool ended() const noexcept { return header().ended.load(std::memory_order_acquire) != 0; }
  bool alive() {
    connection_->process();
    return connection_->alive();
  }
  uint32_t number() const noexcept { return number_; }
  uint64_t frames() const noexcept { return frames_; }
  uint64_t dropped() const noexcept { return header().dropped.load(std::memory_order_relaxed); }
  Status finish() {
    pcapng::append_statistics(file_.out(), last_time_, frames_ + dropped(), dropped());
    return file_.flush();
  }

 private:
  CaptureHeader& header() const noexcept { return *reinterpret_cast<CaptureHeader*>(memory_.data()); }
  const std::byte* ring() const noexcept { return memory_.data() + kCapturePage; }
  void add(const CaptureRecord& record) {
    const std::span<const std::byte> kept(frame_.data(), record.captured);
    if (!filter_.wants(kept, record.length)) return;
    full_ = !file_.has_room(pcapng::packet_size(record.captured) + pcapng::statistics_size());
    if (full_) return;
    const auto direction = record.outbound != 0 ? pcapng::Direction::outbound : pcapng::Direction::inbound;
    last_time_ = record.time + epoch_;
    pcapng::append_packet(file_.out(), direction, last_time_, kept, record.length);
    full_ = ++frames_ == options_.count;
  }

  const CaptureOptions& options_;
  const drivers::PacketFilter filter_;
  File& file_;
  std::shared_ptr<Connection> connection_;
  Mapping memory_;
  uint32_t bytes_ = 0, number_ = 0;
  uint64_t epoch_ = 0, position_ = 0, frames_ = 0, last_time_ = 0;
  bool full_ = false;
  std::vector<std::byte> frame_;
};

// Runs until the capture ends; returns the reason.
Result<std::string> follow(Reader& reader, const CaptureOptions& options) {
  const Nanoseconds begin = monotonic_now();
  for (;;) {
    const bool over = stop_wanted.load(std::memory_order_relaxed) || reader.ended() ||
                      (options.seconds > 0 && static_cast<double>(monotonic_now() - begin) > options.seconds * 1e9);
    const Result<bool> took = reader.take();  // takes the last records after the end
    if (!took) return tl::unexpected(took.error());
    if (reader.full()) return "the limit is reached";
    if (reader.ended() && !*took) return "it was stopped, or its endpoint has gone";
    if (over && !reader.ended()) return "";
    if (!reader.alive() && !*took) return "the network interface has gone";
    if (!*took) usleep(kLookEvery);
  }
}

}  // namespace

Status capture(const std::string& socket, const CaptureOptions& options) {
  Result<drivers::PacketFilter> filter = drivers::PacketFilter::compile(options.filter, options.snap_length);
  if (!filter) return tl::unexpected(filter.error());
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (const int each : {SIGINT, SIGTERM, SIGHUP}) sigaction(each, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
  File file(options);
  if (Status status = file.open(); !status) return status;
  Reader reader(options, std::move(*filter), file);
  if (Status status = reader.start(socket); !status) return status;
  std::fprintf(stderr, "unetctl: capture %u runs; Ctrl-C ends it\n", reader.number());
  Result<std::string> why = follow(reader, options);
  const Status written = why ? reader.finish() : Status{};
  std::fprintf(stderr, "unetctl: %llu frames captured, %llu had no room in the buffer%s%s\n",
               static_cast<unsigned long long>(reader.frames()), static_cast<unsigned long long>(reader.dropped()),
               why && !why->empty() ? ": " : "", why ? why->c_str() : "");
  if (!why) return fail(why.error().code, why.error().text + ": the capture has ended, and the network interface goes on");
  return written;
}

Status stop_capture(const std::string& socket, uint32_t number) {
  const auto connection = Connection::open("unix:" + socket, "unetctl");
  if (!connection) return tl::unexpected(connection.error());
  control::CaptureStop request{};
  request.header.op = control::Op::capture_stop;
  request.capture = number;
  const Result<Answer> answer = (*connection)->call(request);
  if (!answer) return tl::unexpected(answer.error());
  return {};
}

}  // namespace unet::unetctl
