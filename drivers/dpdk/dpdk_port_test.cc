// dpdk_port_test.cc - a DPDK port inside one process: frames of every size, external payloads, full queues, errors.
#include "drivers/dpdk/dpdk_port.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rte_eal.h>

#include <catch2/catch.hpp>

#include "drivers/dpdk/raw_bench.h"

using namespace unet;
using namespace unet::drivers;

namespace {

// EAL exists once per process, so all ports of this test share it.
std::unique_ptr<DpdkPort> open_port(const std::string& device, uint32_t mtu = 0, uint32_t buffers = 0) {
  auto port = DpdkPort::open({.device = device, .mtu = mtu, .buffers = buffers, .eal = {.hugepages = Hugepages::never, .memory_mib = 192}});
  if (!port) FAIL(port.error().text);
  return std::move(*port);
}

std::string refusal(const std::string& device, DpdkOptions options = {}) {
  options.device = device;
  options.eal = {.hugepages = Hugepages::never, .memory_mib = 192};
  auto port = DpdkPort::open(options);
  REQUIRE_FALSE(port);
  CHECK(port.error().text.find('\n') == std::string::npos);
  return port.error().text;
}

std::byte body(uint32_t seed, uint32_t position) { return static_cast<std::byte>(seed * 31 + position * 7 + (position >> 8)); }

TransmitFrame compose(Driver& port, uint32_t length, uint32_t seed) {
  TransmitFrame frame;
  REQUIRE(port.allocate({&frame, 1}) == 1);
  for (uint32_t i = 0; i < length; ++i) frame.data[i] = body(seed, i);
  frame.length = length;
  return frame;
}

bool same(const ReceivedFrame& frame, uint32_t length, uint32_t seed) {
  if (frame.length != length) return false;
  for (uint32_t i = 0; i < length; ++i) {
    if (frame.data[i] != body(seed, i)) return false;
  }
  return true;
}

uint64_t counter(const Driver& driver, const std::string& name) {
  for (const DriverCounter& c : driver.counters()) {
    if (c.name == name) return c.value;
  }
  FAIL("no counter " << name);
  return 0;
}

// Runs `body` in a forked copy of this process and returns its result; -1 if a signal ends it. For tests that need a process without EAL.
template <typename Body>
int exit_status_of(Body body) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(body());
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

// This test comes first: it needs a process without EAL.
TEST_CASE("an EAL that has no memory to start with is not worth another try") {
  const int result = exit_status_of([]() -> int {
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t room = pages * static_cast<uint64_t>(getpagesize()) + (1 << 30);  // enough for what EAL does before
    const rlimit limit{room, room};
    if (setrlimit(RLIMIT_AS, &limit) != 0) return 100;
    int result = 0;
    for (int i = 0; i < 2; ++i) {
      const auto port = DpdkPort::open({.device = "net_null0", .eal = {.hugepages = Hugepages::never, .memory_mib = 4096}});
      if (port || port.error().code != Errc::out_of_memory || port.error().text.find("memory=MIB") == std::string::npos) result |= 1 << i;
    }
    return result;
  });
  CHECK(result == 0);
}

TEST_CASE("an EAL that cannot start a thread does not say that it lacks memory") {
  const int result = exit_status_of([]() -> int {
    // The stack is too large: EAGAIN, as when EAL cannot look for VFIO.
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0 || pthread_attr_setstacksize(&attributes, size_t{1} << 47) != 0) return 100;
    if (pthread_setattr_default_np(&attributes) != 0) return 101;
    const auto port = DpdkPort::open({.device = "net_null0", .eal = {.hugepages = Hugepages::never, .memory_mib = 192}});
    if (port) return 102;
    return port.error().code == Errc::unavailable && port.error().text.find("memory=MIB") == std::string::npos ? 0 : 1;
  });
  CHECK(result == 0);
}

TEST_CASE("an EAL that does not start for another reason than memory says so, each time") {
  const int result = exit_status_of([]() -> int {
    // EAL runs already: the program started it.
    std::string words[] = {"test", "--no-huge", "--no-shconf", "--no-pci", "--no-telemetry", "--iova-mode=va", "-m", "64"};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    if (rte_eal_init(static_cast<int>(std::size(words)), arguments.data()) < 0) return 100;
    std::string first;
    int result = 0;
    // The last two devices would otherwise be refused for another reason.
    for (const char* const device : {"net_null0", "net_null0", "net_af_packet0,iface=unet-none", "net_memif0"}) {
      const auto port = DpdkPort::open({.device = device, .eal = {.hugepages = Hugepages::never, .memory_mib = 192}});
      if (port || port.error().code != Errc::unavailable || !port.error().text.starts_with(first)) result |= 1;
      if (!port && first.empty()) first = port.error().text;
    }
    if (first.find("memory") != std::string::npos || !DpdkPort::environment_failed()) result |= 2;
    return result;
  });
  CHECK(result == 0);
}

TEST_CASE("a port that needs a right which this process has not is not permitted") {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct before[2]{}, without[2]{};
  REQUIRE(syscall(SYS_capget, &header, before) == 0);
  std::copy(std::begin(before), std::end(before), without);
  without[0].effective = without[1].effective = 0;
  REQUIRE(syscall(SYS_capset, &header, without) == 0);
  const auto port = DpdkPort::open({.device = "net_af_packet0,iface=lo", .eal = {.hugepages = Hugepages::never, .memory_mib = 192}});
  REQUIRE(syscall(SYS_capset, &header, before) == 0);
  REQUIRE_FALSE(port);
  CAPTURE(port.error().text);
  CHECK(port.error().code == Errc::not_permitted);
}

TEST_CASE("starting EAL leaves the caller's affinity and no files") {
  cpu_set_t before, after;
  REQUIRE(sched_getaffinity(0, sizeof(before), &before) == 0);
  auto port = open_port("net_ring0");
  REQUIRE(sched_getaffinity(0, sizeof(after), &after) == 0);
  CHECK(CPU_EQUAL(&before, &after));
  port.reset();
  CHECK_FALSE(std::filesystem::exists("/var/run/dpdk/unet-" + std::to_string(getpid())));
}

TEST_CASE("frames of every size come around a ring as they were") {
  const uint32_t mtu = GENERATE(1500u, 9000u);
  auto port = open_port("net_ring0", mtu);
  CHECK(port->capabilities().mtu == mtu);
  for (uint32_t length = 60; length <= mtu + 14; ++length) {
    TransmitFrame frame = compose(*port, length, length);
    REQUIRE(port->transmit({&frame, 1}, 0) == 1);
    ReceivedFrame received;
    REQUIRE(port->receive({&received, 1}, 0) == 1);
    if (!same(received, length, length)) FAIL("a frame of " << length << " bytes came back changed");
    port->release({&received, 1});
  }
  CHECK(counter(*port, "rx_linearised") == 0);
}

TEST_CASE("bursts larger than the driver's own keep their order") {
  auto port = open_port("net_ring0");
  std::vector<TransmitFrame> out(200);
  REQUIRE(port->allocate(out) == 200);
  for (uint32_t i = 0; i < 200; ++i) {
    std::memset(out[i].data, static_cast<int>(i), 64);
    out[i].length = 64;
  }
  REQUIRE(port->transmit(out, 0) == 200);
  std::vector<ReceivedFrame> in(200);
  uint32_t count = 0;
  while (const uint32_t got = port->receive(std::span(in).subspan(count), 0)) count += got;
  REQUIRE(count == 200);
  for (uint32_t i = 0; i < 200; ++i) CHECK(in[i].data[63] == static_cast<std::byte>(i));
  port->release(in);
}

TEST_CASE("each queue of a port is a driver of its own, which outlives the first") {
  auto opened = DpdkPort::open({.device = "net_null0", .queues = 3, .eal = {.hugepages = Hugepages::never, .memory_mib = 192}});
  if (!opened) FAIL(opened.error().text);
  std::unique_ptr<DpdkPort> port = std::move(*opened);
  CHECK(port->queues() == 3);
  std::vector<std::unique_ptr<Driver>> queues = port->take_queues();
  REQUIRE(queues.size() == 2);
  queues.insert(queues.begin(), std::move(port));
  CHECK_FALSE(queues[0]->capabilities().external_payload);
  constexpr uint32_t kRounds = 300, kFrames = 32;
  std::vector<std::thread> threads;
  std::atomic<uint32_t> wrong{0};
  for (const std::unique_ptr<Driver>& queue : queues) {
    CHECK(queue->capabilities().address == queues[0]->capabilities().address);
    CHECK(queue->wait_descriptor() == -1);
    threads.emplace_back([&driver = *queue, &wrong] {
      for (uint32_t i = 0; i < kRounds; ++i) {
        std::array<TransmitFrame, kFrames> out;
        if (driver.allocate(out) != kFrames) ++wrong;
        for (TransmitFrame& frame : out) {
          std::memset(frame.data, 7, 100);
          frame.length = 100;
        }
        if (driver.transmit(out, 0) != kFrames) ++wrong;
        std::array<ReceivedFrame, kFrames> in;
        const uint32_t count = driver.receive(in, 0);  // this device always has some
        driver.release({in.data(), count});
        driver.poll(0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(counter(*queues[0], "tx_frames") == 3 * kRounds * kFrames);  // of the whole port
  CHECK(counter(*queues[1], "tx_frames") == 0);
  CHECK(counter(*queues[1], "link_up") == 0);
  queues.erase(queues.begin());
  TransmitFrame frame = compose(*queues[0], 100, 1);
  CHECK(queues[0]->transmit({&frame, 1}, 0) == 1);
  queues.clear();
  open_port("net_null0");  // the name is free: the port was closed
}

TEST_CASE("a port without enough queues, or whose queues are not safe, says so") {
  using Catch::Contains;
  CHECK_THAT(refusal("net_null0", {.queues = 5000}), Contains("queues=5000: this port has ") && Contains(" to receive from and "));
  CHECK_THAT(refusal("net_memif0,role=server", {.queues = 2}), Contains("a memif has one queue here"));
}

TEST_CASE("an external payload follows the composed bytes and completes when it has been read") {
  auto port = open_port("net_ring0");
  REQUIRE(port->capabilities().external_payload);
  std::vector<std::byte> memory(4096);
  for (uint32_t i = 0; i < memory.size(); ++i) memory[i] = body(5, i);
  REQUIRE(port->register_memory(memory));
  for (const uint32_t length : {1u, 64u, 999u, 1462u}) {
    TransmitCompletion completion{.pending = 1};
    TransmitFrame frame = compose(*port, 38, 9);
    frame.external = memory.data() + 100;
    frame.external_length = length;
    frame.completion = &completion;
    REQUIRE(port->transmit({&frame, 1}, 0) == 1);
    CHECK(completion.pending == 1);  // a ring passes buffers on: the receiver reads the payload
    CHECK(counter(*port, "external_in_flight") == 1);
    ReceivedFrame received;
    REQUIRE(port->receive({&received, 1}, 0) == 1);
    CHECK(completion.pending == 0);
    REQUIRE(received.length == 38 + length);
    CHECK(received.data[37] == body(9, 37));
    CHECK(std::memcmp(received.data + 38, memory.data() + 100, length) == 0);
    port->release({&received, 1});
  }
  CHECK(counter(*port, "rx_linearised") == 4);
  CHECK(counter(*port, "external_in_flight") == 0);
  port->forget_memory(memory);
}

TEST_CASE("what the port does not take stays the caller's, external payloads included") {
  auto port = open_port("net_ring0", 0, 6000);
  std::vector<std::byte> memory(64, std::byte{7});
  REQUIRE(port->register_memory(memory));
  TransmitCompletion completion;
  std::vector<TransmitFrame> all;
  // Fill the ring beyond its capacity.
  for (uint32_t i = 0; i < 1100; ++i) {
    all.push_back(compose(*port, 60, i));
    if (i % 3 == 0) {
      all.back().external = memory.data();
      all.back().external_length = 64;
      all.back().completion = &completion;
      ++completion.pending;
    }
  }
  const uint64_t pending = completion.pending;
  const uint32_t taken = port->transmit(all, 0);
  REQUIRE(taken < 1100);
  CHECK(completion.pending == pending);
  CHECK(port->transmit({&all[taken], 1}, 0) == 0);
  // The ring has room again: the other frames go unchanged.
  uint32_t received = 0;
  std::vector<ReceivedFrame> in(64);
  const auto drain = [&] {
    while (const uint32_t got = port->receive(in, 0)) {
      for (uint32_t i = 0; i < got; ++i, ++received) {
        const uint32_t expected = received % 3 == 0 ? 124 : 60;
        if (in[i].length != expected || in[i].data[59] != body(received, 59) || (expected == 124 && in[i].data[123] != std::byte{7})) {
          FAIL("frame " << received << " came back changed");
        }
      }
      port->release({in.data(), got});
    }
  };
  drain();
  CHECK(received == taken);
  REQUIRE(port->transmit(std::span(all).subspan(taken), 0) == 1100 - taken);
  drain();
  CHECK(received == 1100);
  CHECK(completion.pending == 0);
}

TEST_CASE("buffers are finite and all come back") {
  auto port = open_port("net_ring0", 0, 3000);
  std::vector<TransmitFrame> all(4000);
  for (int round = 0; round < 3; ++round) {
    const uint32_t got = port->allocate(all);
    CHECK(got == 3000);
    CHECK(port->allocate({all.data() + got, 1}) == 0);
    for (uint32_t i = 0; i < got; ++i) all[i].length = 60;
    const uint32_t sent = port->transmit({all.data(), got}, 0);
    port->discard({all.data() + sent, got - sent});
    std::vector<ReceivedFrame> in(64);
    while (const uint32_t n = port->receive(in, 0)) port->release({in.data(), n});
  }
}

TEST_CASE("a port may move between threads, one at a time") {
  auto port = open_port("net_ring0");
  for (int i = 0; i < 4; ++i) {
    std::thread([&] {
      for (uint32_t k = 0; k < 5000; ++k) {
        port->poll(k);
        TransmitFrame frame;
        if (port->allocate({&frame, 1}) != 1) return;
        std::memset(frame.data, static_cast<int>(k), 60);
        frame.length = 60;
        ReceivedFrame received;
        if (port->transmit({&frame, 1}, 0) != 1 || port->receive({&received, 1}, 0) != 1) return;
        port->release({&received, 1});
      }
    }).join();
  }
  CHECK(counter(*port, "rx_frames") == 20000);
}

TEST_CASE("several ports at once, and a name again after it was closed") {
  auto one = open_port("net_ring0");
  auto two = open_port("net_ring1", 2000);
  CHECK_THAT(refusal("net_ring1"), Catch::Contains("open in this process already"));
  two.reset();
  two = open_port("net_ring1");
  TransmitFrame frame = compose(*one, 100, 1);
  REQUIRE(one->transmit({&frame, 1}, 0) == 1);
  ReceivedFrame received;
  CHECK(two->receive({&received, 1}, 0) == 0);
  REQUIRE(one->receive({&received, 1}, 0) == 1);
  one->release({&received, 1});
}

TEST_CASE("the bare port's loops work on an open port") {
  auto port = open_port("net_ring0");
  // A ring returns each ping to its sender.
  std::vector<uint64_t> samples;
  CHECK(raw_ping(*port, port->capabilities().address, 64, 1000, 10, samples) == 1000);
  CHECK(samples.size() == 100);
  RawLink link(*port, port->capabilities().address);
  std::vector<std::byte> out(32 * 1500), in(32 * 1500);
  for (size_t i = 0; i < out.size(); ++i) out[i] = body(3, static_cast<uint32_t>(i));
  for (const size_t size : {size_t{0}, size_t{1}, size_t{1500}}) {
    REQUIRE(link.send_burst(out.data(), size, 40) == 32);
    REQUIRE(link.receive_burst(in.data(), size, 40) == 32);
    CHECK(std::memcmp(in.data(), out.data(), 32 * size) == 0);
  }
  CHECK_FALSE(link.try_receive(in.data(), 1));
  // Both calls end even if nothing answers.
  std::atomic<bool> stop{true};
  CHECK(raw_echo(*port, {}, 64, 10, {.timeout = 50 * kMillisecond}) == 0);
  CHECK(raw_echo(*port, {}, 64, 10, {.stop = &stop}) == 0);
}

TEST_CASE("each port that cannot be opened says why and what to do") {
  using Catch::Contains;
  CHECK_THAT(refusal("net_foo0"), Contains("dpdk:net_foo0"));
  CHECK_THAT(refusal("net_ring"), Contains("not a DPDK port"));
  CHECK_THAT(refusal(""), Contains("not a DPDK port"));
  CHECK_THAT(refusal("net_ring0,=x"), Contains("no name"));
  CHECK_THAT(refusal("net_ring0,a=1,a=2"), Contains("twice"));
  CHECK_THAT(refusal("net_ring0", {.mtu = 10}), Contains("256 to 9600"));
  CHECK_THAT(refusal("net_ring0", {.mtu = 20000}), Contains("256 to 9600"));
  CHECK_THAT(refusal("net_ring0", {.buffers = 100}), Contains("at least"));
  CHECK_THAT(refusal("net_ring0", {.buffers = 1000000}), Contains("MiB") && Contains("memory="));
  CHECK_THAT(refusal("net_memif0"), Contains("role=server or role=client"));
  CHECK_THAT(refusal("net_memif0,role=master"), Contains("role=server or role=client"));
  CHECK_THAT(refusal("net_memif0,role=server,zero-copy=yes"), Contains("role=client"));
  CHECK_THAT(refusal("net_memif0,role=server,socket=x"), Contains("absolute path"));
  CHECK_THAT(refusal("net_memif0,role=server,socket=/tmp/x,socket-abstract=yes"), Contains("every local user"));
  CHECK_THAT(refusal("net_memif0,role=client,socket=/tmp/unet-test-nobody,nonsense=1"),
             Contains("'nonsense' is not an option of net_memif; allowed: role"));
  CHECK_THAT(refusal("net_memif0,role=client,bsize=1024"), Contains("too small"));
  CHECK_THAT(refusal("net_memif0,role=client,bsize=1"), Contains("256 to 65535"));
  CHECK_THAT(refusal("net_memif0,role=client,rsize=15"), Contains("1 to 14"));
  CHECK_THAT(refusal("net_memif0,role=client,mac=1"), Contains("02:00:00:00:00:01"));
  CHECK_THAT(refusal("net_memif0,role=client,zero-copy=maybe"), Contains("yes and no"));
  CHECK_THAT(refusal("net_memif0,role=client,socket=/tmp/unet-test-nobody-" + std::to_string(getpid()), {.wait_link = 50 * kMillisecond}),
             Contains("no peer") && Contains("server"));
  CHECK_THAT(refusal("net_af_packet0"), Contains("needs iface="));
  CHECK_THAT(refusal("net_af_packet0,iface=unet-none"), Contains("no network interface 'unet-none'") && Contains("ip link"));
  CHECK_THAT(refusal("net_af_xdp0,iface=unet-none"), Contains("no network interface 'unet-none'"));
  CHECK_THAT(refusal("net_af_xdp0,iface=a-name-much-too-long-for-linux"), Contains("1 to 15 characters"));
  CHECK_THAT(refusal("virtio_user0"), Contains("path="));
  CHECK_THAT(refusal("0000:ff:1f.7"), Contains("no PCI device") && Contains("lspci"));
  CHECK_THAT(refusal("0000:ff:1f"), Contains("not a DPDK port"));
  // The name is free after a refusal.
  open_port("net_ring0");
}

TEST_CASE("two servers cannot have one memif socket; a closed one gives it back, file and all") {
  const std::string name = "/tmp/unet-test-" + std::to_string(getpid());
  auto first = open_port("net_memif0,role=server,socket=" + name);
  CHECK_THAT(refusal("net_memif1,role=server,socket=" + name), Catch::Contains("id"));
  first.reset();
  open_port("net_memif0,role=server,socket=" + name);
  const std::string path = name + ".sock";
  for (int i = 0; i < 2; ++i) {
    auto file = open_port("net_memif0,role=server,socket-abstract=no,socket=" + path);
    CHECK(std::filesystem::exists(path));
    TransmitFrame frame = compose(*file, 60, 1);
    CHECK_FALSE(file->link_up());
    CHECK(file->transmit({&frame, 1}, 0) == 0);  // the peer has not connected yet
    file->discard({&frame, 1});
    file.reset();
    CHECK_FALSE(std::filesystem::exists(path));
  }
}
