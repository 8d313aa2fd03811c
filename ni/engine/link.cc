// link.cc - rings of frames between engines, and ports at their ends.
#include "ni/engine/link.h"

#include <unistd.h>

#include <algorithm>
#include <string>

#include "ni/engine/port.h"
#include "unet/base/bytes.h"
#include "unet/base/check.h"
#include "unet/base/fence.h"
#include "unet/wire/frame.h"

namespace unet::engine {
namespace {

constexpr uint32_t frame_size(uint32_t mtu) noexcept { return mtu + static_cast<uint32_t>(sizeof(EthernetHeader)); }

// One outgoing ring and several incoming ones, as a port. Allocation reserves a place in the ring: nothing is copied.
class LinkPort final : public Driver {
 public:
  LinkPort(DriverCapabilities capabilities, LinkRing* out, std::vector<LinkRing*> in, LinkBell* other, std::string description)
      : capabilities_(capabilities), out_(out), in_(std::move(in)), other_(other), description_(std::move(description)) {
    capabilities_.external_payload = false;
  }
  ~LinkPort() override = default;

  const DriverCapabilities& capabilities() const noexcept override { return capabilities_; }
  // Reads one ring at a time, in rotation.
  uint32_t receive(std::span<ReceivedFrame> frames, Nanoseconds) noexcept override {
    for (size_t tried = 0; tried < in_.size(); ++tried) {
      reading_ = reading_ + 1 < in_.size() ? reading_ + 1 : 0;
      if (const uint32_t count = in_[reading_]->peek(frames); count != 0) return count;
    }
    return 0;
  }
  void release(std::span<const ReceivedFrame> frames) noexcept override {
    in_[reading_]->release(static_cast<uint32_t>(frames.size()));
  }
  uint32_t allocate(std::span<TransmitFrame> frames) noexcept override {
    uint32_t count = 0;
    for (std::byte* data; out_ != nullptr && count < frames.size() && (data = out_->reserve()) != nullptr; ++count) {
      frames[count].data = data;
    }
    return count;
  }
  // Takes all frames: they have reserved places, in this order.
  uint32_t transmit(std::span<TransmitFrame> frames, Nanoseconds) noexcept override {
    for (const TransmitFrame& frame : frames) out_->put(frame.length);
    out_->publish();
    other_->ring();
    return static_cast<uint32_t>(frames.size());
  }
  void discard(std::span<const TransmitFrame> frames) noexcept override {
    if (!frames.empty()) out_->give_back(static_cast<uint32_t>(frames.size()));
  }
  std::vector<DriverCounter> counters() const override { return {}; }
  std::string description() const override { return description_; }

 private:
  DriverCapabilities capabilities_;
  LinkRing* out_;  // nullptr, as the bell: leads nowhere
  std::vector<LinkRing*> in_;
  size_t reading_ = 0;  // the ring that was read last
  LinkBell* other_;
  std::string description_;
};

}  // namespace

// ---- LinkRing

LinkRing::LinkRing(uint32_t frame_bytes)
    : frame_bytes_(frame_bytes),
      stride_((frame_bytes + kCacheLine - 1) / kCacheLine * kCacheLine),
      memory_(new std::byte[size_t{stride_} * kDepth]) {}

std::byte* LinkRing::reserve() noexcept {
  if (reserved_ - head_seen_ == kDepth) {
    head_seen_ = head_.load(std::memory_order_acquire);
    if (reserved_ - head_seen_ == kDepth) return nullptr;
  }
  return frame(reserved_++);
}

uint32_t LinkRing::peek(std::span<ReceivedFrame> frames) const noexcept {
  const uint32_t head = head_.load(std::memory_order_relaxed);
  const uint32_t there = tail_.load(std::memory_order_acquire) - head;
  const uint32_t count = std::min(there, static_cast<uint32_t>(frames.size()));
  for (uint32_t i = 0; i < count; ++i) {
    frames[i] = {.data = frame(head + i), .length = lengths_[(head + i) & (kDepth - 1)], .handle = nullptr};
  }
  return count;
}

// ---- LinkBell

void LinkBell::ring() noexcept {
  light_fence();
  if (!asleep_.load(std::memory_order_relaxed) || !asleep_.exchange(false, std::memory_order_relaxed)) return;
  const uint64_t one = 1;
  static_cast<void>(!::write(descriptor, &one, sizeof one));
}

// ---- Links

bool Links::arrived(uint32_t port, uint32_t to, Bytes frame) noexcept {
  LinkRing* const ring = own_by_port_[port] == nullptr || to >= engines_ ? nullptr : own_by_port_[port]->from_wire[to];
  if (ring == nullptr || frame.size() > ring->frame_bytes()) return false;
  std::byte* const place = ring->reserve();
  if (place == nullptr) return false;
  copy_bytes(place, frame.data(), frame.size());
  ring->put(static_cast<uint32_t>(frame.size()));
  ring->publish();
  ring_for_ |= 1u << to;
  return true;
}

void Links::flush() noexcept {
  for (uint32_t engine = 0; ring_for_ != 0; ++engine) {
    if ((ring_for_ >> engine & 1) == 0) continue;
    ring_for_ &= ~(1u << engine);
    bells_[engine]->ring();
  }
}

uint32_t Links::forward(std::span<const std::unique_ptr<Port>> ports, Nanoseconds now) noexcept {
  ++turn_;
  uint32_t moved = 0;
  unfinished_ = false;
  for (OwnPort& own : own_) {
    Port& port = *ports[own.port];
    if (port.waiting_first == nullptr || turn_ % 2 == 0) {
      uint32_t of_port = 0;
      for (uint32_t i = 0; i < engines_; ++i) of_port += forward(own, port, (turn_ / 2 + i) % engines_, now);
      port.flush(now);  // also what it did not take before
      moved += of_port;
    } else {
      for (uint32_t e = 0; e < engines_; ++e) {
        if (own.to_wire[e] != nullptr && !own.to_wire[e]->empty()) own.blocked |= 1u << e;
      }
    }
    unfinished_ = unfinished_ || own.blocked != 0 || port.staged();
  }
  return moved;
}

uint32_t Links::forward(OwnPort& own, Port& port, uint32_t engine, Nanoseconds now) noexcept {
  LinkRing* const ring = own.to_wire[engine];
  if (ring == nullptr) return 0;
  own.blocked &= ~(1u << engine);
  std::array<ReceivedFrame, kAtOnce> frames;
  const uint32_t there = ring->peek(frames);
  uint32_t moved = 0;
  for (; moved < there; ++moved) {
    TransmitFrame* const frame = port.frame(now);
    if (frame == nullptr) {
      own.blocked |= 1u << engine;
      break;
    }
    copy_bytes(frame->data, frames[moved].data, frames[moved].length);
    frame->length = frames[moved].length;
    port.stage();
  }
  if (moved != 0) ring->release(moved);
  return moved;
}

bool Links::news() const noexcept {
  for (const OwnPort& own : own_) {
    for (uint32_t e = 0; e < engines_; ++e) {
      if (own.to_wire[e] != nullptr && (own.blocked >> e & 1) == 0 && !own.to_wire[e]->empty()) return true;
    }
  }
  return false;
}

// ---- LinkFabric

LinkFabric::LinkFabric(uint32_t engines, std::vector<PortInfo> ports) : engines_(engines), ports_(std::move(ports)) {
  UNET_CHECK(engines >= 1 && engines <= kEnginesMax && ports_.size() <= kPortsMax);
  const auto port_count = static_cast<uint32_t>(ports_.size());
  rings_.resize(size_t{engines} * engines * (port_count + 1));
  for (uint32_t from = 0; from < engines; ++from) {
    for (uint32_t to = 0; to < engines; ++to) {
      for (uint32_t port = 0; port <= port_count && from != to; ++port) {
        const bool between = port == port_count;
        if (!between && !joined(from, to, ports_[port])) continue;
        const uint32_t mtu = between ? kLinkMtu : ports_[port].capabilities.mtu;
        rings_[(from * engines + to) * (port_count + 1) + port] = std::make_unique<LinkRing>(frame_size(mtu));
      }
    }
  }
  for (uint32_t engine = 0; engine < engines; ++engine) open_ports(engine);
}

// True if `from` can have frames of the port for `to`: `from` has a queue where they arrive, or none and sends by the first queue.
bool LinkFabric::joined(uint32_t from, uint32_t to, const PortInfo& port) const noexcept {
  return port.has(from) || port.engine == to;
}

void LinkFabric::open_ports(uint32_t engine) {
  const auto port_count = static_cast<uint32_t>(ports_.size());
  Links& own = links_[engine];
  own.engine_ = engine;
  own.engines_ = engines_;
  own.wires_ = port_count;
  own.bell_ = &bells_[engine];
  for (uint32_t other = 0; other < engines_; ++other) {
    own.bells_[other] = &bells_[other];
    own.link_mask_ |= uint64_t{1} << link_port(other);
  }
  own.own_.reserve(port_count);
  for (uint32_t port = 0; port < port_count; ++port) {
    const PortInfo& info = ports_[port];
    if (!info.has(engine)) {
      own.link_mask_ |= uint64_t{1} << port;
      continue;
    }
    Links::OwnPort& each = own.own_.emplace_back();
    each.port = port;
    bool shared = false;
    for (uint32_t other = 0; other < engines_; ++other) {
      if (other == engine) continue;
      shared = shared || info.has(other);
      if (info.engine == engine && !info.has(other)) each.to_wire[other] = &ring(other, engine, port);
      each.from_wire[other] = &ring(engine, other, port);
    }
    own.own_by_port_[port] = &each;
    if (!shared) continue;
    own.shared_mask_ |= uint64_t{1} << port;
    own.link_mask_ |= uint64_t{1} << (port_count + engines_ + own.entrances_.size());
    own.entrances_.push_back(port);
  }
}

// Rings with frames that arrived for `engine` at queues of other engines.
std::vector<LinkRing*> LinkFabric::arrivals(uint32_t engine, uint32_t port) const {
  std::vector<LinkRing*> rings;
  for (uint32_t other = 0; other < engines_; ++other) {
    if (other != engine && ports_[port].has(other)) rings.push_back(&ring(other, engine, port));
  }
  return rings;
}

std::unique_ptr<Driver> LinkFabric::foreign_port(uint32_t engine, uint32_t port) {
  const uint32_t owner = ports_[port].engine;
  UNET_CHECK(!ports_[port].has(engine));
  return std::make_unique<LinkPort>(ports_[port].capabilities, &ring(engine, owner, port), arrivals(engine, port), &bells_[owner],
                                    "link to port " + std::to_string(port) + " of engine " + std::to_string(owner));
}

std::vector<std::unique_ptr<Driver>> LinkFabric::entrances(uint32_t engine) {
  std::vector<std::unique_ptr<Driver>> all;
  for (const uint32_t port : links_[engine].entrances_) {
    all.push_back(std::make_unique<LinkPort>(ports_[port].capabilities, nullptr, arrivals(engine, port), nullptr,
                                             "entrance from other queues of port " + std::to_string(port)));
  }
  return all;
}

std::unique_ptr<Driver> LinkFabric::engine_port(uint32_t engine, uint32_t other) {
  const DriverCapabilities capabilities{.address = engine_address(engine), .mtu = kLinkMtu};
  const auto none = static_cast<uint32_t>(ports_.size());
  if (engine == other) return std::make_unique<LinkPort>(capabilities, nullptr, std::vector<LinkRing*>(), nullptr, "no link");
  return std::make_unique<LinkPort>(capabilities, &ring(engine, other, none), std::vector<LinkRing*>{&ring(other, engine, none)},
                                    &bells_[other], "link to engine " + std::to_string(other));
}

}  // namespace unet::engine
