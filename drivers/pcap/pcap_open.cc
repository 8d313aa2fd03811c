// pcap_open.cc - libpcap's settings, and the meaning of its errors.
#include "drivers/pcap/pcap_open.h"

#include <linux/if_packet.h>
#include <pcap/pcap.h>
#include <sys/socket.h>

#include <cstdio>

#include "drivers/kernel_interface.h"

namespace unet::drivers {

namespace {

constexpr int kRingBytes = 4 << 20;  // the kernel's buffer between polls: 2,048 frames of 1.5 KB

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
  pcap_set_snaplen(handle, static_cast<int>(capabilities.mtu + 64));  // includes room for a VLAN tag that the kernel removed
  pcap_set_promisc(handle, 0);
  pcap_set_immediate_mode(handle, 1);
  pcap_set_buffer_size(handle, kRingBytes);
  if (Status status = check_activated(pcap_activate(handle), name, handle); !status) return status;
  if (pcap_datalink(handle) != DLT_EN10MB) return refuse(Errc::unavailable, name, "does not carry Ethernet frames");
  if (pcap_setnonblock(handle, 1, error) != 0) return refuse(Errc::system, name, error);
  if (pcap_setdirection(handle, PCAP_D_IN) != 0) return refuse(Errc::system, name, pcap_geterr(handle));
  char type[16];
  std::snprintf(type, sizeof type, "0x%04x", ether_type);
  const std::string station = std::string("ether dst ") + mac_text(capabilities.address).data();
  const std::string filter = ether_type == 0 ? station + " or ether multicast"
                                             : std::string("ether proto ") + type + " and (" + station + " or ether broadcast)";
  if (Status status = set_filter(handle, name, filter); !status) return status;
  // Bypass the queueing discipline, which would only delay frames. Old kernels lack this option.
  const int yes = 1;
  static_cast<void>(setsockopt(pcap_fileno(handle), SOL_PACKET, PACKET_QDISC_BYPASS, &yes, sizeof yes));
  return {};
}

}  // namespace

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
