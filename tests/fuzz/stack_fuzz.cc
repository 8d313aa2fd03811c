// stack_fuzz.cc - any IP messages, calls, local peers' messages and times, in any order, to the stack of an application: no call breaks it,
// its packets parse, and after the last close it holds nothing.
#include <algorithm>
#include <cerrno>
#include <map>

#include "tests/fuzz/fuzz_calls.h"
#include "tests/fuzz/fuzz_peer.h"
#include "unet/base/check.h"

using namespace unet;
using namespace unet::sockets;

namespace {

constexpr uint32_t kNeighbours = 2;

class FuzzNetwork : public Network {
 public:
  FuzzNetwork() {
    configuration_.addresses.push_back({*ip::parse_ip("10.0.0.1"), 24, false, 0});
    configuration_.addresses.push_back({*ip::parse_ip("fd00::1"), 64, false, 0});
    configuration_.interfaces.push_back({0, 1500, {}, {}});
  }
  Claimed claim(const IpClaim& claim) override {
    if (claim.ports != 1) next_ = static_cast<uint16_t>(next_ + claim.ports);
    if (next_ > 60'000) return {.error = EADDRINUSE};
    return {.claim = ++claims_, .port = claim.ports == 1 ? claim.port : next_};
  }
  void release(uint32_t) override {}
  const IpConfiguration& configuration() override { return configuration_; }
  MutableBytes reserve(uint32_t bytes) noexcept override {
    UNET_CHECK(bytes <= kIpMessageMax);
    if (full) return {};
    room_.resize(bytes);
    return room_;
  }
  void post(uint32_t bytes) noexcept override {
    UNET_CHECK(bytes <= room_.size());
    peer.hear(Bytes(room_).first(bytes).subspan(sizeof(IpMessageHeader)));
  }
  bool ask_neighbour(uint8_t, const Address& to) override {
    asked.push_back(to);
    return true;
  }
  bool send_to_neighbour(uint32_t neighbour, Bytes head, Bytes data) noexcept override {
    UNET_CHECK(neighbour < kNeighbours && (data.empty() || head.size() <= kHeadedMax) && data.size() <= kMessageMax);
    return !full;
  }
  MutableBytes reserve_to_neighbour(uint32_t neighbour, uint32_t bytes) noexcept override {
    UNET_CHECK(neighbour < kNeighbours && bytes <= kMessageMax);
    if (full) return {};
    room_.resize(bytes);
    return room_;
  }
  void post_to_neighbour(uint32_t neighbour, Bytes head, uint32_t bytes) noexcept override {
    UNET_CHECK(neighbour < kNeighbours && head.size() <= kHeadedMax && bytes <= room_.size());
  }
  bool has_room(uint32_t, uint32_t) noexcept override { return !full; }
  void release(uint32_t, const Message& message) noexcept override { UNET_CHECK(kept.erase(message.position) == 1); }

  bool full = false, gone = false;
  FuzzPeer peer{};
  std::vector<Address> asked{};
  std::map<uint32_t, std::vector<std::byte>> kept{};

 private:
  IpConfiguration configuration_;
  std::vector<std::byte> room_;
  uint16_t next_ = 40'000;
  uint32_t claims_ = 0;
};

class Fuzz {
 public:
  Fuzz(FuzzInput& input, const StackOptions& options)
      : input_(input), stack_(network_, options, now_), calls_(input, stack_), ends_(FuzzCalls::ends((input.take<uint8_t>() & 1) != 0)) {}

  void run() {
    stack_.handle_neighbour(0, true);
    stack_.handle_neighbour(1, false);
    calls_.steps([this](uint8_t what) { step(what); });
    finish();
  }

 private:
  void step(uint8_t what) {
    const int socket = input_.take<uint8_t>() % 12;
    const int which = what % 20;
    switch (which) {
      case 7: return pass();
      case 8: network_.full = !network_.full; return;
      case 9: return deliver(FuzzPeer::datagram(input_, ends_));
      case 10: return raw();
      case 11: return deliver(network_.peer.error(input_, ends_));
      case 12: return neighbour(input_.take<uint8_t>());
      case 16: case 17: case 18: case 19: return deliver(network_.peer.segment(input_, ends_, now_));
      default: return calls_.make(which < 7 ? which : which - 6, socket);
    }
  }

  void pass() {
    const auto time = input_.take<uint8_t>();
    now_ += (Nanoseconds{time} & 31) << (time >> 5) * 5;
    stack_.set_time(now_);
    stack_.run();
  }

  // ---- arrivals

  void deliver(Bytes packet) {
    if (packet.empty()) return;
    const uint32_t position = ++position_;
    std::vector<std::byte>& message = network_.kept[position];
    message.resize(sizeof(IpMessageHeader) + packet.size());
    const IpMessageHeader header{.flags = IpMessageFlags::kChecked};
    std::memcpy(message.data(), &header, sizeof header);
    std::memcpy(message.data() + sizeof header, packet.data(), packet.size());
    const Message came{.data = message.data(), .length = static_cast<uint32_t>(message.size()), .position = position};
    static_cast<void>(stack_.intake());
    if (!stack_.handle_message(came)) network_.kept.erase(position);
    stack_.copy_stale();
  }
  void raw() {
    const std::vector<std::byte> message = input_.take_bytes(input_.take<uint8_t>());
    stack_.handle_message(message);
  }
  void neighbour(uint8_t which) {
    const uint32_t from = which & 1;
    if ((which & 6) == 0 && !network_.asked.empty()) {
      const Address to = network_.asked.back();
      network_.asked.pop_back();
      const uint8_t protocol = (which & 8) != 0 ? ip::Protocol::kUdp : ip::Protocol::kTcp;
      return stack_.handle_neighbour_found(protocol, to, (which & 16) != 0 ? from : (which & 32) != 0 ? Stack::kUnclaimed : Stack::kNone);
    }
    if (which >= 250) {
      stack_.handle_neighbour_gone(from);
      network_.gone = true;
      return stack_.handle_neighbour(from, from == 0);
    }
    const uint32_t position = ++position_;
    std::vector<std::byte>& bytes = network_.kept[position] = input_.take_bytes(which);
    if (bytes.empty()) bytes.resize(1);
    const Bytes head = Bytes(bytes).first((which & 2) != 0 ? std::min<size_t>(bytes.size(), 12) : 0);
    const Bytes data = Bytes(bytes).subspan(head.size());
    const Message message{.data = data.data(), .length = static_cast<uint32_t>(data.size()), .from_local = true, .position = position};
    if (!stack_.handle_neighbour_message(from, message, head)) network_.kept.erase(position);
  }

  // Closes all sockets, and lets time pass until no timer is left.
  void finish() {
    network_.full = false;
    calls_.close_all();
    for (int i = 0; i < 20'000; ++i) {
      stack_.run();
      if (stack_.next_event() == ~Nanoseconds{0}) break;
      now_ = std::max(now_ + kMillisecond, stack_.next_event());
      stack_.set_time(now_);
    }
    UNET_CHECK(stack_.sockets() == 0 && stack_.time_waits().size() == 0 && stack_.idle());
    UNET_CHECK(network_.kept.empty() || network_.gone);  // messages of a closed channel need no release
  }

  FuzzInput& input_;
  Nanoseconds now_ = kSecond;
  FuzzNetwork network_;
  Stack stack_;
  FuzzCalls calls_;
  const FuzzPeer::Ends ends_;
  uint32_t position_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput input(data, size);
  const StackOptions options = FuzzCalls::options(input.take<uint8_t>());
  Fuzz(input, options).run();
  return 0;
}
