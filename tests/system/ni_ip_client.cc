// ni_ip_client.cc - UDP over the IP channel of an endpoint, as short as possible; for ni_ip.py.
//
// Usage: ni_ip_client echo PORT                        prints `ready`, then sends every datagram back; ends when it is killed
//        ni_ip_client ask PORT ADDRESS PORT BYTES...   a datagram of each size from its own port, and waits for the same to come back
//
// The NI is the one that UNET_NI names. On an error it prints a line with the reason, and exits with status 1.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "unet/context.h"
#include "unet/ip.h"
#include "unet/wire/ip.h"
#include "unet/wire/udp.h"

using namespace unet;

namespace {

constexpr uint8_t kUdp = ip::Protocol::kUdp;
constexpr Nanoseconds kAnswerIn = kSecond, kGiveUpAfter = 60;  // tries

[[noreturn]] void give_up(const std::string& what) {
  std::printf("%s\n", what.c_str());
  std::exit(1);
}

template <typename T>
T must(Result<T> result) {
  if (!result) give_up(std::string(to_string(result.error().code)) + ": " + result.error().text);
  return std::move(*result);
}

class Udp {
 public:
  explicit Udp(uint16_t port) : context_(must(Context::open())), endpoint_(must(context_.create_endpoint())), port_(port) {
    channel_ = must(endpoint_->open_ip());
    must(endpoint_->claim_ip({.protocol = kUdp, .port = port}));
    while (!ready()) endpoint_->wait(10 * kMillisecond);
  }

  // The own address in the family of `peer`.
  ip::IpAddress own(const ip::IpAddress& peer) {
    for (const auto& each : must(endpoint_->ip_configuration()).addresses) {
      if (each.address.is_ipv4() == peer.is_ipv4() && !each.address.is_link_local()) return each.address;
    }
    give_up("no address of that family");
  }

  void send(const ip::IpAddress& from, const ip::IpAddress& to, uint16_t to_port, Bytes data) {
    const ip::IpFields fields{.from = from, .to = to, .protocol = kUdp, .hop_limit = 64, .dont_fragment = false};
    const IpMessageHeader own{.flags = IpMessageFlags::kFillChecksum};
    std::vector<std::byte> message(sizeof own + ip::kIpv6Bytes + ip::kUdpBytes + data.size());
    std::memcpy(message.data(), &own, sizeof own);
    const auto length = static_cast<uint16_t>(ip::kUdpBytes + data.size());
    size_t at = sizeof own;
    at += ip::emit_ip_header(message.data() + at, fields, length);
    const ip::UdpHeader header{.from = port_, .to = to_port, .length = length, .checksum = 0};
    std::memcpy(message.data() + at, &header, sizeof header);
    at += sizeof header;
    if (!data.empty()) std::memcpy(message.data() + at, data.data(), data.size());
    message.resize(at + data.size());
    for (SendOutcome outcome; (outcome = endpoint_->send(channel_, message)) != SendOutcome::sent;) {
      if (outcome != SendOutcome::full) give_up("send: " + std::string(to_string(outcome)));
      endpoint_->wait_room(channel_);
    }
  }

  // Awaits the next datagram: take(packet, datagram).
  template <typename Take>
  bool receive(Nanoseconds timeout, const Take& take) {
    for (Message message;;) {
      if (!endpoint_->receive(message)) {
        if (endpoint_->wait(timeout) == WaitOutcome::timed_out) return false;
        continue;
      }
      const std::vector<std::byte> bytes(message.data, message.data + message.length);
      endpoint_->release(message);
      IpMessageHeader own;
      std::memcpy(&own, bytes.data(), sizeof own);
      ip::IpView packet;
      ip::Problem problem;
      ip::UdpView datagram;
      if ((own.flags & IpMessageFlags::kChecked) == 0) give_up("a packet that nobody has checked");
      if (ip::parse_ip_packet(Bytes(bytes).subspan(sizeof own), packet, problem) != ip::IpError::none) give_up("that is no packet");
      if (packet.protocol != kUdp) continue;  // an ICMP error: the asker has exited
      // Within one NI, checksums are not filled in.
      const bool summed = (own.flags & IpMessageFlags::kSameNi) != 0;
      if (ip::parse_udp(packet, summed, datagram) != ip::UdpError::none) give_up("that is no datagram");
      take(packet, datagram);
      return true;
    }
  }

 private:
  // Whether the NI's addresses are usable.
  bool ready() {
    for (const auto& each : must(endpoint_->ip_configuration()).addresses) {
      if (each.tentative) return false;
    }
    return true;
  }

  Context context_;
  std::unique_ptr<Endpoint> endpoint_;
  Channel channel_{};
  uint16_t port_;
};

uint16_t port_of(const char* text) { return static_cast<uint16_t>(std::strtoul(text, nullptr, 10)); }

int echo(uint16_t port) {
  Udp udp(port);
  std::printf("ready\n");
  std::fflush(stdout);
  while (true) {
    udp.receive(Endpoint::kForever, [&](const ip::IpView& packet, const ip::UdpView& datagram) {
      udp.send(packet.to, packet.from, datagram.from, datagram.payload);
    });
  }
}

int ask(int count, char** words) {
  Udp udp(port_of(words[0]));
  const ip::IpAddress peer = must(ip::parse_ip(words[1]));
  const ip::IpAddress own = udp.own(peer);
  for (int i = 3; i < count; ++i) {
    std::vector<std::byte> data(std::strtoul(words[i], nullptr, 10));
    for (size_t at = 0; at < data.size(); ++at) data[at] = static_cast<std::byte>(at * 31 + data.size());
    // The first datagram may be lost: only a few fragments wait for the neighbour's answer.
    bool same = false;
    for (uint32_t tries = 0; !same; ++tries) {
      if (tries == kGiveUpAfter) give_up(std::to_string(data.size()) + " bytes do not come back");
      udp.send(own, peer, port_of(words[2]), data);
      udp.receive(kAnswerIn, [&](const ip::IpView&, const ip::UdpView& datagram) {
        same = datagram.payload.size() == data.size() && std::equal(data.begin(), data.end(), datagram.payload.begin());
      });
    }
  }
  std::printf("all came back\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 2 ? argv[1] : "";
  if (what == "echo") return echo(port_of(argv[2]));
  if (what == "ask" && argc > 5) return ask(argc - 2, argv + 2);
  give_up("usage: ni_ip_client echo PORT | ask PORT ADDRESS PORT BYTES...");
}
