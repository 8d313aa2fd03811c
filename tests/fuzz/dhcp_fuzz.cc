// dhcp_fuzz.cc - any bytes as a DHCP server's message, at any time, to a client: an accepted lease is for a unicast host address, the
// client never sends without pause, and its own messages do not parse as a server's.
#include "ipstack/ip/dhcp_client.h"
#include "tests/fuzz/fuzz_input.h"
#include "unet/base/check.h"

using namespace unet;
using namespace unet::ip;

namespace {

constexpr MacAddress kOwn{2, 0, 0, 0, 0, 1};

void look_at(const std::optional<DhcpLease>& lease) {
  if (!lease) return;
  UNET_CHECK(lease->address.is_one_host(true) && lease->prefix >= 1 && lease->prefix <= 32);
  UNET_CHECK(lease->name_server_count <= kNameServersMax && (!lease->router || lease->router->is_one_host(true)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput input(data, size);
  Nanoseconds now = kSecond;
  DhcpClient client(kOwn, 1500, input.take<uint8_t>(), now);
  uint32_t transaction = 0, sent = 0;
  while (!input.empty()) {
    const auto what = input.take<uint8_t>();
    now += Nanoseconds{input.take<uint8_t>()} << (what & 31);
    if ((what & 32) != 0) client.handle_conflict(now);
    std::vector<std::byte> message = input.take_bytes(input.take<uint8_t>() * size_t{2});
    // The fixed part of a message for this client, which the fuzzer would not find.
    if ((what & 64) != 0) {
      const uint8_t start[] = {2, 1, 6, 0};
      const be32 number(transaction), cookie(0x63825363);
      message.resize(std::max<size_t>(message.size(), 240));
      std::memcpy(message.data(), start, sizeof start);
      std::memcpy(&message[4], &number, 4);
      std::memcpy(&message[28], kOwn.data(), kOwn.size());
      std::memcpy(&message[236], &cookie, 4);
    }
    DhcpReply reply;
    if (parse_dhcp(message, reply)) {
      UNET_CHECK(reply.server.is_one_host(true));
      UNET_CHECK(reply.client_id.empty() || (reply.client_id.data() >= message.data() &&
                                             reply.client_id.data() + reply.client_id.size() <= message.data() + message.size()));
      client.handle_reply(reply, now);
    }
    look_at(client.lease());
    DhcpClient::Message out;
    for (uint32_t count = 0; client.poll_message(now, out); ++sent) {
      UNET_CHECK(++count <= 2);
      transaction = out.fields.transaction;
      std::vector<std::byte> text(kDhcpClientBytes);
      emit_dhcp(text.data(), out.fields);
      UNET_CHECK(!parse_dhcp(text, reply));
    }
    UNET_CHECK(client.next_event() > now);
  }
  // Without answers it sends seldom.
  const Nanoseconds until = now + 3600 * kSecond;
  uint32_t count = 0;
  while (client.next_event() <= until) {
    now = std::max(now, client.next_event());
    for (DhcpClient::Message out; client.poll_message(now, out);) UNET_CHECK(++count <= 500);
  }
  return 0;
}
