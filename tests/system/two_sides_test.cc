// two_sides_test.cc - ports between two processes: memif (also zero-copy); AF_PACKET, AF_XDP (by DPDK, and without) and libpcap between two
// namespaces; tap through a bridge. Every frame size, byte by byte; a side that is killed and comes back; sleeping on a port's descriptor;
// nothing left behind.
//
// Usage: two_sides_test WHAT, of which meson.build has the list. Exit status 77: this machine cannot do it (no root, no namespaces), with
// the reason.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/system/two_sides.h"

using namespace unet;
using namespace unet::drivers;
using namespace unet::test;

namespace {

constexpr uint16_t kType = 0xB588;   // 0x88B5 in memory order
constexpr uint32_t kHeader = 14 + 2 + 4;  // Ethernet, length (short frames may be padded on the way), number
constexpr uint32_t kWindow = 16;
constexpr std::string_view kPcap = "pcap:", kXdp = "xdp:";

// The clock of an engine, which does not start with the machine.
Nanoseconds engine_now() {
  static const Clock clock;
  return clock.now();
}

std::byte body(uint32_t number, uint32_t position) { return static_cast<std::byte>(number * 17 + position * 5 + (position >> 7)); }

void compose(std::byte* frame, const MacAddress& to, const MacAddress& from, uint16_t length, uint32_t number) {
  std::memcpy(frame, to.data(), 6);
  std::memcpy(frame + 6, from.data(), 6);
  std::memcpy(frame + 12, &kType, 2);
  std::memcpy(frame + 14, &length, 2);
  std::memcpy(frame + 16, &number, 4);
  for (uint32_t i = kHeader; i < length; ++i) frame[i] = body(number, i);
}

// Whether one of our frames came as it was sent; `number` and `length` are in the frame.
bool intact(const ReceivedFrame& frame, uint16_t& length, uint32_t& number) {
  std::memcpy(&length, frame.data + 14, 2);
  std::memcpy(&number, frame.data + 16, 4);
  if (length < kHeader || length > frame.length || (frame.length > length && frame.length > 60)) return false;
  for (uint32_t i = kHeader; i < length; ++i) {
    if (frame.data[i] != body(number, i)) return false;
  }
  return true;
}

bool ours(const ReceivedFrame& frame) { return frame.length >= kHeader && std::memcmp(frame.data + 12, &kType, 2) == 0; }

int complain(Shared& shared, int side, const std::string& text) {
  std::snprintf(shared.error[side], sizeof(shared.error[side]), "%s", text.c_str());
  return 1;
}

struct Wire {
  std::string device[2];  // DPDK's name; "pcap:" or "xdp:" and an interface without DPDK
  Network* network = nullptr;
  uint32_t mtu = 0;
  bool bridge = false;
  Hugepages hugepages = Hugepages::never;
};

Result<std::unique_ptr<Driver>> open_device(const Wire& wire, const std::string& device) {
  const auto as_driver = [](auto port) { return std::unique_ptr<Driver>(std::move(port)); };
  if (device.starts_with(kPcap)) return PcapLive::open({.interface = device.substr(kPcap.size()), .mtu = wire.mtu}).map(as_driver);
  if (device.starts_with(kXdp)) return XdpPort::open({.interface = device.substr(kXdp.size()), .mtu = wire.mtu}).map(as_driver);
  return DpdkPort::open({.device = device,
                         .mtu = wire.mtu,
                         .eal = {.hugepages = wire.hugepages, .memory_mib = 192, .print_log = std::getenv("UNET_TEST_LOG") != nullptr}})
      .map(as_driver);
}

// Opens a side's port, and publishes its address to the other.
std::unique_ptr<Driver> open_side(const Wire& wire, Shared& shared, int side) {
  if (!wire.network->enter(side)) {
    complain(shared, side, "cannot enter the namespace");
    return nullptr;
  }
  // net_virtio_user needs its backend first.
  const bool after_other = wire.device[side].starts_with("net_virtio_user");
  if (after_other && !eventually(kHang, [&] { return shared.ready[1 - side].load(std::memory_order_acquire) != 0; })) {
    complain(shared, side, "the backend did not open");
    return nullptr;
  }
  auto port = open_device(wire, wire.device[side]);
  if (!port) {
    complain(shared, side, port.error().text);
    return nullptr;
  }
  if (wire.bridge && !wire.network->join_bridge(side == 0 ? "unet-t0" : "unet-t1")) {
    complain(shared, side, "cannot join the bridge");
    return nullptr;
  }
  shared.address[side] = (*port)->capabilities().address;
  shared.ready[side].fetch_add(1, std::memory_order_release);
  return std::move(*port);
}

// Returns every frame of ours to its sender, until told to stop.
int echo(const Wire& wire, Shared& shared, int side, bool sleep) {
  auto port = open_side(wire, shared, side);
  if (port == nullptr) return 1;
  const int descriptor = port->wait_descriptor();
  if (sleep && descriptor < 0) return complain(shared, side, "the port has no descriptor to sleep on");
  ReceivedFrame in[kWindow];
  while (!shared.stop.load(std::memory_order_relaxed)) {
    const Nanoseconds now = engine_now();
    port->poll(now);
    const uint32_t got = port->receive(in, now);
    if (got == 0 && sleep) {
      pollfd wait{.fd = descriptor, .events = POLLIN, .revents = 0};
      ::poll(&wait, 1, 1000);
    }
    for (uint32_t i = 0; i < got; ++i) {
      uint16_t length = 0;
      uint32_t number = 0;
      if (!ours(in[i])) continue;
      if (!intact(in[i], length, number))
        return complain(shared, side, "a frame of " + std::to_string(in[i].length) + " bytes arrived changed");
      TransmitFrame out;
      if (port->allocate({&out, 1}) != 1) continue;
      MacAddress back;
      std::memcpy(back.data(), in[i].data + 6, 6);
      compose(out.data, back, port->capabilities().address, length, number);
      out.length = length;
      if (port->transmit({&out, 1}, now) != 1) port->discard({&out, 1});
    }
    port->release({in, got});
    shared.progress[side].fetch_add(got, std::memory_order_relaxed);
  }
  return 0;
}

// Sends frames of every size, a window at a time, and waits for each echo; resends lost ones.
class Pinger {
 public:
  Pinger(Driver& port, Shared& shared, int side) : port_(port), shared_(shared), side_(side) {}

  // Frame lengths first, first + 1, ..., last. False after `patience` without progress, or if a frame came back changed.
  bool run(uint32_t first, uint32_t last, Nanoseconds patience) {
    uint32_t next = first;
    std::vector<uint32_t> open;  // lengths in flight
    Nanoseconds last_progress = engine_now(), last_sent = 0;
    while (next <= last || !open.empty()) {
      const Nanoseconds now = engine_now();
      port_.poll(now);
      const bool again = now - last_sent > 20 * kMillisecond;
      if (again) {
        for (const uint32_t length : open) send(length, now);
        last_sent = now;
      }
      while (open.size() < kWindow && next <= last && send(next, now)) {
        open.push_back(next++);
        last_sent = now;
      }
      if (receive(open, now)) last_progress = now;
      if (changed_) return false;
      if (now - last_progress > patience) {
        complain(shared_, side_, "no answer, from length " + std::to_string(open.empty() ? next : open.front()) + " on");
        return false;
      }
    }
    return true;
  }

 private:
  bool send(uint32_t length, Nanoseconds now) {
    TransmitFrame frame;
    if (port_.allocate({&frame, 1}) != 1) return false;
    compose(frame.data, shared_.address[1 - side_], port_.capabilities().address, static_cast<uint16_t>(length), base_ + length);
    frame.length = length;
    if (port_.transmit({&frame, 1}, now) == 1) return true;
    port_.discard({&frame, 1});
    return false;
  }

  bool receive(std::vector<uint32_t>& open, Nanoseconds now) {
    ReceivedFrame in[kWindow];
    const uint32_t got = port_.receive(in, now);
    bool progress = false;
    for (uint32_t i = 0; i < got; ++i) {
      uint16_t length = 0;
      uint32_t number = 0;
      if (!ours(in[i])) continue;
      if (!intact(in[i], length, number) || number != base_ + length) {
        complain(shared_, side_, "a frame of " + std::to_string(in[i].length) + " bytes came back changed");
        changed_ = true;
      }
      const auto found = std::find(open.begin(), open.end(), length);
      if (found == open.end()) continue;
      open.erase(found);
      progress = true;
    }
    port_.release({in, got});
    shared_.progress[side_].fetch_add(got, std::memory_order_relaxed);
    return progress;
  }

  Driver& port_;
  Shared& shared_;
  int side_;
  uint32_t base_ = 70000;
  bool changed_ = false;
};

int ping_all(const Wire& wire, Shared& shared, int side) {
  auto port = open_side(wire, shared, side);
  if (port == nullptr) return 1;
  if (!eventually(kHang, [&] { return shared.ready[1 - side].load(std::memory_order_acquire) != 0; }))
    return complain(shared, side, "no other side");
  if (auto* const dpdk = dynamic_cast<DpdkPort*>(port.get())) {
    if (Status status = dpdk->wait_link(kHang); !status) return complain(shared, side, status.error().text);
  }
  Pinger pinger(*port, shared, side);
  const bool good = pinger.run(60, port->capabilities().mtu + 14, kHang);
  shared.stop = true;
  return good ? 0 : 1;
}

// Pings for as long as the parent wants, through deaths of the other side.
int ping_on(const Wire& wire, Shared& shared, int side) {
  auto port = open_side(wire, shared, side);
  if (port == nullptr) return 1;
  Pinger pinger(*port, shared, side);
  while (!shared.stop.load(std::memory_order_relaxed)) {
    if (!pinger.run(60, 1514, 2 * kHang)) return 1;
  }
  return 0;
}

int report(Shared& shared, const char* what) {
  for (int side = 0; side < 2; ++side) {
    if (shared.error[side][0] != 0) std::fprintf(stderr, "%s, side %d: %s\n", what, side, shared.error[side]);
  }
  std::fprintf(stderr, "%s failed\n", what);
  return 1;
}

int test_all_sizes(const Wire& wire, bool sleep) {
  auto shared = make_shared_page();
  Child echoing(*shared, [&](Shared& s) { return echo(wire, s, 1, sleep); });
  Child pinging(*shared, [&](Shared& s) { return ping_all(wire, s, 0); });
  const int pinged = pinging.wait(3 * kHang);
  shared->stop = true;
  const int echoed = echoing.wait(kHang);
  if (pinged != 0 || echoed != 0) {
    std::fprintf(stderr, "ping: status %d signal %d; echo: status %d signal %d\n", pinged, pinging.signal(), echoed, echoing.signal());
    return report(*shared, "all sizes");
  }
  std::printf("all sizes: %s\n", sleep ? "back, from a sleeping side" : "back");
  return 0;
}

// Side `victim` dies `times` times under traffic, and is started again.
int test_killed(const Wire& wire, int victim, int times) {
  auto shared = make_shared_page();
  const int survivor = 1 - victim;
  Child surviving(*shared, [&](Shared& s) { return ping_on(wire, s, survivor); });
  for (int i = 0; i <= times; ++i) {
    const uint64_t before = shared->progress[survivor];
    Child dying(*shared, [&](Shared& s) { return echo(wire, s, victim, false); });
    const bool flows = eventually(kHang, [&] {
      return shared->progress[survivor] > before + 3000 || surviving.wait(0) != -1 || surviving.signal() != 0;
    });
    if (!flows || surviving.signal() != 0 || surviving.wait(0) != -1) {
      std::fprintf(stderr, "life %d: survivor's status %d signal %d, %lu frames; victim's status %d signal %d\n", i,
                   surviving.wait(0), surviving.signal(),
                   static_cast<unsigned long>(shared->progress[survivor] - before), dying.wait(0), dying.signal());
      return report(*shared, "killed and restarted");
    }
    if (i == times) shared->stop = true;
    if (i == times && dying.wait(kHang) != 0) return report(*shared, "the last life");
    dying.kill();
  }
  // The pinger may be in the middle of an unanswered window: it only has to be alive.
  const bool alive = surviving.wait(50 * kMillisecond) <= 0 && surviving.signal() == 0;
  if (!alive) return report(*shared, "the survivor");
  std::printf("side %d killed %d times: the other went on\n", victim, times);
  return 0;
}

// A side's interface goes down under traffic, and comes up again: both ports live on.
int test_interface_down(const Wire& wire) {
  auto shared = make_shared_page();
  Child echoing(*shared, [&](Shared& s) { return echo(wire, s, 1, true); });
  Child pinging(*shared, [&](Shared& s) { return ping_on(wire, s, 0); });
  Child switching(*shared, [&](Shared& s) {
    for (int i = 0; i < 3; ++i) {
      const uint64_t before = s.progress[0];
      if (!eventually(kHang, [&] { return s.progress[0] > before + 1000; })) return complain(s, 1, "nothing passes");
      if (!wire.network->enter(i % 2) || !wire.network->set_up(i % 2, false) || !wire.network->set_up(i % 2, true)) {
        return complain(s, 1, "cannot take the interface down and up");
      }
    }
    const uint64_t before = s.progress[0];
    return eventually(kHang, [&] { return s.progress[0] > before + 1000; }) ? 0 : complain(s, 1, "nothing passes any more");
  });
  const int switched = switching.wait(5 * kHang);
  shared->stop = true;
  if (switched != 0 || echoing.wait(kHang) != 0) return report(*shared, "interface down and up");
  const bool alive = pinging.wait(50 * kMillisecond) <= 0 && pinging.signal() == 0;
  if (!alive) return report(*shared, "the pinging side");
  std::printf("interfaces down and up: frames pass again\n");
  return 0;
}

int test_leftovers() {
  for (const char* directory : {"/dev/shm", "/var/run/dpdk", "/tmp"}) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
      const std::string name = entry.path().filename();
      if (name.starts_with("unet-test-" + std::to_string(getpid()))) {
        std::fprintf(stderr, "left behind: %s\n", entry.path().c_str());
        return 1;
      }
    }
  }
  return 0;
}

Wire memif(Network& network, bool zero_copy, uint32_t mtu = 0) {
  const std::string socket = "socket=/tmp/unet-test-" + std::to_string(getpid());
  return {.device = {"net_memif0,role=server," + socket,
                     "net_memif0,role=client," + socket + (zero_copy ? ",zero-copy=yes" : "")},
          .network = &network,
          .mtu = mtu};
}

int skip(const char* reason) {
  std::printf("skipped: %s\n", reason);
  return kSkip;
}

// Whether enough free pages of 2 MiB are reserved for two ports of 192 MiB. An administrator reserves them, a test does not.
bool hugepages_reserved() {
  std::ifstream file("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
  uint32_t pages = 0;
  return file >> pages && pages >= 2 * 192 / 2;
}

int run(const std::string& what) {
  if (what == "memif-hugepages") {
    if (!hugepages_reserved()) return skip("needs 192 free hugepages: sysctl vm.nr_hugepages=192");
    Network network(Network::Kind::none);
    for (const bool zero_copy : {false, true}) {
      Wire wire = memif(network, zero_copy);
      wire.hugepages = Hugepages::always;
      if (const int result = test_all_sizes(wire, false); result != 0) return result;
    }
    return 0;
  }
  if (what == "virtio_user") {
    Network network(Network::Kind::none);
    const std::string socket = "/tmp/unet-test-" + std::to_string(getpid()) + ".vhost";
    const Wire wire{.device = {"net_virtio_user0,path=" + socket + ",queues=1", "net_vhost0,iface=" + socket}, .network = &network};
    return test_all_sizes(wire, false);
  }
  if (what.starts_with("memif")) {
    Network network(Network::Kind::none);
    const bool zero_copy = what.find("zero-copy") != std::string::npos;
    if (what == "memif" || what == "memif-zero-copy") {
      const int normal = test_all_sizes(memif(network, zero_copy), false);
      return normal != 0 ? normal : test_all_sizes(memif(network, zero_copy, 9000), false);
    }
    const int victim = what.find("client-killed") != std::string::npos ? 1 : 0;
    const int status = test_killed(memif(network, zero_copy), victim, 8);
    // A surviving server is killed at the end, and its socket stays. The next server there would replace it.
    std::error_code error;
    if (victim == 1) std::filesystem::remove("/tmp/unet-test-" + std::to_string(getpid()), error);
    return status;
  }
  if (geteuid() != 0) return skip("needs root for network namespaces");
  if (what == "tap") {
    if (!std::filesystem::exists("/dev/net/tun")) return skip("no /dev/net/tun");
    Network network(Network::Kind::bridge);
    if (!network.usable()) return skip("cannot make a network namespace with a bridge");
    const Wire wire{.device = {"net_tap0,iface=unet-t0", "net_tap0,iface=unet-t1"}, .network = &network, .bridge = true};
    const int awake = test_all_sizes(wire, false);
    return awake != 0 ? awake : test_all_sizes(wire, true);
  }
  if (what != "af_packet" && what != "af_xdp" && what != "pcap" && what != "xdp") {
    std::fprintf(stderr, "no such test: %s\n", what.c_str());
    return 1;
  }
  Network network(Network::Kind::veth);
  if (!network.usable()) return skip("cannot make network namespaces with a veth pair");
  const std::string prefix = what == "pcap" || what == "xdp" ? what + ":" : "net_" + what + "0,iface=";
  const Wire wire{.device = {prefix + network.interface(0), prefix + network.interface(1)}, .network = &network};
  for (const bool sleep : {false, true}) {
    if (const int result = test_all_sizes(wire, sleep); result != 0) return result;
  }
  if (what == "pcap" || what == "xdp") {
    if (const int result = test_interface_down(wire); result != 0) return result;
  }
  return test_killed(wire, 1, 3);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: two_sides_test WHAT\n");
    return 1;
  }
  const int result = run(argv[1]);
  return result != 0 ? result : test_leftovers();
}
