// packet_wire.h - an interface of this network namespace through a packet socket, with a capture of its traffic; for programs that run the
// IP stack beside a kernel.
#pragma once

#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "unet/base/bytes.h"
#include "unet/base/check.h"
#include "unet/base/time.h"
#include "unet/wire/ethernet.h"

namespace unet {

class Capture {
 public:
  explicit Capture(const char* path) : file_(std::fopen(path, "wb")) {
    UNET_CHECK(file_ != nullptr);
    const uint32_t header[] = {0xA1B23C4D, 2 | 4 << 16, 0, 0, 0x40000, 1};  // nanosecond time stamps, Ethernet
    std::fwrite(header, sizeof header, 1, file_);
  }
  ~Capture() { std::fclose(file_); }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  void add(Bytes frame, Nanoseconds now) {
    const auto size = static_cast<uint32_t>(frame.size());
    const uint32_t header[] = {static_cast<uint32_t>(now / kSecond), static_cast<uint32_t>(now % kSecond), size, size};
    std::fwrite(header, sizeof header, 1, file_);
    std::fwrite(frame.data(), frame.size(), 1, file_);
  }

 private:
  std::FILE* file_;
};

class PacketWire {
 public:
  explicit PacketWire(const char* name) : descriptor_(::socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    UNET_CHECK(descriptor_ >= 0);
    ifreq request{};
    std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    UNET_CHECK(::ioctl(descriptor_, SIOCGIFHWADDR, &request) == 0);
    std::memcpy(mac_.data(), request.ifr_hwaddr.sa_data, mac_.size());
    UNET_CHECK(::ioctl(descriptor_, SIOCGIFMTU, &request) == 0);
    mtu_ = static_cast<uint32_t>(request.ifr_mtu);
    const int all = 1;
    UNET_CHECK(::setsockopt(descriptor_, SOL_PACKET, PACKET_IGNORE_OUTGOING, &all, sizeof all) == 0);
    const packet_mreq groups{.mr_ifindex = static_cast<int>(::if_nametoindex(name)), .mr_type = PACKET_MR_ALLMULTI, .mr_alen = 0,
                             .mr_address = {}};
    UNET_CHECK(::setsockopt(descriptor_, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &groups, sizeof groups) == 0);
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = std::bit_cast<uint16_t>(be16(ETH_P_ALL));
    address.sll_ifindex = groups.mr_ifindex;
    UNET_CHECK(::bind(descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }
  ~PacketWire() { ::close(descriptor_); }
  PacketWire(const PacketWire&) = delete;
  PacketWire& operator=(const PacketWire&) = delete;

  int descriptor() const { return descriptor_; }
  const MacAddress& mac() const { return mac_; }
  uint32_t mtu() const { return mtu_; }

  // The length of the next frame; 0: there is none.
  size_t receive(MutableBytes frame) const {
    const ssize_t size = ::recv(descriptor_, frame.data(), frame.size(), 0);
    return size > 0 ? static_cast<size_t>(size) : 0;
  }
  void send(Bytes frame) const {
    while (::send(descriptor_, frame.data(), frame.size(), 0) < 0 && (errno == EAGAIN || errno == ENOBUFS)) ::usleep(100);
  }

 private:
  int descriptor_;
  MacAddress mac_{};
  uint32_t mtu_ = 0;
};

}  // namespace unet
