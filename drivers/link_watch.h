// link_watch.h - watches the kernel's interface under a wire by netlink (RTNLGRP_LINK); used by packet, pcap, tap, xdp and dpdk.
//
// It follows the interface by its index, and by its name while it does not exist. Each wire has one socket: interfaces change seldom.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "ni/driver.h"
#include "unet/base/result.h"

namespace unet::drivers {

struct LinkWatchOptions {
  std::string port;       // begins each line for the log
  std::string interface;  // interface name, in the caller's network namespace
  MacAddress station{};   // the port's address
  uint32_t mtu = 0;       // the MTU that the port was made for
  bool returns = true;    // the port works again by itself when the interface is back
};

class LinkWatch final : public WireState {
 public:
  // Returns null without a right to netlink, or without memory for it: the wire then has no state, and the interface counts as unchanged.
  static std::shared_ptr<LinkWatch> open(const LinkWatchOptions& options);
  explicit LinkWatch(const LinkWatchOptions& options, int socket = -1) : options_(options), socket_(socket) {}
  ~LinkWatch() override;

  int descriptor() const noexcept override { return socket_; }
  void look() override;
  // Binds a packet socket to the interface as it is now. Any thread may call it. An interface with another address then also accepts frames
  // to the port's address.
  bool bind(int socket, uint16_t protocol, bool all_groups) const noexcept;
  // Parses one datagram of the kernel. For look() and tests.
  void read(std::span<const std::byte> datagram);

 private:
  struct Link {
    uint32_t index = 0;  // 0: the interface does not exist
    std::string name;
    uint32_t mtu = 0;
    bool up = false, carrier = false;
    MacAddress address{};
  };
  void ask() noexcept;
  void read_link(uint16_t type, std::span<const std::byte> body);
  void has(Link now);
  void gone();
  void publish() noexcept;
  void tell(const std::string& what);

  const LinkWatchOptions options_;
  const int socket_;
  Link link_;
  std::atomic<bool> other_station_{false};  // the interface has another address than the port
  bool known_ = false;  // the first answer has come
};

}  // namespace unet::drivers
