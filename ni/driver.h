// driver.h - the interface of a wire: burst calls over frames; implemented in drivers/, used by the engine.
//
// A driver carries Ethernet frames. One thread at a time, the engine's, uses it. No call blocks, and none allocates after construction. A
// wrapper (drivers/wrapper.h) is a Driver that owns another Driver. A wire with several queues has one Driver per queue, for as many
// threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ni/wire_state.h"
#include "unet/base/time.h"
#include "unet/wire/ethernet.h"

namespace unet {

// A received frame. `data` stays valid and unchanged until release(). Only the receiver uses this memory, and it is writable: a wrapper
// that removes headers writes the engine's header over them.
struct ReceivedFrame {
  const std::byte* data = nullptr;  // starts at the Ethernet header
  uint32_t length = 0;              // bytes, without FCS; 0: the driver has handled the frame, and the caller only releases it
  uint16_t segment_size = 0;        // payload bytes of each TCP or UDP packet that this frame combines; 0: it is one packet
  bool checked = false;             // the TCP or UDP checksum is right, or not filled in because no wire was crossed; only these two
  void* handle = nullptr;           // for the driver only
};

// Work for the port on a TCP or UDP packet, as far as capabilities() allow. The checksum field then holds the sum of the pseudo header,
// which the port continues.
struct TransmitOffload {
  enum class Transport : uint8_t { none, tcp, udp };
  uint16_t segment_size = 0;              // payload bytes of each packet to cut, as network cards do; 0: it is one packet
  uint8_t transport_at = 0;               // bytes before the transport header, which lies wholly at TransmitFrame::data
  Transport transport = Transport::none;  // none: send the frame unchanged
};
static_assert(sizeof(TransmitOffload) == 4);

// Tells the owner of external payload memory that the port has read it.
struct TransmitCompletion {
  uint64_t pending = 0;  // frames the port still reads from; the engine adds before transmit(), the driver subtracts
};

// A frame to send: the engine fills `length` bytes at `data`; an optional external payload follows them on the wire.
struct TransmitFrame {
  std::byte* data = nullptr;            // driver memory, from allocate(); capacity() bytes
  uint32_t length = 0;                  // bytes composed at `data`, starting at the Ethernet header
  TransmitOffload offload{};
  void* handle = nullptr;               // for the driver only
  const std::byte* external = nullptr;  // payload read in place by the port, only if capabilities().external_payload
  uint32_t external_length = 0;
  TransmitCompletion* completion = nullptr;  // with `external`: decremented when the port has finished reading
  std::span<const std::span<const std::byte>> further{};  // pieces after `external`, if capabilities().external_pieces allows them

  uint32_t size() const noexcept {
    uint32_t bytes = length + external_length;
    for (const auto& piece : further) bytes += static_cast<uint32_t>(piece.size());
    return bytes;
  }
};

struct DriverCapabilities {
  MacAddress address{};             // the port's own address
  uint32_t mtu = 1500;              // largest Ethernet payload in bytes (frame = mtu + 14)
  bool external_payload = false;    // transmit() can read payload from memory given to register_memory()
  uint32_t external_pieces = 1;     // maximum number of its pieces
  bool checksums = false;           // transmit() fills in checksums by TransmitOffload; always true with segments_max
  // Maximum bytes of an IP packet that transmit() cuts by TransmitOffload, and that may arrive with ReceivedFrame::segment_size. Implies
  // external_payload. 0: the port cuts nothing.
  uint32_t segments_max = 0;
  bool udp_segments = false;        // with segments_max: the port cuts UDP, too
  bool alone = false;               // the wire has no other stations, so no other host can have an address of this one
};

struct DriverCounter {
  std::string name;  // the port's name for it: "rx_missed", "tx_errors", "faulty_lost"
  uint64_t value = 0;
};

class Driver {
 public:
  virtual ~Driver() = default;
  Driver() = default;
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // Constant after construction.
  virtual const DriverCapabilities& capabilities() const noexcept = 0;

  // Fills up to frames.size() arrived frames and returns their number. The caller owns them until release().
  virtual uint32_t receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept = 0;

  // Gives frames back, in any order and number. The caller must not touch their data afterwards.
  virtual void release(std::span<const ReceivedFrame> frames) noexcept = 0;

  // Hands out empty frames of at least mtu + 14 bytes, and returns how many. The caller owns them until transmit() takes them or discard()
  // gives them back.
  virtual uint32_t allocate(std::span<TransmitFrame> frames) noexcept = 0;

  // Queues frames for sending, in order, and returns how many were taken. The driver owns those; the caller still owns the rest, and may
  // try again.
  virtual uint32_t transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept = 0;

  // Gives back frames from allocate() that will not be sent.
  virtual void discard(std::span<const TransmitFrame> frames) noexcept = 0;

  // Does work that needs no traffic (completions, delayed frames). The engine calls it once per poll.
  virtual void poll(Nanoseconds) noexcept {}

  // When poll() has work next, even if no frame arrives; ~0 if never. This lets an idle NI sleep.
  virtual Nanoseconds next_event() const noexcept { return ~Nanoseconds{0}; }

  // A descriptor that becomes readable when a frame may have arrived; -1 if the wire has none (the NI then sleeps for short times). It may
  // be edge-triggered: receive() until empty before sleeping on it.
  virtual int wait_descriptor() const noexcept { return -1; }

  // Announces memory that TransmitFrame::external may point into. False if the port cannot use it (the engine then copies). The memory
  // stays mapped until forget_memory(), which waits until the port has finished reading.
  virtual bool register_memory(std::span<std::byte>) noexcept { return false; }
  virtual void forget_memory(std::span<std::byte>) noexcept {}

  // Number of queues of the wire. Each receives a part of the arriving frames and can send any. This Driver is the first queue.
  virtual uint32_t queues() const noexcept { return 1; }
  // Returns the other queues() - 1 queues, with the same capabilities. Each may be used by another thread, must be used before any frame is
  // expected, and may outlive this one. Call this at most once, before any other use. Without this call, frames that arrive there are lost.
  virtual std::vector<std::unique_ptr<Driver>> take_queues() { return {}; }

  // The port's counters under its own names; for unetctl, not for the data path. With several queues, add the counters of all drivers.
  virtual std::vector<DriverCounter> counters() const = 0;

  // The state of the wire beside its frames; null: none. For the threads of the service and the engine; it may outlive the driver.
  virtual std::shared_ptr<WireState> state() const { return nullptr; }

  // One line for logs: "dpdk:net_memif0 02:00:00:00:00:01 mtu 1500".
  virtual std::string description() const = 0;
};

}  // namespace unet
