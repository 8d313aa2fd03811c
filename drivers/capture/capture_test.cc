// capture_test.cc - the file holds every byte that passed; a full disk, a limit and a slow reader.
#include "drivers/capture/capture.h"

#include <fcntl.h>
#include <pcap/pcap.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

using namespace unet;
using namespace unet::drivers;

namespace {

std::byte body(uint32_t number, size_t position) { return static_cast<std::byte>(number * 31 + position * 7 + (position >> 8)); }

// A wire with the test at its other end.
class TestWire final : public Driver {
 public:
  uint32_t room = ~0u;  // frames that it takes; the test may lower it
  std::vector<std::vector<std::byte>> sent, arriving;

  const DriverCapabilities& capabilities() const noexcept override { return capabilities_; }
  uint32_t receive(std::span<ReceivedFrame> frames, Nanoseconds) noexcept override {
    uint32_t n = 0;
    for (; n < frames.size() && next_ < arriving.size(); ++n, ++next_) {
      frames[n] = {.data = arriving[next_].data(), .length = static_cast<uint32_t>(arriving[next_].size()), .handle = nullptr};
    }
    return n;
  }
  void release(std::span<const ReceivedFrame>) noexcept override {}
  uint32_t allocate(std::span<TransmitFrame> frames) noexcept override {
    for (TransmitFrame& frame : frames) frame = {.data = new std::byte[2000]};
    return static_cast<uint32_t>(frames.size());
  }
  uint32_t transmit(std::span<TransmitFrame> frames, Nanoseconds) noexcept override {
    uint32_t n = 0;
    for (; n < frames.size() && room > 0; ++n, --room) {
      std::vector<std::byte> all(frames[n].data, frames[n].data + frames[n].length);
      all.insert(all.end(), frames[n].external, frames[n].external + frames[n].external_length);
      sent.push_back(std::move(all));
    }
    discard(frames.first(n));
    return n;
  }
  void discard(std::span<const TransmitFrame> frames) noexcept override {
    for (const TransmitFrame& frame : frames) delete[] frame.data;
  }
  std::vector<DriverCounter> counters() const override { return {{"wire", 1}}; }
  std::string description() const override { return "test wire"; }

 private:
  DriverCapabilities capabilities_{.address = {2, 0, 0, 0, 0, 7}, .external_payload = true};
  size_t next_ = 0;
};

std::vector<std::byte> frame_of(uint32_t number, uint32_t length) {
  std::vector<std::byte> bytes(length);
  for (uint32_t i = 0; i < length; ++i) bytes[i] = body(number, i);
  return bytes;
}

// A frame that was sent or received, as the file stores it.
struct Seen {
  std::vector<std::byte> bytes;
  uint32_t length = 0;
  uint64_t time = 0;
  bool operator==(const Seen&) const = default;
};

std::vector<Seen> read_file(const std::string& file) {
  char error[PCAP_ERRBUF_SIZE] = "";
  pcap_t* const reader = pcap_open_offline_with_tstamp_precision(file.c_str(), PCAP_TSTAMP_PRECISION_NANO, error);
  INFO(error);
  REQUIRE(reader != nullptr);
  std::vector<Seen> all;
  pcap_pkthdr* header = nullptr;
  const u_char* bytes = nullptr;
  int result = 0;
  while ((result = pcap_next_ex(reader, &header, &bytes)) == 1) {
    const auto* const data = reinterpret_cast<const std::byte*>(bytes);
    all.push_back({.bytes = {data, data + header->caplen},
                   .length = header->len,
                   .time = static_cast<uint64_t>(header->ts.tv_sec) * kSecond + static_cast<uint64_t>(header->ts.tv_usec)});
  }
  INFO(pcap_geterr(reader));
  CHECK(result == PCAP_ERROR_BREAK);  // the end, after a whole block
  pcap_close(reader);
  return all;
}

// Reads the directions, in order, from the options of the packet blocks: libpcap does not show them.
std::vector<uint32_t> read_directions(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(in), {}};
  std::vector<uint32_t> directions;
  const auto word = [&](size_t at) {
    uint32_t value = 0;
    std::memcpy(&value, all.data() + at, 4);
    return value;
  };
  for (size_t at = 0; at + 12 <= all.size(); at += word(at + 4)) {
    REQUIRE(word(at + 4) % 4 == 0);
    REQUIRE(at + word(at + 4) <= all.size());
    REQUIRE(word(at + word(at + 4) - 4) == word(at + 4));
    if (word(at) != 6) continue;
    const size_t options = at + 28 + (word(at + 20) + 3) / 4 * 4;
    REQUIRE(word(options) == (2 | 4 << 16));
    directions.push_back(word(options + 4));
  }
  return directions;
}

struct World {
  World() {
    char name[] = "/tmp/unet-test-XXXXXX";
    directory = mkdtemp(name);
    file = directory + "/a.pcapng";
  }
  ~World() {
    driver.reset();
    std::filesystem::remove_all(directory);
  }
  void start(CaptureOptions options) {
    if (options.file.empty()) options.file = file;
    auto test_wire = std::make_unique<TestWire>();
    wire = test_wire.get();
    auto made = Capture::wrap(std::move(test_wire), options);
    if (!made) FAIL(made.error().text);
    driver = std::move(*made);
  }
  void stop() {
    wire = nullptr;
    driver.reset();
  }
  // Returns how many frames were taken; `external` bytes of each lie in external memory.
  uint32_t send(uint32_t first, uint32_t count, uint32_t length, Nanoseconds now, uint32_t external = 0) {
    std::vector<TransmitFrame> frames(count);
    std::vector<std::vector<std::byte>> contents;
    REQUIRE(driver->allocate(frames) == count);
    for (uint32_t i = 0; i < count; ++i) {
      contents.push_back(frame_of(first + i, length));
      std::memcpy(frames[i].data, contents[i].data(), length - external);
      frames[i].length = length - external;
      frames[i].external = contents[i].data() + length - external;
      frames[i].external_length = external;
      if (external == 0) frames[i].external = nullptr;
    }
    const uint32_t taken = driver->transmit(frames, now);
    driver->discard({frames.data() + taken, count - taken});
    return taken;
  }
  uint64_t counter(const std::string& name) {
    for (const DriverCounter& each : driver->counters()) {
      if (each.name == name) return each.value;
    }
    FAIL("no counter " << name);
    return 0;
  }
  // Sends frames until the capture has stopped by itself.
  void send_until_stopped() {
    const Nanoseconds end = monotonic_now() + 60 * kSecond;
    while (counter("capture_running") == 1) {
      REQUIRE(send(1, 8, 1000, monotonic_now()) == 8);
      REQUIRE(monotonic_now() < end);
      std::this_thread::yield();
    }
  }

  std::string directory, file;
  std::unique_ptr<Driver> driver;
  TestWire* wire = nullptr;
};

}  // namespace

TEST_CASE("frames of both directions are in the file, in order, with their bytes, times and directions") {
  World w;
  w.start({});
  CHECK(w.driver->description() == "capture to " + w.file + " over test wire");
  CHECK(w.driver->capabilities().address == MacAddress{2, 0, 0, 0, 0, 7});
  std::vector<std::vector<std::byte>> wanted;
  std::vector<uint32_t> directions;
  constexpr Nanoseconds kGap = 1'000'003;
  for (uint32_t n = 0; n < 300; ++n) {
    const uint32_t length = 14 + n * 5;
    wanted.push_back(frame_of(n, length));
    if (n % 3 == 0) {
      w.wire->arriving.push_back(wanted.back());
      ReceivedFrame frames[4];
      REQUIRE(w.driver->receive(frames, 77 + n * kGap) == 1);
      CHECK(frames[0].length == length);
      w.driver->release({frames, 1});
      directions.push_back(1);
    } else {
      REQUIRE(w.send(n, 1, length, 77 + n * kGap, n % 3 == 1 ? 0 : length - 14) == 1);
      CHECK(w.wire->sent.back() == wanted.back());
      directions.push_back(2);
    }
  }
  CHECK(w.counter("capture_frames") == 300);
  CHECK(w.counter("capture_dropped") == 0);
  CHECK(w.counter("wire") == 1);
  w.stop();
  const std::vector<Seen> seen = read_file(w.file);
  REQUIRE(seen.size() == 300);
  for (uint32_t n = 0; n < 300; ++n) {
    CHECK(seen[n].bytes == wanted[n]);
    CHECK(seen[n].length == wanted[n].size());
    CHECK(seen[n].time - seen[0].time == n * kGap);
  }
  const auto today = static_cast<uint64_t>(time(nullptr));
  CHECK(seen[0].time / kSecond + 3600 > today);
  CHECK(seen[299].time / kSecond < today + 3600);
  CHECK(read_directions(w.file) == directions);
  struct stat status{};
  REQUIRE(stat(w.file.c_str(), &status) == 0);
  CHECK((status.st_mode & 077) == 0);  // frames are private data of users
}

TEST_CASE("what the wire does not take is not in the file, and is when it is sent again") {
  World w;
  w.start({});
  w.wire->room = 70;
  CHECK(w.send(0, 100, 60, 0) == 70);
  CHECK(w.counter("capture_frames") == 70);
  CHECK(w.send(70, 30, 60, 0) == 0);
  w.wire->room = 30;
  CHECK(w.send(70, 30, 60, 0) == 30);
  w.stop();
  const std::vector<Seen> seen = read_file(w.file);
  REQUIRE(seen.size() == 100);
  for (uint32_t n = 0; n < 100; ++n) CHECK(seen[n].bytes == frame_of(n, 60));
}

TEST_CASE("a filter and a snap length") {
  World w;
  // The filter tests the last byte, which lies in external memory and beyond snap_length.
  const uint32_t wanted = static_cast<uint32_t>(body(5, 99));
  w.start({.filter = "ether[99] == " + std::to_string(wanted), .snap_length = 20});
  REQUIRE(w.send(0, 20, 100, 0) == 20);
  REQUIRE(w.send(0, 20, 100, 0, 80) == 20);
  w.stop();
  const std::vector<Seen> seen = read_file(w.file);
  REQUIRE(seen.size() == 2);
  const std::vector<std::byte> whole = frame_of(5, 100);
  for (const Seen& each : seen) {
    CHECK(each.length == 100);
    CHECK(each.bytes == std::vector<std::byte>(whole.begin(), whole.begin() + 20));
  }
}

TEST_CASE("at its limit a capture stops, with whole blocks, and the wire goes on") {
  World w;
  w.start({.limit = 100'000});
  w.send_until_stopped();
  CHECK(w.counter("capture_bytes") <= 100'000);
  CHECK(w.counter("capture_bytes") > 98'000);
  CHECK(w.send(1, 8, 1000, 0) == 8);
  w.stop();
  CHECK(std::filesystem::file_size(w.file) <= 100'000);
  for (const Seen& each : read_file(w.file)) CHECK(each.length == 1000);
}

TEST_CASE("a full disk stops the capture and nothing else") {
  World w;
  w.start({.file = "/dev/full"});
  w.send_until_stopped();
  CHECK(w.send(1, 8, 1000, 0) == 8);
  CHECK(w.counter("capture_bytes") == 0);
}

TEST_CASE("a file that may not grow further ends with a whole block") {
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{50'001, before.rlim_max};
  World w;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  w.start({});
  w.send_until_stopped();
  setrlimit(RLIMIT_FSIZE, &before);
  CHECK(w.counter("capture_bytes") == std::filesystem::file_size(w.file));
  w.stop();
  CHECK(std::filesystem::file_size(w.file) > 48'000);
  CHECK(std::filesystem::file_size(w.file) <= 50'001);
  for (const Seen& each : read_file(w.file)) CHECK(each.length == 1000);
}

TEST_CASE("a capture goes to no link and to no file that another user has put there") {
  World w;
  const std::string own = w.directory + "/own", link = w.directory + "/link", name = w.directory + "/name";
  std::ofstream(own) << "kept";
  std::filesystem::create_symlink(own, link);
  std::filesystem::create_hard_link(own, name);
  std::vector<std::string> refused{link, name, own};
  if (geteuid() == 0) {
    refused.push_back(w.directory + "/other");
    std::ofstream(refused.back()) << "kept";
    REQUIRE(chown(refused.back().c_str(), 65534, static_cast<gid_t>(-1)) == 0);
  }
  for (const std::string& each : refused) {
    CAPTURE(each);
    const auto capture = CaptureFile::start({.file = each}, "wire", {});
    REQUIRE_FALSE(capture);
    CHECK(capture.error().code == Errc::not_permitted);
    CHECK(std::filesystem::file_size(each) == 4);
  }
  std::filesystem::remove(name);
  CHECK(CaptureFile::start({.file = own}, "wire", {}));  // the owner's file is replaced
}

TEST_CASE("a reader that does not read costs frames of the capture, which are counted, and no time of the wire") {
  World w;
  const std::string fifo = w.directory + "/fifo";
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  CHECK_FALSE(CaptureFile::start({.file = fifo}, "wire", {}));  // the FIFO has no reader
  const int reader = open(fifo.c_str(), O_RDONLY | O_NONBLOCK);
  REQUIRE(reader >= 0);
  w.start({.file = fifo, .ring_bytes = 256 << 10});
  for (int i = 0; i < 1000; ++i) REQUIRE(w.send(1, 8, 1000, 0) == 8);
  CHECK(w.counter("capture_dropped") > 0);
  CHECK(w.counter("capture_frames") + w.counter("capture_dropped") == 8000);
  CHECK(w.counter("capture_running") == 1);
  close(reader);
  w.send_until_stopped();  // the reader has closed the FIFO
}
