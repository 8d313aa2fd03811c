// udp_queues_test.cc - the udp wrapper around the queues of one wire: each queue learns in time from the others.
#include <deque>
#include <memory>

#include "drivers/sim/sim_network.h"  // tidy: allow include because a test needs a wire to look at
#include "drivers/udp/test_frames.h"

using namespace unet;
using namespace unet::drivers;

namespace {

// A wire with two queues; frames arrive at queue `to`.
struct Split {
  std::unique_ptr<Driver> wire;
  std::deque<ReceivedFrame> waiting[2];
  uint32_t to = 0;
};

class SplitQueue final : public Driver {
 public:
  SplitQueue(std::shared_ptr<Split> split, uint32_t number) : split_(std::move(split)), number_(number) {}
  const DriverCapabilities& capabilities() const noexcept override { return split_->wire->capabilities(); }
  uint32_t queues() const noexcept override { return 2; }
  std::vector<std::unique_ptr<Driver>> take_queues() override {
    std::vector<std::unique_ptr<Driver>> other;
    other.push_back(std::make_unique<SplitQueue>(split_, 1));
    return other;
  }
  uint32_t receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept override {
    std::array<ReceivedFrame, 8> burst;
    while (const uint32_t count = split_->wire->receive(burst, now)) {
      for (uint32_t i = 0; i < count; ++i) split_->waiting[split_->to].push_back(burst[i]);
    }
    uint32_t count = 0;
    for (std::deque<ReceivedFrame>& own = split_->waiting[number_]; count < frames.size() && !own.empty(); own.pop_front()) {
      frames[count++] = own.front();
    }
    return count;
  }
  void release(std::span<const ReceivedFrame> frames) noexcept override { split_->wire->release(frames); }
  uint32_t allocate(std::span<TransmitFrame> frames) noexcept override { return split_->wire->allocate(frames); }
  uint32_t transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept override { return split_->wire->transmit(frames, now); }
  void discard(std::span<const TransmitFrame> frames) noexcept override { split_->wire->discard(frames); }
  std::vector<DriverCounter> counters() const override { return {}; }
  std::string description() const override { return "split"; }

 private:
  std::shared_ptr<Split> split_;
  const uint32_t number_;
};

// An NI with a two-queue wire, and two NIs with one queue each, in one network. The two know the first one's address; it does not know
// theirs.
struct World {
  explicit World(bool ipv4) : split(std::make_shared<Split>()) {
    UdpOptions own = options(ipv4, 1, 2);
    own.gateway.reset();
    split->wire = net.port(0);
    queues.push_back(wrap(std::make_unique<SplitQueue>(split, 0), own));
    CHECK(queues[0]->queues() == 2);
    for (auto& other : queues[0]->take_queues()) queues.push_back(std::move(other));
    REQUIRE(queues.size() == 2);
    for (const int host : {3, 4}) {
      UdpOptions o = options(ipv4, 1, host);
      o.gateway.reset();
      o.peers.push_back(own.address);
      others.push_back(wrap(net.port(static_cast<uint32_t>(host - 2)), o));
    }
    run(5 * kMillisecond);
  }
  // Runs the engines of queues `first` to `last`; the others stand still.
  void run(Nanoseconds time, uint32_t first = 0, uint32_t last = 1) {
    for (const Nanoseconds end = now + time; now < end; now += 10 * kMicrosecond) {
      for (uint32_t q = first; q <= last; ++q) turn(q);
      for (uint32_t h = 0; h < 2; ++h) {
        for (Arrived& each : received(*others[h], now)) at_host[h].push_back(each);
        others[h]->poll(now);
      }
    }
  }
  void turn(uint32_t q) {
    for (Arrived& each : received(*queues[q], now)) at_queue[q].push_back(each);
    queues[q]->poll(now);
  }
  MacAddress address() const { return queues[0]->capabilities().address; }
  MacAddress address(uint32_t host) const { return others[host]->capabilities().address; }

  SimNetwork net{4, {.delay = kMicrosecond, .receive_ring = 2048, .frames = 4096}};
  std::shared_ptr<Split> split;
  std::vector<std::unique_ptr<Driver>> queues, others;
  std::vector<Arrived> at_queue[2], at_host[2];
  Nanoseconds now = kSecond;
};

}  // namespace

TEST_CASE("whose signal arrived at one queue is a peer at the other: both ways, without a frame lost") {
  World w(GENERATE(true, false));
  const uint32_t at = GENERATE(0u, 1u), other = 1 - at;
  w.split->to = at;
  REQUIRE(send(*w.others[0], w.address(), kSignallingTag, 40, w.now));
  w.run(kMillisecond);
  REQUIRE(w.at_queue[at].size() == 1);
  w.split->to = other;  // also answers to questions
  w.run(60 * kMillisecond);
  REQUIRE(send(*w.others[0], w.address(), Tag{5}, 100, w.now));
  w.run(kMillisecond);
  REQUIRE(w.at_queue[other].size() == 1);
  CHECK(w.at_queue[other][0].view.from == w.address(0));
  for (const uint32_t q : {0u, 1u}) REQUIRE(send(*w.queues[q], w.address(0), Tag{6 + q}, 100, w.now));
  w.run(kMillisecond);
  CHECK(w.at_host[0].size() == 2);
  uint64_t peers = 0;
  for (const auto& queue : w.queues) {
    CHECK(counter(*queue, "udp_unknown_peer") == 0);
    CHECK(counter(*queue, "udp_no_neighbour") == 0);
    peers += counter(*queue, "udp_peers");
  }
  CHECK(peers == 1);
}

TEST_CASE("what one queue has learned is known at the other within the turn") {
  World w(GENERATE(true, false));
  w.split->to = 1;
  REQUIRE(send(*w.others[1], w.address(), kSignallingTag, 40, w.now));
  w.run(kMillisecond, 1, 1);  // queue 0's engine does not run
  REQUIRE(w.at_queue[1].size() == 1);
  REQUIRE(send(*w.queues[0], w.address(1), kSignallingTag, 40, w.now));  // queue 0 has not polled its wire yet
  CHECK(counter(*w.queues[0], "udp_unknown_peer") == 0);
  w.split->to = 0;
  REQUIRE(send(*w.others[1], w.address(), Tag{5}, 100, w.now));
  w.run(kMillisecond);
  CHECK(w.at_queue[0].size() == 1);
}

TEST_CASE("an answer that arrives at another queue than it was asked from is heard") {
  World w(GENERATE(true, false));
  w.split->to = 0;
  REQUIRE(send(*w.others[0], w.address(), kSignallingTag, 40, w.now));
  w.run(60 * kMillisecond);
  // Queue 1 continues asking; all answers arrive at queue 0.
  for (int i = 0; i < 200; ++i) {
    w.now += kSecond - kMillisecond;
    w.run(100 * kMicrosecond);
    REQUIRE(send(*w.queues[1], w.address(0), Tag{6}, 10, w.now));
    w.run(900 * kMicrosecond);
  }
  CHECK(w.at_host[0].size() == 200);
  CHECK(counter(*w.queues[1], "udp_no_neighbour") == 0);
}

TEST_CASE("a queue that missed what was said hears it when it is said again") {
  const bool ipv4 = GENERATE(true, false);
  World w(ipv4);
  w.split->to = 0;
  REQUIRE(send(*w.others[0], w.address(), kSignallingTag, 40, w.now));
  w.run(kMillisecond, 0, 0);  // queue 1's engine does not run
  REQUIRE(w.at_queue[0].size() == 1);
  // Meanwhile neighbours ask for each other more often than the ring has entries.
  Neighbours asker({.mac = {2, 0, 0, 0, 7, 7}, .ip = options(ipv4, 1, 9).address, .port = 849}, 1);
  asker.set(0, options(ipv4, 1, 8).address, std::nullopt);
  Neighbours::Message question;
  asker.want(0, w.now);
  REQUIRE(asker.ask(question, w.now));
  const std::unique_ptr<Driver> station = w.net.port(3);
  for (uint32_t i = 0; i < Hearsay::kDepth + 10; ++i) {
    TransmitFrame frame;
    REQUIRE(station->allocate({&frame, 1}) == 1);
    std::memcpy(frame.data, question.bytes.data(), question.length);
    frame.length = question.length;
    REQUIRE(station->transmit({&frame, 1}, w.now) == 1);
    w.run(10 * kMicrosecond, 0, 0);
  }
  w.split->to = 1;
  REQUIRE(send(*w.others[0], w.address(), Tag{5}, 100, w.now));
  w.run(kMillisecond);
  CHECK(counter(*w.queues[1], "udp_unknown_peer") == 1);
  w.split->to = 0;
  w.run(100 * kMillisecond);
  REQUIRE(send(*w.others[0], w.address(), kSignallingTag, 40, w.now));  // an NI signals its channels' peers several times a second
  w.run(kMillisecond);
  w.split->to = 1;
  REQUIRE(send(*w.others[0], w.address(), Tag{5}, 100, w.now));
  w.run(kMillisecond);
  CHECK(w.at_queue[1].size() == 1);
}
