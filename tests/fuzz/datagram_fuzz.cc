// datagram_fuzz.cc - any bytes as a frame for the udp wrapper, with checksums as given or corrected: an accepted payload lies inside the
// frame, and a neighbour message changes only the neighbour that was asked for.
#include "drivers/udp/neighbours.h"
#include "tests/fuzz/fuzz_input.h"
#include "unet/base/check.h"

using namespace unet;
using namespace unet::drivers;

namespace {

void put16(std::vector<std::byte>& frame, size_t at, uint16_t value) { std::memcpy(&frame[at], &value, sizeof value); }

// Corrects the checksums, which the fuzzer would not find.
void put_checksums_right(std::vector<std::byte>& frame, bool ipv4) {
  constexpr size_t kIp = 14;
  if (frame.size() < kIp + (ipv4 ? kIpv4Bytes : kIpv6Bytes) + kUdpBytes) return;
  const size_t next = kIp + (ipv4 ? kIpv4Bytes : kIpv6Bytes);
  if (ipv4) {
    put16(frame, kIp + 10, 0);
    put16(frame, kIp + 10, checksum_fold(checksum_add(0, &frame[kIp], kIpv4Bytes)));
    return;
  }
  const auto protocol = std::to_integer<uint8_t>(frame[kIp + 6]);
  const size_t field = next + (protocol == kProtocolUdp ? 6 : 2);
  const size_t said = std::to_integer<size_t>(frame[kIp + 4]) << 8 | std::to_integer<size_t>(frame[kIp + 5]);
  const size_t length = std::min(said, frame.size() - next);
  put16(frame, field, 0);
  uint64_t sum = checksum_add16(checksum_add16(checksum_add(0, &frame[kIp + 8], 32), protocol), static_cast<uint16_t>(length));
  const uint16_t checksum = checksum_fold(checksum_add(sum, &frame[next], length));
  put16(frame, field, checksum == 0 && protocol == kProtocolUdp ? 0xFFFF : checksum);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput input(data, size);
  const auto choice = input.take<uint8_t>();
  const bool ipv4 = (choice & 1) != 0;
  std::vector<std::byte> frame = input.take_bytes(size);
  if ((choice & 2) != 0) put_checksums_right(frame, ipv4);
  const DatagramAddress own{{2, 0, 0, 0, 0, 2}, *parse_ip(ipv4 ? "10.0.1.2" : "fd00:1::2"), 849};

  DatagramView view;
  const size_t headers = 14 + (ipv4 ? kIpv4Bytes : kIpv6Bytes) + kUdpBytes;
  if (parse_datagram(frame, own, view) == DatagramError::none) {
    UNET_CHECK(view.payload.data() == frame.data() + headers && view.payload.size() <= frame.size() - headers);
    UNET_CHECK(view.from.is_ipv4() == ipv4);
  }

  Neighbours neighbours(own, 2);
  const IpAddress wanted = *parse_ip(ipv4 ? "10.0.1.1" : "fd00:1::1");
  neighbours.set(0, wanted, std::nullopt);
  neighbours.set(1, *parse_ip(ipv4 ? "10.0.1.9" : "fd00:1::9"), MacAddress{2, 0, 0, 0, 0, 9});
  neighbours.want(0, kSecond);
  Neighbours::Message reply;
  std::optional<uint32_t> changed;
  neighbours.handle(frame, kSecond, reply, changed);
  UNET_CHECK(reply.length <= reply.bytes.size() && (!changed || (*changed == 0 && neighbours.known(0) && (neighbours.mac(0)[0] & 1) == 0)));
  UNET_CHECK(neighbours.mac(1) == (MacAddress{2, 0, 0, 0, 0, 9}));
  return 0;
}
