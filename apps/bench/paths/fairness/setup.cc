// setup.cc - set-up beside a client that keeps the service busy, and alone, for `fairness`.
//
// A set-up makes and ends what a program begins with: a connection, an endpoint, a name. It is timed as a round trip. The hostile client
// has two connections and a thread of its own on side A's core, which sleeps until an answer has come and then asks again.
#include <poll.h>

#include <atomic>
#include <optional>
#include <thread>

#include "apps/bench/frame/core_parking.h"
#include "apps/bench/frame/environment.h"
#include "apps/bench/machine/daemon.h"
#include "apps/bench/machine/other_user.h"
#include "apps/bench/paths/paths.h"
#include "apps/bench/workloads/messages.h"
#include "unet/connection.h"
#include "unet/context.h"
#include "unet/endpoint.h"

namespace unet::bench {

namespace {

constexpr uint32_t kEmulated = 2'000;  // endpoints of the hostile client, for its reports to be long
constexpr uint32_t kConnections = 2, kAhead = 24;
constexpr EndpointOptions kSmall{.send_depth = 4, .receive_depth = 4, .buffers = 4, .buffer_size = 256, .send_bytes = kMessageMax};

// Requests that the hostile client repeats without end.
enum class RequestLoad {
  nothing,
  little,   // the end of an endpoint that there is not
  reports,  // of thousands of endpoints
  memory,   // of endpoints that end at once; its descriptors are kept
  limits,   // endpoints, by two connections in turn, of which each has other limits by its group
};

class ServiceFlood {
 public:
  explicit ServiceFlood(RequestLoad asks) : asks_(asks) {}
  ~ServiceFlood() { stop(); }

  Status start(const std::string& ni) {
    for (uint32_t i = 0; i < kConnections; ++i) {
      std::optional<gid_t> group;
      if (asks_ == RequestLoad::limits) group = kLimitedGroup + i;
      auto connection = as_other_user([&] { return Connection::open(ni, "unet-bench-hostile"); }, group);
      if (!connection) return tl::unexpected(connection.error());
      connections_.push_back(std::move(*connection));
    }
    if (asks_ == RequestLoad::reports) {
      if (auto made = make_endpoints(); !made) return made;
    }
    thread_ = std::thread([this] { ask(); });
    return {};
  }
  // Number of answers that it has had.
  uint64_t answers() const { return answers_.load(std::memory_order_relaxed); }
  void stop() {
    stop_.store(true, std::memory_order_relaxed);
    if (thread_.joinable()) thread_.join();
    connections_.clear();
    kept_.clear();
  }
  // Starts or stops the flood, which runs only while this path is measured: other paths use the same daemon.
  // Returns when it has begun or ended.
  void flood(bool on, StopFlag stop) {
    floods_.store(on, std::memory_order_relaxed);
    if (thread_.joinable()) yield_until(stop, [&] { return (under_way_.load(std::memory_order_relaxed) != 0) == on; });
  }

 private:
  struct Asking {
    std::vector<uint64_t> cookies = {};
    uint32_t next_part = 0;
    std::optional<uint32_t> endpoint = {};  // to be destroyed
  };

  Status make_endpoints() {
    control::CreateEndpoint create = request_for<control::CreateEndpoint>(control::Op::create_endpoint, 0);
    create.options = kSmall;
    auto carrier = connections_[0]->call(create);
    if (!carrier) return tl::unexpected(carrier.error());
    for (uint32_t i = 0; i < kEmulated; ++i) {
      const uint32_t by = carrier->reply.create_endpoint.endpoint;
      auto made = connections_[0]->call(request_for<control::CreateEmulated>(control::Op::create_emulated, by));
      if (!made) return tl::unexpected(made.error());
    }
    return {};
  }

  void ask() {
    std::vector<Asking> asking(kConnections);
    while (!stop_.load(std::memory_order_relaxed)) {
      std::vector<pollfd> sockets;
      size_t under_way = 0;
      for (uint32_t i = 0; i < kConnections; ++i) {
        if (asks_ == RequestLoad::little) little_turn(*connections_[i], asking[i]);
        else if (asks_ == RequestLoad::reports) report_turn(*connections_[i], asking[i]);
        else endpoint_turn(*connections_[i], asking[i]);
        under_way += asking[i].cookies.size();
        sockets.push_back({.fd = connections_[i]->descriptor(), .events = POLLIN, .revents = 0});
      }
      under_way_.store(under_way, std::memory_order_relaxed);
      poll(sockets.data(), sockets.size(), 1);
    }
  }
  void little_turn(Connection& connection, Asking& asking) {
    if (!asking.cookies.empty()) {
      if (!connection.take_answer(asking.cookies.front())) return;
      answers_.fetch_add(1, std::memory_order_relaxed);
      asking.cookies.clear();
    }
    if (!floods_.load(std::memory_order_relaxed)) return;
    const auto cookie = connection.send(request_for<control::DestroyEndpoint>(control::Op::destroy_endpoint, kEndpointsMax));
    if (cookie) asking.cookies.push_back(*cookie);
  }
  // Asks for some parts ahead; behind a report's end the next report begins.
  void report_turn(Connection& connection, Asking& asking) {
    std::erase_if(asking.cookies, [&](uint64_t cookie) {
      const auto answer = connection.take_answer(cookie);
      if (answer) answers_.fetch_add(1, std::memory_order_relaxed);
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

  // Makes an endpoint, and destroys it. An endpoint that the quota refuses is asked for again.
  void endpoint_turn(Connection& connection, Asking& asking) {
    if (!asking.cookies.empty()) {
      auto answer = connection.take_answer(asking.cookies.front());
      if (!answer) return;
      answers_.fetch_add(1, std::memory_order_relaxed);
      asking.cookies.clear();
      const bool made = !asking.endpoint && *answer;
      asking.endpoint.reset();
      if (made) asking.endpoint = (*answer)->reply.create_endpoint.endpoint;
      if (made && asks_ == RequestLoad::memory) kept_.push_back(std::move((*answer)->descriptors));
    }
    if (!floods_.load(std::memory_order_relaxed)) return;
    auto create = request_for<control::CreateEndpoint>(control::Op::create_endpoint, 0);
    create.options = kSmall;
    const auto cookie = asking.endpoint
                            ? connection.send(request_for<control::DestroyEndpoint>(control::Op::destroy_endpoint, *asking.endpoint))
                            : connection.send(create);
    if (cookie) asking.cookies.push_back(*cookie);
  }

  const RequestLoad asks_;
  std::vector<std::vector<Descriptor>> kept_;
  std::atomic<uint64_t> answers_ = 0;
  std::vector<std::shared_ptr<Connection>> connections_;
  std::thread thread_;
  std::atomic<bool> stop_ = false, floods_ = false;
  std::atomic<size_t> under_way_ = 0;
};

class UnetSetUp final : public Path {
 public:
  UnetSetUp(PathInfo info, RequestLoad asks) : Path(std::move(info)), loaded_(asks != RequestLoad::nothing), flood_(asks) {}

  Status prepare(Environment& environment) override {
    auto daemon = environment.daemon_for_all();
    if (!daemon) return tl::unexpected(daemon.error());
    if (loaded_ && geteuid() != 0) return fail(Errc::unavailable, "needs root: one user's connections share that user's share");
    ni_ = (*daemon)->ni();
    daemon_process_ = (*daemon)->process();
    return parking_.prepare();
  }
  Status set_up(const RunContext& run, Environment&) override {
    if (run.side == Side::b || !loaded_) return {};
    return flood_.start(ni_);
  }
  Outcome run(const Slice& slice, RunContext& context) override {
    if (context.side == Side::b) {
      parking_.park(context);
      return {};
    }
    if (loaded_) flood_.flood(true, context.stop);
    const uint64_t answers = flood_.answers();
    const Outcome outcome = set_ups(slice, context);
    const bool attacked = !loaded_ || flood_.answers() != answers;
    if (loaded_) flood_.flood(false, context.stop);
    parking_.release(context);
    if (attacked || outcome.messages < kAttackedMin) return outcome;
    context.control.fail("the hostile client had no answer meanwhile");
    return {};
  }
  std::vector<int> service_processes() const override { return {daemon_process_}; }
  void tear_down(const RunContext&) override { flood_.stop(); }

 private:
  static constexpr Nanoseconds kSetUpsTime = 50 * kMillisecond;
  static constexpr uint64_t kAttackedMin = 8;  // set-ups: fewer may have found no time for an attack

  Status set_up_once() {
    auto context = Context::open(ni_, "unet-bench");
    if (!context) return tl::unexpected(context.error());
    auto endpoint = context->create_endpoint(kSmall);
    if (!endpoint) return tl::unexpected(endpoint.error());
    return endpoint->bind(info_.name + "-" + std::to_string(++names_));
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

  const bool loaded_;
  std::string ni_;
  int daemon_process_ = 0;
  uint32_t names_ = 0;
  CoreParking parking_;
  ServiceFlood flood_;
};

}  // namespace

void add_setup_fairness(Paths& paths) {
  const auto add = [&](const char* path, const char* what, RequestLoad asks, std::vector<std::string> control = {"setup-asks"}) {
    paths.push_back(std::make_unique<UnetSetUp>(
        PathInfo{.name = path,
                      .kind = Kind::ours,
                      .what = std::string("U-Net: connection, endpoint and name, made and ended") + what,
                      .setting = "public C++ API, endpoints of 4 buffers, one thread, unetd's engine on the other core",
                      .workloads = {Workload::rtt},
                      .only = {"fairness"},
                      .baseline = "setup-alone",
                      .more_baselines = std::move(control),
                      .shares_cores = true,  // with the service's thread, which does not wait
                      .side_b_parked = true},
        asks));
  };
  add("setup-alone", ", alone, for `fairness`", RequestLoad::nothing, {});
  add("setup-asks", " beside a client that asks without end for what is refused at once", RequestLoad::little, {});
  add("setup-reports", " beside a client that asks for long reports without end", RequestLoad::reports);
  add("setup-memory", " beside a client that makes endpoints and ends them, and keeps their memory", RequestLoad::memory);
  add("setup-limits", " beside a client that changes between two limits without end", RequestLoad::limits);
}

}  // namespace unet::bench
