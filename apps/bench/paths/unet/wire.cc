// wire.cc - the paths over a wire: U-Net's embedded NI, and as its baseline bare DPDK on the very same port.
//
// Wires may lose: a stream counts messages that arrived. Each path's NI or bare loop is polled only in its own slices. Both skip leftover
// frames of the other in the port, which have another Ethernet type.
#include <algorithm>

#include "apps/bench/frame/environment.h"
#include "apps/bench/paths/am/path.h"
#include "apps/bench/paths/am/splitc.h"
#include "apps/bench/paths/rpc/path.h"
#include "apps/bench/paths/paths.h"
#include "apps/bench/paths/sockets/sockets.h"
#include "apps/bench/paths/unet/endpoints.h"
#include "apps/bench/paths/unet/link.h"
#include "apps/bench/paths/unet/wire_port.h"
#include "apps/bench/workloads/messages.h"
#include "apps/bench/workloads/put.h"

namespace unet::bench {

namespace {

// The waits of a lossy receiver. `Self` has try_receive(into, size) and try_receive_burst(into, size, count).
template <typename Self>
struct LossyReceiver {
  static constexpr bool kLossless = false;
  uint64_t last_message = 0;

  bool flush() { return true; }
  void wake_receiver() {}
  bool receive(std::byte* into, size_t size) {
    return spin_until(self().context.stop, [&] { return self().try_receive(into, size); });
  }
  size_t receive_burst(std::byte* into, size_t size, size_t count) {
    size_t n = 0;
    QuietTimer quiet_timer;
    spin_until(self().context.stop, [&] {
      n = self().try_receive_burst(into, size, count);
      if (n != 0) return true;
      return self().context.control.sent.load(std::memory_order_acquire) >= last_message && quiet_timer.expired(kQuiet);
    });
    return n;
  }

 private:
  Self& self() { return static_cast<Self&>(*this); }
};

struct WireLink : LossyReceiver<WireLink>, UnetSender {
  WireLink(Endpoint& e, Channel c, RunContext& run) : UnetSender{e, c, run} {}

  bool try_receive(std::byte* into, size_t size) {
    Message message;
    if (!out.receive(message)) return false;
    const bool expected = message.length == size;  // not left over from a stopped slice
    if (expected) copy_message(into, message.data, size);
    out.release(message);
    return expected;
  }
  size_t try_receive_burst(std::byte* into, size_t size, size_t count) {
    size_t n = 0;
    while (n < count && try_receive(into + n * size, size)) ++n;
    return n;
  }
  // An embedded NI works only when its application polls it. Messages that wait for room on the wire need that, too.
  void poll() {
    Message message;
    if (out.receive(message)) out.release(message);
  }

  bool put(size_t offset, const std::byte* data, size_t size, bool more) {
    return until_accepted([&] { return out.put(channel, offset, {data, size}, false, more); });
  }
  bool notify(uint64_t offset) {
    return until_accepted([&] { return out.put(channel, offset, {}, true); });
  }
  bool notified(uint64_t offset) {
    Message message;
    if (!out.receive(message)) return false;
    out.release(message);
    return message.kind == MessageKind::put_done && message.region_offset == offset;
  }
  uint64_t deposited() const {
    const std::string_view name = kEndpointCounterNames[static_cast<size_t>(EndpointCounter::received_bytes)];
    for (const auto& [counter, value] : out.counters()) {
      if (counter == name) return value;
    }
    return 0;
  }
};

class UnetWire final : public Path {
 public:
  UnetWire(PathInfo info, std::shared_ptr<WirePort> wire) : Path(std::move(info)), wire_(std::move(wire)) {}

  Status fits(Workload workload, uint32_t size) const override {
    if (size > kMessageMax) return fail(Errc::unavailable, "a put over a wire has at most 64 KiB");
    if (workload == Workload::put && size == 0) return fail(Errc::unavailable, "a put of nothing deposits nothing");
    return {};
  }
  Status prepare(Environment& environment) override { return wire_->prepare(environment); }
  Status set_up(const RunContext& run, Environment& environment) override {
    if (auto opened = wire_->set_up(run, environment); !opened) return opened;
    // Deep enough for a burst that the application does not look at at once.
    auto endpoint = wire_->context().create_endpoint({.send_depth = 256, .receive_depth = 1024, .buffers = 1024});
    if (!endpoint) return tl::unexpected(endpoint.error());
    endpoint_.emplace(std::move(*endpoint));
    auto channel = run.side == Side::a ? connect(run) : accept();
    if (!channel) return tl::unexpected(channel.error());
    channel_ = *channel;
    return {};
  }
  Outcome run(const Slice& slice, RunContext& context) override {
    WireLink link(*endpoint_, channel_, context);
    if (slice.workload == Workload::put) return WirePuts(link, slice, region_, kRegionBytes, buffers_, context).run();
    return run_on_link(link, slice, buffers_, context);
  }
  void tear_down(const RunContext&) override {
    endpoint_.reset();
    wire_->tear_down();
  }

 private:
  Result<Channel> connect(const RunContext& run) {
    while (true) {
      auto channel = endpoint_->connect(WirePort::kTarget);
      if (channel) keep_polling();
      if (channel || run.stop.raised()) return channel;
      // Side B may not have bound its name yet.
      if (channel.error().code != Errc::not_found && channel.error().code != Errc::timed_out) return channel;
    }
  }
  Result<Channel> accept() {
    if (auto bound = endpoint_->bind("bench"); !bound) return tl::unexpected(bound.error());
    auto region = endpoint_->expose(kRegionBytes);
    if (!region) return tl::unexpected(region.error());
    region_ = *region;
    std::memset(region_.data(), 0, region_.size());  // no slice meets a page fault
    auto channel = endpoint_->accept(kConnectTime, nullptr);
    keep_polling();
    return channel;
  }

  // The last message of the set-up may have to be sent again, and an embedded NI works only when its application polls.
  void keep_polling() {
    const Nanoseconds start = monotonic_now();
    Message message;
    while (monotonic_now() - start < 300 * kMillisecond) endpoint_->receive(message);
  }

  std::shared_ptr<WirePort> wire_;
  std::optional<Endpoint> endpoint_;
  Channel channel_{};
  MutableBytes region_;  // side B
  MessageBuffers buffers_{kMessageMax};
};

struct BareLink : LossyReceiver<BareLink> {
  drivers::RawLink raw;
  RunContext& context;

  BareLink(drivers::RawLink link, RunContext& run) : raw(link), context(run) {}

  bool send(const std::byte* data, size_t size) {
    return spin_until(context.stop, [&] { return raw.try_send(data, size); });
  }
  size_t send_burst(const std::byte* data, size_t size, size_t count) {
    size_t n = 0;
    spin_until(context.stop, [&] { return (n = raw.send_burst(data, size, count)) != 0; });
    return n;
  }
  bool try_receive(std::byte* into, size_t size) { return raw.try_receive(into, size); }
  size_t try_receive_burst(std::byte* into, size_t size, size_t count) { return raw.receive_burst(into, size, count); }
};

class BareWire final : public Path {
 public:
  BareWire(PathInfo info, std::shared_ptr<WirePort> wire, bool segments = false)
      : Path(std::move(info)), wire_(std::move(wire)), segments_(segments) {}

  Status fits(Workload workload, uint32_t size) const override {
    if (segments_ && workload == Workload::bandwidth) return {};
    if (size <= (segments_ ? kSegmentPayload : kFramePayload)) return {};
    return fail(Errc::unavailable, "a bare frame holds at most " + std::to_string(kFramePayload) + " B");
  }
  Status prepare(Environment& environment) override { return wire_->prepare(environment); }
  Status set_up(const RunContext& run, Environment& environment) override { return wire_->set_up(run, environment); }
  Outcome run(const Slice& slice, RunContext& context) override {
    // The frame is as long as ours would be: the same bytes cross the wire.
    Slice framed = slice;
    framed.size = slice.size + (segments_ ? kSegmentHeader : static_cast<uint32_t>(sizeof(FrameHeader)));
    if (segments_ && is_stream(slice.workload)) return run_segments(framed, slice.size, context);
    return run_frames(framed, context);
  }
  void tear_down(const RunContext&) override { wire_->tear_down(); }

 private:
  // An IP packet of 1500 bytes, with the headers of TCP with timestamps.
  static constexpr uint32_t kPacket = 1500, kSegmentHeader = 20 + 32, kSegmentPayload = kPacket - kSegmentHeader;

  // Sends as many frames as a stream of calls of `size` bytes has. Arrived messages are counted in such calls.
  Outcome run_segments(Slice framed, uint32_t size, RunContext& context) {
    const auto frames = [&](uint64_t calls) { return (calls * size + kSegmentPayload - 1) / kSegmentPayload; };
    framed.size = kPacket;
    framed.warm_up = frames(framed.warm_up);
    framed.iterations = frames(framed.iterations);
    Outcome outcome = run_frames(framed, context);
    outcome.messages = outcome.messages * kSegmentPayload / size;
    return outcome;
  }
  Outcome run_frames(const Slice& framed, RunContext& context) {
    BareLink link(wire_->raw_link(), context);
    return run_on_link(link, framed, buffers_, context);
  }

  static constexpr uint32_t kFramePayload = 1500 - sizeof(FrameHeader);
  std::shared_ptr<WirePort> wire_;
  const bool segments_;
  MessageBuffers buffers_{kMessageMax};
};

void add_wire(Paths& paths, WireKind kind, const std::string& name, const std::string& setting) {
  const bool is_dpdk = kind != WireKind::pcap && kind != WireKind::xdp;
  const std::string bare = kind == WireKind::pcap ? "" : "raw-" + (kind == WireKind::xdp ? "af_xdp" : name);
  auto wire = std::make_shared<WirePort>(kind);
  if (is_dpdk) {
    paths.push_back(std::make_unique<BareWire>(
        PathInfo{.name = bare,
                      .kind = Kind::raw,
                      .what = "bare DPDK on the port of " + name + ": frames as long as U-Net's",
                      .setting = setting + ", rte_eth_rx_burst and rte_eth_tx_burst, bursts of 32 in streams",
                      .workloads = kMessageWorkloads},
        wire));
  }
  paths.push_back(std::make_unique<UnetWire>(
      PathInfo{.name = name,
                    .kind = Kind::ours,
                    .what = "U-Net, embedded NI over " + name + ", between the two processes",
                    .setting = setting + ", public C++ API, the application's poll runs the engine",
                    .workloads = kMessageWorkloads | Set{Workload::put},
                    .baseline = bare,
                    .wire = true},
      wire));
  if (kind == WireKind::memif || kind == WireKind::af_xdp) {
    paths.push_back(std::make_unique<BareWire>(
        PathInfo{.name = bare + "-segments",
                      .kind = Kind::raw,
                      .what = "the same, frames as long as those of TCP's segments",
                      .setting = setting + ", bursts of 32 in streams, nothing sent back",
                      .workloads = kMessageWorkloads,
                      .abilities = {Ability::tcp}},
        wire, true));
  }
  if (kind == WireKind::pcap || kind == WireKind::memif_zero_copy) return;
  if (kind != WireKind::af_packet) add_socket_wire(paths, kind, name, setting, bare);
  add_am_wire(paths, name, setting, wire);
  add_splitc_wire(paths, name, setting, wire);
  add_rpc_wire(paths, name, setting, wire);
}

}  // namespace

void add_unet_wires(Paths& paths) {
  add_wire(paths, WireKind::memif, "memif", "net_memif, 1,024 slots");
  add_wire(paths, WireKind::memif_zero_copy, "memif-zc", "net_memif, zero-copy=yes on side A");
  add_wire(paths, WireKind::af_xdp, "af_xdp", "net_af_xdp on a veth pair between two namespaces");
  add_wire(paths, WireKind::af_packet, "af_packet", "net_af_packet on a veth pair between two namespaces");
  add_wire(paths, WireKind::xdp, "xdp", "an AF_XDP socket without DPDK on a veth pair between two namespaces");
  add_wire(paths, WireKind::pcap, "pcap", "libpcap, immediate mode, on a veth pair between two namespaces");
}

}  // namespace unet::bench
