// packet_port.cc - sets up a packet socket, and passes bursts through it.
#include "drivers/packet/packet_port.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "drivers/kernel_interface.h"
#include "unet/wire/frame.h"

namespace unet::drivers {
namespace {

constexpr int kBufferBytes = 8 << 20;  // the kernel's buffer each way: a hundred segments of 64 KiB
constexpr int kIgnoreOutgoing = 23;    // PACKET_IGNORE_OUTGOING, since Linux 4.20

// Each frame arrives in one of two rings. The ring of short frames (up to the MTU) holds as many bytes as the socket's queue would. A block
// of 15 long slots is 255 pages.
constexpr uint32_t kShortsBytes = 8 << 20, kShortsBlock = 128 * 1024;
constexpr uint32_t kSlotHead = 248;          // bytes of a slot before the frame: more than the kernel's own header
constexpr PacketRing::Geometry kLongs{.slot_bytes = 17 * 4096, .slots = 135, .per_block = 15};
constexpr uint32_t kBurstBytes = 256 * 1024;  // a burst of this size stays in the cache
constexpr uint32_t kLooksMax = 1024;          // frames examined per receive() while all are invalid
constexpr Nanoseconds kLookAfterEvery = 20 * kMillisecond;
constexpr uint32_t kRenewalsMax = 3;
constexpr Nanoseconds kLookForLinkEvery = 100 * kMillisecond;
constexpr uint32_t kAny = ~0u;

PacketRing::Geometry shorts_for(uint32_t mtu) noexcept {
  uint32_t bytes = 2048;
  while (bytes < kShortsBlock && bytes - kSlotHead < mtu + 14) bytes *= 2;
  return {.slot_bytes = bytes, .slots = kShortsBytes / bytes, .per_block = kShortsBlock / bytes};
}

template <typename T>
bool set(int socket, int level, int option, const T& value) noexcept {
  return ::setsockopt(socket, level, option, &value, sizeof value) == 0;
}

// Accepts frames for `station` or groups, of `least` to `most` bytes, and of our Ethernet type unless `all_types`. Drops what this host
// sends, and frames of a VLAN: the kernel has removed their tag, so they would look untagged.
Status set_filter(int socket, const std::string& port, const MacAddress& station, bool all_types, uint32_t least, uint32_t most) {
  const uint32_t high = uint32_t{station[0]} << 24 | uint32_t{station[1]} << 16 | uint32_t{station[2]} << 8 | station[3];
  const uint32_t low = uint32_t{station[4]} << 8 | station[5];
  const auto ancillary = [](int what) { return static_cast<uint32_t>(SKF_AD_OFF + what); };
  const uint32_t type = all_types ? 0 : kEtherType;
  // Jumps count instructions: after the first three, 13 accepts the frame and 14 drops it.
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, least, 0, 15),
      BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, most, 14, 0),
      /* 0 */ BPF_STMT(BPF_LD | BPF_B | BPF_ABS, ancillary(SKF_AD_PKTTYPE)),
      /* 1 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_OUTGOING, 12, 0),
      /* 2 */ BPF_STMT(BPF_LD | BPF_B | BPF_ABS, ancillary(SKF_AD_VLAN_TAG_PRESENT)),
      /* 3 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 10),
      /* 4 */ BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 12),
      /* 5 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, type, 1, 0),
      /* 6 */ BPF_JUMP(BPF_JMP | BPF_JA, all_types ? 0u : 7u, 0, 0),
      /* 7 */ BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0),
      /* 8 */ BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 1, 4, 0),
      /* 9 */ BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
      /* 10 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, high, 0, 3),
      /* 11 */ BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 4),
      /* 12 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, low, 0, 1),
      /* 13 */ BPF_STMT(BPF_RET | BPF_K, ~0u),
      /* 14 */ BPF_STMT(BPF_RET | BPF_K, 0),
  };
  const sock_fprog filter{.len = sizeof program / sizeof *program, .filter = program};
  if (!set(socket, SOL_SOCKET, SO_ATTACH_FILTER, filter)) return fail_errno((port + ": SO_ATTACH_FILTER").c_str(), errno);
  return {};
}

// Frames dropped since the last call.
uint64_t take_drops(int socket) noexcept {
  tpacket_stats kernel{};
  socklen_t length = sizeof kernel;
  return ::getsockopt(socket, SOL_PACKET, PACKET_STATISTICS, &kernel, &length) == 0 ? kernel.tp_drops : 0;
}

// Sets up the socket except its ring and its binding.
Status set_up(int socket, const std::string& port, const PacketOptions& options, const DriverCapabilities& capabilities) {
  const auto index = static_cast<int>(if_nametoindex(options.interface.c_str()));
  if (Status status = set_filter(socket, port, capabilities.address, options.all_types, 0, kAny); !status) return status;
  constexpr int kYes = 1;
  if (!set(socket, SOL_PACKET, PACKET_VNET_HDR, kYes)) return fail_errno((port + ": PACKET_VNET_HDR").c_str(), errno);
  // Otherwise the filter would drop what this host sends frame by frame. PACKET_QDISC_BYPASS does not suit this port: without the queueing
  // discipline Linux drops segments that the interface does not cut itself.
  static_cast<void>(set(socket, SOL_PACKET, kIgnoreOutgoing, kYes));
  for (const auto& [force, option] : {std::pair(SO_RCVBUFFORCE, SO_RCVBUF), std::pair(SO_SNDBUFFORCE, SO_SNDBUF)}) {
    if (!set(socket, SOL_SOCKET, force, kBufferBytes)) static_cast<void>(set(socket, SOL_SOCKET, option, kBufferBytes));
  }
  if (options.all_types) {  // groups of neighbour discovery, and groups that applications join
    packet_mreq groups{};
    groups.mr_ifindex = index;
    groups.mr_type = PACKET_MR_ALLMULTI;
    static_cast<void>(set(socket, SOL_PACKET, PACKET_ADD_MEMBERSHIP, groups));
  }
  return {};
}

Status bind_to_interface(int socket, const std::string& port, const PacketOptions& options) {
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(options.all_types ? ETH_P_ALL : kEtherType);
  address.sll_ifindex = static_cast<int>(if_nametoindex(options.interface.c_str()));
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return fail_errno((port + ": bind").c_str(), errno);
  return {};
}

}  // namespace

Result<std::unique_ptr<PacketPort>> PacketPort::open(const PacketOptions& options) {
  const std::string port = "packet:iface=" + options.interface;
  Result<DriverCapabilities> capabilities = look_at_interface(port, options.interface, options.mtu);
  if (!capabilities) return tl::unexpected(capabilities.error());
  const int socket = ::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0 && (errno == EPERM || errno == EACCES)) {
    return fail(Errc::not_permitted, port + ": needs CAP_NET_RAW: run as root, or give the program the capability (`setcap cap_net_raw+ep "
                                            "PROGRAM`), or use a wire that needs no rights (dpdk:net_memif0)");
  }
  if (socket < 0) return fail_errno((port + ": socket").c_str(), errno);
  Result<InterfaceClaim> claim = InterfaceClaim::take(port, options.interface);
  if (!claim) {
    ::close(socket);
    return tl::unexpected(claim.error());
  }
  Status status = set_up(socket, port, options, *capabilities);
  std::unique_ptr<Rings> rings;
  if (status) {
    auto made = make_rings(socket, port, options, *capabilities);
    if (made) rings = std::move(*made);
    else status = tl::unexpected(made.error());
  }
  if (status) status = bind_to_interface(socket, port, options);
  if (!status) {
    ::close(socket);
    return tl::unexpected(status.error());
  }
  auto link = LinkWatch::open({.port = port, .interface = options.interface, .station = capabilities->address, .mtu = capabilities->mtu});
  return std::unique_ptr<PacketPort>(
      new PacketPort(*capabilities, socket, std::move(rings), options, std::move(*claim), std::move(link)));
}

Result<std::unique_ptr<PacketPort::Rings>> PacketPort::make_rings(int socket, const std::string& port, const PacketOptions& options,
                                                                  const DriverCapabilities& capabilities) {
  auto rings = std::make_unique<Rings>();
  Rings::Ring &shorts = rings->shorts, &longs = rings->longs;
  shorts.socket = socket;
  longs.socket = ::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  rings->wait = ::epoll_create1(EPOLL_CLOEXEC);
  if (longs.socket < 0 || rings->wait < 0 || !set_up(longs.socket, port, options, capabilities)) return nullptr;
  for (const int each : {socket, longs.socket}) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = each}};
    if (::epoll_ctl(rings->wait, EPOLL_CTL_ADD, each, &event) != 0) return nullptr;
  }
  const PacketRing::Geometry geometry = shorts_for(capabilities.mtu);
  const auto takes = [&](int which, uint32_t least, uint32_t most) {
    return set_filter(which, port, capabilities.address, options.all_types, least, most);
  };
  const uint32_t short_most = geometry.slot_bytes - kSlotHead;
  longs.ring = PacketRing::map(longs.socket, kLongs);
  if (!longs.ring || !takes(longs.socket, short_most + 1, kAny)) return nullptr;
  shorts.ring = PacketRing::map(socket, geometry);
  if (shorts.ring && takes(socket, 0, short_most) && bind_to_interface(longs.socket, port, options)) return rings;
  rings.reset();
  if (!set(socket, SOL_PACKET, PACKET_RX_RING, tpacket_req{})) return fail_errno((port + ": PACKET_RX_RING").c_str(), errno);
  if (Status status = takes(socket, 0, kAny); !status) return tl::unexpected(status.error());
  return nullptr;
}

PacketPort::Rings::~Rings() {
  for (const int each : {longs.socket, wait}) {
    if (each >= 0) ::close(each);
  }
}

PacketPort::PacketPort(const DriverCapabilities& capabilities, int socket, std::unique_ptr<Rings> rings, const PacketOptions& options,
                       InterfaceClaim claim, std::shared_ptr<LinkWatch> link)
    : SegmentPort(capabilities, socket, true),
      interface_(options.interface),
      all_types_(options.all_types),
      claim_(std::move(claim)),
      rings_(std::move(rings)),
      link_(std::move(link)),
      link_changes_(link_ != nullptr ? link_->changes() : 0) {}

void PacketPort::poll(Nanoseconds now) noexcept {
  polled_at_ = now;
  if (link_ != nullptr && link_->changes() != link_changes_) [[unlikely]] follow_link();
}

Nanoseconds PacketPort::next_event() const noexcept {
  return link_ != nullptr && link_->index() == 0 ? polled_at_ + kLookForLinkEvery : ~Nanoseconds{0};
}

// The kernel unbinds packet sockets from an interface that it deletes. Their rings and filters remain.
void PacketPort::follow_link() noexcept {
  const uint32_t changes = link_->changes(), index = link_->index();
  const uint16_t protocol = all_types_ ? ETH_P_ALL : kEtherType;
  if (index != 0) {
    bool bound = link_->bind(descriptor(), protocol, all_types_);
    if (has_rings()) bound = link_->bind(rings_->longs.socket, protocol, all_types_) && bound;
    if (!bound) return;  // the next poll tries again
  }
  link_changes_ = changes;
}

uint32_t PacketPort::receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept {
  if (!has_rings()) return SegmentPort::receive(frames, now);
  Rings &rings = *rings_;
  uint32_t count = 0, bytes = 0;
  for (uint32_t looks = 0; count < frames.size() && bytes < kBurstBytes && looks < (count == 0 ? kLooksMax : kBurst); ++looks) {
    bool is_long = rings.longs.ring->has_frame();
    const bool is_short = rings.shorts.ring->has_frame();
    if (is_short && !is_long) is_long = rings.longs.ring->has_frame();  // may be older than the short frame
    if (!is_short && !is_long) break;
    const bool first = is_short && (!is_long || rings.shorts.ring->came() <= rings.longs.ring->came());
    Rings::Ring& from = first ? rings.shorts : rings.longs;
    from.dropped = false;
    const PacketRing::Arrival arrival = from.ring->take();
    ReceivedFrame frame{.data = arrival.data, .length = arrival.length, .handle = arrival.slot};
    if (!accept(arrival.header, arrival.cut || arrival.data == nullptr, arrival.data, frame)) {
      PacketRing::give_back(arrival.slot);
      continue;
    }
    bytes += frame.length;
    frames[count++] = frame;
  }
  if (count == 0 && now - rings.looked_at >= kLookAfterEvery) {
    rings.looked_at = now;
    look_after(rings.shorts);
    look_after(rings.longs);
    if (rings.renewals > kRenewalsMax) give_up_rings();
  }
  rings.taken += count;
  return count;
}

// Linux (6.18) leaks a slot when a frame comes that no struct virtio_net_hdr can describe, for example segments of SCTP. It drops that
// frame and from then on all others. The remedy is to make a ring anew that drops frames while it is empty. On a wire where this repeats,
// the port does without rings.
void PacketPort::look_after(Rings::Ring& each) noexcept {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(each.socket, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error != 0) count_read_error();  // the interface went down
  note_drops(each);
  const bool drops = std::exchange(each.drops, 0) != 0 && !each.ring->has_frame();
  const bool is_stuck = drops && std::exchange(each.dropped, drops) && rings_->taken == 0;
  if (!is_stuck && each.ring->is_mapped()) return;
  each.dropped = false;
  ++rings_->renewals;
  static_cast<void>(each.ring->renew());  // on failure the next call tries again
}

void PacketPort::give_up_rings() noexcept {
  if (rings_->taken != 0) return;
  // Errors have no receiver here: the next call repeats what failed.
  if (!set_filter(descriptor(), interface_, capabilities().address, all_types_, 0, kAny)) return;
  rings_->shorts.ring->unmap();
  if (!set(descriptor(), SOL_PACKET, PACKET_RX_RING, tpacket_req{})) return;
  ::close(std::exchange(rings_->longs.socket, -1));
  rings_->given_up = true;
}

void PacketPort::note_drops(Rings::Ring& each) const noexcept {
  const uint64_t drops = take_drops(each.socket);
  missed_ += drops;
  each.drops += drops;
}

void PacketPort::release(std::span<const ReceivedFrame> frames) noexcept {
  if (!has_rings()) return SegmentPort::release(frames);
  for (const ReceivedFrame& frame : frames) PacketRing::give_back(frame.handle);
  rings_->taken -= static_cast<uint32_t>(frames.size());
}

uint32_t PacketPort::read(std::span<Transfer> transfers) noexcept {
  std::array<mmsghdr, kBurst> messages;
  for (size_t i = 0; i < transfers.size(); ++i) {
    messages[i] = {};
    messages[i].msg_hdr.msg_iov = transfers[i].pieces.data();
    messages[i].msg_hdr.msg_iovlen = transfers[i].count;
  }
  const int count = ::recvmmsg(descriptor(), messages.data(), static_cast<unsigned>(transfers.size()), MSG_DONTWAIT, nullptr);
  if (count < 0) {
    if (errno != EAGAIN && errno != EINTR) count_read_error();  // the interface went down, or the kernel cannot describe a frame's header
    return 0;
  }
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    transfers[i].length = messages[i].msg_len;
    transfers[i].cut = (messages[i].msg_hdr.msg_flags & MSG_TRUNC) != 0;
  }
  return static_cast<uint32_t>(count);
}

int PacketPort::write(std::span<Transfer> transfers) noexcept {
  std::array<mmsghdr, kBurst> messages;
  for (size_t i = 0; i < transfers.size(); ++i) {
    messages[i] = {};
    messages[i].msg_hdr.msg_iov = transfers[i].pieces.data();
    messages[i].msg_hdr.msg_iovlen = transfers[i].count;
  }
  return ::sendmmsg(descriptor(), messages.data(), static_cast<unsigned>(transfers.size()), MSG_DONTWAIT);
}

bool PacketPort::is_full(int error) const noexcept {
  return error == EAGAIN || error == ENOMEM || error == EINTR || (error == ENOBUFS && has_carrier(descriptor(), interface_));
}

std::vector<DriverCounter> PacketPort::counters() const {
  std::vector<DriverCounter> all = SegmentPort::counters();
  if (has_rings()) note_drops(rings_->shorts), note_drops(rings_->longs);
  else missed_ += take_drops(descriptor());
  all.push_back({"rx_missed", missed_});
  return all;
}

std::string PacketPort::description() const {
  const std::string mtu = std::to_string(capabilities().mtu);
  return "packet:iface=" + interface_ + " " + mac_text(capabilities().address).data() + " mtu " + mtu +
         (has_rings() ? "" : ", without rings") + claim_.remark();
}

}  // namespace unet::drivers
