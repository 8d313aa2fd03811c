// endpoint_network_test.cc - a stack's network while the service of the network interface answers late, or not at all.
#include "ipstack/sockets/endpoint_network.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <catch2/catch.hpp>
#include <thread>

#include "ipstack/sockets/stack.h"
#include "unet/test_channel.h"
#include "unet/test_world.h"

namespace unet::sockets::endpoint_network_test {

namespace {

constexpr Nanoseconds kSoon = kSecond;  // far less than a call's time for the service's answer, and enough for a busy machine

Nanoseconds time_of(auto what) {
  const Nanoseconds began = monotonic_now();
  what();
  return monotonic_now() - began;
}

// The test plays the service: it answers the requests of these kinds by hand.
struct Silent {
  World world;
  TestService& service = world.service;
  std::unique_ptr<EndpointNetwork> network;
  std::unique_ptr<Stack> stack;
  Nanoseconds longest = 0;  // of all polls so far

  Silent() {
    using control::Op;
    for (const Op op : {Op::open_ip, Op::ip_configuration, Op::accept, Op::release_ip, Op::claim_ip}) service.keep(op);
    std::thread answers([&] {
      service.grant_ni(service.take(), 1);
      configure(service.take(), "10.0.0.1");
    });
    auto made = EndpointNetwork::open(world.context, {.endpoint = kSmall, .refresh = kMillisecond});
    answers.join();
    REQUIRE(made);
    network = std::move(*made);
    stack = std::make_unique<Stack>(*network, StackOptions{}, monotonic_now());
  }
  void configure(const TestService::Request& request, std::string_view address) {
    const control::IpAddressInfo info{.address = *ip::parse_ip(address), .port = 0, .prefix = 24, .tentative = 0, .spare = 0};
    const Descriptor memory(::memfd_create("configuration", MFD_CLOEXEC));
    REQUIRE(::write(memory.get(), &info, sizeof info) == sizeof info);
    control::Reply reply = service.reply_to(request);
    reply.ip_configuration = {.addresses = 1, .interfaces = 0, .routes = 0};
    service.send(reply, {memory.get()});
    service.count();
  }
  TestService::Request take(control::Op op) {
    TestService::Request request = service.take();
    while (request.header().op != op) request = service.take();
    return request;
  }
  std::string address() const { return ip::text_of(network->configuration().addresses.at(0).address); }
  void poll() {
    longest = std::max(longest, time_of([&] { network->poll(*stack); }));
  }
  template <typename Until>
  void poll_until(Until until) {
    const Nanoseconds end = monotonic_now() + kHang;
    while (!until() && monotonic_now() < end) poll();
    REQUIRE(until());
  }
};

}  // namespace

TEST_CASE("a stack asks for the configuration, and goes on before the answer comes") {
  Silent silent;
  silent.poll_until([&] { return silent.service.asked(control::Op::ip_configuration) == 2; });
  const Nanoseconds end = monotonic_now() + 50 * kMillisecond;
  while (monotonic_now() < end) silent.poll();
  CHECK(silent.service.asked(control::Op::ip_configuration) == 2);
  CHECK(silent.address() == "10.0.0.1");
  silent.configure(silent.service.take(), "10.0.0.7");
  silent.poll_until([&] { return silent.address() == "10.0.0.7"; });
  silent.poll_until([&] { return silent.service.asked(control::Op::ip_configuration) == 3; });
  CHECK(silent.longest < kSoon);
}

TEST_CASE("a local peer that asks for a channel has it when the service answers, and nobody waits until then") {
  Silent silent;
  const uint64_t before = silent.network->taken_in();
  silent.service.send_request(silent.network->endpoint().id(), 7);
  silent.service.count();
  silent.poll_until([&] { return silent.service.asked(control::Op::accept) == 1; });
  const TestService::Request request = silent.take(control::Op::accept);
  silent.poll();
  CHECK(silent.network->taken_in() == before);
  const ChannelParts parts(kSmallChannel.local);
  control::Reply reply = silent.service.reply_to(request);
  reply.channel = parts.info(0);
  reply.channel.channel = 2;
  parts.hand_over(0, [&](int memory, int sleep, int wake) { silent.service.send(reply, {memory, sleep, wake}); });
  silent.service.count();
  silent.poll_until([&] { return silent.network->taken_in() != before; });
  CHECK(silent.longest < kSoon);
}

TEST_CASE("a connection goes on by TCP if the channel to the port's owner has been closed before the answer names it") {
  Silent silent;
  silent.service.keep(control::Op::connect);
  const Address to{*ip::parse_ip("10.0.0.1"), 80};
  const int s = silent.stack->socket(Type::stream, false);
  std::thread answers([&] {
    control::Reply reply = silent.service.reply_to(silent.take(control::Op::claim_ip));
    reply.claim_ip = {.claim = 1, .port = 50'000, .plenty = 1};
    silent.service.send(reply);
    silent.service.count();
  });
  CHECK(silent.stack->connect(s, to) == -EINPROGRESS);
  answers.join();
  control::Reply reply = silent.service.reply_to(silent.take(control::Op::connect));
  reply.channel = {.channel = 2, .kind = control::ChannelKind::local, .side = 0, .wire_mtu = 0, .same_user = 1, .shared = 1, .known = 1,
                   .local = {}, .peer = {}};
  silent.service.send(reply);
  silent.service.count();
  int again = -EALREADY;
  silent.poll_until([&] {
    if (again == -EALREADY) again = silent.stack->connect(s, to);
    return again != -EALREADY || silent.stack->counters().connections_out == 1;
  });
  CHECK(again == -EALREADY);
}

TEST_CASE("only the first claim that is released waits for a service that does not answer") {
  Silent silent;
  constexpr int kClaims = 2'000;  // more than the socket holds
  const Nanoseconds took = time_of([&] {
    for (uint32_t i = 0; i < kClaims; ++i) silent.network->release(i);
    // A claim is of no use later. It fails, as the service was late before.
    CHECK(silent.network->claim({}).error == ENETDOWN);
  });
  CHECK(took < 5 * kSoon);
  silent.poll_until([&] { return silent.service.asked(control::Op::release_ip) == kClaims; });
  CHECK(silent.longest < kSoon);
}

}  // namespace unet::sockets::endpoint_network_test
