// control_packets_fuzz.cc - two clients send the service any packets in any order. When they are gone, the service holds nothing of them.
//
// Input: steps. The low bits of a step's first byte choose the client. The rest choose raw bytes, a packet of the right size for its op
// with fields from the input, or close and reconnect.
#include <optional>

#include "ni/service/test_client.h"
#include "tests/fuzz/fuzz_input.h"
#include "unet/base/check.h"

using namespace unet;
using service::test::TestClient;

namespace {

size_t size_of(control::Op op) {
  switch (op) {
    case control::Op::hello: return sizeof(control::Hello);
    case control::Op::create_endpoint: return sizeof(control::CreateEndpoint);
    case control::Op::bind: return sizeof(control::Bind);
    case control::Op::connect: return sizeof(control::Connect);
    case control::Op::accept: return sizeof(control::Accept);
    case control::Op::reject: return sizeof(control::Reject);
    case control::Op::close_channel: return sizeof(control::CloseChannel);
    case control::Op::expose: return sizeof(control::Expose);
    case control::Op::peer_region: return sizeof(control::PeerRegion);
    case control::Op::drain: return sizeof(control::Drain);
    case control::Op::create_emulated: return sizeof(control::CreateEmulated);
    default: return sizeof(control::Header);
  }
}

// Numbers that the service has given out. Inputs name them by index, because they change from run to run.
struct Known {
  std::vector<uint32_t> endpoints;  // of both clients: each can name the other's
  std::vector<uint64_t> requests;

  void learn(const service::test::Incoming& in) {
    const auto reply = in.as<control::Reply>();
    const bool created = in.op() == control::Op::create_endpoint || in.op() == control::Op::create_emulated;
    if (created && reply.code == 0) endpoints.push_back(reply.create_endpoint.endpoint);
    if (in.op() == control::Op::connect_request) requests.push_back(in.as<control::ConnectRequest>().request);
  }
  template <typename T>
  static T choose(const std::vector<T>& from, uint8_t choice) {
    return choice < from.size() ? from[choice] : choice;
  }
};

// Sends a packet that passes the first checks: names and options from a small choice, numbers from the input.
void send_shaped(TestClient& client, FuzzInput& input, const Known& known) {
  const auto choice = static_cast<uint32_t>(1 + input.take<uint8_t>() % 16);
  const auto op = choice == 16 ? control::Op::create_emulated : static_cast<control::Op>(choice);
  alignas(8) std::byte packet[control::kPacketMax] = {};
  const uint32_t endpoint = Known::choose(known.endpoints, input.take<uint8_t>());
  const control::Header header{op, endpoint, input.take<uint8_t>()};
  std::memcpy(packet, &header, sizeof header);
  const auto put = [&](auto value) { std::memcpy(packet, &value, sizeof value); };
  const char* names[] = {"a", "b", "a@testhost", "a@elsewhere", "-", ""};
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
    default: {
      const auto argument_choice = input.take<uint8_t>();
      const bool of_request = op == control::Op::accept || op == control::Op::reject;
      const uint64_t argument = of_request ? Known::choose(known.requests, argument_choice) : argument_choice;  // or a channel's number
      std::memcpy(packet + sizeof header, &argument, sizeof argument);
      break;
    }
  }
  client.send_bytes(packet, size_of(op));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto ni = service::test::make_ni();
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
