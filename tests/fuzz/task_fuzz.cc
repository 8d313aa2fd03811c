// task_fuzz.cc - any bytes as the specification of a job, and any records on the edges of one that runs: nothing is left behind.
//
// Input: a byte for the way of the start. Then steps: a byte for the edge, its direction and the time, a byte for the type, two numbers, a
// byte for the length of the payload, and the payload.
#include "am/rpc/task/sim_hosts.h"
#include "tests/fuzz/fuzz_input.h"
#include "unet/base/check.h"

using namespace unet;
using namespace unet::rpc;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::byte> bytes(size);  // at an address that the codec accepts
  std::copy_n(as_bytes(data, size).begin(), size, bytes.begin());
  if (const auto spec = decode_job(bytes)) UNET_CHECK(encode_job(*spec));

  constexpr uint32_t kHosts = 3;
  FuzzInput input(data, size);
  sim::World world(kHosts, {.task = 5 * kMillisecond}, 1);
  UNET_CHECK(world.launcher.start(sim::World::job(kHosts, 2), {.way = static_cast<StartWay>(input.take<uint8_t>() % 3)}));
  world.simulator.run_for(kMillisecond);
  while (!input.empty()) {
    const auto step = input.take<uint8_t>();
    const auto type = static_cast<RecordType>(1 + input.take<uint8_t>() % kRecordTypeMax);
    const auto a = input.take<uint32_t>(), b = input.take<uint32_t>();
    const std::vector<std::byte> payload = input.take_bytes(input.take<uint8_t>());
    const TaskRecord record{type, a, b, payload};
    if (!world.edges.empty()) {
      const sim::World::EdgeSeen edge = world.edges[(step & 7) % world.edges.size()];
      const bool up = (step & 8) != 0;
      const uint32_t from = up ? edge.to : edge.from, to = up ? edge.from : edge.to;
      const Nanoseconds now = world.simulator.now();
      if (to == kHosts) world.launcher.launcher->receive(from + 1, edge.key, record, now);
      else world.hosts[to]->agent.receive({.source = from + 1}, edge.key, record, now);
      world.machine(to).wake();
    }
    world.simulator.run_for((step >> 4) * 100 * kMicrosecond);
  }
  world.run(world.simulator.now() + 30 * kSecond);
  if (!world.launcher.launcher->is_over()) world.kill(kHosts);  // an agent may lie so that its tasks seem to run for ever
  world.simulator.run_for(60 * kSecond);
  for (const auto& host : world.hosts) UNET_CHECK(host->running == 0 && host->files == 0 && host->agent.jobs() == 0);
  return 0;
}
