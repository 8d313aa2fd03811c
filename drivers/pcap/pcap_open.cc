// pcap_open.cc - the checks before libpcap, its settings, and what its errors mean.
#include "drivers/pcap/pcap_open.h"

#include <linux/if_packet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <pcap/pcap.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace unet::drivers {

namespace {

constexpr int kRingBytes = 4 << 20;  // what the kernel keeps for us while nobody looks: 2,048 frames of 1.5 KB
constexpr uint32_t kMtuMin = 256, kMtuMax = 9600;

tl::unexpected<Error> refuse(Errc code, const std::string& name, const std::string& what) {
  return fail(code, "pcap:iface=" + name + ": " + what);
}

Status check_activated(int result, const std::string& name, pcap_t* handle) {
  if (result >= 0) return {};  // above zero: warnings
  if (result == PCAP_ERROR_PERM_DENIED || result == PCAP_ERROR_PROMISC_PERM_DENIED) {
    return refuse(Errc::not_permitted, name,
                  "needs CAP_NET_RAW: run as root, or give the program the capability (`setcap cap_net_raw+ep PROGRAM`), or use a wire "
                  "that needs no rights (dpdk:net_memif0)");
  }
  const char* const text = pcap_geterr(handle);
  return refuse(Errc::unavailable, name, *text != 0 ? text : pcap_statustostr(result));
}

Status set_filter(pcap_t* handle, const std::string& name, const std::string& expression) {
  bpf_program program{};
  if (pcap_compile(handle, &program, expression.c_str(), 1, PCAP_NETMASK_UNKNOWN) != 0) {
    return refuse(Errc::system, name, "filter '" + expression + "': " + pcap_geterr(handle));
  }
  const int result = pcap_setfilter(handle, &program);
  pcap_freecode(&program);
  if (result != 0) return refuse(Errc::system, name, "filter '" + expression + "': " + pcap_geterr(handle));
  return {};
}

Status set_up(pcap_t* handle, const std::string& name, const DriverCapabilities& capabilities, uint16_t ether_type) {
  char error[PCAP_ERRBUF_SIZE] = "";
  pcap_set_snaplen(handle, static_cast<int>(capabilities.mtu + 64));  // with room for a VLAN tag that the kernel took out
  pcap_set_promisc(handle, 0);
  pcap_set_immediate_mode(handle, 1);
  pcap_set_buffer_size(handle, kRingBytes);
  if (Status status = check_activated(pcap_activate(handle), name, handle); !status) return status;
  if (pcap_datalink(handle) != DLT_EN10MB) return refuse(Errc::unavailable, name, "does not carry Ethernet frames");
  if (pcap_setnonblock(handle, 1, error) != 0) return refuse(Errc::system, name, error);
  if (pcap_setdirection(handle, PCAP_D_IN) != 0) return refuse(Errc::system, name, pcap_geterr(handle));
  char type[16];
  std::snprintf(type, sizeof type, "0x%04x", ether_type);
  const std::string station = "ether dst " + to_text(capabilities.address);
  const std::string filter = ether_type == 0 ? station + " or ether multicast"
                                             : std::string("ether proto ") + type + " and (" + station + " or ether broadcast)";
  if (Status status = set_filter(handle, name, filter); !status) return status;
  // Frames go to the interface without a queueing discipline on the way, which would only delay them. Old kernels cannot.
  const int yes = 1;
  static_cast<void>(setsockopt(pcap_fileno(handle), SOL_PACKET, PACKET_QDISC_BYPASS, &yes, sizeof yes));
  return {};
}

}  // namespace

std::string to_text(const MacAddress& address) {
  char text[24];
  std::snprintf(text, sizeof text, "%02x:%02x:%02x:%02x:%02x:%02x", address[0], address[1], address[2], address[3], address[4], address[5]);
  return text;
}

Result<DriverCapabilities> look_at_interface(const std::string& name) {
  if (name.empty() || name.size() >= IFNAMSIZ) return refuse(Errc::invalid_argument, name, "is no interface name: 1 to 15 characters");
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return fail_errno("socket", errno);
  ifreq request{};
  std::memcpy(request.ifr_name, name.data(), name.size());
  bool found = ioctl(fd, SIOCGIFMTU, &request) == 0;
  const auto mtu = static_cast<uint32_t>(request.ifr_mtu);
  found = found && ioctl(fd, SIOCGIFFLAGS, &request) == 0;
  const short flags = request.ifr_flags;
  found = found && ioctl(fd, SIOCGIFHWADDR, &request) == 0;
  close(fd);
  if (!found) {
    return refuse(Errc::not_found, name, "there is no such network interface in this network namespace: `ip link` lists those there are");
  }
  if ((flags & IFF_LOOPBACK) != 0) {
    return refuse(Errc::invalid_argument, name,
                  "a loopback interface leads to nobody else: processes of one host need no wire, and for a test there are veth pairs");
  }
  if (request.ifr_hwaddr.sa_family != ARPHRD_ETHER) return refuse(Errc::unavailable, name, "is no Ethernet interface");
  if ((flags & IFF_UP) == 0) return refuse(Errc::unavailable, name, "the interface is down: `ip link set " + name + " up`");
  if (mtu < kMtuMin) {
    return refuse(Errc::unavailable, name, "its MTU is " + std::to_string(mtu) + ", too small: `ip link set " + name + " mtu 1500`");
  }
  DriverCapabilities capabilities{.mtu = mtu < kMtuMax ? mtu : kMtuMax};
  std::memcpy(capabilities.address.data(), request.ifr_hwaddr.sa_data, capabilities.address.size());
  return capabilities;
}

Result<pcap*> open_interface(const std::string& name, const DriverCapabilities& capabilities, uint16_t ether_type) {
  char error[PCAP_ERRBUF_SIZE] = "";
  pcap_t* const handle = pcap_create(name.c_str(), error);
  if (handle == nullptr) return refuse(Errc::system, name, error);
  if (Status status = set_up(handle, name, capabilities, ether_type); !status) {
    pcap_close(handle);
    return tl::unexpected(status.error());
  }
  return handle;
}

}  // namespace unet::drivers
