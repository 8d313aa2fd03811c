// stack_fuzz.cc - any IP messages, calls, neighbours' messages and times, in any order, to the stack of an application: no call breaks it,
// what it sends parses, and when all is closed nothing is left.
//
// Segments are near what is right: they go to sockets that there are, with numbers near those that the stack has said last.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <map>

#include "ipstack/sockets/stack.h"
#include "tests/fuzz/fuzz_input.h"
#include "unet/base/check.h"

using namespace unet;
using namespace unet::sockets;

namespace {

constexpr uint32_t kNeighbours = 2;

// What a stack says of one connection's numbers: a peer that wants to be believed needs no more.
struct Said {
  uint16_t port = 0, peer = 0;
  tcp::Sequence next{}, acknowledged{};
  uint32_t timestamp = 0;
  std::vector<std::byte> cookie{};
};

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
    UNET_CHECK(bytes <= kMessageMax);
    if (full) return {};
    room_.resize(bytes);
    return room_;
  }
  void post(uint32_t bytes) noexcept override {
    UNET_CHECK(bytes <= room_.size());
    ip::IpView packet;
    ip::Problem problem;
    UNET_CHECK(parse_ip_packet(Bytes(room_).first(bytes).subspan(sizeof(IpMessageHeader)), packet, problem) == ip::IpError::none);
    last.assign(room_.begin(), room_.begin() + bytes);
    if (packet.protocol != ip::Protocol::kTcp) return;
    ip::TcpView segment;
    UNET_CHECK(parse_tcp(packet.payload, segment) == ip::TcpError::none);
    Said& it = said[said.size() - 1];
    for (Said& each : said) {
      if (each.port == segment.source_port && each.peer == segment.destination_port) return note(each, segment);
    }
    std::rotate(said.begin(), said.end() - 1, said.end());
    it = said.front();
    said.front() = {.port = segment.source_port, .peer = segment.destination_port};
    note(said.front(), segment);
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
  std::array<Said, 8> said{};
  std::vector<std::byte> last{};
  std::vector<Address> asked{};
  std::map<uint32_t, std::vector<std::byte>> kept{};

 private:
  static void note(Said& it, const ip::TcpView& segment) {
    it.next = segment.sequence + segment.length();
    it.acknowledged = segment.acknowledgement;
    it.timestamp = segment.options.timestamp;
    if (!segment.options.fast_open_cookie.empty()) {
      it.cookie.assign(segment.options.fast_open_cookie.begin(), segment.options.fast_open_cookie.end());
    }
  }

  IpConfiguration configuration_;
  std::vector<std::byte> room_;
  uint16_t next_ = 40'000;
  uint32_t claims_ = 0;
};

Address address_of(uint8_t choice, uint16_t port) {
  static const std::array hosts{*ip::parse_ip("10.0.0.2"), *ip::parse_ip("fd00::2"), *ip::parse_ip("10.0.0.1"), *ip::parse_ip("fd00::1")};
  return {hosts[choice & 3], port};
}

class Fuzz {
 public:
  Fuzz(FuzzInput& input, const StackOptions& options) : input_(input), stack_(network_, options, now_), family_(input.take<uint8_t>()) {}

  void run() {
    stack_.handle_neighbour(0, true);
    stack_.handle_neighbour(1, false);
    for (int i = 0; i < 400 && !input_.empty(); ++i) {
      step(input_.take<uint8_t>());
      Change change;
      for (int told = 0; told < 4 && stack_.next_change(change); ++told) UNET_CHECK(stack_.is_open(change.socket));
    }
    finish();
  }

 private:
  void step(uint8_t what) {
    const int socket = input_.take<uint8_t>() % 12;
    switch (what % 20) {
      case 0: return call(socket);
      case 1: {
        const uint8_t to = input_.take<uint8_t>();
        return static_cast<void>(stack_.connect(socket, address_of(to, static_cast<uint16_t>(1 + input_.take<uint8_t>() % 4))));
      }
      case 2: return static_cast<void>(stack_.send(socket, data()));
      case 3: return read(socket);
      case 4: return static_cast<void>(stack_.close(socket));
      case 5: return static_cast<void>(stack_.shutdown(socket, static_cast<Stack::How>(input_.take<uint8_t>() % 3)));
      case 6: return option(socket);
      case 7: return pass();
      case 8: network_.full = !network_.full; return;
      case 9: return datagram();
      case 10: return raw();
      case 11: return error();
      case 12: return neighbour(input_.take<uint8_t>());
      case 13: {
        const uint8_t to = input_.take<uint8_t>();
        return static_cast<void>(stack_.connect_with(socket, data(), address_of(to, static_cast<uint16_t>(1 + (to >> 6)))));
      }
      case 14: return in_place(socket);
      case 15: return group(socket);
      default: return segment();
    }
  }

  Bytes data() {
    static const std::vector<std::byte> kData(70'000);
    return Bytes(kData).first(input_.take<uint16_t>());
  }

  void in_place(int socket) {
    MutableBytes room;
    const auto choice = input_.take<uint8_t>();
    if (stack_.reserve(socket, input_.take<uint16_t>(), room) != 0) return;
    std::fill(room.begin(), room.end(), std::byte{choice});
    if (choice % 8 == 0) stack_.run();  // which forgets it
    const int64_t sent = stack_.commit(socket, static_cast<uint32_t>(room.size() / (1 + choice % 3)));
    UNET_CHECK(choice % 8 == 0 ? sent == -EINVAL : sent >= 0);
  }
  void group(int socket) {
    static const std::array groups{*ip::parse_address("239.1.2.3"), *ip::parse_address("ff05::1"), *ip::parse_address("239.1.2.4")};
    const auto choice = input_.take<uint8_t>();
    const ip::IpAddress& group = groups[choice % groups.size()];
    switch (choice >> 6) {
      case 0: static_cast<void>(stack_.join(socket, group)); break;
      case 1: static_cast<void>(stack_.leave(socket, group)); break;
      case 2: static_cast<void>(stack_.bind(socket, {group, static_cast<uint16_t>(1 + choice % 4)})); break;
      default: static_cast<void>(stack_.send_to(socket, data(), {group, static_cast<uint16_t>(1 + choice % 4)})); break;
    }
  }
  void call(int socket) {
    const auto choice = input_.take<uint8_t>();
    switch (choice % 6) {
      case 0: static_cast<void>(stack_.socket((choice & 8) != 0 ? Type::datagram : Type::stream, (choice & 16) != 0)); break;
      case 1: static_cast<void>(stack_.bind(socket, {{}, static_cast<uint16_t>(choice >> 4)})); break;
      case 2: static_cast<void>(stack_.listen(socket, choice >> 3)); break;
      case 3: static_cast<void>(stack_.accept(socket)); break;
      case 4: {
        const Stack::Sending how{.segment = choice, .more = choice % 5 == 0, .hop_limit = static_cast<int16_t>(choice % 3 - 1)};
        static_cast<void>(stack_.send_to(socket, data(), address_of(choice, 1 + choice % 4), how));
        break;
      }
      default: stack_.events(socket), stack_.idle(); break;
    }
  }
  void read(int socket) {
    std::vector<std::byte> room(input_.take<uint16_t>());
    if (room.size() % 3 == 0) {
      std::array<Bytes, 4> pieces;
      const int count = stack_.gather(socket, pieces);
      uint32_t bytes = 0;
      for (int i = 0; i < count; ++i) bytes += static_cast<uint32_t>(pieces[static_cast<size_t>(i)].size());
      if (count > 0) stack_.consume(socket, std::min<uint32_t>(bytes, static_cast<uint32_t>(room.size())));
    } else if (stack_.is_datagram(socket)) {
      Address from;
      static_cast<void>(stack_.receive_from(socket, room, &from, room.size() % 2 == 0));
    } else {
      static_cast<void>(stack_.receive(socket, room, room.size() % 2 == 0));
    }
  }
  void option(int socket) {
    const auto which = static_cast<Stack::Option>(input_.take<uint8_t>() % (static_cast<uint8_t>(Stack::Option::peek_offset) + 1));
    const auto value = input_.take<int16_t>();
    static_cast<void>(stack_.set_option(socket, which, which == Stack::Option::congestion ? value & 3 : value));
    static_cast<void>(stack_.option(socket, which));
  }
  void pass() {
    const auto time = input_.take<uint8_t>();
    now_ += (Nanoseconds{time} & 31) << (time >> 5) * 5;
    stack_.set_time(now_);
    stack_.run();
  }

  // ---- what comes

  void deliver(const Address& from, uint8_t protocol, Bytes payload, uint8_t traffic_class = 0) {
    const Address to = address_of(from.host.is_ipv4() ? 2 : 3, 0);
    std::vector<std::byte> message(sizeof(IpMessageHeader) + 60 + payload.size());
    const IpMessageHeader header{.flags = IpMessageFlags::kChecked};
    std::memcpy(message.data(), &header, sizeof header);
    const ip::IpFields fields{.from = from.host, .to = to.host, .protocol = protocol, .hop_limit = 64, .traffic_class = traffic_class};
    const uint32_t head = emit_ip_header(message.data() + sizeof header, fields, static_cast<uint32_t>(payload.size()));
    if (!payload.empty()) std::memcpy(message.data() + sizeof header + head, payload.data(), payload.size());
    message.resize(sizeof header + head + payload.size());
    stack_.handle_message(message);
  }
  void segment() {
    const auto which = input_.take<uint8_t>();
    const Said& known = network_.said[which % 8];
    const bool fresh = (which & 64) != 0;
    ip::TcpFields fields{.source_port = fresh ? static_cast<uint16_t>(1 + which % 4) : known.peer,
                         .destination_port = fresh ? static_cast<uint16_t>(which >> 4) : known.port};
    const auto exact = input_.take<uint8_t>();
    fields.sequence = known.acknowledged;
    fields.acknowledgement = known.next;
    if ((exact & 1) != 0) fields.sequence += static_cast<uint32_t>(input_.take<int16_t>());
    if ((exact & 2) != 0) fields.acknowledgement += static_cast<uint32_t>(input_.take<int16_t>());
    fields.flags = (exact & 4) != 0 ? input_.take<uint8_t>() : uint8_t{ip::TcpFlags::kAck};
    fields.window = (exact & 8) != 0 ? input_.take<uint16_t>() : uint16_t{60'000};
    ip::TcpOptions& options = fields.options;
    options.has_timestamps = (exact & 16) == 0;
    options.timestamp = static_cast<uint32_t>(now_ / kMillisecond) + ((exact & 1) != 0 ? input_.take<uint8_t>() : 0u);
    options.timestamp_echo = known.timestamp;
    if ((fields.flags & ip::TcpFlags::kSyn) != 0) {
      options.mss = (exact & 8) != 0 ? input_.take<uint16_t>() : uint16_t{1460};
      options.sack_permitted = (exact & 32) == 0;
      if ((exact & 32) == 0) options.window_scale = 7;
      options.has_fast_open = (exact & 64) != 0;
      if (options.has_fast_open) options.fast_open_cookie = known.cookie;
    } else if ((exact & 32) != 0) {
      options.sack_count = 1;
      options.sack[0].left = known.next + static_cast<uint32_t>(input_.take<int16_t>());
      options.sack[0].right = options.sack[0].left + input_.take<uint16_t>();
    }
    std::vector<std::byte> bytes(ip::kTcpHeaderMax);
    bytes.resize(emit_tcp(bytes.data(), fields));
    if ((exact & 128) != 0) bytes.resize(bytes.size() + input_.take<uint16_t>() % 4000);
    deliver(address_of(family_ & 1, fields.source_port), ip::Protocol::kTcp, bytes, which >> 6);
  }
  void datagram() {
    const auto which = input_.take<uint8_t>();
    const Address from = address_of(which & 1, static_cast<uint16_t>(1 + which % 4)), to = address_of(2 + (which & 1), which >> 4);
    std::vector<std::byte> bytes(ip::kUdpBytes + which);
    ip::emit_udp_header(bytes.data(), from.host, to.host, from.port, to.port, Bytes(bytes).subspan(ip::kUdpBytes));
    deliver(from, ip::Protocol::kUdp, bytes);
  }
  void raw() {
    const std::vector<std::byte> message = input_.take_bytes(input_.take<uint8_t>());
    stack_.handle_message(message);
  }
  // An ICMP error about what was sent last.
  void error() {
    if (network_.last.size() <= sizeof(IpMessageHeader)) return;
    const auto which = input_.take<uint8_t>();
    const Bytes packet = Bytes(network_.last).subspan(sizeof(IpMessageHeader));
    const bool four = static_cast<uint8_t>(packet[0]) >> 4 == 4;
    std::vector<std::byte> bytes(8);
    bytes[0] = static_cast<std::byte>(four ? ((which & 1) != 0 ? 3 : 11) : 1 + which % 4);
    bytes[1] = static_cast<std::byte>(four ? which >> 4 : which >> 5);
    const be16 mtu = input_.take<uint16_t>();
    std::memcpy(bytes.data() + 6, &mtu, sizeof mtu);
    bytes.insert(bytes.end(), packet.begin(), packet.begin() + static_cast<ptrdiff_t>(std::min<size_t>(packet.size(), 80)));
    const Address from = address_of(four ? 0 : 1, 0), to = address_of(four ? 2 : 3, 0);
    ip::sum_icmp(bytes.data(), bytes.size(), from.host, to.host);
    deliver(from, four ? ip::Protocol::kIcmp : ip::Protocol::kIcmp6, bytes);
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

  // All is closed, and time passes.
  void finish() {
    network_.full = false;
    for (int i = 0; i < 4096; ++i) {
      if (stack_.is_open(i)) UNET_CHECK(stack_.close(i) == 0);
    }
    for (int i = 0; i < 20'000; ++i) {
      stack_.run();
      if (stack_.next_event() == ~Nanoseconds{0}) break;
      now_ = std::max(now_ + kMillisecond, stack_.next_event());
      stack_.set_time(now_);
    }
    UNET_CHECK(stack_.sockets() == 0 && stack_.time_waits().size() == 0 && stack_.idle());
    UNET_CHECK(network_.kept.empty() || network_.gone);  // a channel that is gone wants nothing back
  }

  FuzzInput& input_;
  Nanoseconds now_ = kSecond;
  FuzzNetwork network_;
  Stack stack_;
  const uint8_t family_;
  uint32_t position_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput input(data, size);
  const auto choice = input.take<uint8_t>();
  StackOptions options;
  options.seed = 1;
  options.sockets = (choice & 1) != 0 ? 8 : 64;
  options.chunk_bytes = 1024;
  options.chunks = 1024;
  options.records = (choice & 2) != 0 ? 16 : 1024;
  options.half_open_max = (choice & 4) != 0 ? 1 : 64;
  options.time_waits_max = (choice & 8) != 0 ? 1 : 64;
  options.tcp.mtu_probing = static_cast<tcp::MtuProbing>((choice >> 4) % 3);
  options.tcp.pacing = (choice & 64) != 0;
  options.tcp.ecn = (choice & 128) != 0 ? tcp::Ecn::on : tcp::Ecn::passive;
  Fuzz(input, options).run();
  return 0;
}
