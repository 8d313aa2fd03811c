// link.h - connects the engines of one NI: rings of frames, which each engine sees as ports; made by Ni.
// Several engines are for message passing on hosts that spare cores for several busy ports or queues, and for measuring. IP stays with the
// first engine's ports, and an NI with takeover has one engine.
//
// A port belongs to one engine. Every other engine has a LinkPort in its place, a Driver like any other. Frames sent there go through a
// ring to the owner, which puts them on the wire. Frames that arrive for endpoints of another engine come back through a second ring. Two
// endpoints of different engines use a LinkPort between their engines without a wire. Mux and demux therefore know nothing of threads.
//
// Each ring has one writer and one reader, is bounded, and never blocks. A sending endpoint waits for the LinkPort as for a port. An
// arrived frame without room is dropped and counted (link_overflow).
//
// A port with several queues belongs to several engines, each of which sends by its own queue. Its frames for endpoints of other engines
// also go through rings. An engine without a queue reads them by the LinkPort in place of the port, which reads the rings of all its
// engines. An engine with a queue reads them by one more LinkPort, its entrance, which only receives.
//
// Additional copies of a payload byte: one, out of the ring (sending) or into it (receiving).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ni/driver.h"
#include "unet/base/bytes.h"
#include "unet/limits.h"

namespace unet::engine {

class Port;

// Frames from one engine's thread to another's.
class LinkRing {
 public:
  static constexpr uint32_t kDepth = 256;  // a power of two

  explicit LinkRing(uint32_t frame_bytes);

  uint32_t frame_bytes() const noexcept { return frame_bytes_; }

  // ---- the writer. Frames are published in the order in which they were reserved.
  std::byte* reserve() noexcept;  // nullptr: full
  void give_back(uint32_t count) noexcept { reserved_ -= count; }  // the last ones that were reserved
  void put(uint32_t length) noexcept { lengths_[put_++ & (kDepth - 1)] = length; }
  void publish() noexcept { tail_.store(put_, std::memory_order_release); }

  // ---- the reader
  bool empty() const noexcept { return head_.load(std::memory_order_relaxed) == tail_.load(std::memory_order_acquire); }
  uint32_t peek(std::span<ReceivedFrame> frames) const noexcept;  // the oldest, in place until release()
  void release(uint32_t count) noexcept { head_.store(head_.load(std::memory_order_relaxed) + count, std::memory_order_release); }

 private:
  std::byte* frame(uint32_t position) const noexcept { return memory_.get() + size_t{position & (kDepth - 1)} * stride_; }

  uint32_t frame_bytes_, stride_;
  std::unique_ptr<std::byte[]> memory_;  // pages that are never used are never touched
  std::array<uint32_t, kDepth> lengths_{};
  alignas(kCacheLine) std::atomic<uint32_t> tail_{0};
  uint32_t put_ = 0, reserved_ = 0, head_seen_ = 0;  // the writer's
  alignas(kCacheLine) std::atomic<uint32_t> head_{0};
};

// Wakes an engine that sleeps.
class LinkBell {
 public:
  int descriptor = -1;  // eventfd, written for a sleeper

  void announce(bool asleep) noexcept { asleep_.store(asleep, std::memory_order_relaxed); }
  // Call it after a publication in a ring that the engine reads. The sleeper announces, executes heavy_fence(), and checks its rings.
  void ring() noexcept;

 private:
  alignas(kCacheLine) std::atomic<bool> asleep_{false};
};

// The links of one engine; used by its thread alone.
class Links {
 public:
  // The list of ports of an engine: ports of the NI, then links to engines, then entrances.
  bool is_link(uint32_t port) const noexcept { return (link_mask_ >> port & 1) != 0; }
  bool is_entrance(uint32_t port) const noexcept { return port >= wires_ + engines_; }
  bool is_shared(uint32_t port) const noexcept { return (shared_mask_ >> port & 1) != 0; }  // other engines have queues of it
  uint32_t wires() const noexcept { return wires_; }  // ports of the NI
  // The number for endpoints: an entrance has that of its port.
  uint32_t number(uint32_t port) const noexcept { return is_entrance(port) ? entrances_[port - wires_ - engines_] : port; }
  uint32_t engine() const noexcept { return engine_; }
  uint32_t engines() const noexcept { return engines_; }

  // A frame from our port for an endpoint of engine `to`. False: its ring is full.
  bool arrived(uint32_t port, uint32_t to, Bytes frame) noexcept;
  void flush() noexcept;  // after a burst of arrived()

  // Moves frames of other engines to our ports; returns how many. Our own waiting endpoints go first in every second poll.
  uint32_t forward(std::span<const std::unique_ptr<Port>> ports, Nanoseconds now) noexcept;
  // Frames wait for a port: forward() must run again soon.
  bool unfinished() const noexcept { return unfinished_; }
  // forward() has new frames to move.
  bool news() const noexcept;

  void announce_sleep(bool asleep) noexcept { bell_->announce(asleep); }

 private:
  friend class LinkFabric;
  static constexpr uint32_t kAtOnce = kBurst / 2;  // frames from one engine to one port in a poll

  struct OwnPort {
    uint32_t port = 0;
    std::array<LinkRing*, kEnginesMax> to_wire{};    // by engine
    std::array<LinkRing*, kEnginesMax> from_wire{};
    uint32_t blocked = 0;                            // bit e: frames in to_wire[e] wait for the port
  };
  uint32_t forward(OwnPort& own, Port& port, uint32_t engine, Nanoseconds now) noexcept;

  uint64_t link_mask_ = 0, shared_mask_ = 0;
  std::vector<uint32_t> entrances_;  // their ports
  uint32_t engine_ = 0, engines_ = 0, wires_ = 0;
  uint32_t turn_ = 0;
  uint32_t ring_for_ = 0;  // bit e: frames were put for engine e since flush()
  bool unfinished_ = false;
  std::vector<OwnPort> own_;
  std::array<OwnPort*, kPortsMax> own_by_port_{};
  LinkBell* bell_ = nullptr;
  std::array<LinkBell*, kEnginesMax> bells_{};
};

// All links of an NI. Outlives its engines.
class LinkFabric {
 public:
  struct PortInfo {
    uint32_t engine;  // owner of the port, or of its first queue
    DriverCapabilities capabilities;
    uint32_t engines = 0;  // bit e: engine e has a queue of it; 0: only the one above
    bool has(uint32_t each) const noexcept { return each == engine || (engines >> each & 1) != 0; }
  };
  LinkFabric(uint32_t engines, std::vector<PortInfo> ports);

  Links& links(uint32_t engine) noexcept { return links_[engine]; }
  LinkBell& bell(uint32_t engine) noexcept { return bells_[engine]; }

  // The LinkPort of `engine` in place of a port of another engine.
  std::unique_ptr<Driver> foreign_port(uint32_t engine, uint32_t port);
  // The link of `engine` to `other`, with the number link_port(other). To itself: a port that does nothing.
  std::unique_ptr<Driver> engine_port(uint32_t engine, uint32_t other);
  // Entrances of `engine`, at the end of its list: one for each port of which other engines have queues, too.
  std::vector<std::unique_ptr<Driver>> entrances(uint32_t engine);
  uint32_t link_port(uint32_t other) const noexcept { return static_cast<uint32_t>(ports_.size()) + other; }
  static MacAddress engine_address(uint32_t engine) noexcept {
    return {2, 'u', 'n', 'e', 't', static_cast<uint8_t>(engine)};
  }

 private:
  static constexpr uint32_t kLinkMtu = 9000;  // between engines: memory is the only wire

  LinkRing& ring(uint32_t from, uint32_t to, uint32_t port) const noexcept {
    return *rings_[(from * engines_ + to) * (ports_.size() + 1) + port];
  }
  bool joined(uint32_t from, uint32_t to, const PortInfo& port) const noexcept;
  void open_ports(uint32_t engine);
  std::vector<LinkRing*> arrivals(uint32_t engine, uint32_t port) const;

  uint32_t engines_;
  std::vector<PortInfo> ports_;
  // By pair of engines: one ring for each port with frames between them, and one without a port.
  std::vector<std::unique_ptr<LinkRing>> rings_;
  std::array<LinkBell, kEnginesMax> bells_{};
  std::array<Links, kEnginesMax> links_{};
};

}  // namespace unet::engine
