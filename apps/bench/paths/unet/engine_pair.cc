// engine_pair.cc - set-up of the pair, and the way in which side B leaves its core to the engine.
#include "apps/bench/paths/unet/engine_pair.h"

#include "ni/service/ni.h"
#include "unet/base/time.h"

namespace unet::bench {

namespace {

// The engine polls for `spin_time` after its last work. If side B went on before that, it would spin on the engine's core for the limit.
// An engine that loses its core sleeps between messages for 20 ms (ni/service/idle.h): that would reach into the next slice.
void let_engine_sleep() {
  constexpr Nanoseconds kLonger = 10;  // times as long
  const Nanoseconds end = monotonic_now() + kLonger * service::NiOptions{}.spin_time;
  while (monotonic_now() < end) spin_pause();
}

}  // namespace

Status EnginePair::prepare(Result<Daemon*> daemon) {
  if (auto prepared = client_.prepare(std::move(daemon)); !prepared) return prepared;
  return parking_.prepare();
}

Status EnginePair::set_up(const std::string& name, const RunContext& run) {
  if (auto opened = client_.open(); !opened) return opened;
  for (auto* endpoint : {&from_, &to_}) {
    auto created = client_.context->create_endpoint();
    if (!created) return tl::unexpected(created.error());
    endpoint->emplace(std::move(*created));
  }
  auto channel = connect_both(*from_, *to_, name, run.stop);
  if (!channel) return tl::unexpected(channel.error());
  channel_ = *channel;
  return {};
}

void EnginePair::tear_down() {
  from_.reset();
  to_.reset();
  client_.context.reset();
}

void EnginePair::release_side_b(const RunContext& run) {
  let_engine_sleep();
  parking_.release(run);
}

}  // namespace unet::bench
