// engines.cc - one engine with a port, and two engines of one NI with a port each: what a second engine thread brings.
//
// The load must not take the cores that are measured, so the driver behind each port makes it. The driver returns valid frames of 48-byte
// messages when it is polled, and takes all frames that are sent. It also does the work of the endpoint's client (credit for delivered
// messages, the next message into the send queue), which is a few stores in the engine's own thread. Everything between is the NI's: frame,
// checksum, tag, delivery into the receive queue; send queue, mux, frame. Nothing sleeps.

#include <atomic>
#include <cstring>
#include <thread>

#include "apps/bench/frame/core_parking.h"
#include "apps/bench/frame/environment.h"
#include "apps/bench/machine/cores.h"
#include "apps/bench/paths/paths.h"
#include "ni/engine/engine.h"
#include "ni/engine/link.h"
#include "unet/layout.h"
#include "unet/ring.h"
#include "unet/wire/frame.h"

namespace unet::bench {

namespace {

constexpr EndpointOptions kEndpoint{
    .send_depth = 256, .receive_depth = 256, .buffers = 256, .buffer_size = 2048, .send_bytes = kMessageMax};
constexpr uint32_t kMtu = 1500, kFrameBytes = 2048;
constexpr Tag kLocalTag{1}, kRemoteTag{2};
constexpr MacAddress kPeer{2, 0, 0, 0, 0, 99};

// An endpoint's memory, with the client's side of it.
class IdleClient {
 public:
  IdleClient() : geometry_(SegmentGeometry::of(kEndpoint)), segment_(new (std::align_val_t{kPage}) std::byte[geometry_.total]()) {
    header_ = reinterpret_cast<SegmentHeader*>(segment_);
    writer_ = SlotWriter(reinterpret_cast<Slot*>(segment_ + geometry_.send_queue), geometry_.send_depth, &header_->send_consumed.value);
  }
  ~IdleClient() { operator delete[](segment_, std::align_val_t{kPage}); }
  IdleClient(const IdleClient&) = delete;
  IdleClient& operator=(const IdleClient&) = delete;

  std::byte* segment() const { return segment_; }
  const SegmentGeometry& geometry() const { return geometry_; }
  ClientPage& page() { return page_; }

  // Returns credit for `received` messages in all, and fills the room in the send queue.
  void turn(uint32_t received, uint32_t size) noexcept {
    header_->receive_consumed.value.store(received, std::memory_order_release);
    Slot* slot = nullptr;
    for (uint32_t i = 0; i < kBurst && (slot = writer_.reserve()) != nullptr; ++i) {
      slot->channel = 0;
      writer_.publish(slot, size, SlotKind::inline_data);
    }
    if (header_->engine_watching.value.load(std::memory_order_relaxed) != 0) return;
    page_.doorbells[bell].fetch_or(1, std::memory_order_release);
    page_.summary.words[0].fetch_or(uint64_t{1} << bell, std::memory_order_release);
  }
  uint32_t bell = 0;  // word of the page: the engine's number

 private:
  SegmentGeometry geometry_;
  std::byte* segment_;
  SegmentHeader* header_;
  SlotWriter writer_;
  ClientPage page_{};
};

class LoadPort final : public Driver {
 public:
  LoadPort(MacAddress address, IdleClient& client, uint32_t size) : client_(client), size_(size) {
    capabilities_.address = address;
    capabilities_.mtu = kMtu;
    for (Frame& frame : arriving_) {
      std::memset(frame.bytes, 0x5A, sizeof frame.bytes);
      frame.length = emit_frame(frame.bytes, {.to = address, .from = kPeer, .tag = kLocalTag, .total = size}, size);
    }
  }
  // Number of messages that went through; written by the thread that runs the engine.
  uint64_t moved() const noexcept { return moved_.load(std::memory_order_relaxed); }

  const DriverCapabilities& capabilities() const noexcept override { return capabilities_; }
  uint32_t receive(std::span<ReceivedFrame> frames, Nanoseconds) noexcept override {
    client_.turn(given_, size_);
    const auto count = static_cast<uint32_t>(frames.size());
    for (uint32_t i = 0; i < count; ++i) {
      const Frame& frame = arriving_[(given_ + i) % arriving_.size()];
      frames[i] = {.data = frame.bytes, .length = frame.length, .handle = nullptr};
    }
    given_ += count;
    return count;
  }
  void release(std::span<const ReceivedFrame>) noexcept override {}
  uint32_t allocate(std::span<TransmitFrame> frames) noexcept override {
    for (TransmitFrame& frame : frames) frame.data = sending_[allocated_++ % sending_.size()].bytes;
    return static_cast<uint32_t>(frames.size());
  }
  uint32_t transmit(std::span<TransmitFrame> frames, Nanoseconds) noexcept override {
    moved_.store(moved() + frames.size(), std::memory_order_relaxed);
    return static_cast<uint32_t>(frames.size());
  }
  void discard(std::span<const TransmitFrame>) noexcept override {}
  std::vector<DriverCounter> counters() const override { return {}; }
  std::string description() const override { return "load"; }

 private:
  struct Frame {
    alignas(kCacheLine) std::byte bytes[kFrameBytes];
    uint32_t length = 0;
  };
  DriverCapabilities capabilities_;
  IdleClient& client_;
  const uint32_t size_;
  uint32_t given_ = 0, allocated_ = 0;
  std::array<Frame, 64> arriving_{};
  std::array<Frame, 128> sending_{};  // more than a Port ever has
  alignas(kCacheLine) std::atomic<uint64_t> moved_{0};
};

// An NI of one or two engines, each with a port and an endpoint.
class Load {
 public:
  Load(uint32_t engines, uint32_t size) {
    std::vector<std::unique_ptr<LoadPort>> ports;
    std::vector<engine::LinkFabric::PortInfo> infos;
    for (uint32_t e = 0; e < engines; ++e) {
      engines_.push_back(std::make_unique<One>());
      engines_[e]->client.bell = e;
      ports.push_back(std::make_unique<LoadPort>(MacAddress{2, 0, 0, 0, 0, static_cast<uint8_t>(e + 1)}, engines_[e]->client, size));
      engines_[e]->port = ports[e].get();
      infos.push_back({e, ports[e]->capabilities()});
    }
    if (engines > 1) links_ = std::make_unique<engine::LinkFabric>(engines, infos);
    for (uint32_t e = 0; e < engines; ++e) {
      std::vector<std::unique_ptr<Driver>> drivers;
      for (uint32_t p = 0; p < engines; ++p) {
        if (p == e) drivers.push_back(std::move(ports[p]));
        else drivers.push_back(links_->foreign_port(e, p));
      }
      for (uint32_t other = 0; links_ != nullptr && other < engines; ++other) drivers.push_back(links_->engine_port(e, other));
      start(*engines_[e], e, std::move(drivers));
    }
  }

  uint64_t moved(uint32_t engine) const { return engines_[engine]->port->moved(); }
  void turn(uint32_t engine) noexcept { engines_[engine]->engine->poll(clock_.now()); }
  // Nothing may be lost: only then do the counts say what went through.
  bool dropped() const {
    for (const auto& one : engines_) {
      for (auto i = static_cast<size_t>(kFirstNiDrop); i < kNiCounters; ++i) {
        if (one->engine->ni_counter(static_cast<NiCounter>(i)) != 0) return true;
      }
      for (auto i = static_cast<size_t>(kFirstEndpointDrop); i < kEndpointCounters; ++i) {
        if (one->engine->endpoint_counter(0, static_cast<EndpointCounter>(i)) != 0) return true;
      }
    }
    return false;
  }

 private:
  struct One {
    IdleClient client;
    engine::CommandMailbox commands;
    engine::EventMailbox events;
    LoadPort* port = nullptr;
    std::unique_ptr<engine::Engine> engine;
  };

  void start(One& one, uint32_t number, std::vector<std::unique_ptr<Driver>> drivers) {
    engine::Links* const links = links_ == nullptr ? nullptr : &links_->links(number);
    one.engine = std::make_unique<engine::Engine>(engine::EngineOptions{}, std::move(drivers), one.commands, one.events, -1, links);
    one.commands.push(engine::AttachClient{0, &one.client.page()});
    one.commands.push(engine::AttachEndpoint{.endpoint = 0,
                                             .client = 0,
                                             .doorbell = number * 64,
                                             .segment = one.client.segment(),
                                             .geometry = one.client.geometry()});
    one.commands.push(engine::OpenWire{0, 0, kLocalTag, kRemoteTag, kPeer, number});
  }

  Clock clock_;
  std::unique_ptr<engine::LinkFabric> links_;
  std::vector<std::unique_ptr<One>> engines_;
};

class UnetEngines final : public Path {
 public:
  UnetEngines(PathInfo info, uint32_t engines) : Path(std::move(info)), engines_(engines) {}

  Status fits(Workload, uint32_t size) const override {
    if (size > kInlineMax) return fail(Errc::unavailable, "has messages of at most " + std::to_string(kInlineMax) + " bytes");
    return {};
  }
  Status prepare(Environment& environment) override {
    if (environment.cores().alone()) return fail(Errc::unavailable, "needs two cores");
    return parking_.prepare();
  }
  Status set_up(const RunContext& run, Environment& environment) override {
    cores_ = environment.cores();
    static_cast<void>(run);
    return {};
  }

  Outcome run(const Slice& slice, RunContext& context) override {
    if (context.side == Side::b) {
      parking_.park(context);
      return {};
    }
    if (load_ == nullptr || size_ != slice.size) load_ = std::make_unique<Load>(engines_, size_ = slice.size);
    const Outcome outcome = engines_ == 1 ? one_engine(slice, context) : two_engines(slice, context);
    if (load_->dropped()) context.control.fail("the engines dropped messages");
    parking_.release(context);
    return outcome;
  }
  void tear_down(const RunContext&) override { load_.reset(); }

 private:
  // Runs the engine until `messages` more have gone through.
  bool move(uint32_t engine, uint64_t messages, const RunContext& context) {
    const uint64_t end = load_->moved(engine) + messages;
    for (uint32_t turns = 1; load_->moved(engine) < end; ++turns) {
      load_->turn(engine);
      if (turns % 256 == 0 && context.stop.raised()) return false;
    }
    return true;
  }

  // Half of the messages go through on either core: the cores need not be equally fast.
  Outcome one_engine(const Slice& slice, const RunContext& context) {
    Outcome outcome;
    const auto half = [&] {
      if (!move(0, slice.warm_up / 2 + 1, context)) return;
      const uint64_t before = load_->moved(0), start = cycles();
      if (!move(0, slice.iterations / 2 + 1, context)) return;
      outcome.cycles += cycles() - start;
      outcome.messages += load_->moved(0) - before;
    };
    half();
    std::thread([&] {
      if (pin_to_core(cores_.b)) half();
    }).join();
    return outcome;
  }

  // This thread's engine ends the measurement. The other engine starts before it and stops after it.
  Outcome two_engines(const Slice& slice, const RunContext& context) {
    Outcome outcome;
    std::atomic<bool> warm{false}, enough{false};
    std::thread other([&] {
      const bool pinned = pin_to_core(cores_.b).has_value() && move(1, slice.warm_up / 2 + 1, context);
      warm.store(true, std::memory_order_release);
      while (pinned && !enough.load(std::memory_order_relaxed)) load_->turn(1);
    });
    bool good = true;
    while (good && !warm.load(std::memory_order_acquire)) good = move(0, kBurst, context);
    good = good && move(0, slice.warm_up / 2 + 1, context);
    const uint64_t before = load_->moved(0) + load_->moved(1), start = cycles();
    if (good && move(0, slice.iterations / 2 + 1, context)) {
      outcome.cycles = cycles() - start;
      outcome.messages = load_->moved(0) + load_->moved(1) - before;
    }
    enough.store(true, std::memory_order_relaxed);
    other.join();
    return outcome;
  }

  const uint32_t engines_;
  CoreParking parking_;
  CorePair cores_{};
  uint32_t size_ = 0;
  std::unique_ptr<Load> load_;
};

}  // namespace

void add_unet_engines(Paths& paths) {
  const auto add = [&](const char* path, const std::string& what, uint32_t engines) {
    paths.push_back(std::make_unique<UnetEngines>(
        PathInfo{.name = path,
                      .kind = Kind::ours,
                      .what = "U-Net, " + what,
                      .setting = "engines without unetd; drivers make frames of messages and take those sent, and stand for the clients",
                      .workloads = {Workload::rate},
                      .only = {"engines"},
                      .side_b_parked = true},
        engines));
  };
  add("one-engine", "one engine with one port, for `engines`: half the time on either core", 1);
  add("two-engines", "two engines of one NI with a port each, a core each", 2);
}

}  // namespace unet::bench
