// fuzz_peer.h - packets of another host to the host under test, nearly valid, as the input chooses; for fuzz targets.
//
// TCP segments go to known connections, with numbers near the last ones heard.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "tests/fuzz/fuzz_input.h"
#include "unet/base/check.h"
#include "unet/base/time.h"
#include "unet/wire/checksum.h"
#include "unet/wire/icmp.h"
#include "unet/wire/ip.h"
#include "unet/wire/tcp.h"
#include "unet/wire/udp.h"

namespace unet {

class FuzzPeer {
 public:
  using Packet = std::vector<std::byte>;

  // Both hosts have an address of each family; these are the ends of one packet.
  struct Ends {
    ip::IpAddress from{}, to{};
  };

  // Records a packet that the host under test has sent; it must parse.
  void hear(Bytes packet) {
    ip::IpView view;
    ip::Problem problem;
    UNET_CHECK(parse_ip_packet(packet, view, problem) == ip::IpError::none);
    heard_.assign(packet.begin(), packet.end());
    if (view.protocol != ip::Protocol::kTcp || view.is_fragment()) return;
    ip::TcpView segment;
    UNET_CHECK(parse_tcp(view.payload, segment) == ip::TcpError::none);
    for (Said& each : said_) {
      if (each.port == segment.source_port && each.peer == segment.destination_port) return note(each, segment);
    }
    std::rotate(said_.begin(), said_.end() - 1, said_.end());
    said_.front() = {.port = segment.source_port, .peer = segment.destination_port};
    note(said_.front(), segment);
  }

  Packet segment(FuzzInput& input, const Ends& ends, Nanoseconds now) const {
    const auto which = input.take<uint8_t>();
    const Said& known = said_[which % said_.size()];
    const bool fresh = (which & 64) != 0;
    ip::TcpFields fields{.source_port = fresh ? static_cast<uint16_t>(1 + which % 4) : known.peer,
                         .destination_port = fresh ? static_cast<uint16_t>(which >> 4) : known.port};
    const auto exact = input.take<uint8_t>();
    fields.sequence = known.acknowledged;
    fields.acknowledgement = known.next;
    if ((exact & 1) != 0) fields.sequence += static_cast<uint32_t>(input.take<int16_t>());
    if ((exact & 2) != 0) fields.acknowledgement += static_cast<uint32_t>(input.take<int16_t>());
    fields.flags = (exact & 4) != 0 ? input.take<uint8_t>() : uint8_t{ip::TcpFlags::kAck};
    fields.window = (exact & 8) != 0 ? input.take<uint16_t>() : uint16_t{60'000};
    ip::TcpOptions& options = fields.options;
    options.has_timestamps = (exact & 16) == 0;
    options.timestamp = static_cast<uint32_t>(now / kMillisecond) + ((exact & 1) != 0 ? input.take<uint8_t>() : 0u);
    options.timestamp_echo = known.timestamp;
    if ((fields.flags & ip::TcpFlags::kSyn) != 0) {
      options.mss = (exact & 8) != 0 ? input.take<uint16_t>() : uint16_t{1460};
      options.sack_permitted = (exact & 32) == 0;
      if ((exact & 32) == 0) options.window_scale = 7;
      options.has_fast_open = (exact & 64) != 0;
      if (options.has_fast_open) options.fast_open_cookie = known.cookie;
    } else if ((exact & 32) != 0) {
      options.sack_count = 1;
      options.sack[0].left = known.next + static_cast<uint32_t>(input.take<int16_t>());
      options.sack[0].right = options.sack[0].left + input.take<uint16_t>();
    }
    std::vector<std::byte> bytes(ip::kTcpHeaderMax);
    bytes.resize(emit_tcp(bytes.data(), fields));
    if ((exact & 128) != 0) bytes.resize(bytes.size() + input.take<uint16_t>() % 4000);
    const auto length = static_cast<uint32_t>(bytes.size());
    const uint64_t sum = ip::pseudo_header_sum(ends.from, ends.to, ip::Protocol::kTcp, length);
    const uint16_t checksum = ip::checksum_fold(ip::checksum_add(sum, bytes.data(), length));
    std::memcpy(bytes.data() + offsetof(ip::TcpHeader, checksum), &checksum, sizeof checksum);
    return packet(ends, ip::Protocol::kTcp, bytes, which >> 6);
  }

  static Packet datagram(FuzzInput& input, const Ends& ends) {
    const auto which = input.take<uint8_t>();
    std::vector<std::byte> bytes(ip::kUdpBytes + which);
    const auto from = static_cast<uint16_t>(1 + which % 4), to = static_cast<uint16_t>(which >> 4);
    ip::emit_udp_header(bytes.data(), ends.from, ends.to, from, to, Bytes(bytes).subspan(ip::kUdpBytes));
    return packet(ends, ip::Protocol::kUdp, bytes);
  }

  // An ICMP error about the last packet heard; empty: there was none of this family.
  Packet error(FuzzInput& input, const Ends& ends) const {
    const auto which = input.take<uint8_t>();
    const be16 mtu = input.take<uint16_t>();
    const bool ipv4 = ends.from.is_ipv4();
    if (heard_.empty() || (std::to_integer<uint8_t>(heard_[0]) >> 4 == 4) != ipv4) return {};
    std::vector<std::byte> bytes(8);
    bytes[0] = static_cast<std::byte>(ipv4 ? ((which & 1) != 0 ? 3 : 11) : 1 + which % 4);
    bytes[1] = static_cast<std::byte>(ipv4 ? which >> 4 : which >> 5);
    std::memcpy(bytes.data() + 6, &mtu, sizeof mtu);
    bytes.insert(bytes.end(), heard_.begin(), heard_.begin() + static_cast<ptrdiff_t>(std::min<size_t>(heard_.size(), 80)));
    ip::sum_icmp(bytes.data(), bytes.size(), ends.from, ends.to);
    return packet(ends, ipv4 ? ip::Protocol::kIcmp : ip::Protocol::kIcmp6, bytes);
  }

 private:
  // The last numbers of one connection: all that a forger needs to be believed.
  struct Said {
    uint16_t port = 0, peer = 0;
    ip::TcpSequence next{}, acknowledged{};
    uint32_t timestamp = 0;
    std::vector<std::byte> cookie{};
  };

  static void note(Said& it, const ip::TcpView& segment) {
    it.next = segment.sequence + segment.length();
    it.acknowledged = segment.acknowledgement;
    it.timestamp = segment.options.timestamp;
    const Bytes cookie = segment.options.fast_open_cookie;
    if (!cookie.empty()) it.cookie.assign(cookie.begin(), cookie.end());
  }
  static Packet packet(const Ends& ends, uint8_t protocol, Bytes payload, int traffic_class = 0) {
    const ip::IpFields fields{.from = ends.from, .to = ends.to, .protocol = protocol, .hop_limit = 64,
                              .traffic_class = static_cast<uint8_t>(traffic_class)};
    Packet made(ip_header_size(fields) + payload.size());
    const uint32_t head = emit_ip_header(made.data(), fields, static_cast<uint32_t>(payload.size()));
    std::memcpy(made.data() + head, payload.data(), payload.size());
    return made;
  }

  std::array<Said, 8> said_{};
  Packet heard_;
};

}  // namespace unet
