// netns.cc - namespaces and veth pairs, through iproute2's `ip` and ethtool's ioctl.
#include "apps/bench/machine/netns.h"

#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "apps/bench/machine/command.h"
#include "apps/bench/machine/stale_names.h"

namespace unet::bench {

namespace {

constexpr const char* kNamespaceDirectory = "/var/run/netns";
constexpr int kVethsMax = 200;

Status ip(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "ip");
  auto done = run_command(arguments);
  if (!done) return tl::unexpected(done.error());
  return {};
}

void remove_namespace(const std::string& name) {
  // Best effort: the next start tries again.
  (void)ip({"netns", "delete", name});
}

struct SocketFd {
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ~SocketFd() {
    if (fd >= 0) close(fd);
  }
};

bool ethtool_request(int fd, const std::string& interface, uint32_t command, uint32_t& value, bool set) {
  ethtool_value request{};
  request.cmd = command;
  request.data = value;
  ifreq name{};
  std::strncpy(name.ifr_name, interface.c_str(), IFNAMSIZ - 1);
  name.ifr_data = reinterpret_cast<char*>(&request);
  if (ioctl(fd, SIOCETHTOOL, &name) != 0) return false;
  if (!set) value = request.data;
  return true;
}

// One end of a cable: address, MTU, up, offloads, and the peer's hardware address.
Status configure_end(const std::string& name, const std::string& interface, const std::string& address,
                     const std::string& peer, const std::string& peer_mac, const VethOptions& options) {
  const std::string mtu = std::to_string(options.mtu);
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"-n", name, "link", "set", interface, "mtu", mtu, "up"},
           {"-n", name, "address", "add", address + "/24", "dev", interface},
           {"-n", name, "neighbour", "replace", peer, "lladdr", peer_mac, "dev", interface, "nud", "permanent"}}) {
    if (auto done = ip(arguments); !done) return done;
  }
  if (options.offloads) return {};
  auto scope = NamespaceScope::enter(name);
  if (!scope) return tl::unexpected(scope.error());
  const SocketFd socket_fd;
  for (uint32_t command : {ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO, ETHTOOL_STXCSUM}) {
    uint32_t off = 0;
    ethtool_request(socket_fd.fd, interface, command, off, true);  // those an interface does not have are off anyway
  }
  return {};
}

std::string mac_of(int cable, int end) {
  // Locally administered (02), so that no real card's address is taken.
  char text[18];
  std::snprintf(text, sizeof(text), "02:75:6e:%02x:00:%02x", static_cast<unsigned>(cable) & 0xff,
                static_cast<unsigned>(end) & 0xff);
  return text;
}

}  // namespace

pid_t owner_of_namespace(const std::string& name, const std::string& prefix) {
  const size_t start = prefix.size() + 1;
  if (name.size() < start + 3 || name.compare(0, start, prefix + "-") != 0) return 0;
  const std::string_view suffix = std::string_view(name).substr(name.size() - 2);
  if (suffix != "-a" && suffix != "-b") return 0;
  pid_t pid = 0;
  const char* end = name.data() + name.size() - 2;
  const auto [rest, error] = std::from_chars(name.data() + start, end, pid);
  return error == std::errc{} && rest == end && pid > 0 ? pid : 0;
}

int remove_stale_namespaces(const std::string& prefix) {
  const std::vector<std::string> stale =
      stale_names(kNamespaceDirectory, [&](const std::string& name) { return owner_of_namespace(name, prefix); });
  for (const std::string& name : stale) remove_namespace(name);
  return static_cast<int>(stale.size());
}

NamespacePair::NamespacePair(std::string name_a, std::string name_b)
    : name_a_(std::move(name_a)), name_b_(std::move(name_b)), owner_(getpid()) {}

NamespacePair::NamespacePair(NamespacePair&& other) noexcept
    : name_a_(std::move(other.name_a_)), name_b_(std::move(other.name_b_)), owner_(other.owner_), veths_(other.veths_) {
  other.owner_ = 0;
}

NamespacePair::~NamespacePair() {
  if (owner_ != getpid()) return;
  remove_namespace(name_a_);
  remove_namespace(name_b_);
}

Result<NamespacePair> NamespacePair::create(const std::string& prefix) {
  if (geteuid() != 0) {
    return fail(Errc::unavailable, "network namespaces need root; run with sudo to include them");
  }
  remove_stale_namespaces(prefix);
  const std::string stem = prefix + "-" + std::to_string(getpid());
  NamespacePair pair(stem + "-a", stem + "-b");
  for (const std::string& name : {pair.name_a_, pair.name_b_}) {
    if (auto made = ip({"netns", "add", name}); !made) return tl::unexpected(made.error());
    if (auto up = ip({"-n", name, "link", "set", "lo", "up"}); !up) return tl::unexpected(up.error());
  }
  return pair;
}

Result<Veth> NamespacePair::add_veth(const VethOptions& options) {
  if (veths_ >= kVethsMax) return fail(Errc::quota_exceeded, "no more than 200 veth pairs between two namespaces");
  const int n = veths_++;
  const std::string subnet = "10.85." + std::to_string(n) + ".";  // never seen outside the two namespaces
  Veth veth{"veth" + std::to_string(n) + "a", "veth" + std::to_string(n) + "b", subnet + "1", subnet + "2",
            mac_of(n, 1), mac_of(n, 2), options.mtu};
  auto made = ip({"-n", name_a_, "link", "add", veth.interface_a, "address", veth.mac_a, "type", "veth", "peer", "name",
                  veth.interface_b, "address", veth.mac_b, "netns", name_b_});
  if (!made) return tl::unexpected(made.error());
  auto a = configure_end(name_a_, veth.interface_a, veth.address_a, veth.address_b, veth.mac_b, options);
  if (!a) return tl::unexpected(a.error());
  auto b = configure_end(name_b_, veth.interface_b, veth.address_b, veth.address_a, veth.mac_a, options);
  if (!b) return tl::unexpected(b.error());
  return veth;
}

Result<VethWithMiddle> NamespacePair::add_veth_with_middle() {
  auto veth = add_veth({});
  if (!veth) return tl::unexpected(veth.error());
  // Side B's former end becomes the middle. Side B gets an end of another pair, with the addresses of the first.
  VethWithMiddle whole{*veth, veth->interface_b, veth->interface_b + "m"};
  whole.cable.interface_b += "h";
  const std::string mtu = std::to_string(veth->mtu);
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"-n", name_b_, "address", "flush", "dev", whole.middle_a},
           {"-n", name_b_, "neighbour", "flush", "dev", whole.middle_a, "nud", "permanent"},
           {"-n", name_b_, "link", "set", whole.middle_a, "address", mac_of(veths_ - 1, 3)},
           {"-n", name_b_, "link", "add", whole.middle_b, "mtu", mtu, "type", "veth", "peer", "name", whole.cable.interface_b, "address",
            veth->mac_b},
           {"-n", name_b_, "link", "set", whole.middle_b, "up"}}) {
    if (auto done = ip(arguments); !done) return tl::unexpected(done.error());
  }
  auto configured = configure_end(name_b_, whole.cable.interface_b, veth->address_b, veth->address_a, veth->mac_a, {});
  if (!configured) return tl::unexpected(configured.error());
  for (const auto& [name, interface] : {std::pair(name_a_, whole.cable.interface_a), std::pair(name_b_, whole.cable.interface_b)}) {
    if (auto done = ip({"-n", name, "link", "set", interface, "gso_max_segs", "1"}); !done) return tl::unexpected(done.error());
  }
  return whole;
}

Result<NamespaceScope> NamespaceScope::enter(const std::string& name) {
  const int previous = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  if (previous < 0) return fail_errno("open(/proc/thread-self/ns/net)", errno);
  const std::string path = std::string(kNamespaceDirectory) + "/" + name;
  const int target = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const int entered = target < 0 ? -1 : setns(target, CLONE_NEWNET);
  const int error = errno;
  if (target >= 0) close(target);
  if (entered != 0) {
    close(previous);
    return fail_errno("entering network namespace " + name, error);
  }
  return NamespaceScope(previous);
}

NamespaceScope::NamespaceScope(NamespaceScope&& other) noexcept : previous_(other.previous_) { other.previous_ = -1; }

NamespaceScope::~NamespaceScope() {
  if (previous_ < 0) return;
  // Staying in the wrong namespace would send later traffic astray: there is no going on.
  if (setns(previous_, CLONE_NEWNET) != 0) abort();
  close(previous_);
}

std::string offloads_of(const std::string& interface) {
  constexpr std::pair<uint32_t, const char*> kOffloads[] = {
      {ETHTOOL_GTSO, "tso"}, {ETHTOOL_GGSO, "gso"}, {ETHTOOL_GGRO, "gro"}, {ETHTOOL_GTXCSUM, "tx-checksum"}};
  const SocketFd socket_fd;
  std::string on;
  for (const auto& [command, name] : kOffloads) {
    uint32_t value = 0;
    if (ethtool_request(socket_fd.fd, interface, command, value, false) && value != 0) on += (on.empty() ? "" : " ") + std::string(name);
  }
  return on.empty() ? "none" : on;
}

}  // namespace unet::bench
