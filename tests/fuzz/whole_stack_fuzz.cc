// whole_stack_fuzz.cc - any frames with any virtio-net headers, calls and times, to all layers between a wire and an application: port,
// engine with its IP host, endpoint queues, stack with sockets. Nothing breaks, sent frames parse, and after the last close nothing is
// held.
//
// Input: steps of one byte and arguments: a call; a nearly valid TCP, UDP or ICMP packet, whole or in fragments, as one frame or as a large
// segment; a frame of random bytes; or time.
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <string>

#include "drivers/segment_port.h"
#include "ni/engine/test_ni.h"
#include "tests/fuzz/fuzz_calls.h"
#include "tests/fuzz/fuzz_peer.h"

using namespace unet;
using namespace unet::sockets;
using drivers::VnetHeader;

namespace {

constexpr MacAddress kOwn{2, 0, 0, 0, 0, 1}, kPeer{2, 0, 0, 0, 0, 2};
constexpr uint32_t kChannel = 0, kSendDepth = 16, kPlaceBytes = round_up(kIpMessageMax, kCacheLine);
constexpr EndpointOptions kEndpoint{
    .send_depth = kSendDepth, .receive_depth = 64, .buffers = 256, .buffer_size = 2048, .send_bytes = kSendDepth * uint64_t{kPlaceBytes}};

struct Wire {
  struct Frame {
    VnetHeader header{};
    std::vector<std::byte> bytes;
  };
  std::deque<Frame> arriving, sent;
  bool full = false;
};

// A segment port on which the test plays the kernel.
class Port final : public drivers::SegmentPort {
 public:
  explicit Port(Wire& wire) : SegmentPort({.address = kOwn}, ::eventfd(0, EFD_CLOEXEC), true), wire_(wire) {}
  std::string description() const override { return "fuzz"; }

 private:
  uint32_t read(std::span<Transfer> transfers) noexcept override {
    uint32_t count = 0;
    for (; count < transfers.size() && !wire_.arriving.empty(); ++count, wire_.arriving.pop_front()) {
      const Wire::Frame& frame = wire_.arriving.front();
      Transfer& to = transfers[count];
      const size_t size = std::min(frame.bytes.size(), to.pieces[1].iov_len);
      std::memcpy(to.pieces[0].iov_base, &frame.header, sizeof frame.header);
      if (size != 0) std::memcpy(to.pieces[1].iov_base, frame.bytes.data(), size);
      to.length = static_cast<uint32_t>(sizeof frame.header + size);
      to.cut = size < frame.bytes.size() || size == to.pieces[1].iov_len;
    }
    return count;
  }
  int write(std::span<Transfer> transfers) noexcept override {
    if (wire_.full) return errno = ENOBUFS, -1;
    for (const Transfer& each : transfers) {
      Wire::Frame& frame = wire_.sent.emplace_back();
      frame.header = each.header;
      for (uint32_t i = 1; i < each.count; ++i) {
        const auto* const from = static_cast<const std::byte*>(each.pieces[i].iov_base);
        frame.bytes.insert(frame.bytes.end(), from, from + each.pieces[i].iov_len);
      }
    }
    return static_cast<int>(transfers.size());
  }
  bool is_full(int error) const noexcept override { return error == ENOBUFS; }

  Wire& wire_;
};

// An endpoint of the engine, which trusts its claims.
class EngineNetwork final : public Network {
 public:
  explicit EngineNetwork(engine::TestNi& ni) : ni_(ni), endpoint_(ni.add_endpoint(kEndpoint)) {
    ni_.command(engine::OpenIp{endpoint_.number, kChannel});
    ni_.poll(2);
    for (const char* const each : {FuzzCalls::kOwn4, FuzzCalls::kOwn6}) {
      const ip::IpAddress address = *ip::parse_ip(each);
      configuration_.addresses.push_back({address, static_cast<uint8_t>(address.is_ipv4() ? 24 : 64), false, 0});
    }
    configuration_.interfaces.push_back({0, 1500, {}, {}});
  }

  // Passes arrived messages to the stack.
  void poll(Stack& stack) {
    while (const auto message = endpoint_.receive()) {
      UNET_CHECK(message->channel == kChannel);
      stack.handle_message(message->bytes);
    }
  }

  // Plays the service: chooses ports, and refuses a claim that exists.
  Claimed claim(const IpClaim& wanted) override {
    IpClaim claim = wanted;
    if (claim.port == 0) {
      claim.port = next_port_;
      next_port_ = static_cast<uint16_t>(next_port_ + claim.ports);
    }
    const auto number = static_cast<uint32_t>(claims_.size());
    if (next_port_ > 60'000 || number == kClaimsMax) return {.error = ENOBUFS};
    std::string key(sizeof claim, '\0');
    std::memcpy(key.data(), &claim, sizeof claim);
    if (std::find(claims_.begin(), claims_.end(), key) != claims_.end()) return {.error = EADDRINUSE};
    claims_.push_back(key);
    ni_.command(engine::ClaimIp{endpoint_.number, number, claim});
    ni_.poll(2);
    return {.claim = number, .port = claim.port};
  }
  void release(uint32_t claim) override {
    claims_.at(claim).clear();
    ni_.command(engine::ReleaseIp{claim});
    ni_.poll(2);
  }
  const IpConfiguration& configuration() override { return configuration_; }

  MutableBytes reserve(uint32_t bytes) noexcept override {
    if (endpoint_.writer.reserve() == nullptr) return {};
    return endpoint_.send_data().subspan(place(), bytes);
  }
  void post(uint32_t bytes) noexcept override {
    const MutableBytes data = endpoint_.send_data().subspan(place(), bytes);
    const std::vector<std::byte> message(data.begin(), data.end());
    UNET_CHECK(endpoint_.send(kChannel, message, place()));
    ++posted_;
    endpoint_.ring(ni_.page);
  }
  bool ask_neighbour(uint8_t, const Address&) override { return false; }
  bool send_to_neighbour(uint32_t, Bytes, Bytes) noexcept override { return false; }
  bool has_room(uint32_t, uint32_t) noexcept override { return false; }
  MutableBytes reserve_to_neighbour(uint32_t, uint32_t) noexcept override { return {}; }
  void post_to_neighbour(uint32_t, Bytes, uint32_t) noexcept override { UNET_CHECK(false); }
  void release(uint32_t, const Message&) noexcept override { UNET_CHECK(false); }

 private:
  static constexpr uint32_t kClaimsMax = 256;

  uint32_t place() const { return posted_ % kSendDepth * kPlaceBytes; }

  engine::TestNi& ni_;
  engine::TestEndpoint& endpoint_;
  IpConfiguration configuration_;
  std::vector<std::string> claims_;  // by number; empty: released
  uint16_t next_port_ = 40'000;
  uint32_t posted_ = 0;
};

class Fuzz {
 public:
  Fuzz(FuzzInput& input, uint8_t choice)
      : input_(input), ni_(std::make_unique<Port>(wire_), engine_options()), network_(ni_),
        stack_(network_, FuzzCalls::options(choice), ni_.now), calls_(input, stack_),
        ends_(FuzzCalls::ends((input.take<uint8_t>() & 1) != 0)), host_(host_options(), ni_.now) {}

  void run() {
    calls_.steps([this](uint8_t what) { step(what); });
    finish();
  }

 private:
  static engine::EngineOptions engine_options() {
    engine::EngineOptions options;
    options.ip.ports.push_back({.port = 0, .addresses = {{*ip::parse_ip(FuzzCalls::kOwn4), 24}, {*ip::parse_ip(FuzzCalls::kOwn6), 64}},
                                .probe = false});
    return options;
  }
  static ip::HostOptions host_options() {
    return {.mac = kPeer, .addresses = {{*ip::parse_ip(FuzzCalls::kPeer4), 24}, {*ip::parse_ip(FuzzCalls::kPeer6), 64}}, .claim = false};
  }

  void step(uint8_t what) {
    const int kind = what % 20;
    if (kind < FuzzCalls::kKinds) return calls_.make(kind, input_.take<uint8_t>() % 12);
    switch (kind) {
      case 10: return pass();
      case 11: wire_.full = !wire_.full; return;
      case 12: return arrive(FuzzPeer::datagram(input_, ends_));
      case 13: return arrive(peer_.error(input_, ends_));
      case 14: return raw();
      case 15: return in_fragments();
      default: return arrive(peer_.segment(input_, ends_, ni_.now));
    }
  }

  void pass() {
    const auto time = input_.take<uint8_t>();
    ni_.now += (Nanoseconds{time} & 31) << (time >> 5) * 5;
    turn();
  }
  // Polls every component twice: the second pass carries the peer's answers (ARP, neighbour discovery).
  void turn() {
    stack_.set_time(ni_.now);
    for (int i = 0; i < 2; ++i) {
      ni_.poll(2);
      while (ni_.events.front() != nullptr) ni_.events.pop();
      for (; !wire_.sent.empty(); wire_.sent.pop_front()) look_at(wire_.sent.front());
      std::vector<std::byte> frame(host_.frame_max());
      while (const uint32_t length = host_.poll_frame(ni_.now, frame)) {
        wire_.arriving.push_back({.bytes = {frame.begin(), frame.begin() + length}});
      }
      network_.poll(stack_);
      stack_.run();
    }
  }
  void look_at(const Wire::Frame& frame) {
    const VnetHeader& header = frame.header;
    UNET_CHECK(frame.bytes.size() >= sizeof(EthernetHeader));
    if ((header.flags & VnetHeader::kNeedsChecksum) != 0) {
      UNET_CHECK(size_t{header.checksum_start} + header.checksum_offset + 2 <= frame.bytes.size());
    }
    if (header.kind == VnetHeader::kNone) {
      UNET_CHECK(frame.bytes.size() <= 1500 + sizeof(EthernetHeader));
    } else {
      UNET_CHECK(header.segment_size != 0 && header.header_bytes < frame.bytes.size());
    }
    EthernetHeader ethernet;
    std::memcpy(&ethernet, frame.bytes.data(), sizeof ethernet);
    UNET_CHECK(ethernet.from == kOwn);
    if (ethernet.type != kEtherTypeArp) {
      ip::IpView view;
      ip::Problem problem;
      UNET_CHECK(parse_ip_packet(Bytes(frame.bytes).subspan(sizeof ethernet), view, problem) == ip::IpError::none);
    }
    ip::Arrival arrival;
    if (host_.handle_frame(frame.bytes, ni_.now, arrival, true) && arrival.kind == ip::Arrival::Kind::packet) {
      peer_.hear(arrival.packet.packet);
    }
  }

  // ---- arrivals

  // Delivers the packet with some bytes changed and a virtio-net header.
  void arrive(std::vector<std::byte> packet) {
    if (packet.empty()) return;
    const auto how = input_.take<uint8_t>();
    const bool ipv4 = std::to_integer<uint8_t>(packet[0]) >> 4 == 4;
    for (int i = how >> 6; i > 0; --i) packet[input_.take<uint16_t>() % packet.size()] = std::byte{input_.take<uint8_t>()};
    Wire::Frame frame{.bytes = in_ethernet(ipv4 ? kEtherTypeIpv4 : kEtherTypeIpv6, packet, (how & 4) != 0)};
    switch (how & 3) {
      case 0: break;
      case 1: frame.header = input_.take<VnetHeader>(); break;
      default: {
        ip::IpView view;
        ip::Problem problem;
        if (parse_ip_packet(packet, view, problem) != ip::IpError::none) break;
        const bool tcp = view.protocol == ip::Protocol::kTcp;
        frame.header.flags = VnetHeader::kNeedsChecksum;
        frame.header.checksum_start = static_cast<uint16_t>(sizeof(EthernetHeader) + (view.payload.data() - packet.data()));
        frame.header.checksum_offset = tcp ? offsetof(ip::TcpHeader, checksum) : offsetof(ip::UdpHeader, checksum);
        if ((how & 3) == 2) break;
        frame.header.kind = tcp ? (ipv4 ? VnetHeader::kTcp4 : VnetHeader::kTcp6) : VnetHeader::kUdp;
        frame.header.segment_size = input_.take<uint16_t>();
      }
    }
    wire_.arriving.push_back(std::move(frame));
  }
  void raw() {
    static constexpr uint16_t kTypes[] = {kEtherTypeIpv4, kEtherTypeIpv6, kEtherTypeArp, kEtherType};
    const auto how = input_.take<uint8_t>();
    const std::vector<std::byte> bytes = input_.take_bytes(input_.take<uint8_t>());
    wire_.arriving.push_back({.bytes = in_ethernet(kTypes[how & 3], bytes, (how & 4) != 0)});
  }
  // From a host that fragments packets longer than its MTU.
  void in_fragments() {
    const std::vector<std::byte> packet = (input_.take<uint8_t>() & 1) != 0 ? FuzzPeer::datagram(input_, ends_)
                                                                            : peer_.segment(input_, ends_, ni_.now);
    ip::IpView view;
    ip::Problem problem;
    UNET_CHECK(parse_ip_packet(packet, view, problem) == ip::IpError::none);
    const ip::IpFields fields{.from = view.from, .to = view.to, .protocol = view.protocol, .dont_fragment = false};
    static_cast<void>(host_.send(fields, {}, view.payload, ni_.now));
  }
  static std::vector<std::byte> in_ethernet(uint16_t type, Bytes packet, bool to_all) {
    std::vector<std::byte> frame(sizeof(EthernetHeader) + packet.size());
    const EthernetHeader header{.to = to_all ? kBroadcast : kOwn, .from = kPeer, .type = type};
    std::memcpy(frame.data(), &header, sizeof header);
    if (!packet.empty()) std::memcpy(frame.data() + sizeof header, packet.data(), packet.size());
    return frame;
  }

  // Closes all sockets and lets time pass. Afterwards the port still has room for frames.
  void finish() {
    wire_.full = false;
    calls_.close_all();
    for (int i = 0; i < 20'000; ++i) {
      turn();
      if (stack_.next_event() == ~Nanoseconds{0}) break;
      ni_.now = std::max(ni_.now + kMillisecond, stack_.next_event());
    }
    UNET_CHECK(stack_.sockets() == 0 && stack_.time_waits().size() == 0 && stack_.idle());
    for (int i = 0; i < 300; ++i) wire_.arriving.push_back({.bytes = in_ethernet(kEtherType, {}, false)});
    for (int i = 0; i < 300 && !wire_.arriving.empty(); ++i) ni_.poll();
    UNET_CHECK(wire_.arriving.empty());
  }

  FuzzInput& input_;
  Wire wire_;
  engine::TestNi ni_;
  EngineNetwork network_;
  Stack stack_;
  FuzzCalls calls_;
  FuzzPeer peer_;
  const FuzzPeer::Ends ends_;
  ip::Host host_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput input(data, size);
  const auto choice = input.take<uint8_t>();
  Fuzz(input, choice).run();
  return 0;
}
