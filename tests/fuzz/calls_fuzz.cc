// calls_fuzz.cc - any messages of calls, from a client to a server and from a server to a client: memory stays within its bounds, and
// nothing is left when the peer is gone.
//
// Input: steps of one byte, each with the bytes that it takes.
#include <memory>

#include "am/rpc/client.h"
#include "am/rpc/server.h"
#include "tests/fuzz/fuzz_input.h"
#include "unet/base/check.h"

namespace unet {

// All waits and deadlines of calls follow the simulation.
Nanoseconds monotonic_now() noexcept { return am::sim_world->now(); }

}  // namespace unet

using namespace unet;
using namespace unet::rpc;

namespace {

using Block = std::vector<std::byte>;
constexpr Interface kTest{"test", 1};
constexpr Procedure<Block(uint32_t, std::span<const std::byte>)> kNow{1}, kLater{2};
constexpr uint64_t kMemoryMax = 200'000;

// The peer that lies: a client of the server, and the server of the client. Its imports and those of the client succeed.
struct Liar : SimNode {
  explicit Liar(am::SimWorld& of_world) : world(of_world) {
    UNET_CHECK(endpoint.bind("liar").has_value());
    UNET_CHECK(endpoint.map(0, "server").has_value());
    endpoint.set_handler(kCallHandler, [](am::Token& token, void* liar) { static_cast<Liar*>(liar)->take_call(token); }, this);
    endpoint.set_handler(kPieceHandler, [](am::Token&, void*) {}, nullptr);
    endpoint.set_handler(kAnswerHandler, [](am::Token& token, void* liar) { static_cast<Liar*>(liar)->take_answer(token); }, this);
    endpoint.set_handler(kAnswerPieceHandler, [](am::Token&, void*) {}, nullptr);
    world.add(*this);
  }
  Nanoseconds process() override {
    endpoint.poll();
    if (client != 0 && !endpoint.in_use(1)) UNET_CHECK(endpoint.map_back(1, client).has_value());
    return world.now() + 20 * kMicrosecond;
  }
  void take_call(am::Token& token) {
    client = token.source();
    call = token.argument(0);
    if (!CallHead::of(token.argument(2)).has(CallHead::kControl)) return;
    token.reply_short(kAnswerHandler, std::array<uint32_t, 3>{call, AnswerHead{.length = 4}.word(), 7});
  }
  void take_answer(const am::Token& token) {
    if (binding == 0 && token.arguments().size() > 2) binding = token.argument(2);  // the answer of import() below
  }
  void import() {
    Block arguments(encoded_size<uint32_t, std::string_view>(kTest.version, kTest.name));
    encode<uint32_t, std::string_view>(arguments.data(), kTest.version, kTest.name);
    const CallHead head{.procedure = Control::kImport, .flags = CallHead::kControl};
    send(0, kCallHandler, arguments, std::array<uint32_t, 3>{1, 0, head.word()});
  }
  void send(am::Index to, uint8_t handler, Bytes payload, std::span<const uint32_t> words) {
    for (int tries = 0; tries < 8 && endpoint.is_open(to); ++tries) {
      if (endpoint.request_now(to, handler, payload, words) != am::Outcome::not_sent) return;
    }
  }
  am::SimWorld& world;
  am::Endpoint endpoint;
  uint64_t client = 0;
  uint32_t call = 0, binding = 0;
};

// A message with words of the input, the first of which may be replaced by right ones.
void lie(Liar& liar, am::Index to, uint8_t handler, uint8_t step, FuzzInput& input) {
  std::vector<uint32_t> words(input.take<uint8_t>() % (am::kArgumentsMax + 1));
  for (uint32_t& word : words) word = (step & 0x10) != 0 ? input.take<uint8_t>() : input.take<uint32_t>();
  if (to == 1 && !words.empty() && (step & 0x20) != 0) words[0] = liar.call;
  if (to == 0 && words.size() > 2 && (step & 0x20) != 0) {
    words[1] = liar.binding;
    words[2] = CallHead{.procedure = words[2] & 3, .flags = words[2] >> 2 & 0xFF, .length = words[2] >> 10 & 0xFF}.word();
  }
  liar.send(to, handler, input.take_bytes((step & 0x40) != 0 ? input.take<uint16_t>() % (kPayloadMax + 1) : 0), words);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput input(data, size);
  alignas(Context) std::byte nothing[sizeof(Context)];
  auto& context = reinterpret_cast<Context&>(nothing);  // simulated endpoints need none
  am::SimWorld world(1);
  am::sim_world = &world;
  auto server = *Server::create(context, "server", {.late_max = 4, .arguments_max = 100'000, .memory_max = kMemoryMax, .spin = 0});
  std::deque<Response<Block>> later;
  server->provide(kTest, kNow, [](uint32_t count, std::span<const std::byte>) { return Block(count % 50'000); });
  server->provide(kTest, kLater, [&](Response<Block> response, uint32_t, std::span<const std::byte>) {
    later.push_back(std::move(response));
  });
  auto client = *Client::create(context, {.spin = 0, .result_max = 50'000, .results_max = 100'000});
  Liar liar(world);
  std::array<Call<Block>, 4> calls;
  Binding binding = client->bind_later("liar", kTest);
  liar.import();
  const auto turn = [&] {
    world.run_for(200 * kMicrosecond);
    server->poll();
    client->poll();
    UNET_CHECK(server->memory() <= kMemoryMax && server->late_under_way() <= 4);
  };
  turn();
  turn();
  turn();
  binding.set_timeout(kMillisecond);
  while (!input.empty()) {
    const auto step = input.take<uint8_t>();
    Call<Block>& call = calls[(step >> 4) % calls.size()];
    switch (step % 8) {
      case 0: lie(liar, 0, kCallHandler, step, input); break;
      case 1: lie(liar, 0, kPieceHandler, step, input); break;
      case 2: lie(liar, 1, kAnswerHandler, step, input); break;
      case 3: lie(liar, 1, kAnswerPieceHandler, step, input); break;
      case 4:
        if (call.done()) binding.start(call, kNow, step, input.take_bytes(input.take<uint16_t>()));
        break;
      case 5: call.cancel(); break;
      case 6:
        if (!later.empty()) later.front()(Block(input.take<uint16_t>())), later.pop_front();
        break;
      case 7:
        server->revoke(kTest);
        liar.binding = 0;
        liar.import();
        break;
    }
    if ((step & 0x80) != 0) turn();
  }
  liar.endpoint.kill();
  for (int i = 0; i < 1000 && (server->callers() != 0 || client->under_way() != 0); ++i) turn();
  UNET_CHECK(server->callers() == 0 && client->under_way() == 0);
  later.clear();
  turn();
  UNET_CHECK(server->memory() == 0 && server->late_under_way() == 0);
  for (const Call<Block>& each : calls) UNET_CHECK(each.done());
  binding = {};
  return 0;
}
