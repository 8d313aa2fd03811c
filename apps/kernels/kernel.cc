// kernel.cc - measuring and report of the Split-C kernels.
#include "apps/kernels/kernel.h"

#include <functional>
#include <new>
#include <vector>

#include "am/splitc/splitc.h"

namespace unet::kernels {
namespace {

namespace sc = unet::splitc;

constexpr int kWrong = 1;

// The times of one rank. An exchange of single values takes only 32 bytes, so they travel in two pieces.
struct Times {
  double seconds, computation, communication;
  uint64_t wrong;
};
struct Traffic {
  uint64_t messages, message_bytes, direct, direct_bytes;
};
static_assert(sizeof(Times) <= sc::kCellBytes && sizeof(Traffic) <= sc::kCellBytes);

// Returns the way in which this rank reaches the others.
const char* path_name() {
  uint32_t direct = 0;
  for (sc::Rank rank = 0; rank < sc::procs(); ++rank) direct += sc::current_node->is_direct(rank) ? 1 : 0;
  if (direct == sc::procs()) return "direct";
  return direct == 1 ? "messages" : "mixed";  // direct counts this rank itself
}

// Collective: gathers the reports of all ranks at every rank.
std::vector<RankReport> gather(const Measurement& result) {
  const Run& run = result.run;
  std::vector<Times> times(sc::procs());
  std::vector<Traffic> traffic(sc::procs());
  sc::all_gather(Times{run.seconds, run.time.seconds(Part::computation), run.time.seconds(Part::communication), result.wrong.value_or(0)},
                 std::span<Times>(times));
  sc::all_gather(Traffic{run.messages, run.message_bytes, run.direct, run.direct_bytes}, std::span<Traffic>(traffic));
  std::vector<RankReport> ranks;
  for (sc::Rank rank = 0; rank < sc::procs(); ++rank) {
    const Times& time = times[rank];
    const Traffic& sent = traffic[rank];
    ranks.push_back({time.seconds, time.computation, time.communication, time.wrong, sent.messages, sent.message_bytes, sent.direct,
                     sent.direct_bytes});
  }
  return ranks;
}

// A kernel cannot continue without memory that it asks for.
void end_without_memory() { sc::current_node->end_job("new: no memory is left for what this rank has for itself"); }

// Measures between two barriers. The run starts as computation and ends as communication.
Run measure(const std::function<void(TimeSplit& time)>& body) {
  Run run{.time = TimeSplit(sc::get_seconds)};
  sc::barrier();
  const sc::Counters before = sc::current_node->counters();
  const double start = sc::get_seconds();
  run.time.start(Part::computation);
  body(run.time);
  run.time.enter(Part::communication);
  sc::barrier();
  run.time.stop();
  run.seconds = sc::get_seconds() - start;
  const sc::Counters& after = sc::current_node->counters();
  run.messages = after.messages - before.messages;
  run.message_bytes = after.message_bytes - before.message_bytes;
  run.direct = after.direct - before.direct;
  run.direct_bytes = after.direct_bytes - before.direct_bytes;
  return run;
}

}  // namespace

Parsed parse(CommandLine& line, int argc, char** argv) {
  const Parsed parsed = line.parse(argc, argv, sc::my_proc() == 0);
  sc::barrier();
  std::set_new_handler(end_without_memory);
  return parsed;
}

int refuse(const char* program, const std::string& what) {
  const int status = usage_error(program, what, sc::my_proc() == 0);
  sc::barrier();
  return status;
}

void measure_best(const CommonOptions& options, const Work& work, Measurement& result) {
  measure_best(options, work, [&] { return measure(work.run); }, [](double seconds) { return sc::all_broadcast(seconds); }, result);
}

int report(const CommonOptions& options, const Measurement& result) {
  const std::vector<RankReport> ranks = gather(result);
  const JobKind job{sc::procs(), path_name(), sc::current_node->is_oversubscribed()};
  const bool published = sc::my_proc() != 0 || publish(options, result, job, ranks);
  uint64_t wrong = 0;
  for (const RankReport& each : ranks) wrong += each.wrong;
  return sc::all_broadcast(published) && wrong == 0 ? 0 : kWrong;
}

}  // namespace unet::kernels
