// kernel_interface.cc - reads an interface's address, MTU and state.
#include "drivers/kernel_interface.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "unet/mapping.h"

namespace unet::drivers {
namespace {

constexpr uint32_t kMtuMin = 256, kMtuMax = 9600;

tl::unexpected<Error> refuse(Errc code, const std::string& port, const std::string& what) { return fail(code, port + ": " + what); }

}  // namespace

Result<DriverCapabilities> look_at_interface(const std::string& port, const std::string& name, uint32_t wanted_mtu) {
  if (name.empty() || name.size() >= IFNAMSIZ) return refuse(Errc::invalid_argument, port, "is not an interface name: 1 to 15 characters");
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
    return refuse(Errc::not_found, port, "no such network interface in this network namespace: `ip link` lists them");
  }
  if ((flags & IFF_LOOPBACK) != 0) {
    return refuse(Errc::invalid_argument, port,
                  "a loopback interface reaches no other host: processes of one host need no wire; use a veth pair for a test");
  }
  if (request.ifr_hwaddr.sa_family != ARPHRD_ETHER) return refuse(Errc::unavailable, port, "is not an Ethernet interface");
  if ((flags & IFF_UP) == 0) return refuse(Errc::unavailable, port, "the interface is down: `ip link set " + name + " up`");
  if (mtu < kMtuMin) {
    return refuse(Errc::unavailable, port, "its MTU is " + std::to_string(mtu) + ", too small: `ip link set " + name + " mtu 1500`");
  }
  if (wanted_mtu > mtu) {
    const std::string wanted = std::to_string(wanted_mtu);
    return refuse(Errc::invalid_argument, port, "mtu=" + wanted + " is more than the interface's " + std::to_string(mtu) +
                                                    ": `ip link set " + name + " mtu " + wanted + "`");
  }
  DriverCapabilities capabilities{.mtu = wanted_mtu != 0 ? wanted_mtu : mtu < kMtuMax ? mtu : kMtuMax};
  std::memcpy(capabilities.address.data(), request.ifr_hwaddr.sa_data, capabilities.address.size());
  return capabilities;
}

uint32_t receive_queues(const std::string& name) noexcept {
  const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ethtool_channels channels{};
  channels.cmd = ETHTOOL_GCHANNELS;
  ifreq request{};
  name.copy(request.ifr_name, sizeof request.ifr_name - 1);
  request.ifr_data = reinterpret_cast<char*>(&channels);
  return ioctl(socket.get(), SIOCETHTOOL, &request) == 0 ? channels.rx_count + channels.combined_count : 0;
}

bool has_carrier(int socket, const std::string& name) noexcept {
  ifreq request{};
  name.copy(request.ifr_name, sizeof request.ifr_name - 1);
  return ioctl(socket, SIOCGIFFLAGS, &request) != 0 || (request.ifr_flags & IFF_RUNNING) != 0;
}

}  // namespace unet::drivers
