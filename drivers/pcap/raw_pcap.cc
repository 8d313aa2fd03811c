// raw_pcap.cc - bare libpcap on an interface.
#include "drivers/pcap/raw_pcap.h"

#include <pcap/pcap.h>

#include <algorithm>
#include <cstring>

#include "drivers/kernel_interface.h"
#include "drivers/pcap/pcap_open.h"

namespace unet::drivers {

namespace {

// The Ethernet type "local experimental 2" of IEEE 802; the engine's frames have type 1.
constexpr uint16_t kRawType = 0x88B6;
constexpr size_t kHeader = 14;

}  // namespace

Result<std::unique_ptr<RawPcap>> RawPcap::open(const std::string& interface) {
  const Result<DriverCapabilities> capabilities = look_at_interface("pcap:iface=" + interface, interface);
  if (!capabilities) return tl::unexpected(capabilities.error());
  const Result<pcap*> handle = open_interface(interface, *capabilities, kRawType);
  if (!handle) return tl::unexpected(handle.error());
  return std::unique_ptr<RawPcap>(new RawPcap(*handle, *capabilities));
}

RawPcap::RawPcap(pcap* handle, const DriverCapabilities& capabilities) : handle_(handle), mtu_(capabilities.mtu) {
  std::memcpy(frame_.data() + 6, capabilities.address.data(), capabilities.address.size());
  frame_[12] = std::byte{kRawType >> 8};
  frame_[13] = std::byte{kRawType & 0xff};
}

RawPcap::~RawPcap() { pcap_close(handle_); }

void RawPcap::set_peer(const MacAddress& peer) noexcept { std::memcpy(frame_.data(), peer.data(), peer.size()); }

bool RawPcap::try_send(const std::byte* data, size_t size) noexcept {
  if (size > mtu_) return false;
  std::memcpy(frame_.data() + kHeader, data, size);
  return pcap_inject(handle_, frame_.data(), kHeader + size) >= 0;
}

size_t RawPcap::send_burst(const std::byte* data, size_t size, size_t count) noexcept {
  size_t sent = 0;
  while (sent < std::min(count, kBurst) && try_send(data + sent * size, size)) ++sent;
  return sent;
}

struct RawPcap::Arrivals {
  std::byte* into;
  size_t size;
  size_t count = 0;

  static void take(u_char* arrivals, const pcap_pkthdr* header, const u_char* bytes) noexcept {
    auto& self = *reinterpret_cast<Arrivals*>(arrivals);
    if (header->caplen < kHeader + self.size) return;
    std::memcpy(self.into + self.count++ * self.size, bytes + kHeader, self.size);
  }
};

size_t RawPcap::receive_burst(std::byte* into, size_t size, size_t count) noexcept {
  Arrivals arrivals{.into = into, .size = size};
  pcap_dispatch(handle_, static_cast<int>(std::min(count, kBurst)), Arrivals::take, reinterpret_cast<u_char*>(&arrivals));
  return arrivals.count;
}

}  // namespace unet::drivers
