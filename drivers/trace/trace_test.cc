// trace_test.cc - a line per frame, and its text; a full disk and a pipe without a reader.
#include "drivers/trace/trace.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "drivers/sim/sim_network.h"  // tidy: allow include because a test needs a wire to look at
#include "drivers/trace/frame_text.h"
#include "unet/wire/frame.h"

using namespace unet;
using namespace unet::drivers;

namespace {

struct World {
  World() {
    char name[] = "/tmp/unet-test-XXXXXX";
    directory = mkdtemp(name);
    file = directory + "/trace";
  }
  ~World() {
    wire.reset();
    std::filesystem::remove_all(directory);
  }
  void start(const std::string& to, uint32_t port = 0) {
    auto made = Trace::wrap(net.port(port), to);
    if (!made) FAIL(made.error().text);
    wire = std::move(*made);
  }
  uint64_t counter(const std::string& name) const {
    for (const DriverCounter& each : wire->counters()) {
      if (each.name == name) return each.value;
    }
    return ~uint64_t{0};
  }
  std::vector<std::string> lines() const {
    std::ifstream in(file);
    std::vector<std::string> all;
    for (std::string line; std::getline(in, line);) all.push_back(line);
    return all;
  }

  SimNetwork net{2, {.delay = 0, .frames = 64}};
  std::string directory, file;
  std::unique_ptr<Driver> wire;
};

FrameFields fields() {
  return {.to = SimNetwork::address_of(1), .from = SimNetwork::address_of(0), .tag = Tag{0x72bd0001}, .message = 7, .total = 20};
}

bool send(Driver& port, const FrameFields& what, uint32_t length, Nanoseconds now) {
  TransmitFrame frame;
  if (port.allocate({&frame, 1}) == 0) return false;
  std::memset(frame.data + header_size(what.flags), 3, length);
  frame.length = emit_frame(frame.data, what, length);
  if (port.transmit({&frame, 1}, now) == 1) return true;
  port.discard({&frame, 1});
  return false;
}

std::string describe(std::span<const std::byte> frame, size_t room = 200) {
  std::vector<char> line(room);
  return {line.data(), describe_frame(frame, line)};
}

}  // namespace

TEST_CASE("a line for each frame that passes, in order, with time and direction") {
  World w;
  w.start(w.file);
  auto other = w.net.port(1);
  REQUIRE(send(*w.wire, fields(), 20, 5 * kSecond));
  FrameFields part = fields();
  part.total = 300;
  part.offset = 64;
  REQUIRE(send(*w.wire, part, 64, 5 * kSecond + 1'234'567));
  FrameFields put = fields();
  put.flags = FrameFlags::kPut | FrameFlags::kNotify;
  put.region_offset = 4096;
  std::swap(put.from, put.to);
  REQUIRE(send(*other, put, 20, 16 * kSecond));
  ReceivedFrame frame;
  REQUIRE(w.wire->receive({&frame, 1}, 17 * kSecond) == 1);
  w.wire->release({&frame, 1});
  CHECK(w.wire->next_event() <= 5 * kSecond + 100 * kMillisecond);
  w.wire->poll(17 * kSecond + 200 * kMillisecond);
  std::ostringstream ours, theirs;
  for (auto [port, text] : {std::pair(0u, &ours), std::pair(1u, &theirs)}) {
    for (size_t i = 0; i < 6; ++i) {
      char digits[4];
      std::snprintf(digits, sizeof digits, "%s%02x", i == 0 ? "" : ":", SimNetwork::address_of(port)[i]);
      *text << digits;
    }
  }
  const std::vector<std::string> wanted{
      "     0.000000 tx " + ours.str() + " > " + theirs.str() + "  message 7 tag 0x72bd0001  20 bytes",
      "     0.001234 tx " + ours.str() + " > " + theirs.str() + "  message 7 tag 0x72bd0001  64+64 of 300",
      "    12.000000 rx " + theirs.str() + " > " + ours.str() + "  put 7 tag 0x72bd0001  20 bytes  to region offset 4096, notify"};
  CHECK(w.lines() == wanted);
  CHECK(w.counter("trace_lines") == 3);
  CHECK(w.wire->description().starts_with("trace to " + w.file + " over "));
  struct stat status{};
  REQUIRE(stat(w.file.c_str(), &status) == 0);
  CHECK((status.st_mode & 077) == 0);
}

TEST_CASE("what the engine would drop is called by the name of its counter, and signals by theirs") {
  std::vector<std::byte> frame(2000);
  FrameFields what = fields();
  frame.resize(emit_frame(frame.data(), what, 20));
  CHECK_THAT(describe(frame), Catch::EndsWith("message 7 tag 0x72bd0001  20 bytes"));
  const auto changed = [&](size_t at, int value) {
    std::vector<std::byte> copy = frame;
    copy[at] = static_cast<std::byte>(value);
    return describe(copy);
  };
  CHECK_THAT(changed(13, 0), Catch::EndsWith("type 0x8800, 58 bytes: not_ours"));
  CHECK_THAT(changed(14, 1), Catch::EndsWith("bad_version"));
  CHECK_THAT(changed(15, 9), Catch::EndsWith("bad_flags"));
  CHECK_THAT(changed(16, 9), Catch::EndsWith("truncated"));
  CHECK_THAT(changed(29, 1), Catch::EndsWith("bad_length"));
  CHECK_THAT(changed(50, 77), Catch::EndsWith("bad_crc"));
  CHECK(describe({frame.data(), 5}) == "5 bytes, no frame");
  what.tag = kSignallingTag;
  what.to = kBroadcast;
  frame[header_size(0) + 1] = std::byte{3};
  emit_frame(frame.data(), what, 20);
  CHECK_THAT(describe(frame), Catch::Contains(" > all  signal connect  20 bytes"));
  frame[header_size(0) + 1] = std::byte{13};
  emit_frame(frame.data(), what, 20);
  CHECK_THAT(describe(frame), Catch::EndsWith("signal unknown  20 bytes"));
  for (size_t room = 1; room < 60; ++room) CHECK(describe(frame, room).size() < room);
}

TEST_CASE("what the wire does not take has no line") {
  World w;
  w.start(w.file);
  uint32_t taken = 0;
  while (send(*w.wire, fields(), 20, 0)) ++taken;
  w.wire->poll(kSecond);
  CHECK(taken > 0);
  CHECK(w.lines().size() == taken);
  CHECK(w.counter("trace_lines") == taken);
}

TEST_CASE("a full disk or a pipe that nobody reads loses lines, and no frames") {
  World w;
  const std::string fifo = w.directory + "/fifo";
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  CHECK_FALSE(Trace::wrap(w.net.port(0), fifo));  // the FIFO has no reader
  const int reader = open(fifo.c_str(), O_RDONLY | O_NONBLOCK);
  Nanoseconds now = 0;
  for (const std::string& to : {std::string("/dev/full"), fifo}) {
    w.start(to);
    auto other = w.net.port(1);
    for (int i = 0; i < 3000; ++i, now += kMillisecond) {
      REQUIRE(send(*w.wire, fields(), 20, now));
      ReceivedFrame frame;
      REQUIRE(other->receive({&frame, 1}, now) == 1);
      other->release({&frame, 1});
      w.wire->poll(now);
    }
    w.wire->poll(now + kSecond);
    CHECK(w.counter("trace_lost") > 0);
    CHECK(w.counter("trace_lost") + w.counter("trace_lines") == 3000);
    w.wire.reset();
  }
  close(reader);
}
