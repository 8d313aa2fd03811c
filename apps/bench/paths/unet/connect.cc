// connect.cc - endpoints opened, connected and closed again.
#include "apps/bench/paths/unet/connect.h"

#include "apps/bench/workloads/connect.h"

namespace unet::bench {

namespace {

constexpr Nanoseconds kLook = 50 * kMillisecond;  // a sleeper looks for a stop this often
constexpr Nanoseconds kCallTime = 5 * kSecond;    // shorter than at set-up: after a stop side B accepts no more

struct UnetCaller {
  Context& unet;
  const std::string& name;
  ConnectOptions options;
  RunContext& context;
  std::optional<Endpoint> endpoint = {};

  bool create() {
    auto created = unet.create_endpoint();
    if (created) endpoint.emplace(std::move(*created));
    else context.control.fail(created.error().text);
    return created.has_value();
  }
  bool connect() {
    const auto channel = endpoint->connect(name, options);
    if (!channel) context.control.fail(channel.error().text);
    return channel.has_value();
  }
  void close() { endpoint.reset(); }
};

struct UnetListener {
  Endpoint& endpoint;
  bool sleeps;
  RunContext& context;
  Channel channel{};

  bool accept() {
    const auto accepted = sleeps ? accept_asleep() : accept_awake();
    if (accepted) channel = *accepted;
    else if (!context.stop.raised()) context.control.fail(accepted.error().text);
    return accepted.has_value();
  }
  void close() {
    while (endpoint.next_event()) {
    }
    (void)endpoint.close(channel);  // the caller may have taken the channel with it
  }

 private:
  Result<Channel> accept_asleep() {
    for (;;) {
      auto accepted = endpoint.accept(kLook, nullptr);
      const bool again = !accepted && accepted.error().code == Errc::timed_out && !context.stop.raised();
      if (!again) return accepted;
    }
  }
  Result<Channel> accept_awake() {
    std::optional<ConnectionRequest> request;
    if (!yield_until(context.stop, [&] { return (request = endpoint.next_request()).has_value(); })) {
      return fail(Errc::timed_out, "stopped");
    }
    return endpoint.accept(request->id);
  }
};

}  // namespace

bool UnetCalls::listen(Context& unet, RunContext& context) {
  if (listener_) return true;
  auto created = unet.create_endpoint();
  Status done = created ? created->bind(name_) : Status(tl::unexpected(created.error()));
  if (done) listener_.emplace(std::move(*created));
  else context.control.fail(done.error().text);
  return done.has_value();
}

Outcome UnetCalls::run(Context& unet, const Slice& slice, RunContext& context) {
  if (context.side == Side::a) {
    UnetCaller caller{unet, name_, {.path = path_, .timeout = kCallTime}, context};
    return make_calls(caller, slice, asleep_, context);
  }
  if (!listen(unet, context)) return {};
  UnetListener listener{*listener_, asleep_, context};
  return take_calls(listener, slice, context);
}

}  // namespace unet::bench
