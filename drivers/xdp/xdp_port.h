// xdp_port.h - a wire over an interface of the kernel by an AF_XDP socket of its own, without DPDK; made by apps/drivers.
//
// The kernel and this port exchange frames by four rings over the port's frame memory. A released frame goes straight back to the kernel.
// The interface's driver reads and writes this memory itself if it can (zero-copy); otherwise, as on a veth, the kernel copies each frame
// once each way. Sending is then a system call for each burst, and receiving needs none. One port serves the interface's first queue.
//
// A frame longer than a page travels in pieces (Linux 6.6): it is sent from one buffer in place, and joined by a copy when it arrives.
#pragma once

#include <linux/if_xdp.h>
#include <xdp/xsk.h>

#include <memory>
#include <string>
#include <vector>

#include "drivers/frame_pool.h"
#include "drivers/link_watch.h"
#include "drivers/xdp/xdp_program.h"
#include "unet/base/result.h"

namespace unet::drivers {

struct XdpOptions {
  std::string interface;     // interface name, in the caller's network namespace
  uint32_t mtu = 0;          // 0: the MTU of the interface
  uint32_t busy_budget = 0;  // frames that a poll of an empty ring fetches from the card on this thread; 0: the kernel delivers them
  bool all_types = false;    // for IP: also frames of other Ethernet types and of groups, which the kernel then does not get
};

class XdpPort final : public Driver {
 public:
  // Errors: not_found (no such interface), already_exists (another AF_XDP socket or XDP program is on it), unavailable, not_permitted,
  // out_of_memory, invalid_argument.
  static Result<std::unique_ptr<XdpPort>> open(const XdpOptions& options);

  const DriverCapabilities& capabilities() const noexcept override { return capabilities_; }
  uint32_t receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept override;
  void release(std::span<const ReceivedFrame> frames) noexcept override;
  uint32_t allocate(std::span<TransmitFrame> frames) noexcept override;
  uint32_t transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept override;
  void discard(std::span<const TransmitFrame> frames) noexcept override { transmit_pool_.give_back(frames); }
  void poll(Nanoseconds now) noexcept override;
  // A short time while frames wait for room in the interface.
  Nanoseconds next_event() const noexcept override;
  int wait_descriptor() const noexcept override { return xsk_socket__fd(socket_->socket); }
  std::shared_ptr<WireState> state() const override { return link_; }
  std::vector<DriverCounter> counters() const override;
  std::string description() const override;

 private:
  // How frame memory is divided: first the chunks in which frames arrive, then the buffers from which they are sent.
  struct Layout {
    explicit Layout(uint32_t mtu) noexcept;
    uint32_t chunk;   // bytes of a piece of frame memory
    uint32_t buffer;  // bytes of a transmit buffer: one chunk or several
    bool pieces;      // a frame may need several chunks
    size_t transmit_at() const noexcept;
    size_t bytes() const noexcept;
  };

  // The socket, its rings and its memory, which the kernel keeps in place.
  struct Socket {
    Socket() noexcept = default;
    ~Socket();
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;

    std::byte* memory = nullptr;
    size_t bytes = 0;
    xsk_umem* umem = nullptr;
    xsk_socket* socket = nullptr;
    xsk_ring_prod fill{}, transmit{};
    xsk_ring_cons receive{}, completion{};
  };
  static Result<std::unique_ptr<XdpPort>> open_now(const XdpOptions& options);
  static Result<std::unique_ptr<Socket>> make_socket(const std::string& port, const XdpOptions& options, const Layout& layout);
  XdpPort(const XdpOptions& options, const DriverCapabilities& capabilities, const Layout& layout, std::unique_ptr<Socket> socket,
          Descriptor program);

  bool join(const xdp_desc& piece, ReceivedFrame& frame) noexcept;
  void fill(const std::byte* data) noexcept;
  void take_completed() noexcept;
  bool has_unsent() const noexcept;
  void wake_kernel() noexcept;

  const XdpOptions options_;
  const DriverCapabilities capabilities_;
  const Layout layout_;
  const std::unique_ptr<Socket> socket_;
  const Descriptor program_;               // goes before the socket
  const std::shared_ptr<LinkWatch> link_;  // null: the interface is not watched
  Descriptor groups_;                      // for IP: makes the card accept frames to all groups; gets no frames itself
  FramePool transmit_pool_;
  std::vector<uint8_t> in_kernel_;         // for each transmit buffer: pieces that the kernel has not finished
  FramePool joined_pool_;                  // for arriving frames of several pieces
  std::byte* joined_ = nullptr;            // an arriving frame that is not whole yet; null: it is lost
  uint32_t joined_bytes_ = 0;              // of its pieces so far
  Nanoseconds polled_at_ = 0;
  bool is_gone_ = false;                   // the interface does not exist any more
  uint64_t rx_frames_ = 0, rx_bytes_ = 0, rx_joined_ = 0, rx_oversize_ = 0, rx_no_buffer_ = 0;
  uint64_t tx_frames_ = 0, tx_bytes_ = 0, tx_dropped_ = 0;
};

}  // namespace unet::drivers
