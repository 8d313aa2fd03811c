// packet_ring_test.cc - a ring on the loopback interface of a network namespace: sent frames arrive in order, frames without a slot are
// dropped. Needs root; without it, it tests nothing.
#include "drivers/packet/packet_ring.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

using namespace unet;
using namespace unet::drivers;

namespace {

constexpr uint32_t kHeaders = 14 + 20 + 8;  // Ethernet, IPv4, UDP
constexpr int kIgnoreOutgoing = 23;

// Each test case uses its own network namespace.
bool may_make_networks() { return ::geteuid() == 0 && ::unshare(CLONE_NEWNET) == 0; }

class Loopback {
 public:
  Loopback() {
    sender = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ifreq request{};
    std::strcpy(request.ifr_name, "lo");
    request.ifr_flags = IFF_UP;
    REQUIRE(::ioctl(sender, SIOCSIFFLAGS, &request) == 0);
    socket = ::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int yes = 1;
    REQUIRE(::setsockopt(socket, SOL_PACKET, PACKET_VNET_HDR, &yes, sizeof yes) == 0);
    REQUIRE(::setsockopt(socket, SOL_PACKET, kIgnoreOutgoing, &yes, sizeof yes) == 0);
  }
  Loopback(const Loopback&) = delete;
  Loopback& operator=(const Loopback&) = delete;
  ~Loopback() {
    ::close(sender);
    ::close(socket);
  }
  void bind() const {
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_IP);
    address.sll_ifindex = static_cast<int>(if_nametoindex("lo"));
    REQUIRE(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }
  // Sends to a port without a receiver. The ICMP answer is IP, too, so the ring receives it as well.
  void send(size_t bytes, uint8_t mark) const {
    const std::vector<uint8_t> payload(bytes, mark);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(9);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    static_cast<void>(::sendto(sender, payload.data(), bytes, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to));
  }
  uint32_t drops() const {
    tpacket_stats kernel{};
    socklen_t length = sizeof kernel;
    REQUIRE(::getsockopt(socket, SOL_PACKET, PACKET_STATISTICS, &kernel, &length) == 0);
    return kernel.tp_drops;
  }

  int sender = -1, socket = -1;
};

// Waits a while: frames may arrive a moment after they were sent.
bool comes(const PacketRing& ring) {
  for (int tries = 0; tries < 1000 && !ring.has_frame(); ++tries) ::usleep(1000);
  return ring.has_frame();
}

bool is_datagram(const PacketRing::Arrival& arrival) {
  return arrival.data != nullptr && arrival.length >= kHeaders && arrival.data[14 + 9] == std::byte{17};
}

// Returns the next datagram, and gives other frames back.
PacketRing::Arrival next_datagram(PacketRing& ring) {
  while (ring.has_frame()) {
    const PacketRing::Arrival arrival = ring.take();
    if (is_datagram(arrival)) return arrival;
    PacketRing::give_back(arrival.slot);
  }
  return {};
}

TEST_CASE("frames are in the ring as they came, many times around it") {
  if (!may_make_networks()) return;
  const Loopback loopback;
  auto ring = PacketRing::map(loopback.socket, {.slot_bytes = 2048, .slots = 16, .per_block = 8});
  REQUIRE(ring);
  loopback.bind();
  CHECK(!ring->has_frame());
  for (uint32_t i = 0; i < 200; ++i) {
    const size_t bytes = i * 7 % 1500;
    loopback.send(bytes, static_cast<uint8_t>(i));
    REQUIRE(comes(*ring));
    CHECK(ring->came() != 0);
    const PacketRing::Arrival arrival = next_datagram(*ring);
    REQUIRE(arrival.data != nullptr);
    CHECK((arrival.length == kHeaders + bytes && !arrival.cut));
    if (bytes != 0) CHECK((arrival.data[kHeaders] == std::byte(i) && arrival.data[arrival.length - 1] == std::byte(i)));
    PacketRing::give_back(arrival.slot);
    next_datagram(*ring);
  }
  CHECK(loopback.drops() == 0);
}

TEST_CASE("what has no slot is dropped and counted, and slots come back in any order") {
  if (!may_make_networks()) return;
  const Loopback loopback;
  auto ring = PacketRing::map(loopback.socket, {.slot_bytes = 2048, .slots = 8, .per_block = 2});
  REQUIRE(ring);
  loopback.bind();
  for (uint32_t i = 0; i < 20; ++i) loopback.send(10, static_cast<uint8_t>(i));
  std::vector<PacketRing::Arrival> all;
  while (ring->has_frame()) all.push_back(ring->take());
  CHECK(all.size() == 8);
  CHECK(loopback.drops() >= 12);
  loopback.send(10, 99);
  CHECK(!ring->has_frame());  // no slot has been given back
  for (size_t i = all.size(); i-- > 0;) PacketRing::give_back(all[i].slot);
  CHECK(!ring->has_frame());
  loopback.send(10, 100);
  const PacketRing::Arrival arrival = next_datagram(*ring);
  REQUIRE(arrival.data != nullptr);
  CHECK(arrival.data[kHeaders] == std::byte{100});
}

TEST_CASE("a frame that is longer than a slot is said to be cut; who waits for the socket wakes") {
  if (!may_make_networks()) return;
  const Loopback loopback;
  auto ring = PacketRing::map(loopback.socket, {.slot_bytes = 4096, .slots = 8, .per_block = 1});
  REQUIRE(ring);
  loopback.bind();
  pollfd waits{.fd = loopback.socket, .events = POLLIN, .revents = 0};
  CHECK(::poll(&waits, 1, 0) == 0);
  loopback.send(9000, 1);
  CHECK(::poll(&waits, 1, 1000) == 1);
  const PacketRing::Arrival arrival = next_datagram(*ring);
  CHECK((arrival.data != nullptr && arrival.cut && arrival.length < 4096));
}

TEST_CASE("a slot that says what cannot be has no frame") {
  if (!may_make_networks()) return;
  const Loopback loopback;
  auto ring = PacketRing::map(loopback.socket, {.slot_bytes = 2048, .slots = 8, .per_block = 2});
  REQUIRE(ring);
  loopback.bind();
  for (const auto& [at, length] : {std::pair(2040u, 100u), std::pair(100u, 2000u), std::pair(3000u, 1u), std::pair(0xFFFFu, 10u),
                                   std::pair(1u, 10u), std::pair(100u, ~0u)}) {
    loopback.send(10, 1);
    REQUIRE(comes(*ring));
    // The ring's memory is shared, so the test can write what the kernel writes.
    PacketRing::Arrival arrival = ring->take();
    auto* const head = static_cast<tpacket2_hdr*>(arrival.slot);
    head->tp_mac = static_cast<uint16_t>(at);
    head->tp_snaplen = length;
    arrival = PacketRing::read(arrival.slot, 2048);
    CHECK(arrival.data == nullptr);
    PacketRing::give_back(arrival.slot);
    while (ring->has_frame()) PacketRing::give_back(ring->take().slot);
  }
}

TEST_CASE("a ring that the kernel refuses is none") {
  CHECK(!PacketRing::map(-1, {.slot_bytes = 2048, .slots = 8, .per_block = 2}));
  if (!may_make_networks()) return;
  const Loopback loopback;
  CHECK(!PacketRing::map(loopback.socket, {.slot_bytes = 2047, .slots = 8, .per_block = 2}));
}

}  // namespace
