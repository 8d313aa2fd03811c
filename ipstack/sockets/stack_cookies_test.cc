// stack_cookies_test.cc - SYN cookies: a peer that echoes one is connected, with the options that both sides have, whatever else arrives
// meanwhile.
#include <cerrno>
#include <catch2/catch.hpp>

#include "ipstack/sockets/test_two.h"

namespace unet::sockets::stack_cookies_test {

using namespace unet::sockets::sim;

TEST_CASE("SYN cookies: a flood gets them, and a client that answers one is connected") {
  const bool stamps = GENERATE(true, false), sack = GENERATE(true, false), scales = GENERATE(true, false);
  StackOptions options;
  options.half_open_max = 4;
  options.tcp.timestamps = stamps;
  options.tcp.sack = sack;
  options.tcp.window_scaling = scales;
  Two two;
  Application c(two.world, two.there, options);
  const int listener = two.listen(c, at("10.0.0.2", 90), 100);
  // Four SYNs from an address without a host: their handshakes never end.
  for (uint16_t i = 0; i < 4; ++i) {
    two.world.inject(segment({.source_port = static_cast<uint16_t>(1000 + i), .destination_port = 90, .sequence = {i},
                              .flags = ip::TcpFlags::kSyn, .window = 1000}));
  }
  two.world.run_for(kMillisecond);
  CHECK(c.stack->sockets() == 5);
  Stack& a = *two.a.stack;
  const int client = a.socket(Type::stream, false);
  REQUIRE(a.connect(client, at("10.0.0.2", 90)) == -EINPROGRESS);
  two.world.run_for(kMillisecond);
  CHECK(c.stack->counters().cookies_sent == 1);
  CHECK(c.stack->counters().cookies_taken == 1);
  const int server = c.stack->accept(listener);
  REQUIRE(server >= 0);
  // With timestamps all that both can do is agreed upon, and alike.
  const tcp::Info ours = c.stack->connection(server)->info(two.world.now()), theirs = a.connection(client)->info(two.world.now());
  CHECK(ours.timestamps == stamps);
  CHECK(ours.sack == (stamps && sack));
  CHECK(ours.window_scaling == (stamps && scales));
  CHECK((ours.rcv_wscale != 0) == ours.window_scaling);
  for (const auto what : {&tcp::Info::timestamps, &tcp::Info::sack, &tcp::Info::window_scaling}) CHECK(ours.*what == theirs.*what);
  CHECK(ours.rcv_wscale == theirs.snd_wscale);
  CHECK(ours.snd_wscale == theirs.rcv_wscale);
  const auto data = pattern(50'000);
  CHECK(a.send(client, data) == 50'000);
  two.world.run_for(kSecond);
  CHECK(receive(*c.stack, server) == data);
  two.world.run_for(1000 * kSecond);
  CHECK(c.stack->sockets() == 2);  // the four are given up

  // A guess is answered by a reset.
  two.world.inject(segment({.source_port = 5, .destination_port = 90, .sequence = {5}, .acknowledgement = {77},
                            .flags = ip::TcpFlags::kAck, .window = 1000}));
  two.world.run_for(kMillisecond);
  CHECK(c.stack->sockets() == 2);
}

TEST_CASE("SYN cookies: a client whose first ACK is lost is connected by its data, also in a flood") {
  const bool flood = GENERATE(false, true);
  StackOptions options;
  options.half_open_max = 0;
  Two two;
  Application c(two.world, two.there, options);
  const int listener = two.listen(c, at("10.0.0.2", 90), 100);
  Stack& a = *two.a.stack;
  const int client = a.socket(Type::stream, false);
  REQUIRE(a.set_option(client, Stack::Option::no_delay, 1) == 0);
  REQUIRE(a.connect(client, at("10.0.0.2", 90)) == -EINPROGRESS);
  two.world.run_for(two.world.wire.options.delay);
  REQUIRE(c.stack->counters().cookies_sent == 1);
  two.world.wire.options.loss = 1;
  two.world.run_for(two.world.wire.options.delay);
  const auto data = pattern(20);
  REQUIRE(a.send(client, Bytes(data).first(10)) == 10);
  two.world.run_for(kMillisecond);
  two.world.wire.options.loss = 0;
  for (uint16_t i = 0; flood && i < 60'000; ++i) {
    two.world.inject(segment({.source_port = static_cast<uint16_t>(1 + i), .destination_port = 90, .sequence = {i},
                              .flags = ip::TcpFlags::kSyn, .window = 1000}));
    if (i % 100 == 0) two.world.run(two.world.now());
  }
  CHECK((c.stack->counters().cookies_sent > 55'000) == flood);
  REQUIRE(a.send(client, Bytes(data).subspan(10)) == 10);
  two.world.run_for(kSecond);
  CHECK(c.stack->counters().cookies_bad != 0);
  CHECK(c.stack->counters().cookies_taken == 1);
  const int server = c.stack->accept(listener);
  REQUIRE(server >= 0);
  CHECK(receive(*c.stack, server) == data);
}

TEST_CASE("SYN cookies: one still connects its client after a later SYN has found room") {
  const bool timestamps = GENERATE(false, true);
  StackOptions options;
  options.half_open_max = 1;
  options.tcp.timestamps = timestamps;
  Two two;
  Application c(two.world, two.there, options);
  const int listener = two.listen(c, at("10.0.0.2", 90), 100);
  const ip::TcpFields silent{.source_port = 1000, .destination_port = 90, .sequence = {7}, .flags = ip::TcpFlags::kSyn, .window = 1000};
  two.world.inject(segment(silent));
  two.world.run_for(kMillisecond);
  Stack& a = *two.a.stack;
  const int client = a.socket(Type::stream, false);
  REQUIRE(a.connect(client, at("10.0.0.2", 90)) == -EINPROGRESS);
  const auto syn = two.a.port.last;
  two.world.run_for(two.world.wire.options.delay);
  REQUIRE(c.stack->counters().cookies_sent == 1);
  ip::TcpFields reset = silent;
  reset.sequence = {8};
  reset.flags = ip::TcpFlags::kRst;
  two.world.inject(segment(reset));
  two.world.run(two.world.now());
  two.world.inject(syn);
  two.world.run(two.world.now());
  REQUIRE(c.stack->sockets() == 2);  // the SYN has its embryo
  two.world.run_for(kSecond);
  CHECK(c.stack->counters().cookies_taken == 1);
  const int server = c.stack->accept(listener);
  REQUIRE(server >= 0);
  const auto data = pattern(50'000);
  CHECK(a.send(client, data) == 50'000);
  two.world.run_for(kSecond);
  CHECK(receive(*c.stack, server) == data);
  CHECK(c.stack->sockets() == 2);
}

TEST_CASE("SYN cookies: the connection has the listener's window and MSS") {
  StackOptions options;
  options.half_open_max = 0;
  Two two;
  Application c(two.world, two.there, options);
  const int listener = c.stack->socket(Type::stream, false);
  REQUIRE(c.stack->set_option(listener, Stack::Option::receive_buffer, 4096) == 0);
  REQUIRE(c.stack->set_option(listener, Stack::Option::max_segment, 700) == 0);
  REQUIRE(c.stack->bind(listener, at("10.0.0.2", 90)) == 0);
  REQUIRE(c.stack->listen(listener, 100) == 0);
  Stack& a = *two.a.stack;
  const int client = a.socket(Type::stream, false);
  REQUIRE(a.connect(client, at("10.0.0.2", 90)) == -EINPROGRESS);
  two.world.run_for(kMillisecond);
  REQUIRE(c.stack->counters().cookies_taken == 1);
  const tcp::Info theirs = a.connection(client)->info(two.world.now());
  CHECK(theirs.snd_wnd <= 4096);
  CHECK(theirs.snd_mss <= 700);
}

}  // namespace unet::sockets::stack_cookies_test
