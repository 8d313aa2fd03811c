// pcap_files_test.cc - capture files as a wire: every frame unchanged, in order and in time; errors for bad files.
#include "drivers/pcap/pcap_files.h"

#include <pcap/pcap.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "drivers/pcap/pcap_live.h"

using namespace unet;
using namespace unet::drivers;

namespace {

class Directory {
 public:
  Directory() {
    char name[] = "/tmp/unet-test-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::byte body(uint32_t number, uint32_t position) { return static_cast<std::byte>(number * 31 + position * 7); }

std::unique_ptr<PcapFiles> open(const PcapFilesOptions& options) {
  auto port = PcapFiles::open(options);
  if (!port) FAIL(port.error().text);
  return std::move(*port);
}

void send(Driver& port, uint32_t number, uint32_t length, Nanoseconds now) {
  TransmitFrame frame;
  REQUIRE(port.allocate({&frame, 1}) == 1);
  for (uint32_t i = 0; i < length; ++i) frame.data[i] = body(number, i);
  frame.length = length;
  REQUIRE(port.transmit({&frame, 1}, now) == 1);
}

bool is(const ReceivedFrame& frame, uint32_t number, uint32_t length) {
  if (frame.length != length) return false;
  for (uint32_t i = 0; i < length; ++i) {
    if (frame.data[i] != body(number, i)) return false;
  }
  return true;
}

uint64_t counter(const Driver& port, const std::string& name) {
  for (const DriverCounter& each : port.counters()) {
    if (each.name == name) return each.value;
  }
  FAIL("no counter " << name);
  return 0;
}

std::string refusal(const PcapFilesOptions& options) {
  auto port = PcapFiles::open(options);
  REQUIRE_FALSE(port);
  return port.error().text;
}

}  // namespace

TEST_CASE("a damaged file ends in order, and the log has the reason") {
  Directory directory;
  constexpr uint32_t kLength = 60, kFileHeader = 24, kRecordHeader = 16;
  constexpr uint32_t kThird = kFileHeader + 2 * (kRecordHeader + kLength);
  const auto damaged = [&](const std::string& name, auto damage) {
    const std::string file = directory / name;
    {
      auto port = open({.write = file});
      for (uint32_t i = 0; i < 4; ++i) send(*port, i, kLength, kSecond);
    }
    damage(file);
    auto port = open({.read = file});
    std::array<ReceivedFrame, 8> frames;
    CHECK(port->receive(frames, kSecond) == 2);
    port->release({frames.data(), 2});
    CHECK(port->receive(frames, 2 * kSecond) == 0);
    CHECK(port->next_event() == ~Nanoseconds{0});
    CHECK((counter(*port, "rx_errors") == 1 && counter(*port, "rx_ended") == 1));
    const std::vector<std::string> lines = port->state()->take_lines();
    REQUIRE(lines.size() == 1);
    CHECK_THAT(lines[0], Catch::Matchers::Contains("read=" + file + ": packet 3 is damaged"));
    return lines[0];
  };
  CHECK_THAT(damaged("short", [](const std::string& file) { std::filesystem::resize_file(file, kThird + kRecordHeader + 10); }),
             Catch::Matchers::Contains("truncated"));
  // A record that claims an impossible length.
  CHECK_THAT(damaged("lying", [](const std::string& file) {
               std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
               bytes.seekp(kThird + 8);
               bytes.write("\xFF\xFF\xFF\x7F", 4);
             }),
             Catch::Matchers::Contains("bigger than snaplen"));
}

TEST_CASE("what one port writes another reads, byte by byte, in order") {
  Directory directory;
  const std::string file = directory / "a.pcap";
  constexpr uint32_t kCount = 3000;  // more than the port has buffers
  const auto length = [](uint32_t number) { return 14 + number % 1501; };
  {
    auto writer = open({.write = file});
    CHECK(writer->next_event() == ~Nanoseconds{0});
    for (uint32_t n = 0; n < kCount; ++n) send(*writer, n, length(n), 1000 + n);
    CHECK(counter(*writer, "tx_frames") == kCount);
    CHECK(writer->description() == "pcap:write=" + file + " 02:00:00:00:00:01 mtu 1500");
  }
  auto reader = open({.read = file});
  CHECK(reader->next_event() == 0);
  uint32_t number = 0;
  while (number < kCount) {
    ReceivedFrame frames[7];
    const uint32_t got = reader->receive(frames, 5);
    REQUIRE(got > 0);
    for (uint32_t i = 0; i < got; ++i, ++number) REQUIRE(is(frames[i], number, length(number)));
    reader->release({frames, got});
  }
  ReceivedFrame none;
  CHECK(reader->receive({&none, 1}, 6) == 0);
  CHECK(reader->next_event() == ~Nanoseconds{0});
  CHECK(counter(*reader, "rx_frames") == kCount);
  CHECK(counter(*reader, "rx_ended") == 1);
  CHECK(counter(*reader, "rx_errors") == 0);
}

TEST_CASE("a port reads and writes at once; without a file, sent frames are forgotten") {
  Directory directory;
  { send(*open({.write = directory / "in.pcap"}), 1, 60, 0); }
  auto port = open({.read = directory / "in.pcap", .write = directory / "out.pcap", .address = {2, 0, 0, 0, 0, 9}, .mtu = 9000});
  CHECK(port->capabilities().address == MacAddress{2, 0, 0, 0, 0, 9});
  CHECK(port->capabilities().mtu == 9000);
  ReceivedFrame frame;
  REQUIRE(port->receive({&frame, 1}, 0) == 1);
  CHECK(is(frame, 1, 60));
  send(*port, 2, 9014, 0);
  port->release({&frame, 1});
  // A reader of the file sees sent frames a moment later, while the port is open.
  REQUIRE(port->next_event() != ~Nanoseconds{0});
  port->poll(port->next_event());
  CHECK(port->next_event() == ~Nanoseconds{0});
  auto again = open({.read = directory / "out.pcap", .mtu = 9000});
  REQUIRE(again->receive({&frame, 1}, 0) == 1);
  CHECK(is(frame, 2, 9014));
  again->release({&frame, 1});

  auto silent = open({.read = directory / "in.pcap"});
  send(*silent, 3, 60, 0);
  CHECK(counter(*silent, "tx_frames") == 1);
}

TEST_CASE("timed: frames arrive at the distances in time at which they were sent") {
  Directory directory;
  {
    auto writer = open({.write = directory / "a.pcap"});
    for (uint32_t n = 0; n < 4; ++n) send(*writer, n, 60, 7'000'000 + n * 1'234'567);
  }
  auto reader = open({.read = directory / "a.pcap", .timed = true});
  ReceivedFrame frames[4];
  constexpr Nanoseconds kStart = 55;
  CHECK(reader->receive(frames, kStart) == 1);
  for (uint32_t n = 1; n < 4; ++n) {
    const Nanoseconds due = kStart + n * 1'234'567;
    CHECK(reader->next_event() == due);
    CHECK(reader->receive(frames, due - 1) == 0);
    REQUIRE(reader->receive(frames, due) == 1);
    CHECK(is(frames[0], n, 60));
    reader->release({frames, 1});
  }
}

TEST_CASE("frames that do not fit are skipped and counted, and so is a file that breaks off") {
  Directory directory;
  const std::string file = directory / "a.pcap";
  {
    auto writer = open({.write = file, .mtu = 9000});
    send(*writer, 0, 9000, 0);
    send(*writer, 1, 300, 0);
    send(*writer, 2, 300, 0);
  }
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  auto reader = open({.read = file});
  ReceivedFrame frames[4];
  REQUIRE(reader->receive(frames, 0) == 1);
  CHECK(is(frames[0], 1, 300));
  CHECK(counter(*reader, "rx_oversize") == 1);
  CHECK(counter(*reader, "rx_errors") == 1);
  CHECK(counter(*reader, "rx_ended") == 1);
}

TEST_CASE("the places for frames are bounded, and come back") {
  Directory directory;
  auto port = open({.write = directory / "a.pcap"});
  std::vector<TransmitFrame> frames(5000);
  const uint32_t had = port->allocate(frames);
  CHECK(had < frames.size());
  CHECK(had >= 1024);
  CHECK(port->allocate({frames.data() + had, 1}) == 0);
  port->discard({frames.data(), had});
  CHECK(port->allocate(frames) == had);
}

TEST_CASE("a full disk loses frames and counts them, and nothing else") {
  auto port = open({.write = "/dev/full"});
  for (uint32_t n = 0; n < 100; ++n) send(*port, n, 1514, 0);
  CHECK(counter(*port, "tx_errors") > 0);
  CHECK(counter(*port, "tx_errors") + counter(*port, "tx_frames") == 100);
}

TEST_CASE("what cannot be opened says so") {
  using Catch::Contains;
  Directory directory;
  CHECK_THAT(refusal({.read = directory / "none.pcap"}), Contains("none.pcap") && Contains("No such file"));
  CHECK_THAT(refusal({.write = directory / "no/such/directory"}), Contains("write=") && Contains("No such file"));
  std::ofstream(directory / "text.pcap") << "this is no capture file at all";
  CHECK_THAT(refusal({.read = directory / "text.pcap"}), Contains("text.pcap") && Contains("unknown file format"));
  pcap_t* const dead = pcap_open_dead(DLT_RAW, 100);
  pcap_dump_close(pcap_dump_open(dead, (directory / "raw.pcap").c_str()));
  pcap_close(dead);
  CHECK_THAT(refusal({.read = directory / "raw.pcap"}), Contains("RAW") && Contains("only Ethernet"));
}

TEST_CASE("an interface that can be no wire is refused with what to do") {
  using Catch::Contains;
  const auto told = [](const std::string& interface) {
    auto port = PcapLive::open({.interface = interface});
    REQUIRE_FALSE(port);
    return port.error().text;
  };
  CHECK_THAT(told("unet-not-there"), Contains("no such network interface") && Contains("ip link"));
  CHECK_THAT(told("an-interface-name-that-is-too-long"), Contains("1 to 15 characters"));
  CHECK_THAT(told(""), Contains("1 to 15 characters"));
  CHECK_THAT(told("lo"), Contains("loopback") && Contains("veth"));
}
