// ip_host.cc - ipstack's host on an interface of this network namespace, beside a kernel without an address there; for ip_linux.py.
//
// Usage: ip_host INTERFACE CAPTURE [ADDRESS/PREFIX]... [--gateway ADDRESS]... [--dhcp]
//
// Prints a line for each event: `assigned ADDRESS`, `conflict ADDRESS`, `gone ADDRESS`, `unreachable ADDRESS`. A line `ping ADDRESS BYTES`
// on standard input is answered by `reply ADDRESS BYTES`, `error KIND of ADDRESS`, or `not sent: WHY`. After `join GROUP` or `leave GROUP`,
// answered by `joined` or `left`, a datagram to a group prints `datagram GROUP BYTES`. All frames on the interface are written to CAPTURE,
// as pcap. Ends with standard input.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "ipstack/ip/host.h"
#include "tests/system/packet_wire.h"
#include "unet/base/check.h"
#include "unet/wire/udp.h"

using namespace unet;
using namespace unet::ip;

namespace {

constexpr uint16_t kEchoId = 0x5555;

const char* name_of(SendResult result) {
  switch (result) {
    case SendResult::sent: return "sent";
    case SendResult::no_route: return "no route";
    case SendResult::no_source: return "no source";
    case SendResult::too_big: return "too big";
    case SendResult::no_buffer: return "no buffer";
  }
  return "";
}

const char* name_of(const IcmpView& icmp) {
  switch (icmp.kind) {
    case IcmpKind::packet_too_big: return "too big";
    case IcmpKind::time_exceeded: return "time exceeded";
    case IcmpKind::unreachable: return icmp.why == Unreachable::port ? "port unreachable" : "unreachable";
    default: return "other";
  }
}

class Program {
 public:
  Program(const char* interface, const char* capture, const HostOptions& options)
      : wire_(interface), capture_(capture), host_(with_wire(options), monotonic_now()) {
    for (const HostAddress& each : options.addresses) waited_.insert(text_of(each.address));
  }

  void run() {
    while (true) {
      const Nanoseconds now = monotonic_now(), next = host_.next_event();
      const Nanoseconds left = next <= now ? 0 : std::min((next - now) / kMillisecond + 1, Nanoseconds{100});
      pollfd wanted[] = {{wire_.descriptor(), POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
      ::poll(wanted, 2, static_cast<int>(left));
      receive();
      if (wanted[1].revents != 0 && !take_command()) return;
      send();
      tell();
    }
  }

 private:
  HostOptions with_wire(HostOptions options) const {
    options.mac = wire_.mac();
    options.mtu = wire_.mtu();
    return options;
  }

  void receive() {
    std::vector<std::byte> frame(65536);
    for (size_t size; (size = wire_.receive(frame)) != 0;) {
      const Bytes bytes = Bytes(frame).first(size);
      const Nanoseconds now = monotonic_now();
      capture_.add(bytes, now);
      Arrival arrival;
      if (!host_.handle_frame(bytes, now, arrival)) continue;
      switch (arrival.kind) {
        case Arrival::Kind::packet:
          if (arrival.packet.to.is_multicast()) {
            std::printf("datagram %s %zu\n", text_of(arrival.packet.to).c_str(), arrival.packet.payload.size() - kUdpBytes);
          } else if (arrival.packet.protocol == Protocol::kUdp) host_.refuse_port(arrival, now);
          else host_.refuse_protocol(arrival, now);
          break;
        case Arrival::Kind::echo_reply: {
          const bool right = arrival.icmp.id == kEchoId && std::all_of(arrival.icmp.rest.begin(), arrival.icmp.rest.end(),
                                                                        [](std::byte each) { return each == std::byte{0x5A}; });
          std::printf("%s %s %zu\n", right ? "reply" : "wrong", text_of(arrival.packet.from).c_str(), arrival.icmp.rest.size());
          break;
        }
        case Arrival::Kind::icmp_error:
          host_.believe_too_big(arrival, now);
          std::printf("error %s of %s\n", name_of(arrival.icmp), text_of(arrival.quoted.to).c_str());
          break;
      }
      send();  // so that a burst is not larger than the host's buffers
    }
  }

  void send() {
    std::vector<std::byte> frame(host_.frame_max());
    while (true) {
      const Nanoseconds now = monotonic_now();
      const uint32_t length = host_.poll_frame(now, frame);
      if (length == 0) return;
      capture_.add(Bytes(frame).first(length), now);
      wire_.send(Bytes(frame).first(length));
    }
  }

  // Reads `ping ADDRESS BYTES`; with `whole` it must not be fragmented, with `near` it ends at the first router.
  bool take_command() {
    char text[256];
    const ssize_t size = ::read(STDIN_FILENO, text, sizeof text);
    if (size <= 0) return false;
    std::istringstream line(std::string(text, static_cast<size_t>(size)));
    std::string command, to, whole;
    size_t length = 0;
    line >> command >> to >> length >> whole;
    const auto address = parse_address(to);
    UNET_CHECK(address.has_value());
    if (command == "join" || command == "leave") {
      const bool join = command == "join";
      UNET_CHECK(join ? host_.join(*address, monotonic_now()) : host_.leave(*address, monotonic_now()));
      std::printf("%s\n", join ? "joined" : "left");
      return true;
    }
    UNET_CHECK(command == "ping");
    const std::vector<std::byte> data(length, std::byte{0x5A});
    std::array<std::byte, kIcmpBytes> header;
    emit_echo(header.data(), host_.source_for(*address).value_or(IpAddress{}), *address, false, kEchoId, 1, data);
    const uint8_t protocol = address->is_ipv4() ? Protocol::kIcmp : Protocol::kIcmp6;
    const SendResult result =
        host_.send({.to = *address, .protocol = protocol, .hop_limit = whole == "near" ? uint8_t{1} : uint8_t{0},
                    .dont_fragment = whole == "whole"}, header, data, monotonic_now());
    if (result != SendResult::sent) std::printf("not sent: %s\n", name_of(result));
    return true;
  }

  void tell() {
    if (host_.address_changes() != changes_) {
      changes_ = host_.address_changes();
      std::set<std::string> now;
      for (const IpAddress& each : host_.addresses()) now.insert(text_of(each));
      for (const std::string& each : had_) {
        if (now.count(each) == 0) std::printf("gone %s\n", each.c_str());
      }
      // The address of a lease is not known before.
      for (const std::string& each : now) {
        const bool leased = host_.dhcp_lease() && text_of(host_.dhcp_lease()->address) == each;
        if (leased && had_.count(each) == 0) std::printf("assigned %s\n", each.c_str());
      }
      had_ = now;
    }
    for (auto at = waited_.begin(); at != waited_.end();) {
      const IpAddress address = *parse_address(*at);
      const bool conflict = host_.has_conflict(address);
      if (!conflict && host_.state_of(address) != Host::AddressState::assigned) {
        ++at;
        continue;
      }
      std::printf("%s %s\n", conflict ? "conflict" : "assigned", at->c_str());
      at = waited_.erase(at);
    }
    for (IpAddress neighbour; host_.poll_unreachable(neighbour);) std::printf("unreachable %s\n", text_of(neighbour).c_str());
    std::fflush(stdout);
  }

  PacketWire wire_;
  Capture capture_;
  Host host_;
  uint64_t changes_ = 0;
  std::set<std::string> had_;     // the host's addresses at the last look
  std::set<std::string> waited_;  // addresses with an outcome still to be printed
};

}  // namespace

int main(int argc, char** argv) {
  UNET_CHECK(argc > 3);
  HostOptions options;
  for (int i = 3; i < argc; ++i) {
    const std::string text = argv[i];
    if (text == "--gateway") {
      const IpAddress gateway = *parse_ip(argv[++i]);
      (gateway.is_ipv4() ? options.gateway4 : options.gateway6) = gateway;
      continue;
    }
    if (text == "--dhcp") {
      options.dhcp = true;
      continue;
    }
    const size_t slash = text.find('/');
    options.addresses.push_back({*parse_ip(text.substr(0, slash)), static_cast<uint8_t>(std::stoi(text.substr(slash + 1)))});
  }
  Program(argv[1], argv[2], options).run();
  return 0;
}
