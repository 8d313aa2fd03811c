// control_packets_fuzz.cc - two clients send the service any packets in any order. When they are gone, the service holds nothing of them.
//
// Input: steps. The low bits of a step's first byte choose the client. The rest choose raw bytes, a packet of the right size for its op
// with fields from the input, or close and reconnect.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <vector>

#include "drivers/nowhere/nowhere.h"
#include "ni/service/ip_config.h"
#include "ni/service/test_client.h"
#include "tests/fuzz/fuzz_input.h"
#include "unet/base/check.h"
#include "unet/wire/ip.h"

using namespace unet;
using service::test::TestClient;

namespace {

// Bytes of a request; an event has none.
constexpr size_t size_of(control::Op op) {
  switch (op) {
    case control::Op::hello: return sizeof(control::Hello);
    case control::Op::create_endpoint: return sizeof(control::CreateEndpoint);
    case control::Op::destroy_endpoint: return sizeof(control::DestroyEndpoint);
    case control::Op::bind: return sizeof(control::Bind);
    case control::Op::unbind: return sizeof(control::Unbind);
    case control::Op::connect: return sizeof(control::Connect);
    case control::Op::accept: return sizeof(control::Accept);
    case control::Op::reject: return sizeof(control::Reject);
    case control::Op::close_channel: return sizeof(control::CloseChannel);
    case control::Op::expose: return sizeof(control::Expose);
    case control::Op::peer_region: return sizeof(control::PeerRegion);
    case control::Op::get_descriptor: return sizeof(control::GetDescriptor);
    case control::Op::report: return sizeof(control::Report);
    case control::Op::policy_reload: return sizeof(control::PolicyReload);
    case control::Op::drain: return sizeof(control::Drain);
    case control::Op::upgrade: return sizeof(control::Upgrade);
    case control::Op::create_emulated: return sizeof(control::CreateEmulated);
    case control::Op::open_ip: return sizeof(control::OpenIp);
    case control::Op::claim_ip: return sizeof(control::ClaimIp);
    case control::Op::release_ip: return sizeof(control::ReleaseIp);
    case control::Op::ip_configuration: return sizeof(control::GetIpConfiguration);
    case control::Op::open_sockets: return sizeof(control::OpenSockets);
    case control::Op::list_sockets: return sizeof(control::ListSockets);
    case control::Op::set_ip_claim: return sizeof(control::SetIpClaim);
    case control::Op::own_ip_flow: return sizeof(control::OwnIpFlow);
    case control::Op::capture_start: return sizeof(control::CaptureStart);
    case control::Op::capture_stop: return sizeof(control::CaptureStop);
    case control::Op::connect_request:
    case control::Op::channel_opened:
    case control::Op::channel_closed:
    case control::Op::ip_changed: break;
  }
  return 0;
}

// All requests, which are the ops with a size.
const std::vector<control::Op> kRequests = [] {
  std::vector<control::Op> all;
  for (uint32_t number = 0; number < static_cast<uint32_t>(control::Op::connect_request); ++number) {
    if (size_of(static_cast<control::Op>(number)) != 0) all.push_back(static_cast<control::Op>(number));
  }
  return all;
}();

// Numbers that the service has given out. Inputs name them by index, because they change from run to run.
struct Known {
  std::vector<uint32_t> endpoints;  // of both clients: each can name the other's
  std::vector<uint64_t> numbers;    // of requests for channels, claims of ports, and captures

  void learn(const service::test::Incoming& in) {
    const auto reply = in.as<control::Reply>();
    if (in.op() == control::Op::connect_request) return numbers.push_back(in.as<control::ConnectRequest>().request);
    if (reply.code != 0) return;
    if (in.op() == control::Op::create_endpoint || in.op() == control::Op::create_emulated) {
      endpoints.push_back(reply.create_endpoint.endpoint);
    }
    if (in.op() == control::Op::claim_ip) numbers.push_back(reply.claim_ip.claim);
    if (in.op() == control::Op::capture_start) numbers.push_back(reply.capture.capture);
  }
  // 255, where no number has that index: all ones, as requests say "any".
  template <typename T>
  static T choose(const std::vector<T>& from, uint8_t choice) {
    return choice < from.size() ? from[choice] : choice == 255 ? ~T{0} : choice;
  }
};

// An NI with IP on a port without a peer.
std::unique_ptr<service::Ni> make_ip_ni() {
  service::NiOptions options;
  options.service.host = "testhost";
  options.service.own_user = geteuid();
  options.service.policy = service::Policy(geteuid());
  options.engine.ip.ports.push_back(*service::parse_ip_port("0=10.1.0.1/24,fd00::1/64,unprobed"));
  std::vector<std::unique_ptr<Driver>> drivers;
  drivers.push_back(std::make_unique<drivers::Nowhere>());
  return std::move(*service::Ni::create(std::move(options), std::move(drivers)));
}

// Sends a packet that passes the first checks: names and options from a small choice, numbers from the input.
void send_shaped(TestClient& client, FuzzInput& input, const Known& known) {
  const control::Op op = kRequests[input.take<uint8_t>() % kRequests.size()];
  alignas(8) std::byte packet[control::kPacketMax] = {};
  const uint32_t endpoint = Known::choose(known.endpoints, input.take<uint8_t>());
  const control::Header header{op, endpoint, input.take<uint8_t>()};
  std::memcpy(packet, &header, sizeof header);
  const auto put = [&](auto value) { std::memcpy(packet, &value, sizeof value); };
  const char* names[] = {"a", "b", "a@testhost", "a@elsewhere", "-", ""};
  static const ip::IpAddress addresses[] = {*ip::parse_address("10.1.0.1"), *ip::parse_address("fd00::1"), *ip::parse_address("10.1.0.2"),
                                            *ip::parse_address("239.1.2.3")};
  switch (op) {
    case control::Op::hello: {
      control::Hello p{.header = header, .version = control::kVersion, .program = {}};
      put(p);
      break;
    }
    case control::Op::create_endpoint: {
      control::CreateEndpoint p{.header = header, .options = TestClient::small()};
      const auto lies = input.take<uint8_t>();
      if ((lies & 3) == 0) p.options.receive_depth = input.take<uint32_t>();
      if ((lies & 28) == 4) p.options.weight = input.take<uint32_t>();
      put(p);
      break;
    }
    case control::Op::bind: {
      control::Bind p{.header = header, .name = {}};
      p.name.set(names[input.take<uint8_t>() % 6]);
      put(p);
      break;
    }
    case control::Op::connect: {
      control::Connect p{};
      p.header = header;
      p.target.set(names[input.take<uint8_t>() % 6]);
      p.path = static_cast<control::Path>(input.take<uint8_t>() & 3);
      p.timeout_ms = input.take<uint16_t>();
      p.local = {.depth = 4, .data_bytes = 4 * kMessageMax};
      put(p);
      break;
    }
    case control::Op::expose: put(control::Expose{.header = header, .bytes = input.take<uint16_t>()}); break;
    case control::Op::claim_ip: {
      const auto how = input.take<uint8_t>();
      control::ClaimIp p{.header = header, .claim = {}};
      p.claim.protocol = (how & 1) != 0 ? ip::Protocol::kTcp : ip::Protocol::kUdp;
      if ((how & 2) != 0) p.claim.local = addresses[input.take<uint8_t>() % std::size(addresses)];
      if ((how & 4) != 0) p.claim.remote = addresses[input.take<uint8_t>() % std::size(addresses)];
      p.claim.accepts_new_flows = static_cast<AcceptsNewFlows>(how >> 3 & 3);
      p.claim.port = (how & 32) != 0 ? input.take<uint16_t>() : uint16_t{2000};
      p.claim.group = how >> 6;
      put(p);
      break;
    }
    case control::Op::own_ip_flow: {
      control::OwnIpFlow p{.header = header, .claim = static_cast<uint32_t>(Known::choose(known.numbers, input.take<uint8_t>())),
                           .local_port = input.take<uint16_t>(), .remote_port = input.take<uint8_t>(), .local = {}, .remote = {}};
      p.local = addresses[input.take<uint8_t>() % std::size(addresses)];
      p.remote = addresses[input.take<uint8_t>() % std::size(addresses)];
      put(p);
      break;
    }
    case control::Op::capture_start: {
      const auto how = input.take<uint8_t>();
      put(control::CaptureStart{.header = header, .channel = (how & 1) != 0 ? ~0u : input.take<uint8_t>(), .port = (how >> 1 & 3) - 1,
                                .snap_length = input.take<uint8_t>(), .bytes = 1u << (how >> 3)});
      break;
    }
    default: {
      const auto argument_choice = input.take<uint8_t>();
      const bool of_number = op == control::Op::accept || op == control::Op::reject || op == control::Op::release_ip ||
                             op == control::Op::set_ip_claim || op == control::Op::capture_stop;
      const uint64_t argument = of_number ? Known::choose(known.numbers, argument_choice) : argument_choice;  // or a channel's number
      std::memcpy(packet + sizeof header, &argument, sizeof argument);
      break;
    }
  }
  client.send_bytes(packet, size_of(op));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto ni = make_ip_ni();
  FuzzInput input(data, std::min<size_t>(size, 4096));
  Known known;
  std::optional<TestClient> clients[2];
  for (auto& each : clients) each.emplace(*ni);
  while (!input.empty()) {
    const auto step = input.take<uint8_t>();
    std::optional<TestClient>& client = clients[step & 1];
    switch ((step >> 1) & 7) {
      case 0: {
        const std::vector<std::byte> bytes = input.take_bytes(input.take<uint16_t>() % 1100);
        client->send_bytes(bytes.data(), bytes.size());
        break;
      }
      case 1: client.emplace(*ni); break;
      default: send_shaped(*client, input, known); break;
    }
    ni->wait(0);
    for (auto& each : clients) {
      while (const auto in = each->receive()) known.learn(*in);
    }
  }
  for (auto& each : clients) each.reset();
  ni->service().drain(false);  // the state in which the next input starts
  for (int turns = 0; !ni->service().idle(); ++turns) {
    UNET_CHECK(turns < 1000);
    ni->wait(0);
  }
  return 0;
}
