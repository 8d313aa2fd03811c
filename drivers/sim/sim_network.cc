// sim_network.cc - the switch: a heap of frames on their way to it, and one queue per downlink.
#include "drivers/sim/sim_network.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "unet/base/check.h"
#include "unet/wire/frame.h"

namespace unet::drivers {

namespace {

// A queue of fixed capacity, which is set once.
template <typename T>
class Fifo {
 public:
  void set_capacity(size_t capacity) { items_ = std::make_unique_for_overwrite<T[]>(capacity_ = capacity); }
  bool empty() const noexcept { return head_ == tail_; }
  bool full() const noexcept { return tail_ - head_ == capacity_; }
  size_t size() const noexcept { return tail_ - head_; }
  const T& front() const noexcept { return items_[head_ % capacity_]; }
  const T& at(uint64_t position) const noexcept { return items_[position % capacity_]; }
  uint64_t head() const noexcept { return head_; }
  uint64_t tail() const noexcept { return tail_; }
  void push(const T& item) noexcept { items_[tail_++ % capacity_] = item; }
  void pop() noexcept { ++head_; }
  void clear() noexcept { head_ = tail_ = 0; }

 private:
  std::unique_ptr<T[]> items_;
  size_t capacity_ = 0;
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
};

}  // namespace

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

  // A frame reaches the switch at `time`; `order` keeps ties in the order of sending.
  struct Arrival {
    Nanoseconds time;
    uint64_t order;
    Frame* frame;
    bool operator<(const Arrival& other) const noexcept {  // the heap's top is the earliest
      return time != other.time ? time > other.time : order > other.order;
    }
  };

  // A frame on a downlink. It leaves the switch at `departure`; the port can receive it from `delivery` on.
  struct InFlight {
    Nanoseconds departure;
    Nanoseconds delivery;
    Frame* frame;
  };

  struct Counters {
    uint64_t rx_frames, rx_bytes, tx_frames, tx_bytes;
    uint64_t queue_full, rx_missed, tx_oversize, rx_oversize, tx_runt, no_receiver, unplugged;
  };

  struct PortState {
    SimPortOptions options;
    DriverCapabilities capabilities;
    uint32_t room;  // bytes of one frame buffer
    std::unique_ptr<std::byte[]> memory;
    std::vector<Frame> frames;
    std::vector<Frame*> free;
    Nanoseconds uplink_free;    // when the uplink is idle again
    Nanoseconds downlink_free;  // when the downlink is idle again
    uint64_t departed;          // position in `downlink` of the first frame that has not left the switch
    Fifo<InFlight> downlink;
    Fifo<Frame*> ring;
    bool up;
    Counters counters;
  };

  explicit State(std::span<const SimPortOptions> options);
  void reset() noexcept;
  void advance(Nanoseconds now) noexcept;
  Nanoseconds next_event(uint32_t port) const noexcept;

  uint32_t transmit(uint32_t port, std::span<TransmitFrame> frames, Nanoseconds now) noexcept;
  void send(uint32_t port, const TransmitFrame& frame, Nanoseconds now) noexcept;
  void read_external(Frame& frame) noexcept;
  void arrive(const Arrival& arrival) noexcept;
  void forward(Frame& frame, uint32_t port, Nanoseconds time, bool copy) noexcept;
  Frame* copy_of(const Frame& frame) noexcept;
  void deliver(PortState& port, Nanoseconds now) noexcept;
  void unreference(Frame& frame) noexcept;

  std::vector<PortState> ports;
  std::vector<Arrival> arrivals;  // a heap
  uint64_t order = 0;
  Nanoseconds time = 0;
};

namespace {

Nanoseconds serialisation(uint32_t bytes, uint64_t bits_per_second) noexcept {
  if (bits_per_second == 0) return 0;
  return (uint64_t{bytes} * 8 * kSecond + bits_per_second - 1) / bits_per_second;
}

}  // namespace

SimNetwork::State::State(std::span<const SimPortOptions> options) : ports(options.size()) {
  size_t all_frames = 0;
  for (const SimPortOptions& o : options) all_frames += o.frames;
  arrivals.reserve(all_frames);
  for (size_t i = 0; i < ports.size(); ++i) {
    PortState& port = ports[i];
    port.options = options[i];
    port.capabilities = {.address = address_of(static_cast<uint32_t>(i)),
                         .mtu = options[i].mtu,
                         .external_payload = options[i].external_payload};
    port.room = (options[i].mtu + kEthernetBytes + 63) / 64 * 64;
    port.memory = std::make_unique_for_overwrite<std::byte[]>(size_t{port.room} * options[i].frames);
    port.frames.resize(options[i].frames);
    port.free.reserve(options[i].frames);
    port.downlink.set_capacity(all_frames);
    port.ring.set_capacity(std::max<uint32_t>(options[i].receive_ring, 1));
  }
  reset();
}

void SimNetwork::State::reset() noexcept {
  arrivals.clear();
  order = 0;
  time = 0;
  for (size_t i = 0; i < ports.size(); ++i) {
    PortState& port = ports[i];
    port.uplink_free = port.downlink_free = 0;
    port.departed = 0;
    port.downlink.clear();
    port.ring.clear();
    port.up = true;
    port.counters = {};
    port.free.clear();
    for (size_t f = port.frames.size(); f-- > 0;) {
      port.frames[f] = {.data = port.memory.get() + f * port.room, .owner = static_cast<uint32_t>(i)};
      port.free.push_back(&port.frames[f]);
    }
  }
}

// Runs all events up to `now`, in order.
void SimNetwork::State::advance(Nanoseconds now) noexcept {
  time = std::max(time, now);
  while (!arrivals.empty() && arrivals.front().time <= time) {
    std::pop_heap(arrivals.begin(), arrivals.end());
    const Arrival arrival = arrivals.back();
    arrivals.pop_back();
    arrive(arrival);
  }
}

// A frame arrives at the switch: forward it to its receiver's downlink, or to all other ports.
void SimNetwork::State::arrive(const Arrival& arrival) noexcept {
  Frame& frame = *arrival.frame;
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
    forward(frame, i, arrival.time, received);  // the first receiver gets the frame, others a copy, because receivers may write to it
    received = true;
  }
  if (!received) ++ports[frame.owner].counters.no_receiver;
  unreference(frame);
}

void SimNetwork::State::forward(Frame& frame, uint32_t index, Nanoseconds at, bool copy) noexcept {
  PortState& port = ports[index];
  while (port.departed < port.downlink.head() ||
         (port.departed < port.downlink.tail() && port.downlink.at(port.departed).departure <= at)) {
    ++port.departed;
  }
  uint64_t* lost = nullptr;
  if (!port.up) {
    lost = &port.counters.unplugged;
  } else if (frame.length > port.options.mtu + kEthernetBytes) {
    lost = &port.counters.rx_oversize;
  } else if (port.downlink.tail() - port.departed >= port.options.queue_frames || port.downlink.full()) {
    lost = &port.counters.queue_full;
  }
  Frame* const own = lost != nullptr || !copy ? &frame : copy_of(frame);
  if (own == nullptr) lost = &port.counters.queue_full;
  if (lost != nullptr) {
    ++*lost;
    return;
  }
  const Nanoseconds start = std::max(at, port.downlink_free);
  const Nanoseconds departure = start + serialisation(frame.length, port.options.bits_per_second);
  port.downlink_free = departure;
  ++own->references;
  port.downlink.push({departure, departure + port.options.delay, own});
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

// Moves frames that have arrived at a port into its receive ring.
void SimNetwork::State::deliver(PortState& port, Nanoseconds now) noexcept {
  while (!port.downlink.empty() && port.downlink.front().delivery <= now) {
    Frame& frame = *port.downlink.front().frame;
    port.downlink.pop();
    if (!port.up) {
      ++port.counters.unplugged;
      unreference(frame);
    } else if (port.ring.size() >= port.options.receive_ring) {
      ++port.counters.rx_missed;
      unreference(frame);
    } else {
      port.ring.push(&frame);
    }
  }
}

Nanoseconds SimNetwork::State::next_event(uint32_t index) const noexcept {
  const PortState& port = ports[index];
  if (!port.ring.empty()) return time;
  Nanoseconds next = kNever;
  if (!arrivals.empty()) next = arrivals.front().time;
  if (!port.downlink.empty()) next = std::min(next, port.downlink.front().delivery);
  return next;
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

void SimNetwork::State::send(uint32_t index, const TransmitFrame& sent, Nanoseconds now) noexcept {
  PortState& port = ports[index];
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
  port.uplink_free = std::max(now, port.uplink_free) + serialisation(length, port.options.bits_per_second);
  arrivals.push_back({port.uplink_free + port.options.delay, order++, &frame});
  std::push_heap(arrivals.begin(), arrivals.end());
}

uint32_t SimNetwork::State::transmit(uint32_t index, std::span<TransmitFrame> frames, Nanoseconds now) noexcept {
  advance(now);
  for (const TransmitFrame& frame : frames) send(index, frame, time);
  return static_cast<uint32_t>(frames.size());
}

// The driver of one port. It shares ownership of the network's state.
class SimNetwork::Port final : public Driver {
 public:
  Port(std::shared_ptr<State> state, uint32_t index) : state_(std::move(state)), index_(index), port_(state_->ports[index]) {}

  const DriverCapabilities& capabilities() const noexcept override { return port_.capabilities; }

  uint32_t receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept override {
    state_->advance(now);
    state_->deliver(port_, state_->time);
    uint32_t count = 0;
    while (count < frames.size() && !port_.ring.empty()) {
      State::Frame* frame = port_.ring.front();
      port_.ring.pop();
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
    return state_->transmit(index_, frames, now);
  }

  void discard(std::span<const TransmitFrame> frames) noexcept override {
    for (const TransmitFrame& frame : frames) state_->unreference(*static_cast<State::Frame*>(frame.handle));
  }

  void poll(Nanoseconds now) noexcept override {
    state_->advance(now);
    state_->deliver(port_, state_->time);
  }

  Nanoseconds next_event() const noexcept override { return state_->next_event(index_); }

  bool register_memory(std::span<std::byte>) noexcept override { return port_.options.external_payload; }

  // Read payloads that still wait for the uplink before the memory goes.
  void forget_memory(std::span<std::byte> memory) noexcept override {
    for (State::Arrival& arrival : state_->arrivals) {
      const std::byte* external = arrival.frame->external;
      if (external != nullptr && external >= memory.data() && external < memory.data() + memory.size()) {
        state_->read_external(*arrival.frame);
      }
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

SimNetwork::SimNetwork(std::span<const SimPortOptions> ports) : state_(std::make_shared<State>(ports)) {}

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

void SimNetwork::advance(Nanoseconds now) noexcept { state_->advance(now); }

Nanoseconds SimNetwork::next_event() const noexcept {
  Nanoseconds next = kNever;
  for (uint32_t i = 0; i < ports(); ++i) next = std::min(next, state_->next_event(i));
  return next;
}

void SimNetwork::reset() noexcept { state_->reset(); }

}  // namespace unet::drivers
