// capture.cc - the reading side of a capture: memory shared with the NI, a filter, and a file.
#include "apps/unetctl/capture.h"

#include <unistd.h>

#include <atomic>
#include <bit>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>

#include "drivers/capture/packet_filter.h"
#include "drivers/capture/pcapng.h"
#include "drivers/private_file.h"
#include "unet/capture_memory.h"
#include "unet/connection.h"

namespace unet::unetctl {
namespace {

constexpr uint32_t kNone = ~uint32_t{0};
constexpr useconds_t kLookEvery = 5'000;  // microseconds between polls of an empty buffer

std::atomic<bool> stop_wanted{false};
void on_signal(int) { stop_wanted.store(true, std::memory_order_relaxed); }

// The descriptor of the output. It stays open until the process ends.
Result<int> open_output(const std::string& name) {
  if (name != "-") return drivers::open_private_file(name, 0, true);
  if (isatty(STDOUT_FILENO) == 0) return STDOUT_FILENO;
  return fail(Errc::invalid_argument, "a capture cannot go to a terminal: use -w FILE, or pipe it into a program");
}

// The reading end of an NI's capture.
class Reader {
 public:
  Reader(const CaptureOptions& options, drivers::PacketFilter filter) : options_(options), filter_(std::move(filter)) {}

  Status start(const std::string& socket, int output) {
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
    const uint32_t bytes = answer->reply.capture.bytes;
    if (!std::has_single_bit(bytes) || bytes < kCaptureBytesMin) return fail(Errc::protocol, "the network interface sent a broken capture");
    epoch_ = answer->reply.capture.epoch;
    number_ = answer->reply.capture.capture;
    Result<Mapping> memory = Mapping::map(answer->descriptors[0].get(), kCapturePage + uint64_t{bytes});
    if (!memory) return tl::unexpected(memory.error());
    memory_ = std::move(*memory);
    ring_.emplace(CaptureRing(memory_.data(), bytes));
    file_.emplace(output, options_.limit,
                  drivers::PcapngFile::Interface{.name = "unetd, capture " + std::to_string(number_),
                                                 .filter = options_.filter,
                                                 .address = {},
                                                 .snap_length = options_.snap_length});
    return flush();
  }

  // Copies available records, at most kTakenMost: the caller must see a signal while the wire is faster. False: there were none.
  Result<bool> take() {
    uint32_t taken = 0;
    for (; !full_ && taken < kTakenMost && ring_->next(); ++taken) {
      add(ring_->record());
      if (!file_->is_due()) continue;
      if (Status status = flush(); !status) return tl::unexpected(status.error());
    }
    if (ring_->broken()) return fail(Errc::protocol, "the network interface wrote a broken record");
    if (Status status = flush(); !status) return tl::unexpected(status.error());
    return taken != 0;
  }

  bool full() const noexcept { return full_; }
  bool ended() const noexcept { return ring_->header().ended.load(std::memory_order_acquire) != 0; }
  bool alive() {
    connection_->process();
    return connection_->alive();
  }
  uint32_t number() const noexcept { return number_; }
  uint64_t frames() const noexcept { return frames_; }
  uint64_t dropped() const noexcept { return ring_->header().dropped.load(std::memory_order_relaxed); }
  Status finish() {
    file_->add_statistics(last_time_, frames_ + dropped(), dropped());
    return flush();
  }

 private:
  static constexpr uint32_t kTakenMost = 4096;

  Status flush() {
    if (const Status status = file_->flush(); !status) return fail(status.error().code, options_.file + ": " + status.error().text);
    return {};
  }
  void add(const CaptureRecord& record) {
    if (!filter_.wants(ring_->frame(), record.length)) return;
    full_ = !file_->add(record, ring_->frame(), epoch_);
    if (full_) return;
    last_time_ = record.time + epoch_;
    full_ = ++frames_ == options_.count;
  }

  const CaptureOptions& options_;
  const drivers::PacketFilter filter_;
  std::shared_ptr<Connection> connection_;
  Mapping memory_;
  std::optional<CaptureReader> ring_;
  std::optional<drivers::PcapngFile> file_;
  uint32_t number_ = 0;
  uint64_t epoch_ = 0, frames_ = 0, last_time_ = 0;
  bool full_ = false;
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
  const Result<int> output = open_output(options.file);
  if (!output) return tl::unexpected(output.error());
  Reader reader(options, std::move(*filter));
  if (Status status = reader.start(socket, *output); !status) return status;
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
