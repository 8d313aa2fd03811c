// test_ip_client.h - clients that claim ports; used by the tests of the service's IP.
#pragma once

#include <string>

#include "ni/service/test_client.h"
#include "unet/wire/ip.h"

namespace unet::service::test {

constexpr uint8_t kTcp = ip::Protocol::kTcp, kUdp = ip::Protocol::kUdp;

inline ip::IpAddress address(const char* text) { return ip::parse_address(text).value(); }

inline control::Reply open_ip(TestClient& client, uint32_t endpoint) {
  return client.ask(client.simple<control::OpenIp>(control::Op::open_ip, endpoint));
}

inline control::Reply claim(TestClient& client, uint32_t endpoint, const IpClaim& wanted) {
  auto request = client.simple<control::ClaimIp>(control::Op::claim_ip, endpoint);
  request.claim = wanted;
  return client.ask(request);
}

inline control::Reply release(TestClient& client, uint32_t endpoint, uint32_t number) {
  auto request = client.simple<control::ReleaseIp>(control::Op::release_ip, endpoint);
  request.claim = number;
  return client.ask(request);
}

// A client with an endpoint that has IP.
struct IpClient : TestClient {
  explicit IpClient(Ni& ni) : TestClient(ni) {
    hello();
    id = endpoint();
    channel = open_ip(*this, id).channel.channel;
  }
  Errc claims(const IpClaim& wanted) { return code_of(claim(*this, id, wanted)); }
  uint32_t id = 0, channel = 0;
};

inline nlohmann::json report(Ni& ni) { return nlohmann::json::parse(report_text(ni)); }

}  // namespace unet::service::test
