// driver.h - what the engine needs of a wire: burst calls over frames; implemented in drivers/.
//
// A driver carries Ethernet frames. It is used by one thread at a time (the engine's). No call blocks, and none
// after construction allocates. A wrapper (drivers/wrapper.h) is a Driver that owns another Driver. A wire with several queues has a
// Driver for each, for as many threads.
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

// A frame that arrived. `data` stays valid and unchanged until release(). It is writable memory that nobody else reads: a wrapper
// that takes headers off writes the engine's over them.
struct ReceivedFrame {
  const std::byte* data = nullptr;  // starts at the Ethernet header
  uint32_t length = 0;              // bytes, without FCS; 0: the driver has dealt with it itself, the caller only gives it back
  uint16_t segment_size = 0;        // it stands for several packets of TCP or UDP, with so many bytes of payload each; 0: it is one
  bool checked = false;             // TCP's or UDP's checksum is right, or was never filled in, as no wire was between; not others'
  void* handle = nullptr;           // the driver's own
};

// What the port does to a packet of TCP or UDP, as capabilities() say that it can. The checksum's field then has the sum of the pseudo
// header, which the port goes on with.
struct TransmitOffload {
  enum class Transport : uint8_t { none, tcp, udp };
  uint16_t segment_size = 0;              // cut into packets with so many bytes of payload, as network cards do; 0: it is one
  uint8_t transport_at = 0;               // bytes before the transport's header, all of which is at TransmitFrame::data
  Transport transport = Transport::none;  // none: it is sent as it is
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
  void* handle = nullptr;               // the driver's own
  const std::byte* external = nullptr;  // payload read in place by the port, only if capabilities().external_payload
  uint32_t external_length = 0;
  TransmitCompletion* completion = nullptr;  // with `external`: decremented when the port no longer reads it
  std::span<const std::span<const std::byte>> further{};  // pieces behind `external`, if capabilities().external_pieces allows them

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
  uint32_t external_pieces = 1;     // of which it may consist
  bool checksums = false;           // transmit() fills in checksums by TransmitOffload; one with segments_max always does
  // Bytes of the largest IP packet that transmit() cuts by TransmitOffload, and that may arrive with ReceivedFrame::segment_size; such a
  // one has external payload. 0: none.
  uint32_t segments_max = 0;
  bool udp_segments = false;        // with segments_max: it cuts UDP, too
  bool alone = false;               // nobody else can be on the wire, so nobody else has an address of this host's
};

struct DriverCounter {
  std::string name;  // as the port names it: "rx_missed", "tx_errors", "faulty_lost"
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

  // Gives frames back; any order, any thread-of-use burst size. The data may not be touched afterwards.
  virtual void release(std::span<const ReceivedFrame> frames) noexcept = 0;

  // Hands out empty frames of at least mtu + 14 bytes; returns how many could be had. The caller owns them until
  // transmit() takes them or discard() gives them back.
  virtual uint32_t allocate(std::span<TransmitFrame> frames) noexcept = 0;

  // Queues frames for sending, in order, and returns how many were taken; those belong to the driver. The caller
  // keeps the rest and may try again.
  virtual uint32_t transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept = 0;

  // Gives back frames from allocate() that will not be sent.
  virtual void discard(std::span<const TransmitFrame> frames) noexcept = 0;

  // Makes progress on what needs it without traffic (completions, delayed frames); called once per engine poll.
  virtual void poll(Nanoseconds) noexcept {}

  // When poll() has something to do next although no frame arrives; ~0 if never. Lets an idle NI sleep.
  virtual Nanoseconds next_event() const noexcept { return ~Nanoseconds{0}; }

  // A descriptor that becomes readable when a frame may have arrived, or -1 if the wire has none (the NI then
  // sleeps for short times). It may be edge-like: receive() until empty before sleeping on it.
  virtual int wait_descriptor() const noexcept { return -1; }

  // Announces memory that TransmitFrame::external may point into. False if the port cannot use it (the engine copies).
  // The memory stays mapped until forget_memory(), which waits until the port has read what it was given.
  virtual bool register_memory(std::span<std::byte>) noexcept { return false; }
  virtual void forget_memory(std::span<std::byte>) noexcept {}

  // Queues of the wire, each of which gets a part of the arriving frames and takes any to send. This Driver is the first of them.
  virtual uint32_t queues() const noexcept { return 1; }
  // The others, queues() - 1 of them, with the same capabilities. Each may be used by another thread than this one, is used before any
  // frame is expected, and may outlive it. Called once at most, before any other use. Without the call, nobody gets what arrives there.
  virtual std::vector<std::unique_ptr<Driver>> take_queues() { return {}; }

  // What the port counted, by its own names; for unetctl, not the data path. With several queues, the sum of all their drivers' counts.
  virtual std::vector<DriverCounter> counters() const = 0;

  // What it says beside its frames; null: nothing. For the service's thread and the engine's; it may outlive the driver.
  virtual std::shared_ptr<WireState> state() const { return nullptr; }

  // One line for logs: "dpdk:net_memif0 02:00:00:00:00:01 mtu 1500".
  virtual std::string description() const = 0;
};

}  // namespace unet
