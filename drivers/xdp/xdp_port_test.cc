// xdp_port_test.cc - two ports on a veth pair in a network namespace: frames of all lengths and in pieces, frames that the kernel gets, an
// interface that goes down, refusals, and what is left behind. Needs root and `ip`; without them it tests nothing.
#include "drivers/xdp/xdp_port.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "unet/wire/frame.h"

using namespace unet;
using namespace unet::drivers;

namespace {

constexpr uint16_t kOther = 0x88B6;

bool run(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

// A veth pair in a namespace of its own.
struct Cable {
  explicit Cable(uint32_t mtu = 1500) {
    const std::string size = " mtu " + std::to_string(mtu);
    exists = ::geteuid() == 0 && ::unshare(CLONE_NEWNET) == 0 && run("ip link add x0" + size + " type veth peer name x1" + size) &&
             run("ip link set x0 up") && run("ip link set x1 up");
  }
  bool exists = false;
};

std::unique_ptr<XdpPort> open_port(const std::string& interface, bool all_types = false) {
  auto port = XdpPort::open({.interface = interface, .all_types = all_types});
  if (!port) FAIL(port.error().text);
  return std::move(*port);
}

std::string refusal(const XdpOptions& options) {
  auto port = XdpPort::open(options);
  return port ? "" : port.error().text;
}

// Sends a frame of `length` bytes that begin with the header and go on with `mark`.
bool send(XdpPort& from, const MacAddress& to, uint32_t length, uint8_t mark, uint16_t type = kEtherType) {
  std::array<TransmitFrame, 1> frames;
  if (from.allocate(frames) != 1) return false;
  std::memset(frames[0].data, mark, length);
  emit_ethernet(frames[0].data, to, from.capabilities().address, type);
  frames[0].length = length;
  if (from.transmit(frames, 0) == 1) return true;
  from.discard(frames);
  return false;
}

// Returns the length of a frame that comes within a second, if all of its bytes are `mark`; otherwise 0.
uint32_t receive(XdpPort& port, uint8_t mark) {
  std::array<ReceivedFrame, 1> frames;
  pollfd wait{.fd = port.wait_descriptor(), .events = POLLIN, .revents = 0};
  while (port.receive(frames, 0) == 0) {
    if (::poll(&wait, 1, 1000) != 1) return 0;
  }
  uint32_t length = frames[0].length;
  for (uint32_t i = kEthernetBytes; i < frames[0].length; ++i) {
    if (frames[0].data[i] != std::byte{mark}) length = 0;
  }
  port.release(frames);
  return length;
}

uint64_t counter(const XdpPort& port, std::string_view name) {
  for (const DriverCounter& each : port.counters()) {
    if (each.name == name) return each.value;
  }
  return ~uint64_t{0};
}

}  // namespace

TEST_CASE("frames of every length pass, many times around the rings") {
  const Cable cable;
  if (!cable.exists) return;
  const auto a = open_port("x0"), b = open_port("x1");
  CHECK(a->description().find("by copies") != std::string::npos);
  CHECK(a->next_event() == ~Nanoseconds{0});
  for (uint32_t i = 0; i < 6000; ++i) {
    const uint32_t length = 60 + i % (1514 - 60 + 1);
    const auto mark = static_cast<uint8_t>(i);
    REQUIRE(send(*a, b->capabilities().address, length, mark));
    REQUIRE(receive(*b, mark) == length);
    REQUIRE(send(*b, a->capabilities().address, length, mark));
    REQUIRE(receive(*a, mark) == length);
  }
  CHECK(counter(*a, "tx_frames") == 6000);
  CHECK(counter(*a, "rx_frames") == 6000);
  CHECK(counter(*a, "rx_missed") == 0);
}

TEST_CASE("a port that polls busily gets its frames, too") {
  const Cable cable;
  if (!cable.exists) return;
  auto polling = XdpPort::open({.interface = "x0", .busy_budget = 16});
  REQUIRE(polling);
  const auto other = open_port("x1");
  for (uint8_t i = 0; i < 200; ++i) {
    REQUIRE(send(*other, (*polling)->capabilities().address, 100, i));
    REQUIRE(receive(**polling, i) == 100);
    REQUIRE(send(**polling, other->capabilities().address, 100, i));
    REQUIRE(receive(*other, i) == 100);
  }
}

TEST_CASE("a burst leaves whole, and frames beyond the chunks are lost and counted") {
  const Cable cable;
  if (!cable.exists) return;
  const auto a = open_port("x0"), b = open_port("x1");
  std::array<TransmitFrame, 200> frames;
  REQUIRE(a->allocate(frames) == frames.size());
  const MacAddress to = b->capabilities().address;
  for (TransmitFrame& frame : frames) frame.length = emit_ethernet(frame.data, to, a->capabilities().address, kEtherType) + 100;
  REQUIRE(a->transmit(frames, 0) == frames.size());
  a->poll(1);
  CHECK(a->next_event() == ~Nanoseconds{0});
  for (uint32_t i = 0; i < 1000; ++i) REQUIRE(send(*a, b->capabilities().address, 100, 1));
  CHECK(counter(*b, "rx_missed") == 1200 - 1024);
  std::array<ReceivedFrame, 64> came;
  uint32_t count = 0;
  for (uint32_t got = 0; (got = b->receive(came, 0)) != 0; count += got) b->release(std::span(came).first(got));
  CHECK(count == 1024);
  REQUIRE(send(*a, b->capabilities().address, 100, 2));
  CHECK(receive(*b, 2) == 100);
}

TEST_CASE("a frame longer than a page travels in pieces") {
  const Cable cable(9000);
  if (!cable.exists) return;
  const auto a = open_port("x0"), b = open_port("x1");
  for (const uint32_t length : {60u, 1514u, 3839u, 3840u, 3841u, 4096u, 4097u, 8192u, 9014u}) {
    for (uint8_t i = 0; i < 250; ++i) {
      REQUIRE(send(*a, b->capabilities().address, length, i));
      REQUIRE(receive(*b, i) == length);
    }
  }
  CHECK(counter(*b, "rx_joined") == 5 * 250);
  CHECK(counter(*a, "tx_invalid") == 0);
}

TEST_CASE("frames beyond the MTU are dropped and counted, in pieces and whole") {
  const Cable cable(9000);
  if (!cable.exists) return;
  const auto a = open_port("x0");
  for (const uint32_t mtu : {1500u, 5000u}) {
    auto b = XdpPort::open({.interface = "x1", .mtu = mtu});
    REQUIRE(b);
    const MacAddress to = (*b)->capabilities().address;
    for (uint8_t i = 0; i < 200; ++i) {  // more than frames of several pieces have buffers
      REQUIRE(send(*a, to, mtu + kEthernetBytes + 1, i));
      REQUIRE(send(*a, to, 9014, i));
      REQUIRE(send(*a, to, mtu + kEthernetBytes, i));
      REQUIRE(receive(**b, i) == mtu + kEthernetBytes);
    }
    CHECK(counter(**b, "rx_oversize") + counter(**b, "rx_missed") == 400);
    CHECK(counter(**b, "rx_no_buffer") == 0);
  }
}

TEST_CASE("the kernel gets the frames that the wire does not take") {
  const Cable cable;
  if (!cable.exists) return;
  const Descriptor kernel(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(kOther)));
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(kOther);
  address.sll_ifindex = static_cast<int>(if_nametoindex("x1"));
  REQUIRE(::bind(kernel.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  const auto kernel_has = [&] {
    pollfd wait{.fd = kernel.get(), .events = POLLIN, .revents = 0};
    char bytes[2000];
    return ::poll(&wait, 1, 200) == 1 && ::recv(kernel.get(), bytes, sizeof bytes, 0) > 0;
  };
  const auto a = open_port("x0");
  auto b = open_port("x1");
  const MacAddress station = b->capabilities().address;
  REQUIRE(send(*a, station, 100, 1, kOther));
  CHECK(kernel_has());
  REQUIRE(send(*a, kBroadcast, 100, 2));
  CHECK(receive(*b, 2) == 100);
  b.reset();
  CHECK_FALSE(run("ip -d link show x1 | grep -q 'allmulti 1'"));
  b = open_port("x1", true);
  CHECK(run("ip -d link show x1 | grep -q 'allmulti 1'"));
  REQUIRE(send(*a, station, 100, 3, kOther));
  CHECK(receive(*b, 3) == 100);
  REQUIRE(send(*a, {2, 0, 0, 0, 0, 9}, 100, 4, kOther));
  CHECK(kernel_has());
}

TEST_CASE("an interface that was down carries frames again") {
  const Cable cable;
  if (!cable.exists) return;
  const auto a = open_port("x0"), b = open_port("x1");
  REQUIRE(run("ip link set x0 down"));
  REQUIRE(send(*a, b->capabilities().address, 100, 1));
  a->poll(kSecond);
  CHECK(a->next_event() < 2 * kSecond);
  REQUIRE(run("ip link set x0 up"));
  a->poll(kSecond);
  CHECK(receive(*b, 1) == 100);
}

TEST_CASE("a port outlives its interface") {
  const Cable cable;
  if (!cable.exists) return;
  const auto a = open_port("x0"), b = open_port("x1");
  REQUIRE(run("ip link del x0"));
  REQUIRE(send(*a, b->capabilities().address, 100, 1));
  a->poll(kSecond);
  std::array<ReceivedFrame, 1> frames;
  for (XdpPort* const port : {a.get(), b.get()}) {
    CHECK(port->receive(frames, kSecond) == 0);
    pollfd wait{.fd = port->wait_descriptor(), .events = POLLIN, .revents = 0};
    CHECK(::poll(&wait, 1, 0) == 0);  // an idle network interface can still sleep
    CHECK(port->next_event() == ~Nanoseconds{0});
    port->state()->look();
    CHECK(port->state()->index() == 0);
  }
}

TEST_CASE("a port takes its program off, and refusals say what to do") {
  using Catch::Matchers::Contains;
  const Cable cable;
  if (!cable.exists) return;
  CHECK_THAT(refusal({.interface = "x9"}), Contains("no such network interface"));
  CHECK_THAT(refusal({.interface = "lo"}), Contains("loopback"));
  CHECK_THAT(refusal({.interface = "x0", .mtu = 1600}), Contains("ip link set x0 mtu 1600"));
  {
    const auto port = open_port("x0");
    CHECK(::fcntl(port->wait_descriptor(), F_GETFD) == FD_CLOEXEC);
    CHECK(run("ip link show x0 | grep -q xdp"));
    CHECK_THAT(refusal({.interface = "x0"}), Contains("another program"));
  }
  CHECK_FALSE(run("ip link show x0 | grep -q xdp"));
  int status = -1;
  const pid_t killed = ::fork();
  if (killed == 0) {
    const auto port = open_port("x0");
    ::raise(run("ip link show x0 | grep -q xdp") ? SIGKILL : SIGTERM);
  }
  REQUIRE(::waitpid(killed, &status, 0) == killed);
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
  CHECK_FALSE(run("ip link show x0 | grep -q xdp"));
  const pid_t user = ::fork();
  if (user == 0) {
    const bool given_up = ::setgid(65534) == 0 && ::setuid(65534) == 0;
    ::_exit(given_up && refusal({.interface = "x0"}).find("setcap") != std::string::npos ? 0 : 1);
  }
  REQUIRE(::waitpid(user, &status, 0) == user);
  CHECK(status == 0);
  CHECK(open_port("x0") != nullptr);
}
