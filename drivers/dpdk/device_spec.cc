// device_spec.cc - parses and checks DPDK device strings.
#include "drivers/dpdk/device_spec.h"

#include <linux/capability.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cerrno>
#include <cstring>

#include "unet/wire/ethernet.h"

namespace unet::drivers {

namespace {

constexpr std::string_view kDevices =
    "net_memif0,role=server|client,socket=NAME; net_af_xdp0,iface=IF; net_af_packet0,iface=IF; net_tap0,iface=IF; "
    "net_ring0; virtio_user0,path=PATH; net_vhost0,iface=PATH; any other DPDK virtual device; or a PCI address such as 0000:03:00.0";

bool is_pci_address(std::string_view text) {
  // Format: [dddd:]bb:dd.f in hexadecimal digits.
  if (text.size() == 7) text = text.substr(0, 7);
  else if (text.size() == 12 && text[4] == ':') text = text.substr(5);
  else return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char expected = i == 2 ? ':' : i == 5 ? '.' : 'h';
    if (expected == 'h' ? std::isxdigit(static_cast<unsigned char>(text[i])) == 0 : text[i] != expected) return false;
  }
  return true;
}

bool has_capability(int number) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (syscall(SYS_capget, &header, data) != 0) return true;  // unknown: let the kernel decide
  return (data[number / 32].effective >> (number % 32) & 1) != 0;
}

Status need_capability(const DeviceSpec& device, int number, const char* name) {
  if (has_capability(number)) return {};
  return fail(Errc::not_permitted, "dpdk:" + device.name + " needs " + name + ": run as root, or give the program the capability " +
                                       "(`setcap " + name + "+ep PROGRAM`), or use a wire that needs no rights (net_memif)");
}

Status find_interface(const DeviceSpec& device, const std::string& name, InterfaceState& interface) {
  if (name.empty() || name.size() >= IFNAMSIZ) {
    return fail(Errc::invalid_argument, "dpdk:" + device.name + ": iface=" + name + " is not an interface name: 1 to 15 characters");
  }
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return fail_errno("socket", errno);
  ifreq request{};
  std::memcpy(request.ifr_name, name.data(), name.size());
  bool found = ioctl(fd, SIOCGIFINDEX, &request) == 0;
  interface.index = static_cast<uint32_t>(request.ifr_ifindex);
  found = found && ioctl(fd, SIOCGIFMTU, &request) == 0;
  interface.mtu = static_cast<uint32_t>(request.ifr_mtu);
  found = found && ioctl(fd, SIOCGIFFLAGS, &request) == 0;
  interface.up = (request.ifr_flags & IFF_UP) != 0;
  interface.running = (request.ifr_flags & IFF_RUNNING) != 0;
  ethtool_drvinfo driver{};
  driver.cmd = ETHTOOL_GDRVINFO;
  request.ifr_data = reinterpret_cast<char*>(&driver);
  interface.veth = ioctl(fd, SIOCETHTOOL, &request) == 0 && std::strcmp(driver.driver, "veth") == 0;
  close(fd);
  if (!found) {
    return fail(Errc::not_found, "dpdk:" + device.name + ": there is no network interface '" + name +
                                     "' in this network namespace: `ip link` lists those there are");
  }
  return {};
}

// Checks a port over an existing interface of the kernel.
Status check_interface(const DeviceSpec& device, InterfaceState& interface) {
  const std::string* name = device.find("iface");
  if (name == nullptr) {
    return fail(Errc::invalid_argument, "dpdk:" + device.name + " needs iface=INTERFACE, for example dpdk:" + device.name + ",iface=eth1");
  }
  if (Status status = find_interface(device, *name, interface); !status) return status;
  if (!interface.up) {
    return fail(Errc::unavailable, "dpdk:" + device.name + ": the interface " + *name + " is down: `ip link set " + *name + " up`");
  }
  return {};
}

// Some DPDK drivers ignore all options when they do not know one of them.
Status check_keys(const DeviceSpec& device) {
  struct Known {
    std::string_view driver;
    std::string_view keys;
  };
  constexpr Known kKnown[] = {
      {"net_memif", " role socket id socket-abstract zero-copy rsize bsize mac secret "},
      {"net_af_packet", " iface qpairs blocksz framesz framecnt qdisc_bypass "},
      {"net_af_xdp", " iface start_queue queue_count shared_umem xdp_prog busy_budget force_copy "},
      {"net_tap", " iface remote mac persist "},
      {"net_ring", " nodeaction "},
  };
  for (const Known& known : kKnown) {
    if (known.driver != device.driver) continue;
    for (const auto& [key, value] : device.keys) {
      if (known.keys.find(" " + key + " ") == std::string_view::npos) {
        return fail(Errc::invalid_argument, "dpdk:" + device.name + ": '" + key + "' is not an option of " + device.driver + "; allowed:" +
                                                std::string(known.keys.substr(0, known.keys.size() - 1)));
      }
    }
  }
  return {};
}

bool is_number(const std::string& text, unsigned long low, unsigned long high) {
  if (text.empty() || text.size() > 9 ||
      !std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; }))
    return false;
  const unsigned long value = std::stoul(text);
  return value >= low && value <= high;
}

constexpr const char* kMemifSocket = "/run/memif.sock";

Status check_memif(const DeviceSpec& device) {
  const auto refuse = [&](const std::string& what) { return fail(Errc::invalid_argument, "dpdk:" + device.name + ": " + what); };
  if (const std::string* rings = device.find("rsize"); rings != nullptr && !is_number(*rings, 1, 14)) {
    return refuse("rsize=" + *rings + ": allowed are 1 to 14 (the ring has 2 to that power slots)");
  }
  if (const std::string* size = device.find("bsize"); size != nullptr && !is_number(*size, 256, 65535)) {
    return refuse("bsize=" + *size + ": allowed are 256 to 65535 bytes");
  }
  if (const std::string* id = device.find("id"); id != nullptr && !is_number(*id, 0, 999'999'999)) {
    return refuse("id=" + *id + ": allowed are 0 to 999999999");
  }
  if (const std::string* mac = device.find("mac"); mac != nullptr && !parse_mac(*mac)) {
    return refuse("mac=" + *mac + ": an address looks like 02:00:00:00:00:01");
  }
  if (const std::string* value = device.find("zero-copy"); value != nullptr && *value != "yes" && *value != "no") {
    return refuse("zero-copy=" + *value + ": allowed are yes and no");
  }
  if (const std::string* value = device.find("socket-abstract"); value != nullptr && *value != "no") {
    return refuse("socket-abstract=" + *value + ": every local user can connect to an abstract socket, and a memif server trusts its " +
                  "client; name a file in a directory that only you can write to: socket=/PATH");
  }
  const std::string* role = device.find("role");
  if (role == nullptr || (*role != "server" && *role != "client")) {
    return fail(Errc::invalid_argument, "dpdk:" + device.name + " needs role=server or role=client: one of the two parties each");
  }
  const std::string* zero_copy = device.find("zero-copy");
  if (zero_copy != nullptr && *zero_copy == "yes" && *role == "server") {
    return fail(Errc::invalid_argument,
                "dpdk:" + device.name +
                    ": zero-copy=yes is for role=client (the server copies out of and into the client's memory)");
  }
  const std::string* given = device.find("socket");
  const std::string socket = given != nullptr ? *given : kMemifSocket;
  if (socket.empty() || socket.size() > 100) return refuse("socket= wants a name of 1 to 100 characters");
  if (socket[0] != '/') return refuse("socket=" + socket + ": the absolute path of a file is wanted, such as /run/unet/memif");
  const std::string directory = socket.substr(0, socket.rfind('/') + 1);
  if (access(directory.c_str(), *role == "server" ? W_OK | X_OK : X_OK) != 0) {
    return fail(Errc::unavailable, "dpdk:" + device.name + ": socket=" + socket + ": no access to " + directory +
                                       ": make the directory, or choose another");
  }
  return {};
}

}  // namespace

const std::string* DeviceSpec::find(std::string_view key) const {
  for (const auto& [name, value] : keys) {
    if (name == key) return &value;
  }
  return nullptr;
}

void DeviceSpec::set_default(std::string_view key, std::string value) {
  if (find(key) == nullptr) keys.emplace_back(key, std::move(value));
}

std::string DeviceSpec::arguments() const {
  std::string text;
  for (const auto& [name, value] : keys) {
    if (!text.empty()) text += ',';
    text += name;
    if (!value.empty()) text += '=' + value;
  }
  return text;
}

Result<DeviceSpec> parse_device(std::string_view text) {
  DeviceSpec device;
  for (size_t start = 0; start <= text.size();) {
    const size_t comma = std::min(text.find(',', start), text.size());
    const std::string_view word = text.substr(start, comma - start);
    if (start == 0) {
      device.name = word;
    } else if (const size_t equals = word.find('='); equals == 0 || word.empty()) {
      return fail(Errc::invalid_argument,
                  "dpdk:" + std::string(text) + ": an option has no name: options are key=value, separated by commas");
    } else {
      const std::string_view key = word.substr(0, equals);
      if (device.find(key) != nullptr) {
        return fail(Errc::invalid_argument, "dpdk:" + device.name + ": " + std::string(key) + "= stands there twice");
      }
      device.keys.emplace_back(key, equals == std::string_view::npos ? "" : word.substr(equals + 1));
    }
    start = comma + 1;
  }
  if (is_pci_address(device.name)) {
    device.driver = "pci";
    if (device.name.size() == 7) device.name = "0000:" + device.name;
    return device;
  }
  size_t end = device.name.size();
  while (end > 0 && std::isdigit(static_cast<unsigned char>(device.name[end - 1])) != 0) --end;
  device.driver = device.name.substr(0, end);
  const bool known_family = device.driver.starts_with("net_") || device.driver.starts_with("eth_") || device.driver == "virtio_user";
  if (!known_family || end == device.name.size() || device.name.size() > 40) {
    return fail(Errc::invalid_argument, "dpdk:" + device.name + " is not a DPDK port; allowed: " + std::string(kDevices) +
                                            " (the number tells ports of one process apart)");
  }
  return device;
}

namespace {

// The kernel lets a second program open a DPDK tap, and splits the frames between the two. A tap that exists but that no program has opened
// is not "running".
Status check_tap(const DeviceSpec& device) {
  InterfaceState tap;
  const std::string* name = device.find("iface");
  if (name == nullptr || if_nametoindex(name->c_str()) == 0) return {};
  if (Status status = find_interface(device, *name, tap); !status) return status;
  if (!tap.running) return {};
  return fail(Errc::already_exists, "dpdk:" + device.name + ": another program has the interface " + *name + ": choose another iface=");
}

// DPDK accepts both names.
bool is_virtio_user(const DeviceSpec& device) { return device.driver == "virtio_user" || device.driver == "net_virtio_user"; }

}  // namespace

Status check_device(const DeviceSpec& device, InterfaceState& interface) {
  const std::string& driver = device.driver;
  if (Status status = check_keys(device); !status) return status;
  if (driver == "net_memif") return check_memif(device);
  if (driver == "net_af_packet") {
    if (Status status = check_interface(device, interface); !status) return status;
    return need_capability(device, CAP_NET_RAW, "cap_net_raw");
  }
  if (driver == "net_af_xdp") {
    if (Status status = check_interface(device, interface); !status) return status;
    if (Status status = need_capability(device, CAP_NET_ADMIN, "cap_net_admin"); !status) return status;
    return need_capability(device, CAP_NET_RAW, "cap_net_raw");
  }
  if (driver == "net_tap") {
    struct stat status{};
    if (stat("/dev/net/tun", &status) != 0) {
      return fail(Errc::unavailable, "dpdk:" + device.name + ": this machine has no /dev/net/tun: `modprobe tun`");
    }
    if (Status status = need_capability(device, CAP_NET_ADMIN, "cap_net_admin"); !status) return status;
    return check_tap(device);
  }
  if (driver == "virtio_user" && device.find("path") == nullptr) {
    return fail(Errc::invalid_argument, "dpdk:" + device.name + " needs path=SOCKET of the vhost-user side (or path=/dev/vhost-net)");
  }
  if (device.pci()) {
    struct stat status{};
    if (stat(("/sys/bus/pci/devices/" + device.name).c_str(), &status) != 0) {
      return fail(
          Errc::not_found,
          "dpdk:" + device.name + ": this machine has no PCI device at that address: `lspci -D` lists those there are");
    }
  }
  return {};
}

std::string_view queues_key(const DeviceSpec& device) {
  if (device.driver == "net_af_packet") return "qpairs";
  if (device.driver == "net_af_xdp") return "queue_count";
  if (is_virtio_user(device) || device.driver == "net_vhost") return "queues";
  return {};
}

Status complete(DeviceSpec& device, const InterfaceState& interface, uint32_t mtu, uint32_t queues) {
  const uint32_t frame = mtu + 14 + 4;
  const std::string_view key = queues_key(device);
  // The kernel distributes arriving frames over all sockets of net_af_packet. DPDK opens them all, and frames on extra sockets would never
  // be read.
  const std::string* const sockets = device.driver == "net_af_packet" ? device.find(key) : nullptr;
  if (sockets != nullptr && *sockets != std::to_string(queues)) {
    return fail(Errc::invalid_argument, "dpdk:" + device.name + ": qpairs=" + *sockets + " for " + std::to_string(queues) +
                                            (queues == 1 ? " queue" : " queues") +
                                            ": what arrives at one without the other would be lost; say queues=N alone");
  }
  if (queues > 1 && !key.empty()) {
    device.set_default(key, std::to_string(queues));
    if (is_virtio_user(device)) device.set_default("cq", "1");  // DPDK wants it for more than one
  }
  if (device.driver == "net_memif") {
    device.set_default("bsize", std::to_string((frame + 63) / 64 * 64));
    device.set_default("rsize", "10");
    device.set_default("socket", kMemifSocket);
    device.set_default("socket-abstract", "no");
    // DPDK 22.11 never clears a slot's mark "continued in the next slot", so no frame may need two.
    if (std::stoul(*device.find("bsize")) < frame) {
      return fail(Errc::invalid_argument, "dpdk:" + device.name + ": bsize=" + *device.find("bsize") + " is too small for an MTU of " +
                                              std::to_string(mtu) + ": at least " + std::to_string(frame));
    }
  } else if (device.driver == "net_af_xdp") {
    if (interface.veth) device.set_default("busy_budget", "0");
  } else if (device.driver == "net_af_packet") {
    device.set_default("qdisc_bypass", "1");
    // TPACKET_V2 puts up to 66 bytes of header and alignment before a frame.
    const uint32_t slot = std::bit_ceil(std::max(frame + 128, 2048u));
    if (device.find("framesz") == nullptr && device.find("blocksz") == nullptr) {
      device.set_default("framesz", std::to_string(slot));
      device.set_default("blocksz", std::to_string(std::max(slot, 4096u)));
    }
  }
  return {};
}

}  // namespace unet::drivers
