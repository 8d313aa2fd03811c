// task_test.cc - launchers and agents in a simulated network: starts in all ways, deaths, lies, and nothing left behind.
#include <catch2/catch.hpp>

#include <csignal>

#include "am/rpc/task/sim_hosts.h"
#include "unet/base/test_seeds.h"

namespace unet::rpc::sim {
namespace {

// Lets agents end what they began, then checks that nothing is left.
void require_nothing_left(World& world) {
  world.simulator.run_for(60 * kSecond);
  for (const auto& host : world.hosts) {
    INFO("host " << host->number());
    CHECK(host->running == 0);
    CHECK(host->files == 0);
    if (host->is_up()) CHECK(host->agent.jobs() == 0);
    for (const auto& [rank, times] : host->begun) CHECK(times == 1);
  }
}

}  // namespace

TEST_CASE("a job runs on every number of hosts, in each way, and its output and exit codes come back") {
  for (const StartWay way : {StartWay::tree, StartWay::flat, StartWay::flat_threads}) {
    for (const uint32_t count : {1u, 2u, 3u, 7u, 33u, 200u}) {
      INFO(count << " hosts, way " << static_cast<int>(way));
      World world(count, {}, 1);
      JobSpec spec = World::job(count, 2);
      spec.files.push_back({"file", 1'000'000, false});
      REQUIRE(world.launcher.start(spec, {.way = way}));
      world.run(world.simulator.now() + 100 * kSecond);
      REQUIRE(world.launcher.launcher->is_over());
      CHECK(world.launcher.failures.empty());
      CHECK_FALSE(world.launcher.launcher->failure());
      CHECK(world.launcher.started_at != 0);
      REQUIRE(world.launcher.exits.size() == 2 * count);
      for (uint32_t rank = 0; rank < 2 * count; ++rank) CHECK(world.launcher.text[rank] == "rank " + std::to_string(rank) + "\n");
      require_nothing_left(world);
    }
  }
}

TEST_CASE("1,024 hosts: the tree is twenty times as fast as one host after another") {
  const Nanoseconds flat = creation_time(1024, 0, {}, {.way = StartWay::flat}, 2);
  const Nanoseconds tree = creation_time(1024, 0, {}, {.way = StartWay::tree}, 2);
  const Nanoseconds threads = creation_time(1024, 0, {}, {.way = StartWay::flat_threads}, 2);
  INFO("flat " << flat << ", threads " << threads << ", tree " << tree);
  CHECK(flat != kNever);
  CHECK(tree * 20 <= flat);
  CHECK(tree < threads);
}

TEST_CASE("a broadcast down the tree takes about as long for many levels as for one") {
  const uint64_t bytes = 8'000'000;
  const Nanoseconds one = creation_time(3, bytes, {}, {}, 2);
  const Nanoseconds many = creation_time(127, bytes, {}, {}, 2);
  CHECK(many < 2 * one);
}

TEST_CASE("the first task that fails ends the job, and gives the exit status") {
  World world(9, {.task = 20 * kMillisecond}, 1);
  world.hosts[5]->exits[5] = 7;
  REQUIRE(world.launcher.start(World::job(9), {}));
  world.run(world.simulator.now() + 100 * kSecond);
  REQUIRE(world.launcher.launcher->is_over());
  CHECK(world.launcher.launcher->failure() == 7);
  require_nothing_left(world);
}

TEST_CASE("signals end tasks, also those that ignore SIGTERM") {
  for (const bool deaf : {false, true}) {
    World world(15, {.task = kNever}, 1);
    for (const auto& host : world.hosts) host->deaf = deaf;
    REQUIRE(world.launcher.start(World::job(15), {}));
    world.simulator.run_for(kSecond);
    CHECK(world.launcher.started_at != 0);
    world.launcher.launcher->end(SIGINT, world.simulator.now());
    const Nanoseconds begin = world.simulator.now();
    world.run(begin + 100 * kSecond);
    CHECK(world.launcher.launcher->is_over());
    CHECK(world.simulator.now() - begin < (deaf ? 3 * kSecond : kSecond));
    CHECK(world.launcher.exits[14] == kBySignal + (deaf ? SIGKILL : SIGINT));
    require_nothing_left(world);
  }
}

TEST_CASE("a host that refuses or is down fails the job with its name and a reason") {
  for (const StartWay way : {StartWay::tree, StartWay::flat, StartWay::flat_threads}) {
    for (const bool down : {false, true}) {
      World world(12, {.task = kNever}, 1);
      if (down) world.unplug(11);
      else world.hosts[11]->refusal = TaskFailure{Reason::too_many, "no room"};
      REQUIRE(world.launcher.start(World::job(12), {.way = way}));
      const Nanoseconds begin = world.simulator.now();
      world.run(begin + 100 * kSecond);
      REQUIRE(world.launcher.launcher->is_over());
      CHECK(world.simulator.now() - begin < 8 * kSecond);
      REQUIRE_FALSE(world.launcher.failures.empty());
      CHECK(world.launcher.failures[0].first == "h11");
      CHECK(world.launcher.failures[0].second.reason == (down ? Reason::unreachable : Reason::too_many));
      CHECK(world.launcher.launcher->failure() == 1);
      require_nothing_left(world);
    }
  }
}

TEST_CASE("deaths of agents, hosts and launchers at any time end the job in bounded time, with nothing left") {
  for (uint64_t seed = 1; seed <= test::seeds(300); ++seed) {
    INFO("seed " << seed);
    const auto count = static_cast<uint32_t>(1 + seed % 40);
    World world(count, {.task = seed % 3 == 0 ? kNever : 5 * kMillisecond}, seed);
    JobSpec spec = World::job(count, static_cast<uint32_t>(1 + world.simulator.below(3)));
    spec.arity = static_cast<uint32_t>(1 + world.simulator.below(4));
    if (seed % 2 == 0) spec.files.push_back({"file", world.simulator.below(3'000'000), false});
    const auto way = static_cast<StartWay>(world.simulator.below(3));
    REQUIRE(world.launcher.start(spec, {.way = way, .under_way = static_cast<uint32_t>(1 + world.simulator.below(8))}));
    const auto victim = static_cast<uint32_t>(world.simulator.below(count + 1));
    const bool silent = world.simulator.chance(0.3);
    bool ended_before = false;
    world.simulator.at(world.simulator.now() + world.simulator.below(40 * kMillisecond), [&] {
      ended_before = world.launcher.launcher->is_over();
      if (silent) world.unplug(victim);
      else world.kill(victim);
    });
    world.run(world.simulator.now() + 100 * kSecond);
    if (victim < count) {
      CHECK(world.launcher.launcher->is_over());
      // Also after all exit statuses have come, the loss of an agent that is not done is a failure.
      CHECK((ended_before || !world.launcher.failures.empty() || world.launcher.exits.size() == spec.tasks()));
      if (!world.launcher.launcher->failure()) CHECK(world.launcher.exits.size() == spec.tasks());
    }
    require_nothing_left(world);
  }
}

TEST_CASE("an agent that lies in every field ends the job, and nothing else") {
  for (uint64_t seed = 1; seed <= test::seeds(300); ++seed) {
    INFO("seed " << seed);
    const uint32_t count = 7;
    World world(count, {.task = 50 * kMillisecond}, seed);
    const auto liar = static_cast<uint32_t>(world.simulator.below(count));
    REQUIRE(world.launcher.start(World::job(count, 2), {.way = seed % 2 == 0 ? StartWay::tree : StartWay::flat_threads}));
    world.simulator.run_for(10 * kMillisecond);
    const std::vector<std::byte> bytes(kRecordMax);
    for (int i = 0; i < 50 && !world.launcher.launcher->is_over(); ++i) {
      const auto number = [&]() -> uint32_t {
        return static_cast<uint32_t>(world.simulator.chance(0.7) ? world.simulator.below(16) : world.simulator.random());
      };
      const TaskRecord lie{static_cast<RecordType>(1 + world.simulator.below(kRecordTypeMax)), number(), number(),
                       Bytes(bytes).first(world.simulator.below(kRecordMax))};
      for (const World::EdgeSeen& edge : std::vector(world.edges)) {
        if (edge.from != liar && edge.to != liar) continue;
        const uint32_t to = edge.from == liar ? edge.to : edge.from;
        if (to == count) world.launcher.launcher->receive(liar + 1, edge.key, lie, world.simulator.now());
        else world.hosts[to]->agent.receive({.source = liar + 1}, edge.key, lie, world.simulator.now());
        world.machine(to).wake();
      }
      world.simulator.run_for(kMillisecond);
    }
    world.run(world.simulator.now() + 100 * kSecond);
    CHECK(world.launcher.launcher->is_over());
    require_nothing_left(world);
  }
}

// Two hosts have more output than the window of an edge, so the job is not over before the caller grants room.
TEST_CASE("a caller that takes no output cannot hold up its next jobs by finished ones") {
  World world(3, {}, 1);
  SimHost& host = *world.hosts[1];
  JobSpec spec = World::job(3, 1000);
  spec.hosts.erase(spec.hosts.begin());
  const Result<std::vector<std::byte>> bytes = encode_job(spec);
  REQUIRE(bytes);
  const auto say = [&](uint64_t key, const TaskRecord& record) {
    host.agent.receive({.source = 1, .host = "h0"}, key, record, world.simulator.now());
    host.wake();
  };
  const auto start = [&](uint64_t key) {
    const be32 size(static_cast<uint32_t>(bytes->size()));
    say(key, {RecordType::start, kTaskVersion, 0, as_bytes(&size, sizeof size)});
    for (const Payload& piece : in_pieces(*bytes)) say(key, {RecordType::spec, 0, 0, *piece});
  };
  for (uint64_t key = 1; key <= kJobsOfCallerMax; ++key) start(key);
  for (int i = 0; i < 30; ++i) {
    for (uint64_t key = 1; key <= kJobsOfCallerMax; ++key) say(key, {RecordType::alive});
    world.simulator.run_for(kSecond);
  }
  CHECK(host.running == 0);
  CHECK(host.agent.jobs() == kJobsOfCallerMax);
  start(kJobsOfCallerMax + 1);
  CHECK(host.agent.counters().jobs == kJobsOfCallerMax + 1);
  CHECK(host.agent.jobs() == kJobsOfCallerMax);
  world.simulator.run_for(kSecond);
  CHECK(host.begun[0] == kJobsOfCallerMax + 1);
  world.simulator.run_for(60 * kSecond);
  CHECK(host.agent.jobs() == 0);
}

TEST_CASE("the specification survives its encoding, and every cut of it is refused") {
  JobSpec spec = World::job(5, 3);
  spec.files = {{"a", 1, true}, {"b", uint64_t{1} << 33, false}};
  spec.carried = true;
  spec.program = {"a", "", "-x"};
  spec.environment = {"A=", "B=1"};
  spec.directory = "/tmp";
  const Result<std::vector<std::byte>> bytes = encode_job(spec);
  REQUIRE(bytes);
  const Result<JobSpec> again = decode_job(*bytes);
  REQUIRE(again);
  CHECK(again->hosts[4].name == "h4");
  CHECK(again->tasks() == 15);
  CHECK(again->files[1].bytes == uint64_t{1} << 33);
  CHECK(again->program == spec.program);
  CHECK(again->environment == spec.environment);
  for (size_t size = 0; size < bytes->size(); ++size) CHECK_FALSE(decode_job(Bytes(*bytes).first(size)));
  Simulator random(1);
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::byte> changed = *bytes;
    changed[random.below(changed.size())] = static_cast<std::byte>(random.below(256));
    static_cast<void>(decode_job(changed));
  }
  for (const char* const name : {"", ".", "..", "a/b", "/a"}) {
    JobSpec bad = spec;
    bad.files[1].name = name;
    CHECK_FALSE(encode_job(bad));
  }
  for (const char* const program : {"./a", "/usr/../a", "a/b", ".."}) {
    JobSpec bad = World::job(1);
    bad.program = {program};
    CHECK_FALSE(encode_job(bad));
  }
}

TEST_CASE("every node of a tree is below one child of the launcher, and counts and heights agree") {
  for (const uint32_t arity : {0u, 1u, 2u, 3u, 16u}) {
    for (const uint32_t count : {1u, 2u, 17u, 100u}) {
      JobSpec spec = World::job(count, 2);
      spec.arity = arity;
      const Tree tree(spec);
      uint32_t tasks = 0;
      for (const uint32_t top : tree.children_of_launcher()) tasks += tree.tasks_below(top);
      CHECK(tasks == 2 * count);
      for (uint32_t node = 0; node < count; ++node) {
        uint32_t below = 2;
        for (const uint32_t child : tree.children(node)) {
          below += tree.tasks_below(child);
          CHECK(tree.is_below(node, child));
          CHECK_FALSE(tree.is_below(child, node));
          CHECK(tree.height(child) < tree.height(node));
        }
        CHECK(tree.tasks_below(node) == below);
        CHECK(tree.node_of(2 * node + 1) == node);
      }
      CHECK_FALSE(tree.is_below(0, count));
    }
  }
}

}  // namespace unet::rpc::sim
