// port_side.cc - message ports at work: a request port of side B, an answer port of side A, and messages between them.
#include "apps/bench/paths/rpc/port_side.h"

#include <unistd.h>

#include "apps/bench/paths/am/settle.h"
#include "apps/bench/paths/unet/endpoints.h"

namespace unet::bench {

namespace {

constexpr Nanoseconds kPortPollTime = 300 * kMillisecond;  // the last message of a set-up may have to be sent again
constexpr const char* kPublished = "requests";

rpc::PortSpaceOptions options_of(PortFlowKind kind) {
  rpc::PortSpaceOptions options;
  if (kind == PortFlowKind::one_message) options.ports.window = 1;
  if (kind == PortFlowKind::stop_and_wait) options.ports.flow = rpc::PortFlow::stop_and_wait;
  return options;
}

std::string space_name(size_t flow, const std::string& name) { return std::to_string(flow) + "-" + name; }

}  // namespace

// ---- set-up

template <typename Ready>
bool PortSide::poll_until(const StopFlag& stop, Ready ready) {
  const auto look = [&] {
    for (Ends& each : ends_) each.space->poll();
    return ready();
  };
  return yields_ ? yield_until(stop, look) : spin_until(stop, look);
}

Status PortSide::make(Context& context, const std::string& prefix, const std::string& name) {
  for (size_t i = 0; i < ends_.size(); ++i) {
    auto space = rpc::PortSpace::create(context, space_name(i, prefix + name), options_of(static_cast<PortFlowKind>(i)));
    if (!space) return tl::unexpected(space.error());
    ends_[i].space = std::move(*space);
    ends_[i].in = ends_[i].space->make_port();
  }
  return {};
}

Status PortSide::keep_polling(const StopFlag& stop) {
  const Nanoseconds start = monotonic_now();
  const bool polled = poll_until(stop, [&] { return monotonic_now() - start >= kPortPollTime; });
  return polled ? Status{} : fail(Errc::timed_out, "stopped");
}

// The first message of each port brings the right to answer, and is answered.
Status PortSide::serve(Context& context, const std::string& name, const StopFlag& stop) {
  if (auto made = make(context, "", name); !made) return made;
  for (Ends& each : ends_) {
    if (auto published = each.space->publish(kPublished, each.in.make_send_right()); !published) return published;
  }
  for (Ends& each : ends_) {
    const bool there = poll_until(stop, [&] {
      auto message = each.space->receive(each.in);
      if (message && !message->send_rights.empty()) each.out = std::move(message->send_rights[0]);
      return static_cast<bool>(each.out);
    });
    if (!there || each.space->send(each.out, Bytes()) != rpc::SendResult::sent) return fail(Errc::timed_out, "stopped");
  }
  return keep_polling(stop);
}

Status PortSide::connect(Context& context, const std::string& target, control::Path, const StopFlag& stop) {
  if (auto made = make(context, "from-", target.substr(0, target.find('@'))); !made) return made;
  const Nanoseconds deadline = monotonic_now() + kConnectTime;
  for (size_t i = 0; i < ends_.size(); ++i) {
    Ends& each = ends_[i];
    std::optional<rpc::PortMessage> answer;
    while (!answer) {
      if (monotonic_now() >= deadline) return fail(Errc::timed_out, "the other side's message port is not there");
      each.out = each.space->look_up(space_name(i, target), kPublished);
      if (each.space->send(each.out, Bytes(), each.in.make_send_right()) != rpc::SendResult::sent) ::usleep(kRetryUs);
      const bool ended = poll_until(stop, [&] {
        answer = each.space->receive(each.in);
        return answer || each.out.error() != rpc::PortError::none;
      });
      if (!ended) return fail(Errc::timed_out, "stopped");
    }
  }
  return keep_polling(stop);
}

// ---- slices

struct PortSide::Link {
  static constexpr bool kLossless = true;
  Ends& ends;
  RunContext& context;

  bool send(const std::byte* data, size_t size) { return send_burst(data, size, 1) == 1; }
  size_t send_burst(const std::byte* data, size_t size, size_t count) {
    size_t sent = 0;
    const bool went = spin_until(context.stop, [&] {
      while (sent < count && ends.space->send(ends.out, Bytes(data + sent * size, size)) == rpc::SendResult::sent) ++sent;
      if (sent == 0) ends.space->poll();
      if (ends.out.error() != rpc::PortError::none) context.control.fail(to_string(ends.out.error()));
      return sent != 0;
    });
    return went ? sent : 0;
  }
  bool flush() { return true; }
  bool receive(std::byte* into, size_t size) { return receive_burst(into, size, 1) == 1; }
  // A message is a buffer of its receiver. What is checked, its number, is read from there.
  size_t receive_burst(std::byte* into, size_t size, size_t count) {
    size_t received = 0;
    spin_until(context.stop, [&] {
      ends.space->poll();
      for (; received < count; ++received) {
        const auto message = ends.space->receive(ends.in);
        if (!message) break;
        stamp(into + received * size, size, read_stamp(message->bytes.data(), message->bytes.size()));
      }
      return received != 0;
    });
    return received;
  }
  void poll() { ends.space->poll(); }
};

Outcome PortSide::run(const Slice& slice, RunContext& context, OneCore*) {
  Ends& ends = ends_[slice.condition];
  Link link{ends, context};
  const Outcome outcome = run_on_link(link, slice, buffers_, context);
  const auto settled = [&] { return ends.space->router().is_settled() && all_handled(ends.space->endpoint()); };
  settle_both(context, yields_, settled, [&] {
    ends.space->poll();
    while (ends.space->receive(ends.in)) {  // of a slice that was stopped
    }
  });
  return outcome;
}

}  // namespace unet::bench
