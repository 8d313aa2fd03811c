// packet_port.h - a wire over an interface of the kernel, by a packet socket that carries segments; made by apps/drivers.
//
// On a veth interface, a bridge or a network card the kernel takes TCP and UDP in segments of up to 64 KiB, without checksums. It cuts them
// and adds checksums only as far as the interface or the card does not. Arriving frames come in the same form, as received or coalesced.
// This is the fastest way for IP over an interface that the kernel also uses. The wire pcap:iface= knows no segments, but supports wrappers
// that read frames, and delivers other frames as they were on the wire.
//
// The kernel puts arriving frames into two rings, for short frames and long ones (packet_ring.h). Without memory for the rings it uses the
// socket's queue. Sending is one system call per burst. While the interface is down, frames are lost and counted; when it comes up again
// they pass. An interface that is deleted and made anew under its name is bound again (link_watch.h).
#pragma once

#include <memory>
#include <string>

#include "drivers/interface_claim.h"
#include "drivers/link_watch.h"
#include "drivers/packet/packet_ring.h"
#include "drivers/segment_port.h"
#include "unet/base/result.h"

namespace unet::drivers {

struct PacketOptions {
  std::string interface;   // interface name, in the caller's network namespace
  uint32_t mtu = 0;        // 0: the MTU of the interface
  bool all_types = false;  // for IP: also frames of other Ethernet types and of groups
};

class PacketPort final : public SegmentPort {
 public:
  // Errors: not_found (no such interface), already_exists (another port uses it), unavailable (it is down), not_permitted,
  // invalid_argument.
  static Result<std::unique_ptr<PacketPort>> open(const PacketOptions& options);

  uint32_t receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept override;
  void release(std::span<const ReceivedFrame> frames) noexcept override;
  void poll(Nanoseconds now) noexcept override;
  // A short time while the interface is away, because another thread notices its return.
  Nanoseconds next_event() const noexcept override;
  std::shared_ptr<WireState> state() const override { return link_; }
  int wait_descriptor() const noexcept override { return rings_ ? rings_->wait : descriptor(); }
  // The counters of SegmentPort, and rx_missed: frames without room in the socket or a ring.
  std::vector<DriverCounter> counters() const override;
  std::string description() const override;

 private:
  // With rings, the port's own socket receives short frames and sends; a second one receives long frames. `wait` is readable when either
  // has frames.
  struct Rings {
    Rings() noexcept = default;
    ~Rings();
    Rings(const Rings&) = delete;
    Rings& operator=(const Rings&) = delete;

    struct Ring {
      int socket = -1;
      std::unique_ptr<PacketRing> ring;
      uint64_t drops = 0;     // drops since the last look_after()
      bool dropped = false;   // drops before that, and no frame since
    };
    Ring shorts, longs;
    int wait = -1;
    uint32_t taken = 0;       // slots that the engine holds
    uint32_t renewals = 0;
    bool given_up = false;    // frames are in the queue of the port's own socket instead
    Nanoseconds looked_at = 0;
  };
  // Null if the kernel has no memory for rings. Errors: the socket cannot work even without them.
  static Result<std::unique_ptr<Rings>> make_rings(int socket, const std::string& port, const PacketOptions& options,
                                                   const DriverCapabilities& capabilities);
  bool has_rings() const noexcept { return rings_ != nullptr && !rings_->given_up; }
  void look_after(Rings::Ring& each) noexcept;
  void give_up_rings() noexcept;
  void note_drops(Rings::Ring& each) const noexcept;
  PacketPort(const DriverCapabilities& capabilities, int socket, std::unique_ptr<Rings> rings, const PacketOptions& options,
             InterfaceClaim claim, std::shared_ptr<LinkWatch> link);
  void follow_link() noexcept;
  uint32_t read(std::span<Transfer> transfers) noexcept override;
  int write(std::span<Transfer> transfers) noexcept override;
  bool is_full(int error) const noexcept override;

  const std::string interface_;
  const bool all_types_;
  const InterfaceClaim claim_;
  const std::unique_ptr<Rings> rings_;
  const std::shared_ptr<LinkWatch> link_;  // null: the interface is not watched
  uint32_t link_changes_ = 0;
  Nanoseconds polled_at_ = 0;
  mutable uint64_t missed_ = 0;  // reading the kernel's count resets it
};

}  // namespace unet::drivers
