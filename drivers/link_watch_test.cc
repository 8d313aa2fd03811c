// link_watch_test.cc - rtnetlink messages: the meaning of each, false lengths, and messages about other interfaces.
#include "drivers/link_watch.h"

#include <linux/if.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <random>

using namespace unet;
using namespace unet::drivers;

namespace {

constexpr MacAddress kStation{2, 0, 0, 0, 0, 1};
constexpr unsigned kLower = 0x10000;  // IFF_LOWER_UP
const LinkWatchOptions kOptions{.port = "wire", .interface = "eth0", .station = kStation, .mtu = 1500};

struct Told {
  int index = 7;
  const char* name = "eth0";
  uint32_t mtu = 1500;
  unsigned flags = IFF_UP | kLower;
  MacAddress address = kStation;
  uint8_t family = AF_UNSPEC;
  uint16_t type = RTM_NEWLINK;
};

template <typename T>
void append(std::vector<std::byte>& to, const T& value) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(&value);
  to.insert(to.end(), bytes, bytes + sizeof value);
}

void append_attribute(std::vector<std::byte>& to, uint16_t type, const void* value, size_t size) {
  append(to, rtattr{.rta_len = static_cast<uint16_t>(sizeof(rtattr) + size), .rta_type = type});
  const auto* const bytes = static_cast<const std::byte*>(value);
  to.insert(to.end(), bytes, bytes + size);
  to.resize((to.size() + 3) / 4 * 4);
}

std::vector<std::byte> message(const Told& told) {
  std::vector<std::byte> all;
  append(all, nlmsghdr{.nlmsg_len = 0, .nlmsg_type = told.type, .nlmsg_flags = 0, .nlmsg_seq = 0, .nlmsg_pid = 0});
  ifinfomsg info{};
  info.ifi_family = told.family;
  info.ifi_index = told.index;
  info.ifi_flags = told.flags;
  append(all, info);
  append_attribute(all, IFLA_IFNAME, told.name, std::strlen(told.name) + 1);
  append_attribute(all, IFLA_MTU, &told.mtu, sizeof told.mtu);
  append_attribute(all, IFLA_ADDRESS, told.address.data(), told.address.size());
  const auto length = static_cast<uint32_t>(all.size());
  std::memcpy(all.data(), &length, sizeof length);
  return all;
}

struct Watch {
  LinkWatch link{kOptions};
  Watch() { CHECK(tell({}).empty()); }
  std::string tell(const Told& told) { return read(message(told)); }
  std::string read(std::span<const std::byte> bytes) {
    link.read(bytes);
    std::string all;
    for (const std::string& line : link.take_lines()) all += line + "\n";
    return all;
  }
};

using Catch::Matchers::Contains;

TEST_CASE("an interface changes, goes and comes back") {
  Watch w;
  CHECK((w.link.is_up() && w.link.has_carrier() && w.link.index() == 7 && w.link.mtu_of(1500) == 1500));
  CHECK_THAT(w.tell({.mtu = 1000}), Contains("MTU of 1000"));
  CHECK(w.link.mtu_of(1500) == 1000);
  CHECK(w.link.mtu_of(1496) == 996);  // a wrapper uses four bytes
  CHECK_THAT(w.tell({.mtu = 9000}), Contains("made for 1500"));
  CHECK(w.link.mtu_of(1500) == 1500);
  CHECK_THAT(w.tell({.mtu = 1500, .flags = IFF_UP}), Contains("lost its carrier"));
  CHECK((w.link.is_up() && !w.link.has_carrier()));
  CHECK_THAT(w.tell({.flags = 0}), Contains("is down"));
  CHECK_FALSE(w.link.is_up());
  CHECK_THAT(w.tell({}), Contains("is up"));
  CHECK_THAT(w.tell({.name = "eth1"}), Contains("now called eth1"));
  const uint32_t changes = w.link.changes();
  CHECK_THAT(w.tell({.name = "eth1", .type = RTM_DELLINK}), Contains("is gone"));
  CHECK((w.link.index() == 0 && !w.link.is_up() && w.link.changes() != changes));
  CHECK(w.tell({.index = 8, .name = "eth2"}).empty());
  CHECK(w.link.index() == 0);
  CHECK_THAT(w.tell({.index = 9, .address = {2, 0, 0, 0, 0, 9}}), Contains("is back") && Contains("the port keeps 02:00:00:00:00:01"));
  CHECK((w.link.index() == 9 && w.link.is_up()));
}

TEST_CASE("what is said of others, or again, changes nothing") {
  Watch w;
  const uint32_t changes = w.link.changes();
  CHECK(w.tell({}).empty());
  CHECK(w.tell({.index = 8, .name = "eth0", .mtu = 100}).empty());
  CHECK(w.tell({.index = 8, .type = RTM_DELLINK}).empty());
  CHECK(w.tell({.family = AF_BRIDGE, .type = RTM_DELLINK}).empty());
  CHECK(w.link.changes() == changes);
}

TEST_CASE("lengths that lie are not believed") {
  const std::vector<std::byte> whole = message({.mtu = 1000});
  for (size_t length = 0; length < whole.size(); ++length) {
    Watch w;
    // Each part has its own allocation, so that a sanitizer sees reads behind its end.
    const std::vector<std::byte> part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
    CHECK(w.read(part).empty());
    CHECK(w.link.mtu_of(1500) == 1500);
  }
  std::mt19937 random(1);
  for (int round = 0; round < 100'000; ++round) {
    LinkWatch link(kOptions);
    std::vector<std::byte> bytes = message({.mtu = 1000});
    for (int i = 0; i < 4; ++i) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    link.read(bytes);
    CHECK((link.mtu_of(1500) <= 1500 && link.take_lines().size() < 8));
  }
}

}  // namespace
