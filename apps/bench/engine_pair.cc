// engine_pair.cc - set-up of the pair, and the way in which side B leaves its core to the engine.
#include "apps/bench/engine_pair.h"

#include "ni/service/ni.h"
#include "unet/base/time.h"

namespace unet::bench {

namespace {

// The engine polls for `spin_us` after its last work. Were side B let go before that, it would take the core by spinning there
// for the limit, and an engine that lost its core so sleeps between messages for 20 ms (ni/service/idle.h): into the next slice.
void let_engine_sleep() {
  constexpr Nanoseconds kLonger = 10;  // than that time
  const Nanoseconds end = monotonic_now() + kLonger * service::NiOptions{}.spin_time;
  while (monotonic_now() < end) spin_pause();
}

}  // namespace

Status EnginePair::prepare(Result<Daemon*> daemon) {
  if (!daemon) return tl::unexpected(daemon.error());
  ni_ = (*daemon)->ni();
  daemon_process_ = (*daemon)->process();
  return parking_.prepare();
}

Status EnginePair::set_up(const std::string& name, const RunContext& run) {
  auto context = Context::open(ni_, "unet-bench");
  if (!context) return tl::unexpected(context.error());
  context_ = std::make_unique<Context>(std::move(*context));
  for (auto* endpoint : {&from_, &to_}) {
    auto created = context_->create_endpoint();
    if (!created) return tl::unexpected(created.error());
    *endpoint = std::move(*created);
  }
  auto channel = connect_both(*from_, *to_, name, run.stop);
  if (!channel) return tl::unexpected(channel.error());
  channel_ = *channel;
  return {};
}

void EnginePair::tear_down() {
  from_.reset();
  to_.reset();
  context_.reset();
}

void EnginePair::release_side_b(const RunContext& run) {
  let_engine_sleep();
  parking_.release(run);
}

}  // namespace unet::bench
