// setup_fairness.cc - set-up beside a client that asks for reports without end, and alone, for `fairness`.
//
// A set-up is what a program begins with: a connection, an endpoint, a name, and their end. It is timed as a round trip is. The hostile
// client has two connections and a thread of its own on side A's core, which sleeps until a report has come and then asks for the next.
#include <poll.h>

#include <atomic>
#include <thread>

#include "apps/bench/contenders.h"
#include "apps/bench/environment.h"
#include "apps/bench/other_user.h"
#include "apps/bench/parking.h"
#include "apps/bench/workloads.h"
#include "unet/connection.h"
#include "unet/context.h"
#include "unet/endpoint.h"

namespace unet::bench {

namespace {

constexpr uint32_t kEmulated = 2'000;  // endpoints of the hostile client, for its reports to be long
constexpr uint32_t kConnections = 2, kAhead = 24;
constexpr EndpointOptions kSmall{.send_depth = 4, .receive_depth = 4, .buffers = 4, .buffer_size = 256, .send_bytes = kMessageMax};

class ReportFlood {
 public:
  ~ReportFlood() { stop(); }

  Status start(const std::string& ni) {
    for (uint32_t i = 0; i < kConnections; ++i) {
      auto connection = as_other_user([&] { return Connection::open(ni, "unet-bench-hostile"); });
      if (!connection) return tl::unexpected(connection.error());
      connections_.push_back(std::move(*connection));
    }
    control::CreateEndpoint create = request_for<control::CreateEndpoint>(control::Op::create_endpoint, 0);
    create.options = kSmall;
    auto carrier = connections_[0]->call(create);
    if (!carrier) return tl::unexpected(carrier.error());
    for (uint32_t i = 0; i < kEmulated; ++i) {
      const uint32_t by = carrier->reply.create_endpoint.endpoint;
      auto made = connections_[0]->call(request_for<control::CreateEmulated>(control::Op::create_emulated, by));
      if (!made) return tl::unexpected(made.error());
    }
    thread_ = std::thread([this] { ask(); });
    return {};
  }
  void stop() {
    stop_.store(true, std::memory_order_relaxed);
    if (thread_.joinable()) thread_.join();
    connections_.clear();
  }
  // Only while this path is measured: other paths have the same daemon. Returns when the flood is on its way, or over.
  void flood(bool on, StopFlag stop) {
    floods_.store(on, std::memory_order_relaxed);
    if (thread_.joinable()) yield_until(stop, [&] { return (under_way_.load(std::memory_order_relaxed) != 0) == on; });
  }

 private:
  struct Asking {
    std::vector<uint64_t> cookies = {};
    uint32_t next_part = 0;
  };

  void ask() {
    std::vector<Asking> asking(kConnections);
    while (!stop_.load(std::memory_order_relaxed)) {
      std::vector<pollfd> sockets;
      size_t under_way = 0;
      for (uint32_t i = 0; i < kConnections; ++i) {
        turn(*connections_[i], asking[i]);
        under_way += asking[i].cookies.size();
        sockets.push_back({.fd = connections_[i]->descriptor(), .events = POLLIN, .revents = 0});
      }
      under_way_.store(under_way, std::memory_order_relaxed);
      poll(sockets.data(), sockets.size(), 1);
    }
  }
  // So many parts are asked for ahead, and behind a report's end the next one begins.
  void turn(Connection& connection, Asking& asking) {
    std::erase_if(asking.cookies, [&](uint64_t cookie) {
      const auto answer = connection.take_answer(cookie);
      if (answer && (!*answer || !(*answer)->more)) asking.next_part = 0;
      return answer.has_value();
    });
    while (floods_.load(std::memory_order_relaxed) && asking.cookies.size() < kAhead) {
      auto request = request_for<control::Report>(control::Op::report, 0);
      request.part = asking.next_part++;
      const auto cookie = connection.send(request);
      if (!cookie) return;
      asking.cookies.push_back(*cookie);
    }
  }

  std::vector<std::shared_ptr<Connection>> connections_;
  std::thread thread_;
  std::atomic<bool> stop_ = false, floods_ = false;
  std::atomic<size_t> under_way_ = 0;
};

class UnetSetUp final : public Contender {
 public:
  UnetSetUp(ContenderInfo info, bool beside) : Contender(std::move(info)), beside_(beside) {}

  Status supports(Workload workload, uint32_t) const override {
    if (workload == Workload::rtt) return {};
    return fail(Errc::unavailable, "is not measured on this path");
  }
  Status prepare(Environment& environment) override {
    auto daemon = environment.daemon_for_all();
    if (!daemon) return tl::unexpected(daemon.error());
    if (beside_ && geteuid() != 0) return fail(Errc::unavailable, "needs root: one user's connections share that user's share");
    ni_ = (*daemon)->ni();
    daemon_process_ = (*daemon)->process();
    return parking_.prepare();
  }
  Status set_up(const RunContext& run, Environment&) override {
    if (run.side == Side::b || !beside_) return {};
    return flood_.start(ni_);
  }
  Outcome run(const Slice& slice, RunContext& context) override {
    if (context.side == Side::b) {
      parking_.park(context);
      return {};
    }
    if (beside_) flood_.flood(true, context.stop);
    const Outcome outcome = set_ups(slice, context);
    if (beside_) flood_.flood(false, context.stop);
    parking_.release(context);
    return outcome;
  }
  std::vector<int> service_processes() const override { return {daemon_process_}; }
  void tear_down(const RunContext&) override { flood_.stop(); }

 private:
  static constexpr Nanoseconds kSetUpsTime = 50 * kMillisecond;

  Status set_up_once() {
    auto context = Context::open(ni_, "unet-bench");
    if (!context) return tl::unexpected(context.error());
    auto endpoint = context->create_endpoint(kSmall);
    if (!endpoint) return tl::unexpected(endpoint.error());
    return (*endpoint)->bind(info_.path + "-" + std::to_string(++names_));
  }
  Outcome set_ups(const Slice& slice, RunContext& context) {
    Outcome outcome;
    const Nanoseconds end = monotonic_now() + kSetUpsTime;
    const uint64_t start = cycles();
    for (uint64_t i = 0; i < slice.iterations && (i == 0 || monotonic_now() < end); ++i) {
      const uint64_t begin = cycles();
      if (Status done = set_up_once(); !done) {
        context.control.fail(done.error().text);
        return {};
      }
      context.samples.push_back(cycles() - begin);
      ++outcome.messages;
    }
    outcome.cycles = cycles() - start;
    return outcome;
  }

  const bool beside_;
  std::string ni_;
  int daemon_process_ = 0;
  uint32_t names_ = 0;
  Parking parking_;
  ReportFlood flood_;
};

}  // namespace

void add_setup_fairness(Contenders& contenders) {
  const auto add = [&](const char* path, const char* what, bool beside) {
    contenders.push_back(std::make_unique<UnetSetUp>(
        ContenderInfo{.path = path,
                      .kind = Kind::ours,
                      .what = std::string("U-Net: connection, endpoint and name, made and ended") + what,
                      .setting = "public C++ API, endpoints of 4 buffers, one thread, unetd's engine on the other core",
                      .baseline = "setup-alone",
                      .beside = true,
                      .shares_cores = true,  // with the service's thread, which waits for nobody
                      .side_b_parked = true},
        beside));
  };
  add("setup-alone", ", alone, for `fairness`", false);
  add("setup-reports", " beside a client that asks for long reports without end", true);
}

}  // namespace unet::bench
