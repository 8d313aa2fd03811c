// packet_port_test.cc - a port on a tap in a network namespace: frames of all lengths in order, frames that the kernel cannot describe, an
// interface that goes down. Needs root and /dev/net/tun; without them it tests nothing.
#include "drivers/packet/packet_port.h"

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

using namespace unet;
using namespace unet::drivers;

namespace {

constexpr uint8_t kUdpFragments = 3;  // VIRTIO_NET_HDR_GSO_UDP

class Tap {
 public:
  Tap() {
    if (::geteuid() != 0 || ::unshare(CLONE_NEWNET) != 0) return;
    fd_ = ::open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd_ < 0) return;
    request_.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
    std::strcpy(request_.ifr_name, "t0");
    REQUIRE(::ioctl(fd_, TUNSETIFF, &request_) == 0);
    socket_ = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    set_mtu(1500);
    set_up(true);
  }
  Tap(const Tap&) = delete;
  Tap& operator=(const Tap&) = delete;
  ~Tap() {
    for (const int each : {fd_, socket_}) {
      if (each >= 0) ::close(each);
    }
  }
  bool is_there() const { return fd_ >= 0; }
  void set_up(bool up) {
    request_.ifr_flags = static_cast<short>(up ? IFF_UP : 0);
    REQUIRE(::ioctl(socket_, SIOCSIFFLAGS, &request_) == 0);
  }
  void set_mtu(int mtu) {
    request_.ifr_mtu = mtu;
    REQUIRE(::ioctl(socket_, SIOCSIFMTU, &request_) == 0);
  }
  // Sends a broadcast frame that the kernel takes for IPv4 and UDP; `segment` 0: one packet.
  void send(size_t bytes, uint8_t mark, uint16_t segment = 0, uint8_t kind = VnetHeader::kNone) {
    VnetHeader header{};
    header.kind = kind;
    header.segment_size = segment;
    header.header_bytes = segment == 0 ? uint16_t{0} : uint16_t{42};
    if (segment != 0) header.flags = VnetHeader::kNeedsChecksum, header.checksum_start = 34, header.checksum_offset = 6;
    std::vector<uint8_t> frame(sizeof header + bytes, mark);
    std::memcpy(frame.data(), &header, sizeof header);
    uint8_t* const at = frame.data() + sizeof header;
    std::memset(at, 0xFF, 6);
    const auto length = static_cast<uint16_t>(bytes - 14);
    const uint8_t head[] = {0x08, 0x00, 0x45, 0, static_cast<uint8_t>(length >> 8), static_cast<uint8_t>(length), 0, 0, 0, 0, 64, 17};
    std::memcpy(at + 12, head, sizeof head);
    REQUIRE(::write(fd_, frame.data(), frame.size()) == static_cast<ssize_t>(frame.size()));
  }

 private:
  int fd_ = -1, socket_ = -1;
  ifreq request_{};
};

// Returns the marks of the frames that are there. The port's clock advances by a millisecond.
std::vector<uint8_t> look(PacketPort& port, Nanoseconds& now, std::vector<uint32_t>* lengths = nullptr) {
  std::array<ReceivedFrame, 16> frames;
  const auto came = std::span(frames).first(port.receive(frames, now += kMillisecond));
  std::vector<uint8_t> marks;
  for (const ReceivedFrame& frame : came) {
    marks.push_back(static_cast<uint8_t>(frame.data[frame.length - 1]));
    if (lengths != nullptr) lengths->push_back(frame.length);
  }
  port.release(came);
  return marks;
}

// Returns the marks of the frames that come within a second, and stops at about `most`.
std::vector<uint8_t> receive(PacketPort& port, size_t most, Nanoseconds& now, std::vector<uint32_t>* lengths = nullptr) {
  std::vector<uint8_t> marks;
  for (int tries = 0; tries < 1000 && marks.size() < most; ++tries) {
    const std::vector<uint8_t> came = look(port, now, lengths);
    marks.insert(marks.end(), came.begin(), came.end());
    if (came.empty()) ::usleep(1000);
  }
  return marks;
}

uint64_t counter(const PacketPort& port, std::string_view name) {
  for (const DriverCounter& each : port.counters()) {
    if (each.name == name) return each.value;
  }
  return ~uint64_t{0};
}

TEST_CASE("short frames and long ones come in their order") {
  Tap tap;
  if (!tap.is_there()) return;
  auto port = PacketPort::open({.interface = "t0", .all_types = true});
  REQUIRE(port);
  CHECK((*port)->description().find("without rings") == std::string::npos);
  Nanoseconds now = kSecond;
  std::vector<uint8_t> marks;
  std::vector<uint32_t> sent, lengths;
  for (uint32_t i = 0; i < 600; ++i) {
    const uint32_t bytes = i % 3 == 0 ? 30'000 + 42 : i % 3 == 1 ? 100 : 1514;
    tap.send(bytes, static_cast<uint8_t>(i), i % 3 == 0 ? uint16_t{1000} : uint16_t{0}, i % 3 == 0 ? VnetHeader::kUdp : VnetHeader::kNone);
    sent.push_back(bytes);
    if (i % 20 != 19) continue;
    const auto came = receive(**port, 20, now, &lengths);
    marks.insert(marks.end(), came.begin(), came.end());
  }
  CHECK(lengths == sent);
  for (size_t i = 0; i < marks.size(); ++i) CHECK(marks[i] == static_cast<uint8_t>(i));
  CHECK(counter(**port, "rx_missed") == 0);
}

TEST_CASE("frames of a large MTU are short ones") {
  Tap tap;
  if (!tap.is_there()) return;
  tap.set_mtu(9000);
  auto port = PacketPort::open({.interface = "t0", .all_types = true});
  REQUIRE(port);
  Nanoseconds now = kSecond;
  for (uint8_t i = 0; i < 200; ++i) tap.send(9014, i);  // more than the ring of long frames holds
  CHECK(receive(**port, 200, now).size() == 200);
}

TEST_CASE("a frame that the kernel cannot describe stops its ring for some milliseconds at most") {
  Tap tap;
  if (!tap.is_there()) return;
  auto port = PacketPort::open({.interface = "t0", .all_types = true});
  REQUIRE(port);
  Nanoseconds now = kSecond;
  tap.send(1400, 1);
  CHECK(receive(**port, 1, now) == std::vector<uint8_t>{1});
  tap.send(8042, 2, 1000, kUdpFragments);
  tap.send(1400, 3);
  CHECK(receive(**port, 1, now) == std::vector<uint8_t>{3});
  // The ring of long frames may be stuck now: frames are lost until the port has noticed.
  std::vector<uint8_t> came;
  for (uint8_t i = 10; i < 200 && came.empty(); ++i) {
    tap.send(8042, i, 1000, VnetHeader::kUdp);
    for (int tries = 0; tries < 30 && came.empty(); ++tries) came = look(**port, now);
  }
  CHECK(came.size() == 1);
  tap.send(8042, 7, 1000, VnetHeader::kUdp);
  CHECK(receive(**port, 1, now) == std::vector<uint8_t>{7});
  CHECK((*port)->description().find("without rings") == std::string::npos);
}

TEST_CASE("on a wire that has such frames again and again the port does without rings") {
  Tap tap;
  if (!tap.is_there()) return;
  auto port = PacketPort::open({.interface = "t0", .all_types = true});
  REQUIRE(port);
  Nanoseconds now = kSecond;
  const auto is_without = [&] { return (*port)->description().find("without rings") != std::string::npos; };
  for (uint32_t i = 0; i < 1000 && !is_without(); ++i) {
    tap.send(8042, 1, 1000, i % 10 == 0 ? kUdpFragments : VnetHeader::kUdp);
    for (int looks = 0; looks < 10; ++looks) look(**port, now);
  }
  CHECK(is_without());
  const int waits = (*port)->wait_descriptor();
  receive(**port, 1000, now);
  epoll_event event{};
  CHECK(::epoll_wait(waits, &event, 1, 0) == 0);
  tap.send(8042, 1, 1000, kUdpFragments);
  for (uint8_t i = 10; i < 30; ++i) tap.send(i % 2 == 0 ? 100 : 8042, i, i % 2 == 0 ? uint16_t{0} : uint16_t{1000},
                                             i % 2 == 0 ? VnetHeader::kNone : VnetHeader::kUdp);
  CHECK(::epoll_wait(waits, &event, 1, 1000) == 1);
  const std::vector<uint8_t> came = receive(**port, 20, now);
  REQUIRE(came.size() == 20);
  for (uint8_t i = 0; i < 20; ++i) CHECK(came[i] == 10 + i);
}

TEST_CASE("an interface that was down carries frames again, and its error is counted") {
  Tap tap;
  if (!tap.is_there()) return;
  auto port = PacketPort::open({.interface = "t0", .all_types = true});
  REQUIRE(port);
  Nanoseconds now = kSecond;
  tap.set_up(false);
  CHECK(receive(**port, 1, now).empty());
  CHECK(counter(**port, "rx_errors") == 2);  // one error from each of the two sockets
  tap.set_up(true);
  tap.send(1400, 5);
  CHECK(receive(**port, 1, now) == std::vector<uint8_t>{5});
}

}  // namespace
