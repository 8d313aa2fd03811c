// takeover_test.cc - NIs that die or are replaced under living clients: the clients see only a pause.
//
// A supervised unetd is killed at any instant of any activity, or upgraded. Meanwhile two clients exchange messages through it and over a
// local channel, and others set up and tear down. The length of a pause is not judged here.
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <functional>
#include <thread>

#include "tests/system/exchange.h"
#include "tests/system/private_files.h"
#include "unet/connection.h"

namespace unet {
namespace {

using control::Path;

// Waits for an NI other than `before`, and kills it.
pid_t kill_another(const NiProcess& ni, pid_t before) {
  for (const Nanoseconds begin = monotonic_now(); monotonic_now() - begin < kHang;) {
    for (const pid_t each : ni.served_by()) {
      if (each == before) continue;
      ::kill(each, SIGKILL);
      return each;
    }
  }
  return -1;
}

Status upgrade(const NiProcess& ni, std::string_view program = {}) {
  const auto connection = Connection::open(ni.ni(), "test");
  if (!connection) return tl::unexpected(connection.error());
  control::Upgrade request{};
  request.header.op = control::Op::upgrade;
  request.program.set(program);
  const Result<Answer> answer = (*connection)->call(request, kHang);
  if (!answer) return tl::unexpected(answer.error());
  return {};
}

constexpr EndpointOptions kSmall{.send_depth = 16, .receive_depth = 32, .buffers = 24, .buffer_size = 512, .send_bytes = 256 * 1024};

template <typename T>
T take(Result<T> result) {
  if (!result) std::printf("%s\n", result.error().text.c_str());
  UNET_CHECK(result);
  return std::move(*result);
}

// A client with one endpoint.
struct Side {
  explicit Side(const NiProcess& ni, bool emulated = false) : context(take(Context::open(ni.ni(), "side"))) {
    EndpointOptions options = kSmall;
    options.emulated = emulated ? 1 : 0;
    endpoint = std::make_unique<Endpoint>(take(context.create_endpoint(options)));
  }
  Context context;
  std::unique_ptr<Endpoint> endpoint;
};

// Two clients with a channel, in one thread: messages with rising numbers from a to b. Every byte that arrives is right. No message arrives
// twice or behind a later one.
class Stream {
 public:
  Stream(Side& a, Side& b, const std::string& name, Path path) : a_(*a.endpoint), b_(*b.endpoint) {
    UNET_CHECK(b_.bind(name));
    const auto pending = a_.start_connect(name, {.path = path, .timeout = kHang});
    UNET_CHECK(pending);
    for (std::optional<Result<Channel>> channel; !channel;) {
      if (const auto request = b_.next_request()) UNET_CHECK(b_.accept(request->id));
      channel = a_.poll_connect(*pending);
      if (channel) channel_ = **channel;
    }
  }

  // Sends a message if the receiver certainly has room, and takes arrived ones.
  bool turn(std::mt19937& random) {
    if (sent_ - seen_ < kWindow) {
      const uint32_t size = kSizes[random() % std::size(kSizes)];
      std::vector<std::byte> bytes(content(sent_, size).begin(), content(sent_, size).end());
      std::memcpy(bytes.data(), &sent_, sizeof sent_);
      if (a_.send(channel_, bytes) == SendOutcome::sent) ++sent_;
    }
    return take();
  }
  // When a later message arrives, all earlier ones have arrived or are lost. The later message cannot be lost once no NI is killed any
  // more.
  bool finish() {
    bool last = false;
    for (const Nanoseconds begin = monotonic_now(); monotonic_now() - begin < kHang;) {
      if (!last) {
        std::vector<std::byte> bytes(sizeof sent_);
        std::memcpy(bytes.data(), &sent_, sizeof sent_);
        last = a_.send(channel_, bytes) == SendOutcome::sent;
        if (last) ++sent_;
      }
      if (!take()) return false;
      if (last && seen_ == sent_) return true;
    }
    return false;
  }
  bool take() {
    Message message;
    while (b_.receive(message)) {
      uint32_t number = 0;
      const Bytes got = message.bytes();
      std::memcpy(&number, got.data(), sizeof number);
      const bool right = got.size() >= sizeof number && number >= seen_ && number < sent_ &&
                         std::memcmp(got.data() + sizeof number, content(number, static_cast<uint32_t>(got.size())).data() + sizeof number,
                                     got.size() - sizeof number) == 0;
      b_.release(message);
      if (!right) return false;
      lost_ += number - seen_;
      seen_ = number + 1;
      ++received_;
    }
    return true;
  }
  // The NI has every receive buffer exactly once: it fills all of them, and no other.
  bool has_all_buffers() {
    const std::vector<std::byte> full(kSmall.buffer_size);
    const auto drops = [&] {
      for (const auto& [name, value] : b_.counters()) {
        if (name == "no_free_buffer") return value;
      }
      return uint64_t{0};
    };
    const uint64_t before = drops();
    std::vector<Message> held;
    uint32_t sent = 0;
    for (const Nanoseconds begin = monotonic_now(); drops() == before && monotonic_now() - begin < kHang;) {
      if (sent < kSmall.buffers + 1 && a_.send(channel_, full) == SendOutcome::sent) ++sent;
      Message message;
      while (b_.receive(message)) held.push_back(message);
    }
    // Messages delivered before the dropped one.
    for (Message message; b_.receive(message);) held.push_back(message);
    const bool all = held.size() == kSmall.buffers;
    if (!all) std::printf("%zu of %u buffers\n", held.size(), kSmall.buffers);
    for (const Message& each : held) b_.release(each);
    return all;
  }

  uint32_t received() const { return received_; }
  uint32_t lost() const { return lost_; }
  uint32_t sent() const { return sent_; }

 private:
  static constexpr uint32_t kWindow = 12;  // messages in flight: fewer than the slots
  static constexpr uint32_t kSizes[] = {4, 40, 48, 49, 500, 512, 700};  // at most two buffers each
  Endpoint& a_;
  Endpoint& b_;
  Channel channel_{};
  uint32_t sent_ = 0, seen_ = 0, lost_ = 0, received_ = 0;
};

// `replace` replaces the NI `rounds` times while both streams run.
void run_under(const NiProcess& ni, uint32_t rounds, const std::function<void(std::mt19937&)>& replace, bool emulated = false) {
  Side a(ni, emulated), b(ni, emulated), c(ni, emulated), d(ni, emulated);
  Stream shared(a, b, "shared", Path::ni), local(c, d, "local", Path::local);
  const uint32_t seed = first_seed();
  std::mt19937 random(seed);
  for (uint32_t round = 0; round < rounds; ++round) {
    CAPTURE(seed, round);
    const uint32_t until = shared.received() + 200;
    for (const Nanoseconds begin = monotonic_now(); shared.received() < until;) {
      REQUIRE(shared.turn(random));
      REQUIRE(monotonic_now() - begin < kHang);
    }
    std::thread other([&, own = std::mt19937(random())]() mutable { replace(own); });
    bool there = false;
    // The local channel never stalls, and loses no message.
    for (const uint32_t before = shared.received(); !there;) {
      for (int i = 0; i < 50; ++i) {
        const uint32_t had = local.received();
        if (!local.turn(random) || local.received() != had + 1) {
          other.join();
          FAIL("the local channel paused");
        }
        if (!shared.turn(random)) {
          other.join();
          FAIL("a message is wrong, or there twice");
        }
      }
      there = shared.received() >= before + 100;
    }
    other.join();
    REQUIRE(shared.finish());
    if (!emulated) CHECK(shared.has_all_buffers());
  }
  REQUIRE(shared.finish());
  CHECK(local.lost() == 0);
  // A killed NI loses at most the one message of each pair that was between two queues; an upgraded one loses none.
  std::printf("%u messages, %u lost\n", shared.sent(), shared.lost());
  CHECK(shared.lost() <= rounds * 2);
  if (!emulated) CHECK(shared.has_all_buffers());
}

TEST_CASE("a network interface that is killed under traffic: nothing comes twice, little is lost, no buffer is, and local channels go on") {
  PrivateFiles files;
  const NiProcess ni({"--takeover", "60"});
  pid_t victim = -1;
  run_under(ni, 20, [&](std::mt19937& random) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 2'000));
    victim = kill_another(ni, victim);
  });
}

TEST_CASE("a network interface that is upgraded under traffic") {
  PrivateFiles files;
  const NiProcess ni({"--takeover", "60"});
  run_under(ni, 8, [&](std::mt19937&) {
    if (const Status status = upgrade(ni); !status) std::printf("%s\n", status.error().text.c_str());
  });
  CHECK(ni.log() == "");
}

TEST_CASE("emulated endpoints when their network interface is killed under traffic, and when it is upgraded") {
  PrivateFiles files;
  const NiProcess ni({"--takeover", "60"});
  auto context = take(Context::open(ni.ni(), "many"));
  std::vector<std::unique_ptr<Endpoint>> many;
  for (uint32_t i = 0; i < 200; ++i) {
    many.push_back(std::make_unique<Endpoint>(take(context.create_endpoint({.emulated = 1}))));
    REQUIRE(many.back()->bind("many/" + std::to_string(i)));
    if (i % 3 == 0) many.pop_back();  // so that some ids are unused
  }
  pid_t victim = -1;
  run_under(ni, 6, [&](std::mt19937& random) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 2'000));
    victim = kill_another(ni, victim);
  }, true);
  run_under(ni, 3, [&](std::mt19937&) {
    if (const Status status = upgrade(ni); !status) std::printf("%s\n", status.error().text.c_str());
  }, true);
  INFO(ni.log());
  // Idle endpoints are there as before, under their names.
  Side asker(ni, true);
  for (uint32_t i = 0; i < many.size(); ++i) {
    Endpoint& endpoint = *many[i];
    const auto pending = asker.endpoint->start_connect("many/" + std::to_string(i + i / 2 + 1), {.timeout = kHang});
    REQUIRE(pending);
    std::optional<Result<Channel>> channel;
    for (const Nanoseconds begin = monotonic_now(); !channel && monotonic_now() - begin < kHang;) {
      if (const auto request = endpoint.next_request()) take(endpoint.accept(request->id));
      channel = asker.endpoint->poll_connect(*pending);
    }
    REQUIRE((channel && *channel));
    const std::byte byte{42};
    REQUIRE(asker.endpoint->send(**channel, {&byte, 1}) == SendOutcome::sent);
    Message message;
    while (!endpoint.receive(message)) REQUIRE(endpoint.wait(kHang) == WaitOutcome::ready);
    const Channel accepted = message.channel;
    endpoint.release(message);
    REQUIRE(asker.endpoint->close(**channel));
    REQUIRE(endpoint.close(accepted));
  }
}

// Sets up and tears down until told to end, or until the first failure.
Status set_up_and_tear_down(const NiProcess& ni, const std::string& name, std::atomic<bool>& end, std::atomic<uint32_t>& cycles) {
  while (!end.load(std::memory_order_relaxed)) {
    auto context = Context::open(ni.ni(), "cycler");
    if (!context) return tl::unexpected(context.error());
    for (int i = 0; i < 8; ++i, cycles.fetch_add(1, std::memory_order_relaxed)) {
      auto a = context->create_endpoint(kSmall), b = context->create_endpoint(kSmall);
      if (!a) return tl::unexpected(a.error());
      if (!b) return tl::unexpected(b.error());
      if (Status status = b->bind(name); !status) return status;
      const auto pending = a->start_connect(name, {.path = i % 2 == 0 ? Path::ni : Path::local, .timeout = kHang});
      if (!pending) return tl::unexpected(pending.error());
      std::optional<Result<Channel>> channel;
      uint32_t accepted = 0;
      for (const Nanoseconds begin = monotonic_now(); !channel || accepted == 0;) {
        if (const auto request = b->next_request()) {
          if (const auto accept = b->accept(request->id); !accept) return tl::unexpected(accept.error());
          ++accepted;
        }
        if (!channel) channel = a->poll_connect(*pending);
        if (monotonic_now() - begin > kHang) return fail(Errc::timed_out, "connecting hangs");
      }
      if (!*channel) return tl::unexpected(channel->error());
      if (accepted != 1) return fail(Errc::protocol, "asked more than once");
      if (!a->expose(8192)) return fail(Errc::protocol, "no region");
      if (auto sleep = b->descriptor(); !sleep) return tl::unexpected(sleep.error());
      const std::byte byte{42};
      if (a->send(**channel, {&byte, 1}) != SendOutcome::sent) return fail(Errc::protocol, "not sent");
      Message message;
      // A message may be lost with the NI that had it.
      if (b->wait(20 * kMillisecond) == WaitOutcome::ready && b->receive(message)) b->release(message);
      if (Status status = a->close(**channel); !status) return status;
    }
  }
  return {};
}

TEST_CASE("clients that set up and tear down while network interfaces die and are upgraded: every request is answered, once") {
  PrivateFiles files;
  const NiProcess ni({"--takeover", "60"});
  Side watcher(ni);
  const uint32_t seed = first_seed();
  std::mt19937 random(seed);
  CAPTURE(seed);
  const auto before = watcher.context.report();
  REQUIRE(before);
  std::atomic<bool> end{false};
  std::atomic<uint32_t> cycles{0};
  std::vector<Status> outcomes(2);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    threads.emplace_back([&, i] {
      outcomes[i] = set_up_and_tear_down(ni, "cycle" + std::to_string(i), end, cycles);
      if (!outcomes[i]) end.store(true, std::memory_order_relaxed);
    });
  }
  pid_t victim = -1;
  for (uint32_t round = 0; round < 25 && !end.load(std::memory_order_relaxed); ++round) {
    const auto reached = [&] { return cycles.load(std::memory_order_relaxed); };
    const uint32_t until = reached() + 1 + static_cast<uint32_t>(random() % 4);
    const Nanoseconds begin = monotonic_now();
    while (reached() < until && !end.load(std::memory_order_relaxed) && monotonic_now() - begin < kHang) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 1000));
    if (round % 5 == 4) CHECK(upgrade(ni));
    else victim = kill_another(ni, victim);
    // Now and then, kill the next NI at once too, during its takeover.
    if (round % 3 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
      victim = kill_another(ni, victim);
    }
  }
  end.store(true, std::memory_order_relaxed);
  for (std::thread& each : threads) each.join();
  for (const Status& each : outcomes) {
    INFO((each ? std::string("fine") : each.error().text));
    CHECK(each);
  }
  std::printf("%u cycles\n", cycles.load(std::memory_order_relaxed));
}

}  // namespace
}  // namespace unet
