// ip_host_fuzz.cc - any frames at any time to a host: it keeps its bounds, and the frames that it sends parse and are its own.
#include "ipstack/ip/host.h"
#include "tests/fuzz/fuzz_input.h"
#include "unet/base/check.h"

using namespace unet;
using namespace unet::ip;

namespace {

constexpr MacAddress kOwn{2, 0, 0, 0, 0, 1}, kOther{2, 0, 0, 0, 0, 2};
const IpAddress kOwn4 = *parse_ip("10.0.1.2"), kOwn6 = *parse_ip("fd00:1::2");

// Headers and checksums that the fuzzer would not find: from another station to ours, from a host or a router on the link.
void put_right(std::vector<std::byte>& frame, bool ipv4) {
  const size_t size = 14 + (ipv4 ? kIpv4Bytes : kIpv6Bytes);
  if (frame.size() < size + 8) return;
  const auto octet = [&](size_t at) { return std::to_integer<uint8_t>(frame[at]); };
  std::memcpy(frame.data(), kOwn.data(), 6);
  std::memcpy(frame.data() + 6, kOther.data(), 6);
  frame[12] = std::byte{static_cast<uint8_t>(ipv4 ? 0x08 : 0x86)};
  frame[13] = std::byte{static_cast<uint8_t>(ipv4 ? 0x00 : 0xDD)};
  const bool router = !ipv4 && (octet(15) & 1) != 0, cut = (octet(16) & 0x81) == 0x81;
  IpFields fields{.from = *parse_ip(ipv4 ? "10.0.1.9" : router ? "fe80::9" : "fd00:1::9"), .to = ipv4 ? kOwn4 : kOwn6,
                  .protocol = octet(ipv4 ? 23 : 20), .hop_limit = octet(ipv4 ? 22 : 21), .dont_fragment = false};
  if (cut) {
    fields.more_fragments = (octet(17) & 1) != 0;
    fields.offset = octet(18) % 64u * 8;
    fields.id = octet(19) % 4u;
  }
  const uint32_t header = ip_header_size(fields);
  if (frame.size() < 14 + header + 8) return;
  const auto length = static_cast<uint32_t>(frame.size() - 14 - header);
  emit_ip_header(frame.data() + 14, fields, length);
  if (fields.protocol == (ipv4 ? Protocol::kIcmp : Protocol::kIcmp6)) sum_icmp(&frame[14 + header], length, fields.from, fields.to);
}

void look_at(Bytes frame) {
  UNET_CHECK(frame.size() >= 14 && std::memcmp(frame.data() + 6, kOwn.data(), 6) == 0);
  IpView view;
  Problem problem;
  if (frame[12] == std::byte{8} && frame[13] == std::byte{6}) return;
  UNET_CHECK(parse_ip_packet(frame.subspan(14), view, problem) == IpError::none);
  UNET_CHECK(view.packet.size() == frame.size() - 14);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput input(data, size);
  const auto choice = input.take<uint8_t>();
  HostOptions options{.mac = kOwn, .addresses = {{kOwn4, 24}, {kOwn6, 64}}, .gateway4 = *parse_ip("10.0.1.9"),
                      .gateway6 = *parse_ip("fe80::9"), .autoconfigure = (choice & 1) != 0,
                      .dhcp = (choice & 4) != 0, .claim = (choice & 2) != 0, .buffers = 8, .reassembly = {.places = 2},
                      .neighbours = {.places = 4}};
  Nanoseconds now = kSecond;
  Host host(options, now);
  std::vector<std::byte> room(host.frame_max());
  const IpAddress sources[] = {*parse_ip("10.0.1.9")};
  if ((choice & 8) != 0) UNET_CHECK(host.join(*parse_address("239.1.1.1"), now) && host.join(*parse_address("ff0e::1:1"), now));
  if ((choice & 16) != 0) UNET_CHECK(host.listen(*parse_address("239.1.1.2"), FilterMode::include, sources, now));
  while (!input.empty()) {
    const auto what = input.take<uint8_t>();
    now += Nanoseconds{input.take<uint8_t>()} << (what & 31);
    std::vector<std::byte> frame = input.take_bytes(input.take<uint8_t>() * size_t{4});
    if ((what & 64) != 0) put_right(frame, (what & 128) != 0);
    Arrival arrival;
    if (host.handle_frame(frame, now, arrival)) {
      UNET_CHECK(!arrival.packet.is_fragment() && arrival.packet.payload.size() <= 65535);
      if (arrival.kind == Arrival::Kind::packet) host.refuse_port(arrival, now);
      host.believe_too_big(arrival, now);
      static_cast<void>(host.send({.to = arrival.packet.from, .protocol = 17, .dont_fragment = false}, arrival.packet.payload, {}, now));
    }
    if ((what & 32) != 0) {
      for (uint32_t length; (length = host.poll_frame(now, room)) != 0;) look_at(Bytes(room).first(length));
      IpAddress lost;
      while (host.poll_unreachable(lost)) {}
      UNET_CHECK(host.next_event() > now);
    }
    UNET_CHECK(host.reassembly().used() <= 2 && host.neighbours().used() <= 4);
  }
  // All buffers come back: afterwards the host can send a broadcast from each of them.
  for (int i = 0; i < 100; ++i) {
    now += 20 * kSecond;
    while (host.poll_frame(now, room) != 0) {}
  }
  const IpAddress all = *parse_address("255.255.255.255");
  if (!host.source_for(all)) return 0;
  for (uint32_t i = 0; i < options.buffers; ++i) UNET_CHECK(host.send({.to = all, .protocol = 17}, {}, room, now) == SendResult::too_big);
  for (uint32_t i = 0; i < options.buffers; ++i) {
    UNET_CHECK(host.send({.to = all, .protocol = 17}, {}, Bytes(room).first(100), now) == SendResult::sent);
  }
  return 0;
}
