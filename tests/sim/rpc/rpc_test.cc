// rpc_test.cc - clients and servers in virtual time: random calls, cuts, deaths and restarts, decided by a seed.
//
// A checker counts the runs of each operation. No operation runs twice; one that ended well has run once, one that has not run, never. At
// the end no client and no server holds anything for a call.
#include <catch2/catch.hpp>

#include <memory>
#include <vector>

#include "am/rpc/client.h"
#include "am/rpc/server.h"
#include "unet/base/test_seeds.h"

namespace unet {

// All waits and deadlines of calls follow the simulation.
Nanoseconds monotonic_now() noexcept { return am::sim_world->now(); }

}  // namespace unet

namespace unet::rpc {
namespace {

using Block = std::vector<std::byte>;
constexpr Interface kTest{"test", 1};
constexpr Procedure<Block(uint32_t, uint32_t, std::span<const std::byte>)> kNow{1}, kLater{2};
constexpr Procedure<void(uint32_t)> kOneWay{3};

struct Operation {
  uint32_t number = 0, result = 0;
  Call<Block> call;
};

struct Process : SimNode {
  Process(am::SimWorld& of_world, Context& context, std::vector<uint32_t>& runs, const std::string& name) : world(of_world) {
    ServerOptions options;
    options.late_max = 8 + static_cast<uint32_t>(world.below(100));
    options.memory_max = 100'000 + world.below(10'000'000);
    options.spin = 0;
    server = std::move(*Server::create(context, name, options));
    const auto run = [&](uint32_t number, uint32_t size, std::span<const std::byte> bytes) {
      ++runs[number];
      REQUIRE(std::all_of(bytes.begin(), bytes.end(), [&](std::byte each) { return each == static_cast<std::byte>(number); }));
      return Block(size, static_cast<std::byte>(number + 1));
    };
    server->provide(kTest, kNow, run);
    server->provide(kTest, kLater, [this, run](Response<Block> response, uint32_t number, uint32_t size, std::span<const std::byte> bytes) {
      later.emplace_back(std::move(response), run(number, size, bytes));
    });
    server->provide(kTest, kOneWay, [&runs](uint32_t number) { ++runs[number]; });
    world.add(*this);
  }
  Nanoseconds process() override {
    if (server == nullptr) return kNever;
    server->poll();
    while (!later.empty() && (ending || world.below(3) == 0)) {
      std::swap(later.front(), later[world.below(later.size())]);
      later.front().first(later.front().second);
      later.pop_front();
    }
    return world.now() + 1 + world.below(10 * kMicrosecond);
  }
  void die() {
    server->endpoint().kill();
    later.clear();
    server.reset();
  }
  am::SimWorld& world;
  std::unique_ptr<Server> server;
  std::deque<std::pair<Response<Block>, Block>> later;
  bool ending = false;
};

struct Caller {
  void bind() {
    bindings.clear();
    for (const std::string_view server : {"s0", "s1"}) bindings.push_back(client->bind_later(server, kTest));
    revoked = false;
  }
  std::unique_ptr<Client> client;
  std::vector<Binding> bindings;
  bool revoked = false;
  std::vector<std::unique_ptr<Operation>> operations;
};

void live(uint64_t seed, bool mortal) {
  INFO("seed " << seed << (mortal ? ", with deaths" : ""));
  alignas(Context) std::byte nothing[sizeof(Context)];
  auto& context = reinterpret_cast<Context&>(nothing);  // simulated endpoints need none
  am::SimWorld world(seed);
  am::sim_world = &world;
  std::vector<uint32_t> runs(200);
  std::vector<CallStatus> ends(runs.size(), CallStatus::lost);
  std::vector<std::unique_ptr<Process>> processes;
  std::array<Process*, 2> current{};
  const auto start = [&](size_t i) {
    processes.push_back(std::make_unique<Process>(world, context, runs, "s" + std::to_string(i)));
    current[i] = processes.back().get();
  };
  for (size_t i = 0; i < current.size(); ++i) start(i);
  std::array<Caller, 2> callers;
  for (Caller& caller : callers) {
    ClientOptions options;
    options.spin = 0;
    caller.client = std::move(*Client::create(context, options));
    caller.bind();
  }
  uint32_t well = 0, all = 0;
  const auto take_ended = [&](Caller& caller) {
    std::erase_if(caller.operations, [&](const auto& each) {
      if (!each->call.done()) return false;
      ends[each->number] = each->call.status();
      caller.revoked = caller.revoked || each->call.status() == CallStatus::revoked;
      if (each->call.ok()) {
        ++well;
        REQUIRE(each->call.result() == Block(each->result, static_cast<std::byte>(each->number + 1)));
      }
      return true;
    });
  };
  const auto size = [&] { return static_cast<uint32_t>(world.below(8) == 0 ? world.below(60'000) : world.below(60)); };
  while (all < runs.size()) {
    Caller& caller = callers[world.below(callers.size())];
    if (caller.revoked) caller.bind();
    Binding& binding = caller.bindings[world.below(caller.bindings.size())];
    const uint64_t what = world.below(100);
    if (what < 5) {
      binding.tell(kOneWay, all++);
    } else if (what < 60) {
      caller.operations.push_back(std::make_unique<Operation>());
      Operation& operation = *caller.operations.back();
      operation.number = all++;
      operation.result = size();
      binding.set_timeout(world.below(4) == 0 ? 1 + world.below(300 * kMicrosecond) : kNever);
      const Block block(size(), static_cast<std::byte>(operation.number));
      binding.start(operation.call, world.below(2) == 0 ? kNow : kLater, operation.number, operation.result, block);
    } else if (what < 65 && !caller.operations.empty()) {
      Operation& operation = *caller.operations[world.below(caller.operations.size())];
      if (!operation.call.done()) operation.call.cancel();
    } else if (what < 70 && !caller.operations.empty()) {
      caller.client->wait_for(caller.operations[world.below(caller.operations.size())]->call);
    } else if (what < 72) {
      current[world.below(current.size())]->server->revoke(kTest);
    } else if (what == 72 && mortal && world.below(3) == 0) {
      const uint64_t i = world.below(current.size());
      current[i]->die();
      start(i);
    } else if (what == 73 && mortal && !world.wires.empty()) {
      world.wires[world.below(world.wires.size())].cut();
    } else {
      world.run_for(world.below(50 * kMicrosecond));
    }
    caller.client->poll();
    take_ended(caller);
  }
  for (Process* const process : current) process->ending = true;
  for (Caller& caller : callers) {
    for (const auto& each : caller.operations) caller.client->wait_for(each->call);
    take_ended(caller);
    REQUIRE(caller.client->under_way() == 0);
  }
  for (int i = 0; i < 100; ++i) {
    world.run_for(100 * kMicrosecond);
    for (Caller& caller : callers) caller.client->poll();
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    INFO("operation " << i << " ended with " << to_string(ends[i]) << " and ran " << runs[i] << " times");
    REQUIRE(runs[i] <= 1);
    if (ends[i] == CallStatus::ok) REQUIRE(runs[i] == 1);
    if (!may_have_run(ends[i])) REQUIRE(runs[i] == 0);
  }
  for (Process* const process : current) {
    REQUIRE(process->server->late_under_way() == 0);
    REQUIRE(process->server->memory() == 0);
    REQUIRE(process->server->counters().malformed == 0);
  }
  REQUIRE(well > 20);
  for (Caller& caller : callers) {
    caller.bindings.clear();
    caller.client.reset();
  }
  for (Process* const process : current) {
    for (int i = 0; i < 1000 && process->server->callers() != 0; ++i) world.run_for(100 * kMicrosecond);
    REQUIRE(process->server->callers() == 0);
  }
}

}  // namespace

TEST_CASE("calls in virtual time, thousands of seeds") {
  for (uint64_t seed = 1; seed <= test::seeds(1000); ++seed) live(seed, false);
}

TEST_CASE("calls in virtual time while servers die and channels end, thousands of seeds") {
  for (uint64_t seed = 1; seed <= test::seeds(1000); ++seed) live(seed, true);
}

}  // namespace unet::rpc
