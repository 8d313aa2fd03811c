// garbage_test.cc - a client that writes anything anywhere it can, beside two that are honest and must not notice.
#include <catch2/catch.hpp>
#include <random>

#include "ni/engine/test_ni.h"

namespace unet::engine::garbage_test {
namespace {

const MacAddress kPeer{2, 0, 0, 0, 0, 9};
constexpr EndpointOptions kLiar{.send_depth = 8, .receive_depth = 8, .buffers = 16, .buffer_size = 256, .send_bytes = kMessageMax};

// The liar has a client page of its own, a channel to the wire, one to an honest endpoint and one to itself.
class Hostile {
 public:
  explicit Hostile(uint32_t seed) : random_(seed), ni_({&wire_}), a_(ni_.add_endpoint()), b_(ni_.add_endpoint()), liar_(2, kLiar) {
    ni_.command(AttachClient{1, &page_});
    ni_.command(AttachEndpoint{.endpoint = 2, .client = 1, .doorbell = 5, .segment = liar_.segment, .geometry = liar_.geometry});
    ni_.hairpin(a_, 0, b_, 0);
    ni_.hairpin(liar_, 0, b_, 1);
    ni_.hairpin(liar_, 1, liar_, 1);
    ni_.wire(liar_, 2, 0x10001, 1, kPeer);
    region_.resize(5'000);
    ni_.command(SetRegion{2, region_});
  }

  void run(uint32_t rounds) {
    uint32_t sent = 0, got = 0;
    for (uint32_t round = 0; round < rounds; ++round) {
      for (uint32_t i = below(4); i > 0; --i) lie();
      if (sent == got) {
        REQUIRE(a_.send(0, pattern(sent * 37 % 5'000, sent)));
        a_.ring(ni_.page);
        ++sent;
      }
      ni_.now += below(10) == 0 ? kMillisecond : kMicrosecond;
      ni_.poll();
      wire_.sent.clear();
      while (const auto message = b_.receive()) {
        if (message->channel != 0) {
          REQUIRE(message->channel == 1);
          continue;
        }
        REQUIRE((message->bytes == pattern(got * 37 % 5'000, got)));
        ++got;
      }
    }
    CHECK(got > rounds / 4);
    ni_.command(DetachEndpoint{2});
    ni_.poll();
    CHECK(ni_.event<EndpointDetached>().has_value());
    REQUIRE(a_.send(0, {}));
    ni_.run();
    CHECK(b_.receive().has_value());
  }

 private:
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }
  uint32_t anything() {
    constexpr uint32_t kNice[] = {0,  1,          2,          48,         49,         63,          64,
                                  65, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFC0, kMessageMax, kMessageMax + 1};
    return below(2) == 0 ? kNice[below(std::size(kNice))] : static_cast<uint32_t>(random_());
  }
  void store(uint64_t offset, uint64_t value) {
    reinterpret_cast<std::atomic<uint64_t>*>(liar_.segment + offset / 8 * 8)->store(value, std::memory_order_release);
  }

  void lie() {
    switch (below(8)) {
      case 0: store(below(static_cast<uint32_t>(liar_.geometry.total)), random_()); break;
      case 1: store(below(static_cast<uint32_t>(liar_.geometry.send_data)), uint64_t{anything()} << 32 | anything()); break;
      case 2: store(below(8) * 64, anything()); break;  // a word of the header
      case 3:
      case 4: descriptor(); break;
      case 5: liar_.free_writer.push(below(3) == 0 ? anything() : below(16)); break;
      case 6: frame(); break;
      case 7:
        page_.doorbells[below(256)].fetch_or(random_(), std::memory_order_release);
        page_.summary.words[below(4)].fetch_or(below(2) == 0 ? 1 : random_(), std::memory_order_release);
        break;
    }
  }
  // One that is almost right, at the place where the engine looks next.
  void descriptor() {
    const auto total = static_cast<uint32_t>(liar_.geometry.total);
    const uint32_t position = liar_.header->send_consumed.value.load(std::memory_order_acquire);
    Slot& slot = liar_.send_slots()[position & (liar_.geometry.send_depth - 1)];
    PutDescriptor put{.region_offset = below(2) == 0 ? below(5'000) : uint64_t{anything()} << 32 | anything(), .notify = below(3)};
    GatherDescriptor gather{};
    const uint32_t length = below(2) == 0 ? anything() : below(6'000);
    gather.fragments[0] = {below(2) == 0 ? anything() : below(total), length};
    put.fragments[0] = gather.fragments[0];
    const auto kind = static_cast<SlotKind>(below(8));
    std::memcpy(slot.payload, kind == SlotKind::put ? static_cast<const void*>(&put) : &gather, sizeof gather);
    slot.channel = below(4) == 0 ? anything() : below(3);
    slot.mark.store(Mark::pack(position + 1, length, kind), std::memory_order_release);
    page_.doorbells[0].fetch_or(uint64_t{1} << 5, std::memory_order_release);
    page_.summary.words[0].fetch_or(1, std::memory_order_release);
  }
  void frame() {
    FrameFields fields{.to = wire_.capabilities.address, .from = kPeer, .tag = Tag{0x10001}};
    fields.flags = static_cast<uint8_t>(below(4));
    fields.message = below(20);
    fields.offset = below(100) * kFragmentUnit;
    fields.total = below(3) == 0 ? anything() : below(20'000);
    fields.region_offset = below(2) == 0 ? below(6'000) : uint64_t{anything()} << 32 | anything();
    wire_.arriving.push_back(make_frame(fields, pattern(below(1'400), 1)));
  }

  std::mt19937 random_;
  TestWire wire_;
  TestNi ni_;
  TestEndpoint& a_;
  TestEndpoint& b_;
  TestEndpoint liar_;
  ClientPage page_{};
  std::vector<std::byte> region_;
};

}  // namespace

TEST_CASE("a client that lies harms nobody but itself") {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    Hostile(seed).run(3'000);
  }
}

}  // namespace unet::engine::garbage_test
