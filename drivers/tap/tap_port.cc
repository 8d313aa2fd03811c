// tap_port.cc - creates or opens a tap interface, sets its addresses, and passes frames.
#include "drivers/tap/tap_port.h"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/ipv6.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "drivers/kernel_interface.h"

namespace unet::drivers {
namespace {

constexpr const char* kDevice = "/dev/net/tun";
constexpr unsigned kUso4 = 0x20, kUso6 = 0x40;  // TUN_F_USO4 and TUN_F_USO6, since Linux 6.2

struct Descriptor {
  int fd = -1;
  explicit Descriptor(int opened) : fd(opened) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

ifreq request_for(const std::string& name) {
  ifreq request{};
  name.copy(request.ifr_name, sizeof request.ifr_name - 1);
  return request;
}

tl::unexpected<Error> refuse(Errc code, const std::string& name, const std::string& what) {
  return fail(code, "tap:name=" + name + ": " + what);
}
tl::unexpected<Error> refuse_errno(const std::string& name, const char* what) {
  if (errno == EPERM || errno == EACCES) {
    return refuse(Errc::not_permitted, name,
                  std::string(what) + ": needs CAP_NET_ADMIN: run as root, or make the interface before, `ip tuntap add dev " + name +
                      " mode tap user NAME`, with its addresses, and up");
  }
  return fail_errno(("tap:name=" + name + ": " + what).c_str(), errno);
}

Status attach(int tap, const std::string& name) {
  ifreq request = request_for(name);
  request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
  if (::ioctl(tap, TUNSETIFF, &request) == 0) return {};
  if (errno == EBUSY) return refuse(Errc::already_exists, name, "another process has this tap: stop it, or take another name");
  if (errno == EINVAL) return refuse(Errc::invalid_argument, name, "an interface of this name exists, and is not a tap with one queue");
  return refuse_errno(name, "TUNSETIFF");
}

Status offload(int tap, const std::string& name, bool segments) {
  const int header = sizeof(VnetHeader);
  if (::ioctl(tap, TUNSETVNETHDRSZ, &header) != 0) return refuse_errno(name, "TUNSETVNETHDRSZ");
  constexpr unsigned kStreams = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
  if (!segments) return ::ioctl(tap, TUNSETOFFLOAD, 0ul) == 0 ? Status{} : Status(refuse_errno(name, "TUNSETOFFLOAD"));
  if (SegmentPort::kernel_cuts_udp() && ::ioctl(tap, TUNSETOFFLOAD, static_cast<unsigned long>(kStreams | kUso4 | kUso6)) == 0) return {};
  if (::ioctl(tap, TUNSETOFFLOAD, static_cast<unsigned long>(kStreams)) != 0) return refuse_errno(name, "TUNSETOFFLOAD");
  return {};
}

Status give_ipv4(int socket, const std::string& name, const TapOptions::Address& address) {
  ifreq request = request_for(name);
  sockaddr_in in{};
  in.sin_family = AF_INET;
  std::memcpy(&in.sin_addr, address.address.wire(), sizeof in.sin_addr);
  std::memcpy(&request.ifr_addr, &in, sizeof in);
  if (::ioctl(socket, SIOCSIFADDR, &request) != 0) return refuse_errno(name, "SIOCSIFADDR");
  const uint32_t mask = address.prefix == 0 ? 0 : ~uint32_t{0} << (32 - address.prefix);
  in.sin_addr.s_addr = htonl(mask);
  std::memcpy(&request.ifr_netmask, &in, sizeof in);
  if (::ioctl(socket, SIOCSIFNETMASK, &request) != 0) return refuse_errno(name, "SIOCSIFNETMASK");
  return {};
}

// Turns off duplicate address detection, which would take a second: the link has no other station.
void trust_link(const std::string& name) {
  const Descriptor file(::open(("/proc/sys/net/ipv6/conf/" + name + "/accept_dad").c_str(), O_WRONLY | O_CLOEXEC));
  if (file.fd >= 0) static_cast<void>(!::write(file.fd, "0", 1));
}

Status give_ipv6(const std::string& name, const TapOptions::Address& address) {
  const Descriptor socket(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (socket.fd < 0) return refuse_errno(name, "the kernel has no IPv6");
  in6_ifreq request{};
  std::memcpy(&request.ifr6_addr, address.address.wire(), sizeof request.ifr6_addr);
  request.ifr6_prefixlen = address.prefix;
  request.ifr6_ifindex = static_cast<int>(if_nametoindex(name.c_str()));
  if (::ioctl(socket.fd, SIOCSIFADDR, &request) != 0 && errno != EEXIST) return refuse_errno(name, "SIOCSIFADDR");
  return {};
}

// Sets up the kernel's end: MTU, addresses, state up. Values that are already set need no rights.
Status set_up(const TapOptions& options) {
  const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (socket.fd < 0) return fail_errno("socket", errno);
  ifreq request = request_for(options.name);
  if (::ioctl(socket.fd, SIOCGIFMTU, &request) != 0) return refuse_errno(options.name, "SIOCGIFMTU");
  if (options.mtu != 0 && request.ifr_mtu != static_cast<int>(options.mtu)) {
    request.ifr_mtu = static_cast<int>(options.mtu);
    if (::ioctl(socket.fd, SIOCSIFMTU, &request) != 0) return refuse_errno(options.name, "SIOCSIFMTU");
  }
  trust_link(options.name);
  for (const TapOptions::Address& each : options.addresses) {
    if (!each.address.is_ipv4()) continue;
    if (Status status = give_ipv4(socket.fd, options.name, each); !status) return status;
  }
  if (::ioctl(socket.fd, SIOCGIFFLAGS, &request) != 0) return refuse_errno(options.name, "SIOCGIFFLAGS");
  if ((request.ifr_flags & IFF_UP) == 0) {
    request.ifr_flags |= IFF_UP;
    if (::ioctl(socket.fd, SIOCSIFFLAGS, &request) != 0) return refuse_errno(options.name, "SIOCSIFFLAGS");
  }
  for (const TapOptions::Address& each : options.addresses) {  // an interface loses IPv6 addresses when it goes down
    if (each.address.is_ipv4()) continue;
    if (Status status = give_ipv6(options.name, each); !status) return status;
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<TapPort>> TapPort::open(const TapOptions& options) {
  const std::string& name = options.name;
  if (name.empty() || name.size() >= IFNAMSIZ || name.find('/') != std::string::npos || name.find('%') != std::string::npos) {
    return refuse(Errc::invalid_argument, name, "is not an interface name: 1 to 15 characters");
  }
  Descriptor tap(::open(kDevice, O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (tap.fd < 0 && (errno == EPERM || errno == EACCES)) return refuse_errno(name, kDevice);
  if (tap.fd < 0) return refuse(Errc::unavailable, name, std::string(kDevice) + ": " + std::strerror(errno) + ": `modprobe tun`");
  if (Status status = attach(tap.fd, name); !status) return tl::unexpected(status.error());
  if (Status status = offload(tap.fd, name, options.segments); !status) return tl::unexpected(status.error());
  if (Status status = set_up(options); !status) return tl::unexpected(status.error());
  Result<DriverCapabilities> capabilities = look_at_interface("tap:name=" + name, name, 0);
  if (!capabilities) return tl::unexpected(capabilities.error());
  auto link = LinkWatch::open({.port = "tap:name=" + name, .interface = name, .station = capabilities->address, .mtu = capabilities->mtu,
                               .returns = false});
  // The port's address must differ from the kernel's.
  capabilities->address[0] = static_cast<uint8_t>((capabilities->address[0] | 2) & ~1);
  capabilities->address[5] ^= 1;
  return std::unique_ptr<TapPort>(new TapPort(*capabilities, std::exchange(tap.fd, -1), name, options.segments, std::move(link)));
}

TapPort::TapPort(const DriverCapabilities& capabilities, int tap, std::string name, bool segments, std::shared_ptr<LinkWatch> link)
    : SegmentPort(capabilities, tap, segments), name_(std::move(name)), link_(std::move(link)) {}

uint32_t TapPort::read(std::span<Transfer> transfers) noexcept {
  uint32_t count = 0;
  for (; count < transfers.size(); ++count) {
    Transfer& transfer = transfers[count];
    const ssize_t bytes = ::readv(descriptor(), transfer.pieces.data(), static_cast<int>(transfer.count));
    if (bytes < 0) {
      if (errno != EAGAIN && errno != EINTR) count_read_error();
      break;
    }
    transfer.length = static_cast<uint32_t>(bytes);
    // The kernel cuts long frames silently: then the buffer is exactly full.
    transfer.cut = transfer.length == transfer.pieces[0].iov_len + transfer.pieces[1].iov_len;
  }
  return count;
}

int TapPort::write(std::span<Transfer> transfers) noexcept {
  int count = 0;
  for (Transfer& transfer : transfers) {
    if (::writev(descriptor(), transfer.pieces.data(), static_cast<int>(transfer.count)) < 0) return count == 0 ? -1 : count;
    ++count;
  }
  return count;
}

bool TapPort::is_full(int error) const noexcept { return error == EAGAIN || error == ENOMEM || error == ENOBUFS || error == EINTR; }

std::string TapPort::description() const {
  return "tap:name=" + name_ + " " + mac_text(capabilities().address).data() + " mtu " + std::to_string(capabilities().mtu);
}

}  // namespace unet::drivers
