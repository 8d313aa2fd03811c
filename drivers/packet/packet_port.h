// packet_port.h - a wire over an interface of the kernel, by a packet socket that carries segments; made by apps/drivers.
//
// On a veth interface, a bridge's or a card's the kernel takes TCP and UDP in segments of up to 64 KiB, with checksums left undone, and
// cuts and fills in only what the interface or the card behind it does not. It gives what arrives in the same way, as it came or was
// gathered. So IP is here as fast as it can be over an interface that the kernel keeps; pcap:iface= knows no segments, but takes wrappers
// that look into frames, and gives other frames as they were on the wire.
//
// What arrives the kernel puts into two rings of memory, for short frames and long ones (packet_ring.h); where it has no memory for them it
// keeps it in the socket's queue. What is sent is a system call a burst. If the interface goes down frames are lost and counted; when it
// comes up again they pass. An interface that is deleted and made anew under its name is bound again (link_watch.h).
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
  std::string interface;   // in the caller's network namespace
  uint32_t mtu = 0;        // 0: the interface's
  bool all_types = false;  // frames of other Ethernet types than ours, and of groups, too: for IP
};

class PacketPort final : public SegmentPort {
 public:
  // Errors: not_found (no such interface), already_exists (another port has it), unavailable (it is down), not_permitted, invalid_argument.
  static Result<std::unique_ptr<PacketPort>> open(const PacketOptions& options);

  uint32_t receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept override;
  void release(std::span<const ReceivedFrame> frames) noexcept override;
  void poll(Nanoseconds now) noexcept override;
  // Soon while the interface is away: another thread sees its return.
  Nanoseconds next_event() const noexcept override;
  std::shared_ptr<WireState> state() const override { return link_; }
  int wait_descriptor() const noexcept override { return rings_ ? rings_->wait : descriptor(); }
  // SegmentPort's, and rx_missed: what the socket, or a ring, had no room for.
  std::vector<DriverCounter> counters() const override;
  std::string description() const override;

 private:
  // The port's own socket gets short frames then, and sends; one more gets long ones. `wait` is readable when either has any.
  struct Rings {
    Rings() noexcept = default;
    ~Rings();
    Rings(const Rings&) = delete;
    Rings& operator=(const Rings&) = delete;

    struct Ring {
      int socket = -1;
      std::unique_ptr<PacketRing> ring;
      uint64_t drops = 0;     // since look_after()
      bool dropped = false;   // before that, and nothing has come since
    };
    Ring shorts, longs;
    int wait = -1;
    uint32_t taken = 0;       // slots that the engine has
    uint32_t renewals = 0;
    bool given_up = false;    // frames are in the queue of the port's own socket
    Nanoseconds looked_at = 0;
  };
  // Null if there can be none; errors: what the socket cannot be without them either.
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
  const std::shared_ptr<LinkWatch> link_;  // null: nothing tells of the interface
  uint32_t link_changes_ = 0;
  Nanoseconds polled_at_ = 0;
  mutable uint64_t missed_ = 0;  // the kernel's count begins anew each time it is read
};

}  // namespace unet::drivers
