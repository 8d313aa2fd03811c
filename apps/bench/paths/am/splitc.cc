// splitc.cc - the paths `splitc-*`: two ranks of a Split-C job. On one unetd they access each other's memory directly or by messages; over
// a wire they use messages, with an embedded NI in either process.
//
// Side B serves side A until side A signals kAllDone, even in a stopped slice: a rank that waits for another looks at nothing else.
#include "apps/bench/paths/am/splitc.h"

#include <cstring>
#include <vector>

#include "am/splitc/am_transport.h"
#include "am/splitc/splitc.h"
#include "apps/bench/frame/environment.h"
#include "apps/bench/paths/paths.h"
#include "apps/bench/workloads/am.h"
#include "apps/bench/workloads/batches.h"
#include "apps/bench/workloads/chain.h"
#include "apps/bench/workloads/put.h"

namespace unet::bench {

namespace {

namespace sc = unet::splitc;

constexpr uint64_t kMemoryBytes = uint64_t{16} << 20;
constexpr uint64_t kWords = 1024;          // of words that are stored, put and got: a power of two
constexpr sc::Rank kSideB = 1;
constexpr Set<Workload> kSplitcWorkloads{Workload::word_read, Workload::word_get, Workload::word_put, Workload::word_store,
                                         Workload::barrier,   Workload::get,      Workload::put};

struct ChainLink {
  sc::Spread<uint64_t> chain;
  static int64_t element(uint64_t place) { return static_cast<int64_t>(place * kChainStep); }
  uint64_t read(uint64_t place) const { return sc::read(chain.on(kSideB) + element(place)); }
  void write(uint64_t place, uint64_t word) const { sc::write(chain.on(kSideB) + element(place), word); }
  void poll() const { sc::poll(); }
};

void serve(const RunContext& context) {
  while (context.control.sent.load(std::memory_order_acquire) != kAllDone) {
    sc::poll();
    context.stop.yield_if_alone();
  }
}

struct BulkLink {
  sc::Global<std::byte> region;  // side B's
  RunContext& context;

  bool put(size_t offset, const std::byte* data, size_t size) const {
    sc::bulk_put(region + static_cast<int64_t>(offset), data, size);
    return true;
  }
  bool get(std::byte* into, size_t offset, size_t size) const {
    sc::bulk_get(into, region + static_cast<int64_t>(offset), size);
    return true;
  }
  bool flush() const {
    sc::sync();
    return true;
  }
  bool finish() const { return flush(); }
  void poll() const { sc::poll(); }
  void wait_until_over() const { serve(context); }
};

class SplitcPath final : public Path {
 public:
  SplitcPath(PathInfo info, sc::Path path) : Path(std::move(info)), path_(path) {}
  SplitcPath(PathInfo info, std::shared_ptr<WirePort> wire)
      : Path(std::move(info)), path_(sc::Path::direct), wire_(std::move(wire)) {}

  Status prepare(Environment& environment) override {
    if (wire_ != nullptr) return wire_->prepare(environment);
    auto daemon = environment.daemon_on_spare_core();
    if (!daemon) return tl::unexpected(daemon.error());
    ni_ = (*daemon)->ni();
    return {};
  }

  Status set_up(const RunContext& run, Environment& environment) override {
    sc::Job job;
    job.rank = run.side == Side::a ? 0 : kSideB;
    job.size = 2;
    job.name = info_.name;
    job.memory = kMemoryBytes;
    job.path = path_;
    auto transport = open(job, run, environment);
    if (!transport) return tl::unexpected(transport.error());
    transport_ = transport->get();
    auto node = sc::Node::start(std::move(*transport));
    if (!node) return tl::unexpected(node.error());
    node_ = std::move(*node);
    sc::current_node = node_.get();
    chain_ = sc::all_spread_malloc<uint64_t>(job.size, kChainWords);
    words_ = sc::all_spread_malloc<uint64_t>(job.size, kWords);
    region_ = sc::all_spread_malloc<std::byte>(job.size, kRegionBytes);
    touch(1 - job.rank);
    return {};
  }

  Outcome run(const Slice& slice, RunContext& context) override {
    sc::current_node = node_.get();
    const Outcome outcome = run_workload(slice, context);
    if (context.side == Side::a) context.control.sent.store(kAllDone, std::memory_order_release);
    if (wire_ != nullptr) settle(context);
    return outcome;
  }

  // Does not call finish(), which waits for the other rank: its process may have died.
  void tear_down(const RunContext&) override {
    node_.reset();
    if (wire_ != nullptr) wire_->tear_down();
  }

 private:
  Result<std::unique_ptr<sc::AmTransport>> open(sc::Job& job, const RunContext& run, Environment& environment) {
    if (wire_ == nullptr) {
      job.ni = ni_;
      return sc::AmTransport::open(job);
    }
    if (auto opened = wire_->set_up(run, environment); !opened) return tl::unexpected(opened.error());
    job.hosts = {WirePort::kHosts[0], WirePort::kHosts[1]};
    return sc::AmTransport::open(job, wire_->context());
  }

  // Messages without an acknowledgement would look like a silent peer until the path's next slice.
  void settle(const RunContext& context) {
    const bool a = context.side == Side::a;
    auto& own = context.control.settled[a ? 0 : 1];
    auto& other = context.control.settled[a ? 1 : 0];
    for (const Nanoseconds start = monotonic_now(); monotonic_now() - start < kSettleTime; sc::poll()) {
      if (own.load(std::memory_order_relaxed) == 0 && transport_->is_settled()) own.store(1, std::memory_order_release);
      if (own.load(std::memory_order_relaxed) != 0 && other.load(std::memory_order_acquire) != 0) return;
    }
  }

  // No slice meets a page fault, neither in its own memory nor in the other's.
  void touch(sc::Rank other) {
    const std::vector<std::byte> zeros(kRegionBytes);
    std::memset(region_.mine(0).data(), 0, kRegionBytes);
    sc::barrier();
    sc::bulk_write(region_.on(other), zeros.data(), kRegionBytes);
    sc::bulk_write(chain_.on(other).as<std::byte>(), zeros.data(), kChainWords * sizeof(uint64_t));
    sc::bulk_write(words_.on(other).as<std::byte>(), zeros.data(), kWords * sizeof(uint64_t));
    sc::barrier();
  }

  Outcome run_workload(const Slice& slice, RunContext& context) {
    BulkLink bulk{region_.on(kSideB), context};
    switch (slice.workload) {
      case Workload::word_read: {
        ChainLink link{chain_};
        return Chains(link, slice, context).run();
      }
      case Workload::get: return get_loop(bulk, slice, region_.mine(0), buffers_, context);
      case Workload::put:
        if (context.side == Side::a) return put_loop(bulk, slice, kRegionBytes, buffers_, context);
        serve(context);
        return {};
      case Workload::word_get:
      case Workload::word_put:
      case Workload::word_store:
        if (context.side == Side::a) return send_words(slice, context);
        take_words(context);
        return {};
      case Workload::barrier: return barriers(slice, context);
      default: context.control.fail("this path has no such workload"); return {};
    }
  }

  // When the last store has arrived, all before it have. Numbers are not reused: an earlier slice cannot have left the same one.
  void take_words(RunContext& context) {
    auto& control = context.control;
    const std::span<uint64_t> own = words_.mine(0);
    for (uint64_t sent = 0; (sent = control.sent.load(std::memory_order_acquire)) != kAllDone;) {
      sc::poll();
      const auto last = std::atomic_ref(own[sent % kWords]);
      if (sent != 0 && last.load(std::memory_order_acquire) == sent) control.progress.store(sent, std::memory_order_release);
      context.stop.yield_if_alone();
    }
  }

  Outcome send_words(const Slice& slice, RunContext& context) {
    if (!many_words(slice.workload, slice.warm_up, context)) return {};
    const uint64_t start = cycles();
    if (!many_words(slice.workload, slice.iterations, context)) return {};
    return {cycles() - start, slice.iterations};
  }

  // Waits until all of them are done; each kind of access signals that in its own way.
  bool many_words(Workload workload, uint64_t count, RunContext& context) {
    const sc::Global<uint64_t> to = words_.on(kSideB);
    if (workload == Workload::word_store) {
      for (uint64_t i = 0; i < count; ++i) {
        ++stored_;
        sc::store(to + static_cast<int64_t>(stored_ % kWords), stored_);
      }
      context.control.sent.store(stored_, std::memory_order_release);
      return spin_until(context.stop, [&] {
        sc::poll();
        return context.control.progress.load(std::memory_order_acquire) == stored_;
      });
    }
    for (uint64_t i = 0; i < count; ++i) {
      const auto at = static_cast<int64_t>(i % kWords);
      if (workload == Workload::word_put) sc::put(to + at, i);
      else sc::get(got_[i % kWords], to + at);
    }
    sc::sync();
    return true;
  }

  Outcome barriers(const Slice& slice, RunContext& context) {
    return time_batches(slice, context.samples, [](uint64_t count) {
      for (uint64_t i = 0; i < count; ++i) sc::barrier();
      return true;
    });
  }

  const sc::Path path_;
  std::shared_ptr<WirePort> wire_;  // nullptr: through unetd
  sc::AmTransport* transport_ = nullptr;  // the node's
  std::string ni_;
  std::unique_ptr<sc::Node> node_;
  sc::Spread<uint64_t> chain_, words_;
  sc::Spread<std::byte> region_;
  MessageBuffers buffers_{kBlockMax};
  std::vector<uint64_t> got_ = std::vector<uint64_t>(kWords);
  uint64_t stored_ = 0;  // by side A, in all slices
};

}  // namespace

void add_splitc_paths(Paths& paths) {
  paths.push_back(std::make_unique<SplitcPath>(
      PathInfo{.name = "splitc-direct",
                    .kind = Kind::ours,
                    .what = "two ranks of Split-C, each of which has the other's memory mapped",
                    .setting = "public C++ API; the other rank polls",
                    .workloads = kSplitcWorkloads,
                    .only = {"splitc"}},
      sc::Path::direct));
  paths.push_back(std::make_unique<SplitcPath>(
      PathInfo{.name = "splitc-messages",
                    .kind = Kind::ours,
                    .what = "two ranks of Split-C, by Active Messages over a local channel",
                    .setting = "UNET_SPLITC_PATH=messages, public C++ API; the other rank polls",
                    .workloads = kSplitcWorkloads,
                    .only = {"splitc"},
                    .baseline = "am-local"},
      sc::Path::messages));
}

void add_splitc_wire(Paths& paths, const std::string& name, const std::string& setting, std::shared_ptr<WirePort> wire) {
  paths.push_back(std::make_unique<SplitcPath>(
      PathInfo{.name = "splitc-" + name,
                    .kind = Kind::ours,
                    .what = "two ranks of Split-C over " + name + ", an embedded NI in each process",
                    .setting = setting + ", public C++ API; the other rank polls",
                    .workloads = kSplitcWorkloads,
                    .only = {"splitc"},
                    .baseline = "am-" + name},
      std::move(wire)));
}

}  // namespace unet::bench
