// sim_hosts.cc - records travel as events, each with the work at both ends.
#include "am/rpc/task/sim_hosts.h"

#include <algorithm>
#include <csignal>

namespace unet::rpc::sim {
namespace {

constexpr uint32_t kHeader = 64;  // bytes of a record on a wire, besides its payload
constexpr uint64_t kStepsMax = 10'000'000;
constexpr Nanoseconds kConnectTime = 4 * kSecond;

// Returns a host that does not exist as a number beyond all.
uint32_t machine_of(const World& world, const std::string& target) {
  const auto host = static_cast<uint32_t>(std::stoul(target.substr(target.find("@h") + 2)));
  return host < world.hosts.size() ? host : ~uint32_t{0};
}

}  // namespace

// ---- machines

Machine::Machine(World& world, uint32_t number)
    : world_(world), number_(number),
      wire_(world.simulator, {.delay = world.costs.delay, .in_order = true, .bits_per_second = world.costs.bits_per_second}) {}

Nanoseconds Machine::work(Nanoseconds time) { return busy_until_ = std::max(busy_until_, world_.simulator.now()) + time; }

Links::Id Machine::open_link(const std::string& target) {
  const uint32_t number = next_link_++;
  links_[number] = {.to = machine_of(world_, target)};
  const bool there = links_[number].to <= world_.hosts.size();
  const Nanoseconds at = work(world_.costs.open);
  const auto finish = [this, number, there] {
    Link& link = links_[number];
    if (!up_ || link.closed) return;
    if (there && world_.machine(link.to).is_up()) {
      world_.machine(link.to).work(world_.costs.open);
      link.open = true;
    } else {
      link_lost(Links::Id{number}, {Reason::unreachable, "no answer"});
    }
    wake();
  };
  world_.simulator.at(at + (there && world_.machine(links_[number].to).is_up() ? world_.costs.open_time : kConnectTime), finish);
  return Links::Id{number};
}

bool Machine::send_record(Links::Id id, uint64_t key, const TaskRecord& record) {
  const Link& link = links_.at(static_cast<uint32_t>(id));
  if (!link.open) return false;
  if (record.type == RecordType::start) world_.edges.push_back({key, number_, link.to});
  const auto bytes = static_cast<uint32_t>(record.payload.size()) + kHeader;
  const Payload payload = payload_of(record.payload);
  wire_.send(work(world_.costs.send), bytes, [this, to = link.to, key, record, payload](bool) {
    Machine& receiver = world_.machine(to);
    if (!receiver.up_) return;
    world_.simulator.at(receiver.work(world_.costs.receive), [this, &receiver, key, record, payload] {
      if (!receiver.up_) return;
      receiver.arrived(number_, key, {record.type, record.a, record.b, *payload});
      receiver.wake();
    });
  });
  return true;
}

// ---- hosts

uint64_t SimHost::draw_key() { return world_.simulator.random(); }

Nanoseconds SimHost::process() { return up_ ? agent.process(world_.simulator.now()) : kNever; }

void SimHost::arrived(uint32_t from, uint64_t key, const TaskRecord& record) {
  agent.receive({.source = from + 1, .host = World::name(from)}, key, record, world_.simulator.now());
}

Links::Id SimHost::open_back(uint64_t source) {
  links_[next_link_] = {.to = static_cast<uint32_t>(source - 1), .open = true};
  return Id{next_link_++};
}

void SimHost::link_lost(Id id, const TaskFailure& why) { agent.lost(id, why, world_.simulator.now()); }

// The runners see the end of their sockets.
void SimHost::died() {
  for (auto& [number, runner] : runners_) end_tasks(number, kBySignal + SIGTERM);
}

void SimHost::close(Id link) {
  const auto number = static_cast<uint32_t>(link);
  if (number < kFirstRunner) return close_link(link);
  if (up_ && runners_.contains(number)) end_tasks(number, kBySignal + SIGTERM);
}

tl::expected<Links::Id, TaskFailure> SimHost::prepare_runner(const Caller&, const JobSpec& spec, uint32_t node, uint64_t key) {
  if (refusal) return tl::unexpected(*refusal);
  const uint32_t number = next_runner_++;
  runners_[number] = {.key = key, .node = node, .spec = spec};
  return Id{number};
}

bool SimHost::start_runner(Id link, const JobSpec& spec) {
  const auto number = static_cast<uint32_t>(link);
  runners_.at(number).there = true;
  files += spec.files.empty() ? 0 : 1;
  if (spec.files.empty()) world_.simulator.at(work(world_.costs.start), [this, number] { start_tasks(number); });
  return true;
}

// A record of a runner comes at once.
void SimHost::say(uint32_t number, RecordType type, uint32_t a, uint32_t b, Bytes payload) {
  if (!up_) return;
  agent.receive({.source = uint64_t{1} << 32 | number}, runners_.at(number).key, {type, a, b, payload}, world_.simulator.now());
  wake();
}

void SimHost::start_tasks(uint32_t number) {
  Runner& runner = runners_.at(number);
  if (runner.started || runner.ending) return;
  runner.started = true;
  const Tree tree(runner.spec);
  const uint32_t first = tree.first_rank(runner.node), end = tree.first_rank(runner.node + 1);
  for (uint32_t rank = first; rank < end; ++rank) ++begun[rank];
  running += end - first;
  say(number, RecordType::started, end - first);
  for (uint32_t rank = first; rank < end; ++rank) {
    const std::string text = "rank " + std::to_string(rank) + "\n";
    say(number, RecordType::output, rank, 1, as_bytes(text.data(), text.size()));
  }
  if (world_.costs.task == kNever) return;
  world_.simulator.at(world_.simulator.now() + world_.costs.task, [this, number] { end_tasks(number, 0); });
}

void SimHost::end_tasks(uint32_t number, ExitStatus status) {
  Runner& runner = runners_.at(number);
  if (runner.over) return;
  runner.over = runner.ending = true;
  if (!runner.there) return;
  if (runner.started) {
    const Tree tree(runner.spec);
    for (uint32_t rank = tree.first_rank(runner.node); rank < tree.first_rank(runner.node + 1); ++rank) {
      --running;
      const auto exit = exits.find(rank);
      say(number, RecordType::exited, rank, exit == exits.end() || status != 0 ? status : exit->second);
    }
  }
  files -= runner.spec.files.empty() ? 0 : 1;
  say(number, RecordType::done);
}

bool SimHost::send(Id link, uint64_t key, const TaskRecord& record) {
  const auto number = static_cast<uint32_t>(link);
  if (number < kFirstRunner) return send_record(link, key, record);
  Runner& runner = runners_.at(number);
  if (runner.over || !runner.there) return runner.over;
  if (is_bulk(record.type)) {
    runner.bytes += record.payload.size();
    runner.uncredited += cost_of(record.payload.size());
    const uint32_t credit = runner.uncredited >= kWindow / 4 ? std::exchange(runner.uncredited, 0) : 0;
    const bool complete = record.type == RecordType::data && runner.bytes == runner.spec.file_bytes();
    // Not in this call: the machine above is in the middle of a step.
    world_.simulator.at(complete ? work(world_.costs.start) : world_.simulator.now(), [this, number, credit, complete] {
      if (credit != 0) say(number, RecordType::credit, credit);
      if (complete) start_tasks(number);
    });
  } else if (record.type == RecordType::end) {
    runner.ending = true;
    const uint32_t signal = deaf ? SIGKILL : record.a;
    world_.simulator.at(world_.simulator.now() + (deaf ? kKillAfter : kMillisecond), [this, number, signal] {
      end_tasks(number, kBySignal + signal);
    });
  }
  return true;
}

// ---- the launcher

Nanoseconds SimLauncher::now() const { return world_.simulator.now(); }

uint64_t SimLauncher::draw_key() { return world_.simulator.random(); }

Status SimLauncher::start(JobSpec spec, const LaunchOptions& options) {
  Result<std::unique_ptr<Launcher>> made = Launcher::create(*this, *this, std::move(spec), options);
  if (!made) return tl::unexpected(made.error());
  launcher = std::move(*made);
  return {};
}

// ---- the world

World::World(uint32_t count, const Costs& all_costs, uint64_t seed)
    : simulator(seed, kSecond, kStepsMax), costs(all_costs), launcher(*this, count) {
  for (uint32_t i = 0; i < count; ++i) {
    hosts.push_back(std::make_unique<SimHost>(*this, i));
    simulator.add(*hosts.back());
  }
  simulator.add(launcher);
}

JobSpec World::job(uint32_t hosts, uint32_t tasks_each) {
  JobSpec spec{.program = {"program"}, .secret = std::string(32, '0')};
  for (uint32_t i = 0; i < hosts; ++i) spec.hosts.push_back({name(i), tasks_each});
  return spec;
}

void World::stop(uint32_t number, Nanoseconds noticed_after) {
  Machine& machine = this->machine(number);
  machine.up_ = false;
  machine.died();
  for (uint32_t i = 0; i <= hosts.size(); ++i) {
    simulator.at(simulator.now() + noticed_after, [this, i, number] {
      Machine& peer = this->machine(i);
      if (!peer.up_) return;
      for (auto& [id, link] : peer.links_) {
        const bool lost = link.to == number && link.open && !link.closed;
        if (lost) peer.link_lost(Links::Id{id}, {Reason::lost, "its agent has ended"});
      }
      peer.wake();
    });
  }
}

void World::run(Nanoseconds until) {
  launcher.wake();
  for (const auto& host : hosts) host->wake();
  while ((launcher.launcher == nullptr || !launcher.launcher->is_over()) && simulator.step(until)) {
  }
}

Nanoseconds creation_time(uint32_t hosts, uint64_t file_bytes, const Costs& costs, const LaunchOptions& options, uint32_t arity) {
  World world(hosts, costs, 1);
  JobSpec spec = World::job(hosts);
  spec.arity = arity;
  if (file_bytes != 0) spec.files.push_back({"file", file_bytes, false});
  const Nanoseconds begin = world.simulator.now();
  if (!world.launcher.start(std::move(spec), options)) return kNever;
  world.run(begin + 1000 * kSecond);
  return world.launcher.started_at == 0 ? kNever : world.launcher.started_at - begin;
}

}  // namespace unet::rpc::sim
