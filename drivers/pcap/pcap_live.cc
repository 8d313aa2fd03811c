// pcap_live.cc - opens an interface with libpcap, and passes frames to and from it.
#include "drivers/pcap/pcap_live.h"

#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <pcap/pcap.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdio>

#include "drivers/kernel_interface.h"
#include "unet/wire/frame.h"

namespace unet::drivers {
namespace {

constexpr Nanoseconds kLookForLinkEvery = 100 * kMillisecond;
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

Status set_up(pcap_t* handle, const std::string& name, const DriverCapabilities& capabilities, bool all_types) {
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
  std::snprintf(type, sizeof type, "0x%04x", kEtherType);
  const std::string station = std::string("ether dst ") + mac_text(capabilities.address).data();
  const std::string filter = all_types ? station + " or ether multicast"
                                       : std::string("ether proto ") + type + " and (" + station + " or ether broadcast)";
  if (Status status = set_filter(handle, name, filter); !status) return status;
  // Bypass the queueing discipline, which would only delay frames. Old kernels lack this option.
  const int yes = 1;
  static_cast<void>(setsockopt(pcap_fileno(handle), SOL_PACKET, PACKET_QDISC_BYPASS, &yes, sizeof yes));
  return {};
}

// Opens it without waiting. Frames arrive at once, and none of our own come back. Only U-Net's frames (or with `all_types` all) to
// `capabilities.address` or to all pass. The caller closes the handle with pcap_close().
Result<pcap*> open_interface(const std::string& name, const DriverCapabilities& capabilities, bool all_types) {
  char error[PCAP_ERRBUF_SIZE] = "";
  pcap_t* const handle = pcap_create(name.c_str(), error);
  if (handle == nullptr) return refuse(Errc::system, name, error);
  if (Status status = set_up(handle, name, capabilities, all_types); !status) {
    pcap_close(handle);
    return tl::unexpected(status.error());
  }
  return handle;
}

}  // namespace

Result<std::unique_ptr<PcapLive>> PcapLive::open(const PcapOptions& options) {
  Result<DriverCapabilities> capabilities = look_at_interface("pcap:iface=" + options.interface, options.interface, options.mtu);
  if (!capabilities) return tl::unexpected(capabilities.error());
  Result<InterfaceClaim> claim = InterfaceClaim::take("pcap:iface=" + options.interface, options.interface);
  if (!claim) return tl::unexpected(claim.error());
  const Result<pcap*> handle = open_interface(options.interface, *capabilities, options.all_types);
  if (!handle) return tl::unexpected(handle.error());
  return std::unique_ptr<PcapLive>(
      new PcapLive(*capabilities, options.interface, std::move(*claim), *handle, pcap_get_selectable_fd(*handle), options.all_types));
}

PcapLive::PcapLive(const DriverCapabilities& capabilities, std::string interface, InterfaceClaim claim, pcap* handle, int wait_descriptor,
                   bool all_types)
    : FramePort(capabilities), interface_(std::move(interface)), claim_(std::move(claim)), handle_(handle),
      wait_descriptor_(wait_descriptor), all_types_(all_types),
      link_(LinkWatch::open({.port = "pcap:iface=" + interface_, .interface = interface_, .station = capabilities.address,
                             .mtu = capabilities.mtu})),
      link_changes_(link_ != nullptr ? link_->changes() : 0) {}

void PcapLive::poll(Nanoseconds now) noexcept {
  polled_at_ = now;
  if (link_ == nullptr || link_->changes() == link_changes_) [[likely]] return;
  const uint32_t changes = link_->changes();
  // libpcap's handle is a packet socket, bound to all types. Its ring and filter remain.
  if (link_->index() == 0 || link_->bind(pcap_fileno(handle_), ETH_P_ALL, all_types_)) link_changes_ = changes;
}

Nanoseconds PcapLive::next_event() const noexcept {
  return link_ != nullptr && link_->index() == 0 ? polled_at_ + kLookForLinkEvery : ~Nanoseconds{0};
}

PcapLive::~PcapLive() { pcap_close(handle_); }

// The target of libpcap's loop, which adds frame by frame.
struct PcapLive::Arrivals {
  PcapLive& port;
  std::span<ReceivedFrame> frames;
  uint32_t count = 0;

  static void take(u_char* arrivals, const pcap_pkthdr* header, const u_char* bytes) noexcept {
    auto& self = *reinterpret_cast<Arrivals*>(arrivals);
    Counters& counters = self.port.counters_;
    if (header->caplen < header->len || !self.port.fits(header->len)) {
      ++counters.rx_oversize;
      return;
    }
    ++counters.rx_frames;
    counters.rx_bytes += header->len;
    self.frames[self.count++] = self.port.keep(bytes, header->len);
  }
};

uint32_t PcapLive::receive(std::span<ReceivedFrame> frames, Nanoseconds) noexcept {
  const uint32_t wanted = places(frames.size());
  if (wanted == 0) return 0;  // frames wait in the kernel's ring, which counts its drops
  Arrivals arrivals{.port = *this, .frames = frames};
  const int result = pcap_dispatch(handle_, static_cast<int>(wanted), Arrivals::take, reinterpret_cast<u_char*>(&arrivals));
  if (result < 0) ++counters_.rx_errors;  // the interface went down; it may come back
  return arrivals.count;
}

uint32_t PcapLive::transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept {
  uint32_t done = 0;
  for (; done < frames.size(); ++done) {
    errno = 0;
    if (pcap_inject(handle_, frames[done].data, frames[done].length) >= 0) {
      ++counters_.tx_frames;
      counters_.tx_bytes += frames[done].length;
      refusals_.taken(now);
      continue;
    }
    const int error = errno;
    // The interface is full, or never takes this frame.
    const bool refused = error == ENOMEM || (error == ENOBUFS && has_carrier(pcap_fileno(handle_), interface_));
    if (error == EAGAIN || (refused && !refusals_.give_up(now))) {
      ++counters_.tx_full;
      break;
    }
    if (!refused) refusals_.gone();
    ++(refused ? counters_.tx_refused : error == EMSGSIZE ? counters_.tx_oversize : counters_.tx_errors);  // lost, as wires may lose
  }
  discard(frames.first(done));
  return done;
}

std::vector<DriverCounter> PcapLive::counters() const {
  const Counters& c = counters_;
  std::vector<DriverCounter> all{{"rx_frames", c.rx_frames}, {"rx_bytes", c.rx_bytes}, {"rx_oversize", c.rx_oversize},
                                 {"rx_errors", c.rx_errors}, {"tx_frames", c.tx_frames}, {"tx_bytes", c.tx_bytes},
                                 {"tx_oversize", c.tx_oversize}, {"tx_errors", c.tx_errors},
                                 {"tx_refused", c.tx_refused}, {"tx_full", c.tx_full}};
  pcap_stat kernel{};
  if (pcap_stats(handle_, &kernel) == 0) all.push_back({"rx_missed", kernel.ps_drop});  // frames without room in the kernel's ring
  return all;
}

std::string PcapLive::description() const {
  const std::string mtu = std::to_string(capabilities().mtu);
  return "pcap:iface=" + interface_ + " " + mac_text(capabilities().address).data() + " mtu " + mtu + claim_.remark();
}

}  // namespace unet::drivers
