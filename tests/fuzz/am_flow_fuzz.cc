// am_flow_fuzz.cc - a flow against a peer that sends anything. It delivers and releases each number once and in order, keeps within its
// windows, and keeps every promise of flow.h about the order of calls.
//
// Input: the options, then steps of one byte and its arguments: a packet (valid, nearly valid or random), a request, a reply to a delivered
// one, time, or a turn.
#include "am/flow.h"
#include "tests/fuzz/fuzz_input.h"
#include "unet/base/check.h"

using namespace unet;
using namespace unet::am;

namespace {

class Owner {
 public:
  explicit Owner(const FlowOptions& options) : flow_(options), window_(options.window) {}

  void packet(FuzzInput& input) {
    PacketFields fields;
    const auto how = input.take<uint8_t>();
    fields.kind = static_cast<Kind>(1 + input.take<uint8_t>() % kKindMax);
    fields.flags = input.take<uint8_t>();
    fields.session = (how & 1) != 0 ? 1 : input.take<uint8_t>();
    fields.addressee = (how & 2) != 0 ? flow_.session() : input.take<uint8_t>();
    fields.sequence = {near(expected_.value, how & 4, input)};
    fields.acked = {near(released_.value, how & 8, input)};
    fields.handled = near(static_cast<uint32_t>(requests_ - flow_.unhandled()), how & 16, input);
    fields.sent_at = input.take<uint32_t>();
    fields.echo = (how & 32) != 0 ? static_cast<uint32_t>(now_ / 64) - input.take<uint8_t>() : input.take<uint32_t>();
    AckBody body;
    for (be64& word : body.arrived) word = input.take<uint64_t>();
    const Bytes payload = fields.kind == Kind::ack || fields.kind == Kind::probe ? as_bytes(&body, sizeof body) : Bytes{};
    const bool keep = (how & 64) != 0;
    const auto arrival = flow_.handle_packet(fields, payload, keep, now_, input.take<uint16_t>());
    UNET_CHECK(arrival != Flow::Arrival::fresh || is_numbered(fields.kind));
    UNET_CHECK(arrival != Flow::Arrival::fresh || distance(expected_, fields.sequence) < kSequenceWindow);
    turn(input);
  }
  void request(FuzzInput& input) {
    if (!flow_.has_credit()) return;
    UNET_CHECK(flow_.begin(true, 1 + input.take<uint16_t>()) == next_);
    ++next_;
    ++requests_;
  }
  void pass(Nanoseconds time) { now_ += time; }

  // Calls what the owner of a flow calls after each step.
  void turn(FuzzInput& input) {
    flow_.handle_timeout(now_);
    release();
    while (const auto sequence = flow_.poll_delivery()) {
      UNET_CHECK(*sequence == expected_);
      ++expected_;
      const auto what = input.take<uint8_t>();
      if (what % 4 == 0) {
        UNET_CHECK(flow_.begin(false, 1 + what) == next_);
        ++next_;
      } else if (what % 4 != 3) {  // 3: the delivered packet was a reply
        flow_.handled();
      }
      release();
    }
    // At one instant it sends at most the window and one acknowledgement for each arrival.
    bool refused = false;
    for (uint32_t count = 0; const auto transmit = flow_.poll_transmit(now_); ++count) {
      UNET_CHECK(count <= 2 * kSequenceWindow);
      UNET_CHECK(!transmit->numbered || distance(released_, transmit->fields.sequence) < distance(released_, next_));
      if (input.take<uint8_t>() % 8 != 7) continue;
      flow_.unsent(*transmit);  // the NI has no room
      refused = true;
      break;
    }
    UNET_CHECK(flow_.unacknowledged() <= kSequenceWindow && flow_.unhandled() <= window_);
    // It names its next timeout, unless it has something to send at once.
    UNET_CHECK(refused || flow_.state() != Flow::State::open || flow_.next_timeout() > now_);
  }

 private:
  static uint32_t near(uint32_t value, bool honest, FuzzInput& input) {
    return honest ? value + static_cast<uint32_t>(input.take<int8_t>()) : input.take<uint32_t>();
  }
  void release() {
    while (const auto sequence = flow_.poll_released()) {
      UNET_CHECK(*sequence == released_ && released_ != next_);
      ++released_;
    }
  }

  Flow flow_;
  uint32_t window_;
  Nanoseconds now_ = kSecond;
  Sequence expected_, released_, next_;
  uint64_t requests_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput input(data, std::min<size_t>(size, 4096));
  FlowOptions options;
  options.window = 1 + input.take<uint8_t>() % kFlowWindow;
  options.recovery = (input.take<uint8_t>() & 1) != 0 ? Recovery::go_back_n : Recovery::selective;
  Owner owner(options);
  while (!input.empty()) {
    const auto step = input.take<uint8_t>();
    switch (step % 4) {
      case 0: owner.packet(input); break;
      case 1: owner.request(input); break;
      case 2: owner.pass(Nanoseconds{1} << (step >> 2) % 36); break;
      default: owner.turn(input); break;
    }
  }
  owner.turn(input);
  return 0;
}
