// client.cc - `unet-bench across`: round trips and a stream to servers on other hosts.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "apps/bench/machine/end_signals.h"
#include "apps/bench/two_hosts/message.h"
#include "unet/context.h"

namespace unet::bench {

namespace {

constexpr int kExitInterrupted = 130;
// An echo that does not come for so long is counted lost; if it comes after all, late. After one that was lost the next has twice as
// long, up to a limit: on a very busy machine all would be late otherwise.
constexpr Nanoseconds kEchoWait = 100 * kMillisecond;
constexpr Nanoseconds kEchoWaitMax = 5 * kSecond;
// Until the first echo, and for the report of a stream.
constexpr Nanoseconds kEchoPatience = 60 * kSecond;
constexpr double kNanosecondsPerSecond = 1e9;

// One row: what was measured to one target at one size.
struct Found {
  std::string target, bench;
  uint32_t size = 0;
  Summary summary;                     // round trips: ns
  double least = 0;                    // round trips
  uint64_t sent = 0, arrived = 0, late = 0;
  double bytes_per_second = 0;         // of a stream, at the receiver

  bool is_stream() const { return bench == "bandwidth"; }
};

class Client {
 public:
  Client(Endpoint& endpoint, const AcrossOptions& options) : endpoint_(endpoint), options_(options) {}

  Status measure(const std::string& target, std::vector<Found>& found) {
    const Result<Channel> channel = connect(target);
    if (!channel) return tl::unexpected(channel.error());
    channel_ = *channel;
    Status status;
    for (const uint32_t size : options_.sizes) {
      data_.assign(size, std::byte{0x5a});
      for (const std::string& bench : options_.benches) {
        if (end_wanted() || !status) continue;
        Found row{.target = target, .bench = bench, .size = size};
        ++run_;
        status = row.is_stream() ? measure_stream(row) : measure_round_trips(row);
        if (status) found.push_back(row);
      }
    }
    (void)endpoint_.close(channel_);
    return status;
  }

 private:
  // The server may not be up yet.
  Result<Channel> connect(const std::string& target) {
    const Nanoseconds deadline = monotonic_now() + options_.wait * kSecond;
    for (;;) {
      Result<Channel> channel = endpoint_.connect(target);
      if (channel || channel.error().code != Errc::not_found || monotonic_now() >= deadline || end_wanted()) return channel;
      (void)endpoint_.wait(kSecond / 10);
    }
  }

  Bytes composed(Ask ask, uint64_t number) {
    const AskHeader header{ask, run_, number};
    std::memcpy(data_.data(), &header, sizeof header);
    return data_;
  }

  Status send(Bytes message) {
    SendOutcome outcome;
    while ((outcome = endpoint_.send(channel_, message)) == SendOutcome::full && !end_wanted()) {
      endpoint_.wait_room(channel_, kEchoWait);
    }
    if (outcome == SendOutcome::sent || end_wanted()) return {};
    return fail(Errc::unavailable, "send: " + std::string(to_string(outcome)));
  }

  // Gives every message that arrives to take(), until it returns true, or `deadline`: then false.
  template <typename Take>
  Result<bool> receive_until(Nanoseconds deadline, Take take) {
    for (;;) {
      Message message;
      while (endpoint_.receive(message)) {
        const bool taken = take(message.bytes());
        endpoint_.release(message);
        if (taken) return true;
      }
      const Nanoseconds now = monotonic_now();
      if (now >= deadline || end_wanted()) return false;
      if (endpoint_.wait(deadline - now) == WaitOutcome::disconnected) return fail(Errc::disconnected, "the network interface is gone");
      while (endpoint_.next_event()) {
      }
      if (!endpoint_.is_open(channel_)) return fail(Errc::disconnected, "the server closed the channel");
    }
  }

  Result<bool> one_round_trip(Found& row) {
    const Nanoseconds begin = monotonic_now();
    const Ask ask = row.bench == "out" ? Ask::echo_header : Ask::echo;
    const Bytes message = composed(ask, row.sent++);
    const Bytes expected = ask == Ask::echo ? message : message.first(sizeof(AskHeader));
    if (Status sent = send(message); !sent) return tl::unexpected(sent.error());
    Result<bool> came = receive_until(begin + echo_wait_, [&](Bytes echo) {
      if (std::equal(echo.begin(), echo.end(), expected.begin(), expected.end())) return true;
      const auto header = read_front<AskHeader>(echo);
      if (header && header->ask == ask && header->run == run_) ++row.late;
      return false;
    });
    echo_wait_ = came && *came ? kEchoWait : std::min(2 * echo_wait_, kEchoWaitMax);
    return came;
  }

  Status measure_round_trips(Found& row) {
    std::vector<double> times;
    const Nanoseconds start = monotonic_now();
    const auto wanted_time = static_cast<Nanoseconds>(options_.seconds * kNanosecondsPerSecond);
    for (Nanoseconds now = start; !end_wanted();) {
      const bool enough = options_.count != 0 ? times.size() >= options_.count : now - start >= wanted_time;
      if (enough && !times.empty()) break;
      if (times.empty() && now - start > kEchoPatience) return fail(Errc::timed_out, "no echo came back");
      const Result<bool> came = one_round_trip(row);
      if (!came) return tl::unexpected(came.error());
      const Nanoseconds after = monotonic_now();
      if (*came) times.push_back(static_cast<double>(after - now));
      now = after;
    }
    if (times.empty()) return {};
    row.arrived = times.size();
    row.least = *std::min_element(times.begin(), times.end());
    row.summary = summarize(std::move(times));
    return {};
  }

  Status measure_stream(Found& row) {
    const Nanoseconds deadline = monotonic_now() + static_cast<Nanoseconds>(options_.seconds * kNanosecondsPerSecond);
    while (monotonic_now() < deadline && !end_wanted()) {
      if (Status sent = send(composed(Ask::stream, 0)); !sent) return sent;
      ++row.sent;
    }
    const Result<StreamReport> report = settled_report();
    if (!report) return tl::unexpected(report.error());
    row.arrived = report->messages;
    if (report->nanoseconds != 0) {
      row.bytes_per_second = static_cast<double>(report->bytes) * 1e9 / static_cast<double>(report->nanoseconds);
    }
    return {};
  }

  // Waits for the messages under way at the end of the stream: until two reports in a row are the same.
  Result<StreamReport> settled_report() {
    const Nanoseconds start = monotonic_now();
    std::optional<StreamReport> last;
    while (!end_wanted() && monotonic_now() - start < kEchoPatience) {
      const AskHeader ask{Ask::report, run_, 0};
      if (Status sent = send(Bytes(reinterpret_cast<const std::byte*>(&ask), sizeof ask)); !sent) return tl::unexpected(sent.error());
      std::optional<StreamReport> report;
      const Result<bool> came = receive_until(monotonic_now() + kEchoWait, [&](Bytes answer) {
        report = read_front<StreamReport>(answer);
        return report && report->header.ask == Ask::report && report->header.run == run_;
      });
      if (!came) return tl::unexpected(came.error());
      if (!*came) continue;
      if (last && last->messages == report->messages) return *report;
      last = report;
    }
    return fail(Errc::timed_out, "the server did not say what it received");
  }

  Endpoint& endpoint_;
  const AcrossOptions& options_;
  Channel channel_{};
  uint32_t run_ = 0;
  Nanoseconds echo_wait_ = kEchoWait;
  std::vector<std::byte> data_;
};

std::string to_json(const std::vector<Found>& found) {
  nlohmann::json list = nlohmann::json::array();
  for (const Found& row : found) {
    nlohmann::json record{{"target", row.target}, {"bench", row.bench}, {"size", row.size}, {"sent", row.sent}, {"arrived", row.arrived}};
    if (!row.is_stream()) {
      const nlohmann::json p99 = row.summary.p99 ? nlohmann::json(*row.summary.p99) : nullptr;
      record.update({{"unit", "ns"}, {"least", row.least}, {"p50", row.summary.p50}, {"p99", p99},
                     {"mean", row.summary.mean}, {"late", row.late}});
    } else {
      record.update({{"unit", "B/s"}, {"bandwidth", row.bytes_per_second}});
    }
    list.push_back(std::move(record));
  }
  return list.dump(2) + "\n";
}

std::string lost(const Found& row) {
  const uint64_t arrived = std::min(row.sent, row.arrived);  // a wire may repeat
  return row.sent == 0 ? "" : format_value(100.0 * static_cast<double>(row.sent - arrived) / static_cast<double>(row.sent), "%");
}

std::string to_table(const std::vector<Found>& found, TableStyle style) {
  std::vector<std::vector<std::string>> rows{{"to", "measured", "size", "p50", "p99", "bandwidth", "lost"}};
  for (const Found& row : found) {
    const bool rtt = !row.is_stream();
    const char* const measured = !rtt ? "stream" : row.bench == "rtt" ? "round trip" : "round trip, short back";
    rows.push_back({row.target, measured, std::to_string(row.size) + " B",
                    rtt ? format_value(row.summary.p50, "ns") : "", rtt && row.summary.p99 ? format_value(*row.summary.p99, "ns") : "",
                    rtt ? "" : format_value(row.bytes_per_second * 8 / 1e6, "Mbit/s"), lost(row)});
  }
  return render_table(rows, style);
}

int write(const AcrossOptions& options, const std::vector<Found>& found) {
  if (options.json.empty() || options.json == "-") {
    std::fputs((options.json.empty() ? to_table(found, options.table) : to_json(found)).c_str(), stdout);
    return 0;
  }
  std::ofstream file(options.json);
  file << to_json(found);
  file.close();
  return file ? 0 : complain("cannot write the JSON file " + options.json);
}

}  // namespace

int complain(const std::string& text) {
  std::fprintf(stderr, "unet-bench: %s\n", text.c_str());
  return 1;
}

int across(const AcrossOptions& options) {
  catch_end_signals();
  Result<Context> context = Context::open({}, "unet-bench");
  if (!context) return complain(context.error().text);
  auto endpoint = context->create_endpoint({.send_depth = 256, .receive_depth = 256, .buffers = 256});
  if (!endpoint) return complain(endpoint.error().text);
  Client client(*endpoint, options);
  std::vector<Found> found;
  int status = 0;
  for (const std::string& target : options.targets) {
    if (Status measured = client.measure(target, found); !measured) status = complain(target + ": " + measured.error().text);
    if (end_wanted()) return kExitInterrupted;
  }
  const int written = write(options, found);
  return status != 0 ? status : written;
}

}  // namespace unet::bench
