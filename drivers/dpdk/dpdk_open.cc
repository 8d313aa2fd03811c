// dpdk_open.cc - opens and closes a DPDK port: all of DpdkPort that is not on the data path.
#include <linux/if_tun.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>

#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include "drivers/dpdk/device_spec.h"
#include "drivers/dpdk/dpdk_port.h"
#include "drivers/dpdk/external_frame.h"
#include "drivers/dpdk/memif_gate.h"
#include "drivers/dpdk/pci_device.h"
#include "drivers/interface_claim.h"
#include "drivers/link_watch.h"

namespace unet::drivers {

namespace {

constexpr uint32_t kQueue = 1024;          // descriptors of the receive and of the transmit queue
constexpr uint32_t kEngineFrames = 2048;   // buffers that the engine may hold
constexpr uint32_t kCache = RTE_MEMPOOL_CACHE_MAX_SIZE;
constexpr uint32_t kXdpHeadroom = 256;     // the kernel reserves this before a frame in our buffer
constexpr uint32_t kVlanAndFcs = 8;
constexpr uint32_t kMtuMax = 9600;

// While this object lives, files that the process creates are readable by its user only.
class PrivateFiles {
 public:
  explicit PrivateFiles(bool wanted) noexcept : before_(wanted ? umask(S_IRWXG | S_IRWXO | S_IXUSR) : kUnchanged) {}
  ~PrivateFiles() {
    if (before_ != kUnchanged) umask(before_);
  }
  PrivateFiles(const PrivateFiles&) = delete;
  PrivateFiles& operator=(const PrivateFiles&) = delete;

 private:
  static constexpr mode_t kUnchanged = ~mode_t{0};
  const mode_t before_;
};

std::string because(const char* what, const std::string& device, int error) {
  std::string text = "dpdk:" + device + ": " + what;
  if (error != 0) text += std::string(": ") + rte_strerror(error < 0 ? -error : error);
  if (const std::string more = eal::complaints(); !more.empty()) text += " (" + more + ")";
  return text;
}

// Asks EAL for what a device on the PCI bus needs.
void add_bus(EalOptions& options, const DeviceSpec& device) {
  if (!device.pci()) return;
  options.pci = true;
  options.physical = PciDevice::read(device.name).needs_physical_addresses();
}

// Find this process's descriptors: sockets of `domain`, or character devices that answer as a tap.
bool is_socket_of(int fd, int domain) {
  int value = 0;
  socklen_t size = sizeof(value);
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &size) == 0 && value == domain;
}

bool is_tap_of(int fd, const std::string& interface) {
  ifreq request{};
  return ioctl(fd, TUNGETIFF, &request) == 0 && interface == request.ifr_name;
}

// Descriptors are small numbers: asking each one is cheaper than reading /proc.
constexpr int kDescriptors = 4096;

}  // namespace

struct DpdkPort::Setup {
  DpdkOptions options;
  DeviceSpec device;
  InterfaceState interface;
  uint32_t mtu = 1500;
  int socket_domain = 0;
  std::vector<bool> sockets;  // sockets of that domain at the last new_sockets()
  std::vector<int> wait;      // descriptors of the queues, in order

  // Sockets that were opened since the last call.
  std::vector<int> new_sockets() {
    std::vector<int> fresh;
    sockets.resize(kDescriptors);
    for (int fd = 0; fd < kDescriptors && socket_domain != 0; ++fd) {
      const bool is_one = is_socket_of(fd, socket_domain);
      if (is_one && !sockets[static_cast<size_t>(fd)]) fresh.push_back(fd);
      sockets[static_cast<size_t>(fd)] = is_one;
    }
    return fresh;
  }
};

// State shared by a port's queues. The last queue closes the port.
struct DpdkPort::Opened {
  uint16_t port_id = 0xffff;
  bool pci = false;
  bool closed = false;  // DPDK's port is closed
  std::string device;
  std::vector<rte_mempool*> pools;  // by queue
  rte_mempool* external_pool = nullptr;
  std::vector<int> wait;            // by queue: see find_wait_descriptor()
  InterfaceClaim claim;
  std::shared_ptr<LinkWatch> link;  // tidy: allow shared_ptr because set-up and end alone touch it

  ~Opened() {
    if (port_id != 0xffff) {
      if (!closed) {
        rte_eth_dev_stop(port_id);
        rte_eth_dev_close(port_id);
      }
      rte_eal_hotplug_remove(pci ? "pci" : "vdev", device.c_str());
    }
    for (rte_mempool* const pool : pools) rte_mempool_free(pool);
    rte_mempool_free(external_pool);
  }
};

Result<std::unique_ptr<DpdkPort>> DpdkPort::open(const DpdkOptions& options) {
  // EAL failed before: repeat that error first, because no other attempt can succeed.
  if (eal::has_failed()) return tl::unexpected(eal::start(options.eal).error());
  auto device = parse_device(options.device);
  if (!device) return tl::unexpected(device.error());
  Setup setup{.options = options, .device = *device};
  if (options.mtu != 0 && (options.mtu < 256 || options.mtu > kMtuMax)) {
    return fail(Errc::invalid_argument,
                "dpdk:" + device->name + ": mtu=" + std::to_string(options.mtu) + ": allowed are 256 to 9600 bytes");
  }
  if (Status status = check_device(setup.device, setup.interface); !status) return tl::unexpected(status.error());
  if (options.queues != 1 && setup.device.driver == "net_memif") {
    return fail(Errc::invalid_argument, "dpdk:" + device->name + ": queues=" + std::to_string(options.queues) +
                                            ": a memif has one queue here: with a peer that has fewer, DPDK lets two queues use one ring");
  }
  setup.mtu = options.mtu != 0 ? options.mtu : setup.interface.mtu != 0 ? setup.interface.mtu : 1500;
  setup.mtu = std::min(setup.mtu, kMtuMax);
  if (Status status = complete(setup.device, setup.interface, setup.mtu, options.queues); !status) return tl::unexpected(status.error());

  InterfaceClaim claim;
  const bool on_packet_socket = setup.device.driver == "net_af_packet" || setup.device.driver == "net_pcap";
  if (const std::string* interface = setup.device.find("iface"); on_packet_socket && interface != nullptr) {
    auto taken = InterfaceClaim::take("dpdk:" + setup.device.name, *interface);
    if (!taken) return tl::unexpected(taken.error());
    claim = std::move(*taken);
  }

  EalOptions eal_options = options.eal;
  add_bus(eal_options, setup.device);
  if (Status status = eal::start(eal_options); !status) return tl::unexpected(status.error());
  eal::register_thread();

  std::unique_ptr<DpdkPort> port(new DpdkPort);
  port->opened_ = std::make_shared<Opened>();  // tidy: allow shared_ptr because set-up and end alone touch it
  port->opened_->claim = std::move(claim);
  port->queues_ = options.queues;
  using Step = Status (DpdkPort::*)(Setup&);
  for (const Step step : {&DpdkPort::probe, &DpdkPort::check_queues, &DpdkPort::make_pools, &DpdkPort::configure, &DpdkPort::start}) {
    eal::clear_complaints();
    if (Status status = (port.get()->*step)(setup); !status) return tl::unexpected(status.error());
  }
  if (options.wait_link != 0) {
    if (Status status = port->wait_link(options.wait_link); !status) return tl::unexpected(status.error());
  }
  if (const std::string* interface = setup.device.find("iface"); interface != nullptr) {
    port->opened_->link = LinkWatch::open({.port = "dpdk:" + setup.device.name, .interface = *interface,
                                           .station = port->capabilities_.address, .mtu = port->capabilities_.mtu, .returns = false});
  }
  return port;
}

void DpdkPort::prepare(const std::vector<DpdkOptions>& ports) {
  if (ports.empty()) return;
  EalOptions options = ports.front().eal;
  for (const DpdkOptions& port : ports) {
    const auto device = parse_device(port.device);
    if (device) add_bus(options, *device);
  }
  eal::start_early(options);
}

bool DpdkPort::environment_failed() { return eal::has_failed(); }

// Makes the device an Ethernet port of EAL.
Status DpdkPort::probe(Setup& setup) {
  const DeviceSpec& device = setup.device;
  uint16_t existing = 0;
  if (rte_eth_dev_get_port_by_name(device.name.c_str(), &existing) == 0) {
    return fail(Errc::already_exists, "dpdk:" + device.name + " is open in this process already: give this one another number");
  }
  setup.socket_domain = device.driver == "net_af_packet" ? AF_PACKET : device.driver == "net_af_xdp" ? AF_XDP : 0;
  setup.new_sockets();
  if (device.driver == "net_memif") {
    const auto value = [&](const char* key) { return device.find(key) != nullptr ? *device.find(key) : std::string(); };
    Memif& memif = memif_.emplace();
    memif.client = value("role") == "client";
    memif.zero_copy = memif.client && value("zero-copy") == "yes";
    memif.socket = value("socket");
    memif.id = static_cast<uint32_t>(std::atoi(value("id").c_str()));
    if (const Status prepared = MemifGate::prepare(); !prepared) return prepared;
    if (!memif.client) {
      MemifListener::remove_stale_file(memif.socket);
      if (MemifListener::is_taken(memif.socket)) {
        return fail(Errc::already_exists, "dpdk:" + device.name + ": another process has the socket " + memif.socket +
                                              ": choose another socket= name");
      }
    }
  }

  const int result = [&] {
    const PrivateFiles socket_is_private(memif_.has_value());
    return rte_eal_hotplug_add(device.pci() ? "pci" : "vdev", device.name.c_str(), device.arguments().c_str());
  }();
  if (result != 0) {
    if (device.pci()) {
      return fail(Errc::unavailable, because(("the card cannot be opened; " + PciDevice::read(device.name).advice()).c_str(),
                                             device.name, result));
    }
    const std::string said = eal::complaints();
    if (said.find("parse device") != std::string::npos) {
      return fail(Errc::unavailable, "dpdk:" + device.name + ": this machine's DPDK has no driver '" + device.driver +
                                         "': check the name, or install the package that has it (`apt-cache search librte-net`)");
    }
    if (queues_ > 1 && said.find("queue count") != std::string::npos) {
      return fail(Errc::invalid_argument, because(("queues=" + std::to_string(queues_) + ": the interface has fewer for AF_XDP: `ethtool "
                                                   "-l` says how many, `ethtool -L INTERFACE combined N` gives it more")
                                                      .c_str(),
                                                  device.name, 0));
    }
    return fail(Errc::unavailable, because("DPDK refuses the device or its options", device.name, result == -1 ? 0 : result));
  }
  if (rte_eth_dev_get_port_by_name(device.name.c_str(), &port_id_) != 0) {
    rte_eal_hotplug_remove(device.pci() ? "pci" : "vdev", device.name.c_str());
    return fail(Errc::invalid_argument, "dpdk:" + device.name + " is a DPDK device, but no Ethernet port");
  }
  setup.wait = setup.new_sockets();  // net_af_packet opens its queues' sockets in order, here
  device_ = device.name;
  options_ = device.arguments();
  opened_->port_id = port_id_;
  opened_->pci = device.pci();
  opened_->device = device.name;
  closed_.store(MemifGate::kStopped, std::memory_order_relaxed);
  if (memif_) {
    if (!memif_->client) memif_->listener.adopt(memif_->socket);
    MemifGate::add(*this);
  }
  return {};
}

Status DpdkPort::check_queues(Setup& setup) {
  rte_eth_dev_info info{};
  if (rte_eth_dev_info_get(port_id_, &info) != 0 || (info.max_rx_queues >= queues_ && info.max_tx_queues >= queues_)) return {};
  const std::string_view key = queues_key(setup.device);
  return fail(Errc::invalid_argument, "dpdk:" + device_ + ": queues=" + std::to_string(queues_) + ": this port has " +
                                          std::to_string(info.max_rx_queues) + " to receive from and " +
                                          std::to_string(info.max_tx_queues) + " to send by" +
                                          (key.empty() ? "" : "; its option " + std::string(key) + "= says how many"));
}

// Makes one pool per queue, for frames in both directions.
Status DpdkPort::make_pools(Setup& setup) {
  const bool xdp = setup.device.driver == "net_af_xdp";
  uint32_t room = RTE_PKTMBUF_HEADROOM + (xdp ? kXdpHeadroom : 0) + setup.mtu + RTE_ETHER_HDR_LEN + kVlanAndFcs;
  if (const std::string* slot = setup.device.find("framesz"); slot != nullptr) {
    // net_af_packet copies what the kernel put into a slot without checking the buffer's size.
    room = std::max(room, static_cast<uint32_t>(std::strtoul(slot->c_str(), nullptr, 10)) + RTE_PKTMBUF_HEADROOM);
  }
  room = std::max(room, RTE_MBUF_DEFAULT_BUF_SIZE + 0u);
  if (xdp) {
    // The kernel requires a whole buffer, with DPDK's headers and padding, to fit into a page.
    while (rte_mempool_calc_obj_size(static_cast<uint32_t>(sizeof(rte_mbuf)) + room, 0, nullptr) >
           static_cast<uint32_t>(getpagesize()))
      room -= 64;
    const uint32_t mtu_max = room - RTE_PKTMBUF_HEADROOM - kXdpHeadroom - RTE_ETHER_HDR_LEN - kVlanAndFcs;
    if (setup.options.mtu > mtu_max) {
      return fail(Errc::invalid_argument, "dpdk:" + device_ + ": mtu=" + std::to_string(setup.options.mtu) +
                                              ": net_af_xdp can do " + std::to_string(mtu_max));
    }
    setup.mtu = std::min(setup.mtu, mtu_max);
  }
  // net_af_xdp fills two rings of 2,048 and a fill ring of 4,096; a zero-copy memif fills both of its rings.
  uint32_t queues = xdp ? 6144 + 1024 : 2 * kQueue;
  if (memif_ && memif_->zero_copy) queues = 2u << std::strtoul(setup.device.find("rsize")->c_str(), nullptr, 10);
  const uint32_t buffers = setup.options.buffers != 0 ? setup.options.buffers : queues + kEngineFrames + 2 * kCache;
  if (buffers < queues + 64) {
    return fail(Errc::invalid_argument, "dpdk:" + device_ + ": buffers=" + std::to_string(buffers) +
                                            ": this port needs at least " + std::to_string(queues + 64));
  }
  for (uint32_t queue = 0; queue < queues_; ++queue) {
    char name[RTE_MEMPOOL_NAMESIZE];
    std::snprintf(name, sizeof(name), "unet_%u_%u", port_id_, queue);
    rte_mempool* const pool =
        rte_pktmbuf_pool_create(name, buffers, kCache, 0, static_cast<uint16_t>(room), static_cast<int>(rte_socket_id()));
    if (pool != nullptr) {
      opened_->pools.push_back(pool);
      continue;
    }
    const uint64_t mib = uint64_t{buffers} * (room + 256) / (1024 * 1024) + 1;
    return fail(Errc::out_of_memory, because(("no " + std::to_string(mib) + " MiB left in EAL's memory for packet buffers; " +
                                              (eal::uses_hugepages() ? "reserve more hugepages, or use hugepages=never"
                                                                     : "give the first port of the process a larger memory=MIB")).c_str(),
                                             device_, rte_errno));
  }
  pool_ = opened_->pools[0];
  room_ = room - RTE_PKTMBUF_HEADROOM;
  return {};
}

Status DpdkPort::configure(Setup& setup) {
  rte_eth_dev_info info{};
  if (const int result = rte_eth_dev_info_get(port_id_, &info); result != 0) {
    return fail(Errc::unavailable, because("the port does not describe itself", device_, result));
  }
  // memif and af_packet report 1518 bytes regardless of what they can do. The sizes of their slots and of our buffers decide.
  const bool own_limit = memif_ || setup.device.driver == "net_af_packet";
  if (!own_limit && info.max_mtu != 0 && setup.mtu > info.max_mtu) {
    if (setup.options.mtu != 0) {
      return fail(Errc::invalid_argument, "dpdk:" + device_ + ": mtu=" + std::to_string(setup.mtu) +
                                              ": this port can do " + std::to_string(info.max_mtu));
    }
    setup.mtu = info.max_mtu;
  }
  rte_eth_conf conf{};
  if (const uint64_t hashed = info.flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP); queues_ > 1 && hashed != 0) {
    conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
    conf.rx_adv_conf.rss_conf.rss_hf = hashed;
  }
  conf.rxmode.mtu = std::min(setup.mtu, own_limit ? 1500u : setup.mtu);
  const bool checksums = setup.options.checksums;
  constexpr uint64_t kTransports = RTE_ETH_TX_OFFLOAD_UDP_CKSUM | RTE_ETH_TX_OFFLOAD_TCP_CKSUM;
  constexpr uint64_t kOurs = RTE_ETH_RX_OFFLOAD_UDP_CKSUM | RTE_ETH_RX_OFFLOAD_TCP_CKSUM;
  capabilities_.checksums = checksums && (info.tx_offload_capa & kTransports) == kTransports;
  checks_ = checksums && (info.rx_offload_capa & kOurs) == kOurs;
  // Both ends of a virtio deliver frames from this host with an incomplete checksum. Check DPDK's driver name, because these devices have
  // several names.
  const std::string_view driver = info.driver_name;
  unfinished_ = driver.starts_with("net_virtio") || driver == "net_vhost";
  conf.rxmode.offloads = checks_ ? kOurs : 0;
  conf.txmode.offloads = (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) | (capabilities_.checksums ? kTransports : 0);
  const auto queues = static_cast<uint16_t>(queues_);
  if (const int result = rte_eth_dev_configure(port_id_, queues, queues, &conf); result != 0) {
    return fail(Errc::unavailable, because("the port cannot be configured", device_, result));
  }
  if (Status status = make_queues(setup); !status) return status;

  if (setup.interface.mtu != 0 && setup.options.mtu > setup.interface.mtu &&
      rte_eth_dev_set_mtu(port_id_, static_cast<uint16_t>(setup.mtu)) != 0) {
    return fail(Errc::unavailable, because(("the interface's MTU is " + std::to_string(setup.interface.mtu) +
                                            " and cannot be raised; use mtu=" + std::to_string(setup.interface.mtu))
                                               .c_str(),
                                           device_, 0));
  }
  rte_ether_addr address{};
  rte_eth_macaddr_get(port_id_, &address);
  std::copy(std::begin(address.addr_bytes), std::end(address.addr_bytes), capabilities_.address.begin());
  // The address of a tap is that of the kernel's interface. We are the other end of the cable and need a different address.
  if (setup.device.driver == "net_tap") capabilities_.address.back() ^= 0x80;
  capabilities_.mtu = setup.mtu;
  return make_external_pool(setup.device.driver, (conf.txmode.offloads & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) != 0);
}

Status DpdkPort::make_queues(Setup& setup) {
  uint16_t receive_slots = kQueue, transmit_slots = kQueue;
  rte_eth_dev_adjust_nb_rx_tx_desc(port_id_, &receive_slots, &transmit_slots);
  const auto socket = static_cast<unsigned>(std::max(rte_eth_dev_socket_id(port_id_), 0));
  for (uint16_t queue = 0; queue < queues_; ++queue) {
    int result = rte_eth_rx_queue_setup(port_id_, queue, receive_slots, socket, nullptr, opened_->pools[queue]);
    if (result != 0) {
      const char* const hint = setup.device.driver == "net_af_xdp"
                                   ? "the interface takes no AF_XDP socket: its driver may have no XDP (then net_af_packet works), another "
                                     "program may hold its queue, or a limit is in the way (`ulimit -l unlimited`)"
                                   : "the receive queue cannot be set up";
      // net_af_xdp does not tell which of these errors it is. The kernel's state decides, and may change at any moment.
      return fail(setup.device.driver == "net_af_xdp" ? Errc::system : Errc::unavailable, because(hint, device_, result));
    }
    // net_af_xdp opens a queue's socket at this point.
    if (const std::vector<int> fresh = setup.new_sockets(); !fresh.empty()) setup.wait.push_back(fresh.front());
    result = rte_eth_tx_queue_setup(port_id_, queue, transmit_slots, socket, nullptr);
    if (result != 0) return fail(Errc::unavailable, because("the transmit queue cannot be set up", device_, result));
  }
  return {};
}

// Makes the pool of descriptors for external payloads. Only ports that read a frame piece by piece, at any address, can send one: ports
// that copy, ports within this process, and hardware behind an IOMMU.
Status DpdkPort::make_external_pool(const std::string& driver, bool multi_segment) {
  const bool any_address = (memif_ && !memif_->zero_copy) || driver == "net_af_packet" || driver == "net_tap" ||
                           driver == "net_ring" || driver == "net_null" || driver == "net_pcap";
  dma_ = opened_->pci;
  if (queues_ > 1) return {};
  if (!multi_segment || (!any_address && !(dma_ && rte_eal_iova_mode() == RTE_IOVA_VA))) return {};
  char name[RTE_MEMPOOL_NAMESIZE];
  std::snprintf(name, sizeof(name), "unet_%u_external", port_id_);
  const auto private_size = static_cast<uint16_t>((sizeof(ExternalFrame) + RTE_MBUF_PRIV_ALIGN - 1) /
                                                  RTE_MBUF_PRIV_ALIGN * RTE_MBUF_PRIV_ALIGN);
  external_pool_ = rte_pktmbuf_pool_create(name, kQueue + kEngineFrames + 2 * kCache, kCache, private_size, 0,
                                           static_cast<int>(rte_socket_id()));
  opened_->external_pool = external_pool_;
  if (external_pool_ == nullptr) return fail(Errc::out_of_memory, because("no EAL memory left for external payloads", device_, rte_errno));
  capabilities_.external_payload = true;
  return {};
}

Status DpdkPort::start(Setup& setup) {
  if (memif_ && memif_->client) {
    // The server may not exist yet, and connecting may take time: poll() continues.
    memif_->connection = Memif::Connection::starting;
    MemifGate::post(*this, &DpdkPort::start_task);
    MemifGate::wait(*this, 100 * kMillisecond);
  } else if (const int result = rte_eth_dev_start(port_id_); result != 0) {
    return fail(Errc::unavailable, because("the port does not start", device_, result));
  } else {
    closed_.fetch_and(~MemifGate::kStopped, std::memory_order_release);
  }
  // IPv6 asks for neighbours by multicast, which a card would filter.
  if (dma_) rte_eth_allmulticast_enable(port_id_);
  // Without this call a card keeps the last payloads until it has sent more: their owners would wait.
  if (dma_ && capabilities_.external_payload && rte_eth_tx_done_cleanup(port_id_, queue_, 0) == -ENOTSUP) {
    capabilities_.external_payload = false;
  }
  if (memif_) {
    keep_connected(monotonic_now());
    next_check_ = 0;  // the caller of poll() has its own clock
  }
  // The port is not promiscuous: frames to our address and to all arrive anyway, and the kernel's interface would stay promiscuous after
  // this process is killed.
  link_was_up_ = link_up();
  refresh_cache();
  find_wait_descriptor(setup);
  return {};
}

void DpdkPort::find_wait_descriptor(const Setup& setup) noexcept {
  opened_->wait = setup.wait;
  opened_->wait.resize(queues_, -1);
  wait_descriptor_ = opened_->wait[0];
  if (setup.device.driver == "net_tap" && queues_ == 1) {
    char name[IF_NAMESIZE] = {};
    rte_eth_dev_info info{};
    if (rte_eth_dev_info_get(port_id_, &info) != 0 || if_indextoname(info.if_index, name) == nullptr) return;
    for (int fd = 0; fd < kDescriptors; ++fd) {
      if (!is_tap_of(fd, name)) continue;
      wait_descriptor_ = fd;  // the descriptor opened last belongs to the queue; the first one only holds the interface
      tap_ = true;
    }
  }
}

std::vector<std::unique_ptr<Driver>> DpdkPort::take_queues() {
  std::vector<std::unique_ptr<Driver>> all;
  for (uint16_t number = 1; number < queues_; ++number) {
    std::unique_ptr<DpdkPort> queue(new DpdkPort);
    queue->port_id_ = port_id_;
    queue->queue_ = number;
    queue->queues_ = queues_;
    queue->opened_ = opened_;
    queue->pool_ = opened_->pools[number];
    queue->lcore_ = RTE_MAX_LCORE;  // no thread: no cache until this queue's thread polls
    queue->room_ = room_;
    queue->capabilities_ = capabilities_;
    queue->checks_ = checks_;
    queue->unfinished_ = unfinished_;
    queue->device_ = device_;
    queue->options_ = options_;
    queue->wait_descriptor_ = opened_->wait[number];
    queue->link_was_up_ = true;
    all.push_back(std::move(queue));
  }
  return all;
}

DpdkPort::~DpdkPort() {
  closed_.fetch_or(MemifGate::kStopped, std::memory_order_relaxed);
  if (port_id_ != 0xffff && memif_) {
    MemifGate::wait(*this, 5 * kSecond);
    MemifGate::post(*this, &DpdkPort::close_task);
    const bool closed = MemifGate::wait(*this, 5 * kSecond);
    MemifGate::remove(*this);
    if (!closed) close_task(*this);
    opened_->closed = true;
  }
  opened_.reset();
}

bool DpdkPort::link_up() const noexcept {
  if ((closed_.load(std::memory_order_relaxed) & MemifGate::kStopped) != 0) return false;
  rte_eth_link link{};
  if (rte_eth_link_get_nowait(port_id_, &link) != 0) return true;  // a port that cannot tell counts as up
  return link.link_status == RTE_ETH_LINK_UP;
}

Status DpdkPort::wait_link(Nanoseconds timeout) noexcept {
  const Nanoseconds end = monotonic_now() + timeout;
  bool up = false;
  for (;;) {
    poll(monotonic_now());
    up = link_up();
    if (up || monotonic_now() >= end) break;
    const timespec time{0, 1'000'000};
    nanosleep(&time, nullptr);  // tidy: allow sleep because this is set-up: it waits for a memif's peer
  }
  if (memif_) next_check_ = 0;  // the engine has its own clock
  if (up) return {};
  if (!memif_) return fail(Errc::timed_out, "dpdk:" + device_ + ": the link is down: is the cable in, and the other side up?");
  return fail(Errc::timed_out, "dpdk:" + device_ + "," + options_ + ": no peer: start the " + (memif_->client ? "server" : "client") +
                                   " with the same socket= and id=, as the same user");
}

std::vector<DriverCounter> DpdkPort::counters() const {
  rte_eth_stats stats{};
  if (queue_ == 0) rte_eth_stats_get(port_id_, &stats);  // for all queues
  // Buffers held by the port, the wire or the engine; those in our own cache are free.
  const unsigned out = pool_ == nullptr ? 0 : rte_mempool_in_use_count(pool_), cached = cache_ == nullptr ? 0 : cache_->len;
  return {{"rx_frames", stats.ipackets},       {"rx_bytes", stats.ibytes},         {"tx_frames", stats.opackets},
          {"tx_bytes", stats.obytes},          {"rx_missed", stats.imissed},       {"rx_errors", stats.ierrors},
          {"tx_errors", stats.oerrors},        {"rx_no_buffer", stats.rx_nombuf + rx_no_buffer_},
          {"rx_linearised", linearised_},      {"rx_oversize", rx_oversize_},      {"tx_oversize", tx_oversize_},
          {"link_up", queue_ == 0 && link_up() ? 1u : 0u},
          {"link_losses", link_losses_},       {"external_in_flight", external_in_flight_},
          {"buffers_in_use", out > cached ? out - cached : 0}};
}

std::string DpdkPort::description() const {
  char text[160];
  std::snprintf(text, sizeof(text), "dpdk:%s %s mtu %u%s%s", device_.c_str(), mac_text(capabilities_.address).data(), capabilities_.mtu,
                eal::uses_hugepages() ? " hugepages" : "", link_up() ? "" : " link down");
  return text + opened_->claim.remark();
}

std::shared_ptr<WireState> DpdkPort::state() const { return opened_->link; }  // tidy: allow shared_ptr because the service has it, too

}  // namespace unet::drivers
