// stack_errors_test.cc - errors that wait in a socket's queue: of datagrams, and the ends of sends without a copy.
#include <cerrno>
#include <catch2/catch.hpp>
#include <cstring>

#include "ipstack/sockets/test_two.h"

namespace unet::sockets::stack_errors_test {

using namespace unet::sockets::sim;

namespace {

using Origin = QueuedError::Origin;
using Option = Stack::Option;

TEST_CASE("who asks for errors in a queue is told whose datagram it was, whether it is connected or not") {
  const auto [host, origin, option, type, code] = GENERATE(table<const char*, Origin, Option, int, int>(
      {{"10.0.0.2", Origin::icmp4, Option::queue_errors4, 3, 3}, {"fd00::2", Origin::icmp6, Option::queue_errors6, 1, 4}}));
  const bool connects = GENERATE(false, true);
  Two two;
  Stack& a = *two.a.stack;
  const Address nobody = at(host, 9);
  const int socket = a.socket(Type::datagram, true);
  REQUIRE(a.option(socket, option) == 0);
  REQUIRE(a.set_option(socket, option, 1) == 0);
  REQUIRE(a.option(socket, option) == 1);
  if (connects) REQUIRE(a.connect(socket, nobody) == 0);
  REQUIRE(a.send_to(socket, pattern(20, 5), nobody) == 20);
  CHECK_FALSE(a.take_queued_error(socket));
  two.world.run_for(kSecond);
  CHECK((a.events(socket) & Events::kError) != 0);
  const auto error = a.take_queued_error(socket);
  REQUIRE(error);
  CHECK(error->origin == origin);
  CHECK(error->error == ECONNREFUSED);
  CHECK(error->type == type);
  CHECK(error->code == code);
  CHECK(error->offender == nobody.host);
  CHECK(error->to == nobody);
  CHECK(error->payload == pattern(20, 5));
  // It is told once, and by nothing else.
  CHECK_FALSE(a.take_queued_error(socket));
  CHECK((a.events(socket) & Events::kError) == 0);
  CHECK(a.option(socket, Option::error) == 0);
}

TEST_CASE("the next call is told, too, of what is still in the queue") {
  Two two;
  Stack& a = *two.a.stack;
  const int socket = a.socket(Type::datagram, false);
  REQUIRE(a.set_option(socket, Option::queue_errors4, 1) == 0);
  for (int i = 0; i < 2; ++i) REQUIRE(a.send_to(socket, pattern(1), at("10.0.0.2", 9)) == 1);
  two.world.run_for(kSecond);
  CHECK(a.send_to(socket, pattern(1), at("10.0.0.2", 9)) == -ECONNREFUSED);
  REQUIRE(a.take_queued_error(socket));
  CHECK(a.option(socket, Option::error) == ECONNREFUSED);  // of the second
  REQUIRE(a.take_queued_error(socket));
  CHECK(a.option(socket, Option::error) == 0);
}

TEST_CASE("a queue has an end, and goes with its socket") {
  Two two;
  Stack& a = *two.a.stack;
  int socket = a.socket(Type::datagram, false);
  REQUIRE(a.set_option(socket, Option::queue_errors4, 1) == 0);
  for (uint32_t i = 0; i < 2 * ErrorQueue::kErrorsMax; ++i) {
    static_cast<void>(a.option(socket, Option::error));
    REQUIRE(a.send_to(socket, pattern(1), at("10.0.0.2", 9)) == 1);
    two.world.run_for(kSecond);
  }
  uint32_t told = 0;
  SECTION("errors above it are lost") {
    while (a.take_queued_error(socket)) ++told;
    CHECK(told == ErrorQueue::kErrorsMax);
  }
  SECTION("whoever has its number next has none") {
    REQUIRE(a.close(socket) == 0);
    const int next = a.socket(Type::datagram, false);
    REQUIRE(next == socket);
    CHECK(a.option(next, Option::queue_errors4) == 0);
    CHECK((a.events(next) & Events::kError) == 0);
    CHECK_FALSE(a.take_queued_error(next));
  }
}

TEST_CASE("of what is quoted only the beginning is kept, however much it is") {
  Two two;
  Stack& a = *two.a.stack;
  const int socket = a.socket(Type::datagram, false);
  REQUIRE(a.set_option(socket, Option::queue_errors4, 1) == 0);
  REQUIRE(a.send_to(socket, pattern(3000, 5), at("10.0.0.2", 9)) == 3000);
  const Bytes sent = Bytes(two.a.port.last).subspan(sizeof(IpMessageHeader));
  std::vector<std::byte> icmp(8);  // port unreachable
  icmp[0] = icmp[1] = std::byte{3};
  icmp.insert(icmp.end(), sent.begin(), sent.end());
  const ip::IpFields fields{.from = at("10.0.0.2", 0).host, .to = at("10.0.0.1", 0).host, .protocol = ip::Protocol::kIcmp, .hop_limit = 64};
  ip::sum_icmp(icmp.data(), icmp.size(), fields.from, fields.to);
  std::vector<std::byte> message(sizeof(IpMessageHeader) + 20 + icmp.size());
  emit_ip_header(message.data() + sizeof(IpMessageHeader), fields, static_cast<uint32_t>(icmp.size()));
  std::memcpy(message.data() + sizeof(IpMessageHeader) + 20, icmp.data(), icmp.size());
  a.handle_message(message);
  const auto error = a.take_queued_error(socket);
  REQUIRE(error);
  CHECK(error->error == ECONNREFUSED);
  const auto all = pattern(3000, 5);
  CHECK(error->payload == std::vector<std::byte>(all.begin(), all.begin() + ErrorQueue::kPayloadMax));
}

TEST_CASE("sends without a copy end as they are made, and are told together") {
  Two two;
  const auto [client, server] = two.connect(at("10.0.0.2", 80));
  Stack& a = *two.a.stack;
  const int datagrams = a.socket(Type::datagram, false);
  for (const int socket : {client, datagrams}) {
    CAPTURE(socket);
    a.end_zero_copy(socket);  // the application has not asked for it
    CHECK_FALSE(a.take_queued_error(socket));
    CHECK(a.set_option(socket, Option::zero_copy, 2) == -EINVAL);
    REQUIRE(a.set_option(socket, Option::zero_copy, 1) == 0);
    for (int i = 0; i < 3; ++i) a.end_zero_copy(socket);
    CHECK((a.events(socket) & (Events::kError | Events::kOut)) == (Events::kError | Events::kOut));
    CHECK(a.option(socket, Option::error) == 0);  // it is none
    const auto first = a.take_queued_error(socket);
    REQUIRE(first);
    CHECK(first->origin == Origin::zero_copy);
    CHECK(first->info == 0);
    CHECK(first->data == 2);
    CHECK_FALSE(a.take_queued_error(socket));
    a.end_zero_copy(socket);
    const auto second = a.take_queued_error(socket);
    REQUIRE(second);
    CHECK(second->info == 3);
    CHECK(second->data == 3);
    CHECK((a.events(socket) & Events::kError) == 0);
  }
}

TEST_CASE("who asks no longer for errors has none, but the ends of sends") {
  Two two;
  Stack& a = *two.a.stack;
  const int socket = a.socket(Type::datagram, false);
  REQUIRE(a.set_option(socket, Option::queue_errors4, 1) == 0);
  REQUIRE(a.set_option(socket, Option::zero_copy, 1) == 0);
  const bool sends = GENERATE(false, true);
  if (sends) a.end_zero_copy(socket);
  REQUIRE(a.send_to(socket, pattern(1), at("10.0.0.2", 9)) == 1);
  two.world.run_for(kSecond);
  REQUIRE(a.set_option(socket, Option::queue_errors4, 0) == 0);
  CHECK(a.option(socket, Option::error) == ECONNREFUSED);
  CHECK(((a.events(socket) & Events::kError) != 0) == sends);
  const auto left = a.take_queued_error(socket);
  REQUIRE(left.has_value() == sends);
  if (sends) CHECK(left->origin == Origin::zero_copy);
  CHECK_FALSE(a.take_queued_error(socket));
}

TEST_CASE("what is accepted tells of sends without a copy as its listener does") {
  Two two;
  Stack& b = *two.b.stack;
  const int listener = two.listen(two.b, at("10.0.0.2", 80));
  REQUIRE(b.set_option(listener, Option::zero_copy, 1) == 0);
  REQUIRE(two.a.stack->connect(two.a.stack->socket(Type::stream, false), at("10.0.0.2", 80)) == -EINPROGRESS);
  two.world.run_for(kSecond);
  const int server = b.accept(listener);
  REQUIRE(server >= 0);
  CHECK(b.option(server, Option::zero_copy) == 1);
  b.end_zero_copy(server);
  CHECK(b.take_queued_error(server));
}

TEST_CASE("streams have no errors of datagrams, and IPv4 none of IPv6") {
  Two two;
  Stack& a = *two.a.stack;
  CHECK(a.set_option(a.socket(Type::stream, false), Option::queue_errors4, 1) == -ENOPROTOOPT);
  CHECK(a.option(a.socket(Type::stream, false), Option::queue_errors4) == -ENOPROTOOPT);
  CHECK(a.set_option(a.socket(Type::datagram, false), Option::queue_errors6, 1) == -ENOPROTOOPT);
  CHECK(a.option(a.socket(Type::datagram, false), Option::queue_errors6) == -ENOPROTOOPT);
}

}  // namespace
}  // namespace unet::sockets::stack_errors_test
