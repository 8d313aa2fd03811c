// techniques.cc - the paths `ipc-local` and `ipc-one-core`: round trips on a local channel, sent and received in one of several ways. Both
// sides produce every word that they send, and look at every word that they receive.
#include <poll.h>

#include <array>

#include "apps/bench/frame/one_core.h"
#include "apps/bench/paths/paths.h"
#include "apps/bench/paths/unet/local_pair.h"
#include "apps/bench/workloads/batches.h"
#include "apps/bench/workloads/messages.h"
#include "apps/bench/workloads/techniques.h"

namespace unet::bench {

namespace {

constexpr uint32_t kPartsMax = 4;
constexpr int kLookMs = 50;  // a sleeper looks for a stop this often
constexpr uint32_t parts_of(uint32_t size) { return size < 64 ? 2 : kPartsMax; }

void produce(std::byte* into, uint32_t size, uint32_t number) {
  for (uint32_t i = 0; i < size; i += sizeof number) std::memcpy(into + i, &number, sizeof number);
}

// Whether all words are `number`.
bool consume(const std::byte* from, uint32_t size, uint32_t number) {
  uint32_t differing = 0;
  for (uint32_t i = 0; i < size; i += sizeof number) {
    uint32_t word;
    std::memcpy(&word, from + i, sizeof word);
    differing |= word ^ number;
  }
  return differing == 0;
}

struct TechniqueLink {
  Endpoint& endpoint;
  Channel channel;
  int descriptor;  // of the endpoint
  Way way;
  uint32_t size;
  std::array<MessageBuffers, kPartsMax>& places;  // parts lie apart
  const RunContext& context;

  bool send(uint32_t number) {
    std::byte* const own = places[0].out.data();
    const uint32_t parts = parts_of(size), part = size / parts;
    switch (way) {
      case Way::buffer: return compose([&](std::byte* room) { produce(room, size, number); });
      case Way::in_place:
        if (size > kInlineMax) return compose([&](std::byte* room) { produce(room, size, number); });
        break;
      case Way::gathered: {
        for (uint32_t i = 0; i < parts; ++i) produce(places[i].out.data(), part, number);
        const auto gather = [&](std::byte* room) {
          for (uint32_t i = 0; i < parts; ++i) copy_message(room + i * part, places[i].out.data(), part);
        };
        if (size > kInlineMax) return compose(gather);
        std::byte line[kInlineMax];
        gather(line);
        return sent(endpoint.send(channel, {line, size}));
      }
      case Way::several:
        for (uint32_t i = 0; i < parts; ++i) {
          produce(places[i].out.data(), part, number);
          if (!sent(endpoint.send(channel, {places[i].out.data(), part}, i + 1 < parts))) return false;
        }
        return true;
      default: break;
    }
    produce(own, size, number);
    return sent(endpoint.send(channel, {own, size}));
  }

  bool receive(uint32_t number) {
    const uint32_t messages = way == Way::several ? parts_of(size) : 1;
    for (uint32_t i = 0; i < messages; ++i) {
      Message message;
      if (!wait(message)) return false;
      const std::byte* data = message.data;
      if (way == Way::copied) {
        copy_message(places[0].in.data(), data, message.length);
        data = places[0].in.data();
      }
      const bool intact = message.length == size / messages && consume(data, message.length, number);
      endpoint.release(message);
      if (intact) continue;
      context.control.fail("a message arrived changed");
      return false;
    }
    return true;
  }

 private:
  template <typename Compose>
  bool compose(Compose fill) {
    const MutableBytes room = endpoint.reserve(channel, size);
    if (room.empty()) return sent(SendOutcome::full);
    fill(room.data());
    return sent(endpoint.post(channel, size));
  }
  // One message is under way: there is always room.
  bool sent(SendOutcome outcome) const {
    if (outcome == SendOutcome::sent) return true;
    context.control.fail("send was refused: " + std::string(to_string(outcome)));
    return false;
  }
  bool wait(Message& message) {
    switch (way) {
      case Way::yields:
        while (!endpoint.receive(message)) {
          if (context.stop.raised()) return false;
          sched_yield();
        }
        return true;
      case Way::sleeps:  // not by wait(), which may find that it had better yield
        while (!endpoint.receive(message)) {
          if (context.stop.raised()) return false;
          pollfd wanted{.fd = descriptor, .events = POLLIN, .revents = 0};
          if (endpoint.arm()) ::poll(&wanted, 1, kLookMs);
        }
        return true;
      default: return spin_until(context.stop, [&] { return endpoint.receive(message); });
    }
  }
};

class TechniquePath final : public Path {
 public:
  TechniquePath(PathInfo info, bool one_core) : Path(std::move(info)), is_on_one_core_(one_core), pair_(info_.name) {}

  Status prepare(Environment& environment) override {
    if (is_on_one_core_) {
      if (auto prepared = one_core_.prepare(environment.cores(), info_); !prepared) return prepared;
    }
    return pair_.prepare(environment);
  }
  Status set_up(const RunContext& run, Environment&) override {
    for (MessageBuffers& place : places_) place = MessageBuffers(kMessageMax);
    if (auto connected = pair_.set_up(run); !connected) return connected;
    const auto descriptor = pair_.endpoint().descriptor();
    if (!descriptor) return tl::unexpected(descriptor.error());
    descriptor_ = *descriptor;
    return {};
  }
  Outcome run(const Slice& slice, RunContext& context) override {
    if (!is_on_one_core_) return run_part(slice, context);
    return one_core_.run(context, [&] { return run_part(slice, context); });
  }
  std::vector<int> service_processes() const override { return pair_.service_processes(); }
  void tear_down(const RunContext&) override { pair_.tear_down(); }

 private:
  Outcome run_part(const Slice& slice, RunContext& context) {
    TechniqueLink link{pair_.endpoint(), pair_.channel(), descriptor_, static_cast<Way>(slice.condition), slice.size, places_, context};
    const bool a = context.side == Side::a;
    uint32_t number = 0;
    const auto trips = [&](uint64_t count) {
      for (uint64_t i = 0; i < count; ++i) {
        ++number;
        if (a ? !link.send(number) || !link.receive(number) : !link.receive(number) || !link.send(number)) return false;
      }
      return true;
    };
    if (a) return time_batches(slice, context.samples, trips);
    trips(slice.warm_up + slice.iterations);
    return {};
  }

  const bool is_on_one_core_;
  OneCore one_core_;
  LocalPair pair_;
  int descriptor_ = -1;
  std::array<MessageBuffers, kPartsMax> places_{MessageBuffers{0}, MessageBuffers{0}, MessageBuffers{0}, MessageBuffers{0}};
};

}  // namespace

void add_techniques(Paths& paths) {
  const auto add = [&](const char* name, const char* what, const char* setting, bool one_core) {
    paths.push_back(std::make_unique<TechniquePath>(PathInfo{.name = name,
                                                             .kind = Kind::ours,
                                                             .what = what,
                                                             .setting = setting,
                                                             .workloads = {Workload::technique},
                                                             .only = {"ipc-techniques"}},
                                                    one_core));
  };
  add("ipc-local", "U-Net, local channel, each message sent in one of several ways", "public C++ API, default options, receivers poll",
      false);
  add("ipc-one-core", "the same between two processes on one core", "public C++ API, default options", true);
}

}  // namespace unet::bench
