// sim_network.cc - the switch between two simulated links of each port, and the frame buffers of the ports.
#include "drivers/sim/sim_network.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <vector>

#include "unet/base/check.h"
#include "unet/wire/frame.h"

namespace unet::drivers {

struct SimNetwork::State {
  // A stored frame, and the port that owns its buffer.
  struct Frame {
    std::byte* data = nullptr;
    uint32_t owner = 0;
    uint32_t references = 0;
    uint32_t length = 0;
    uint32_t external_length = 0;
    const std::byte* external = nullptr;
    TransmitCompletion* completion = nullptr;
  };

  struct Counters {
    uint64_t rx_frames, rx_bytes, tx_frames, tx_bytes;
    uint64_t queue_full, rx_missed, tx_oversize, rx_oversize, tx_runt, no_receiver, unplugged;
  };

  struct PortState {
    PortState(Simulator& simulator, const SimPortOptions& o)
        : options(o), uplink(simulator, {.delay = o.delay, .bits_per_second = o.bits_per_second}), downlink(uplink) {
      downlink.options.queue = o.queue_bytes;
    }
    SimPortOptions options;
    DriverCapabilities capabilities;
    uint32_t room = 0;  // bytes of one frame buffer
    std::unique_ptr<std::byte[]> memory;
    std::vector<Frame> frames;
    std::vector<Frame*> free;
    SimLink uplink, downlink;
    std::deque<Frame*> ring;
    bool up = true;
    Counters counters{};
  };

  State(Simulator* shared, std::span<const SimPortOptions> options);

  void send(PortState& port, const TransmitFrame& frame) noexcept;
  void read_external(Frame& frame) noexcept;
  void arrive(Frame& frame) noexcept;
  void forward(Frame& frame, PortState& port, bool copy) noexcept;
  Frame* copy_of(const Frame& frame) noexcept;
  void deliver(Frame& frame, PortState& port) noexcept;
  void unreference(Frame& frame) noexcept;

  std::unique_ptr<Simulator> own;  // if none is shared
  Simulator& simulator;
  std::vector<PortState> ports;
};

SimNetwork::State::State(Simulator* shared, std::span<const SimPortOptions> options)
    : own(shared == nullptr ? std::make_unique<Simulator>(1, 0) : nullptr), simulator(shared == nullptr ? *own : *shared) {
  ports.reserve(options.size());  // events have references to ports
  for (const SimPortOptions& each : options) {
    const auto index = static_cast<uint32_t>(ports.size());
    PortState& port = ports.emplace_back(simulator, each);
    port.capabilities = {.address = address_of(index), .mtu = each.mtu, .external_payload = each.external_payload};
    port.room = (each.mtu + kEthernetBytes + 63) / 64 * 64;
    port.memory = std::make_unique_for_overwrite<std::byte[]>(size_t{port.room} * each.frames);
    port.frames.resize(each.frames);
    for (size_t f = port.frames.size(); f-- > 0;) {
      port.frames[f] = {.data = port.memory.get() + f * port.room, .owner = index};
      port.free.push_back(&port.frames[f]);
    }
  }
}

// A frame arrives at the switch: forward it to its receiver's downlink, or to all other ports.
void SimNetwork::State::arrive(Frame& frame) noexcept {
  read_external(frame);
  MacAddress to;
  std::memcpy(to.data(), frame.data, to.size());
  uint32_t found = static_cast<uint32_t>(ports.size());
  for (uint32_t i = 0; i < ports.size() && (to[0] & 1) == 0; ++i) {
    if (ports[i].capabilities.address == to) found = i;
  }
  bool received = false;
  for (uint32_t i = 0; i < ports.size(); ++i) {
    if (i == frame.owner || (found != ports.size() && found != i)) continue;
    forward(frame, ports[i], received);  // the first receiver gets the frame, others a copy, because receivers may write to it
    received = true;
  }
  if (!received) ++ports[frame.owner].counters.no_receiver;
  unreference(frame);
}

void SimNetwork::State::forward(Frame& frame, PortState& port, bool copy) noexcept {
  if (!port.up || frame.length > port.options.mtu + kEthernetBytes) {
    ++(port.up ? port.counters.rx_oversize : port.counters.unplugged);
    return;
  }
  Frame* const own = copy ? copy_of(frame) : &frame;
  if (own == nullptr) {
    ++port.counters.queue_full;
    return;
  }
  ++own->references;
  const auto arrives = [this, own, &port](bool) { deliver(*own, port); };
  if (port.downlink.send(simulator.now(), frame.length, arrives)) return;
  ++port.counters.queue_full;
  unreference(*own);
}

// Copies a frame into the sender's memory; nullptr if there is none left.
SimNetwork::State::Frame* SimNetwork::State::copy_of(const Frame& frame) noexcept {
  std::vector<Frame*>& free = ports[frame.owner].free;
  if (free.empty()) return nullptr;
  Frame& copy = *free.back();
  free.pop_back();
  std::memcpy(copy.data, frame.data, frame.length);
  copy.length = frame.length;
  copy.references = 0;
  return &copy;
}

// A frame arrives at a port: it waits in the receive ring.
void SimNetwork::State::deliver(Frame& frame, PortState& port) noexcept {
  if (port.up && port.ring.size() < port.options.receive_ring) return port.ring.push_back(&frame);
  ++(port.up ? port.counters.rx_missed : port.counters.unplugged);
  unreference(frame);
}

void SimNetwork::State::unreference(Frame& frame) noexcept {
  UNET_CHECK(frame.references > 0);
  if (--frame.references == 0) ports[frame.owner].free.push_back(&frame);
}

void SimNetwork::State::read_external(Frame& frame) noexcept {
  if (frame.external != nullptr) {
    std::memcpy(frame.data + frame.length, frame.external, frame.external_length);
    frame.length += frame.external_length;
    if (frame.completion != nullptr) --frame.completion->pending;
    frame.external = nullptr;
  }
}

void SimNetwork::State::send(PortState& port, const TransmitFrame& sent) noexcept {
  Frame& frame = *static_cast<Frame*>(sent.handle);
  frame.length = sent.length;
  frame.external = port.options.external_payload && sent.external_length != 0 ? sent.external : nullptr;
  frame.external_length = frame.external != nullptr ? sent.external_length : 0;
  frame.completion = sent.completion;
  const uint32_t length = frame.length + frame.external_length;
  uint64_t* lost = nullptr;
  if (length > port.options.mtu + kEthernetBytes) {
    lost = &port.counters.tx_oversize;
  } else if (frame.length < kEthernetBytes) {
    lost = &port.counters.tx_runt;
  } else if (!port.up) {
    lost = &port.counters.unplugged;
  }
  if (lost != nullptr) {
    ++*lost;
    if (frame.external != nullptr && frame.completion != nullptr) --frame.completion->pending;
    frame.external = nullptr;
    unreference(frame);
    return;
  }
  ++port.counters.tx_frames;
  port.counters.tx_bytes += length;
  port.uplink.send(simulator.now(), length, [this, &frame](bool) { arrive(frame); });
}

// The driver of one port. It shares ownership of the network's state.
class SimNetwork::Port final : public Driver {
 public:
  Port(std::shared_ptr<State> state, uint32_t index) : state_(std::move(state)), index_(index), port_(state_->ports[index]) {}

  const DriverCapabilities& capabilities() const noexcept override { return port_.capabilities; }

  uint32_t receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept override {
    state_->simulator.advance(now);
    uint32_t count = 0;
    while (count < frames.size() && !port_.ring.empty()) {
      State::Frame* frame = port_.ring.front();
      port_.ring.pop_front();
      frames[count++] = {.data = frame->data, .length = frame->length, .handle = frame};
      ++port_.counters.rx_frames;
      port_.counters.rx_bytes += frame->length;
    }
    return count;
  }

  void release(std::span<const ReceivedFrame> frames) noexcept override {
    for (const ReceivedFrame& frame : frames) state_->unreference(*static_cast<State::Frame*>(frame.handle));
  }

  uint32_t allocate(std::span<TransmitFrame> frames) noexcept override {
    uint32_t count = 0;
    while (count < frames.size() && !port_.free.empty()) {
      State::Frame* frame = port_.free.back();
      port_.free.pop_back();
      frame->references = 1;
      frames[count++] = {.data = frame->data, .length = 0, .handle = frame};
    }
    return count;
  }

  uint32_t transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept override {
    state_->simulator.advance(now);
    for (const TransmitFrame& frame : frames) state_->send(port_, frame);
    return static_cast<uint32_t>(frames.size());
  }

  void discard(std::span<const TransmitFrame> frames) noexcept override {
    for (const TransmitFrame& frame : frames) state_->unreference(*static_cast<State::Frame*>(frame.handle));
  }

  void poll(Nanoseconds now) noexcept override { state_->simulator.advance(now); }

  Nanoseconds next_event() const noexcept override {
    return port_.ring.empty() ? state_->simulator.next_event() : state_->simulator.now();
  }

  bool register_memory(std::span<std::byte>) noexcept override { return port_.options.external_payload; }

  // Read payloads that still wait for the uplink before the memory goes.
  void forget_memory(std::span<std::byte> memory) noexcept override {
    for (State::Frame& frame : port_.frames) {
      const std::byte* external = frame.external;
      if (external != nullptr && external >= memory.data() && external < memory.data() + memory.size()) state_->read_external(frame);
    }
  }

  std::vector<DriverCounter> counters() const override {
    const State::Counters& c = port_.counters;
    return {{"rx_frames", c.rx_frames},     {"rx_bytes", c.rx_bytes},       {"tx_frames", c.tx_frames},
            {"tx_bytes", c.tx_bytes},       {"queue_full", c.queue_full},   {"rx_missed", c.rx_missed},
            {"tx_oversize", c.tx_oversize}, {"rx_oversize", c.rx_oversize}, {"tx_runt", c.tx_runt},
            {"no_receiver", c.no_receiver}, {"unplugged", c.unplugged}};
  }

  std::string description() const override {
    return "sim: port " + std::to_string(index_) + " of " + std::to_string(state_->ports.size()) + " mtu " +
           std::to_string(port_.options.mtu);
  }

 private:
  std::shared_ptr<State> state_;
  uint32_t index_;
  State::PortState& port_;
};

SimNetwork::SimNetwork(uint32_t ports, const SimPortOptions& options)
    : SimNetwork(std::span<const SimPortOptions>(std::vector<SimPortOptions>(ports, options))) {}

SimNetwork::SimNetwork(std::span<const SimPortOptions> ports) : state_(std::make_shared<State>(nullptr, ports)) {}

SimNetwork::SimNetwork(Simulator& simulator, uint32_t ports, const SimPortOptions& options)
    : state_(std::make_shared<State>(&simulator, std::vector<SimPortOptions>(ports, options))) {}

SimNetwork::~SimNetwork() = default;

uint32_t SimNetwork::ports() const noexcept { return static_cast<uint32_t>(state_->ports.size()); }

MacAddress SimNetwork::address_of(uint32_t port) noexcept {
  return {0x02, 0x53, 0x49, 0x4d, static_cast<uint8_t>(port >> 8), static_cast<uint8_t>(port)};
}

std::unique_ptr<Driver> SimNetwork::port(uint32_t index) {
  UNET_CHECK(index < ports());
  return std::make_unique<Port>(state_, index);
}

void SimNetwork::set_link(uint32_t port, bool up) noexcept {
  UNET_CHECK(port < ports());
  state_->ports[port].up = up;
}

void SimNetwork::advance(Nanoseconds now) noexcept { state_->simulator.advance(now); }

Nanoseconds SimNetwork::next_event() const noexcept {
  const bool arrived = std::any_of(state_->ports.begin(), state_->ports.end(), [](const auto& port) { return !port.ring.empty(); });
  return arrived ? state_->simulator.now() : state_->simulator.next_event();
}

}  // namespace unet::drivers
