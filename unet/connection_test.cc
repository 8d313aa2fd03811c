// connection_test.cc - libunet's end of the control socket against a service that sends what the test chooses.
#include "unet/connection.h"

#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "unet/test_service.h"

namespace unet::connection_test {
namespace {

size_t open_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

std::shared_ptr<Connection> open(const TestService& service) {
  auto connection = Connection::open("unix:" + service.path(), "test");
  REQUIRE(connection);
  return std::move(*connection);
}

Errc open_error(std::string_view ni) {
  const auto connection = Connection::open(ni, "test");
  if (connection) return Errc::ok;
  CHECK_FALSE(connection.error().text.empty());
  return connection.error().code;
}

template <typename Request = control::Bind>
Request request(control::Op op, uint32_t endpoint = 0) {
  Request packet{};
  packet.header = {op, endpoint, 0};
  return packet;
}

TEST_CASE("a service that is not there, or speaks something else, is told apart") {
  CHECK(open_error("unix:/tmp/unet-no-such-directory/socket") == Errc::unavailable);
  CHECK(open_error("/tmp/unet-no-such-directory/socket") == Errc::unavailable);
  CHECK(open_error("unix:/tmp/" + std::string(200, 'x')) == Errc::invalid_argument);
  std::string gone;
  {
    const TestService service;
    gone = service.path();
  }
  CHECK(open_error("unix:" + gone) == Errc::unavailable);
  const TestService bare({.page = false});
  CHECK(open_error("unix:" + bare.path()) == Errc::protocol);
  TestService rude({.hang_up = true});
  CHECK(open_error("unix:" + rude.path()) == Errc::disconnected);
  CHECK(rude.asked(control::Op::hello) == 2);  // one retry, in case the NI was just replaced
}

TEST_CASE("a service of another release is told apart, and both versions are named") {
  const auto refusal = [](const TestService::Options& options) {
    const TestService service(options);
    const auto connection = Connection::open("unix:" + service.path(), "test");
    REQUIRE_FALSE(connection);
    CHECK(connection.error().code == Errc::protocol);
    return connection.error().text;
  };
  const std::string ours = "of the control protocol, not " + std::to_string(control::kVersion);
  const std::string later = std::to_string(control::kVersion + 1);
  CHECK(refusal({.version = control::kVersion + 1}).find("version " + later + " " + ours) != std::string::npos);
  // Its replies have another size: the error text is the NI's, if it sent one.
  for (const size_t size : {offsetof(control::Reply, error) + sizeof(control::ErrorText), sizeof(control::Reply) + 40}) {
    CHECK(refusal({.reply_size = size, .code = Errc::protocol}) == "of another release");
  }
  for (const size_t size : {sizeof(control::Header), sizeof(control::Header) + 8, sizeof(control::Reply) + 40}) {
    CHECK(refusal({.reply_size = size}).find("another version " + ours) != std::string::npos);
  }
}

TEST_CASE("an answer is the one to its request, and an error keeps its code and its sentence") {
  TestService service;
  const auto connection = open(service);
  service.keep(control::Op::bind);
  const auto first = connection->send(request(control::Op::bind, 7));
  const auto second = connection->send(request(control::Op::bind, 8));
  REQUIRE((first && second && *first != *second));
  CHECK_FALSE(connection->take_answer(*first));
  const auto asked_first = service.take(), asked_second = service.take();
  CHECK((asked_first.header().cookie == *first && asked_first.header().endpoint == 7));
  service.refuse(asked_second, Errc::already_exists, "taken");
  const auto refused = connection->wait_answer(*second, kHangSeconds * kSecond);
  REQUIRE_FALSE(refused);
  CHECK((refused.error().code == Errc::already_exists && refused.error().text == "taken"));
  CHECK_FALSE(connection->take_answer(*first));
  service.send(service.reply_to(asked_first));
  CHECK(connection->wait_answer(*first, kHangSeconds * kSecond));
  CHECK_FALSE(connection->take_answer(*first));  // an answer can be taken once
}

TEST_CASE("descriptors that come with packets nobody wants are closed") {
  TestService service;
  const auto connection = open(service);
  const size_t before = open_descriptors();
  service.keep(control::Op::bind);
  const auto cookie = connection->send(request(control::Op::bind));
  const auto asked = service.take();
  const Descriptor one(eventfd(0, EFD_CLOEXEC));
  // Events and nonsense with more descriptors than any packet may have.
  control::ChannelClosed event{};
  event.header = {control::Op::channel_closed, 3, 0};
  service.send(event, {one.get(), one.get()});
  service.send(uint32_t{5}, {one.get()});
  control::Reply reply = service.reply_to(asked);
  connection->abandon(*cookie);
  service.send(reply, {one.get(), one.get(), one.get(), one.get()});
  const auto answer = connection->call(request(control::Op::unbind));
  REQUIRE(answer);
  CHECK(open_descriptors() == before + 1);
  CHECK(connection->take_events(3).size() == 1);
}

TEST_CASE("a channel that comes after its connect was given up is closed again") {
  TestService service;
  const auto connection = open(service);
  service.keep(control::Op::connect);
  service.keep(control::Op::close_channel);
  auto packet = request<control::Connect>(control::Op::connect, 4);
  packet.local = {.depth = 4, .data_bytes = 4 * kMessageMax};
  const size_t before = open_descriptors();
  const auto answer = connection->call(packet, kMillisecond);
  REQUIRE_FALSE(answer);
  CHECK(answer.error().code == Errc::timed_out);
  const auto asked = service.take();
  const auto other_side = service.grant_local(asked, 12);
  const size_t with_other_side = open_descriptors();
  connection->process();
  const auto closing = service.take().as<control::CloseChannel>();
  CHECK((closing.header.op == control::Op::close_channel && closing.header.endpoint == 4 && closing.channel == 12));
  CHECK(open_descriptors() == with_other_side);
  CHECK(open_descriptors() > before);  // the descriptors of the other side
}

TEST_CASE("an answer that was there before it was given up is closed, too") {
  TestService service;
  const auto connection = open(service);
  const control::Op op = GENERATE(control::Op::connect, control::Op::accept);
  service.keep(op);
  service.keep(control::Op::close_channel);
  const auto cookie = connection->send(request<control::Connect>(op, 4));
  service.grant_ni(service.take(), 2);
  while (connection->event_count() == 0) connection->process();
  connection->process();
  connection->abandon(*cookie);
  CHECK(service.take().as<control::CloseChannel>().channel == 2);
}

TEST_CASE("an endpoint that comes too late is destroyed again") {
  TestService service;
  const auto connection = open(service);
  service.keep(control::Op::create_endpoint);
  service.keep(control::Op::destroy_endpoint);
  const auto cookie = connection->send(request<control::CreateEndpoint>(control::Op::create_endpoint));
  connection->abandon(*cookie);
  control::Reply reply = service.reply_to(service.take());
  reply.create_endpoint = {.endpoint = 11, .doorbell = 11};
  service.send(reply);
  connection->process();
  const auto destroying = service.take();
  CHECK((destroying.header().op == control::Op::destroy_endpoint && destroying.header().endpoint == 11));
  CHECK(destroying.bytes.size() == sizeof(control::DestroyEndpoint));
}

TEST_CASE("channels given up while the socket is full are closed when it has room") {
  TestService service;
  const auto connection = open(service);
  service.keep(control::Op::connect);
  service.keep(control::Op::close_channel);
  service.keep(control::Op::bind);
  const auto cookie = connection->send(request<control::Connect>(control::Op::connect, 4));
  service.grant_ni(service.take(), 2);
  while (connection->event_count() == 0) {}
  connection->process();
  {
    const auto held = service.hold();
    const auto packet = request(control::Op::bind);
    while (::send(connection->descriptor(), &packet, sizeof packet, MSG_DONTWAIT) > 0) {}
    connection->abandon(*cookie);
  }
  TestService::Request taken;
  do {
    connection->process();
    taken = service.take();
  } while (taken.header().op == control::Op::bind);
  CHECK(taken.as<control::CloseChannel>().channel == 2);
}

TEST_CASE("descriptors that this process has no room for are told as that") {
  TestService service;
  const auto connection = open(service);
  service.keep(control::Op::connect);
  service.keep(control::Op::close_channel);  // comes while the connection ends: the answer has no receiver
  const auto cookie = connection->send(request<control::Connect>(control::Op::connect, 4));
  const auto asked = service.take();
  const Descriptor one(eventfd(0, EFD_CLOEXEC));
  service.send(service.reply_to(asked), {one.get(), one.get(), one.get()});
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(duplicate(one).get());  // the lowest free number
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  const auto answer = connection->wait_answer(*cookie, kHangSeconds * kSecond);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  REQUIRE_FALSE(answer);
  CHECK(answer.error().code == Errc::out_of_memory);
  CHECK(answer.error().text.find("ulimit -n") != std::string::npos);
}

TEST_CASE("more requests than the socket holds do not wait for a service that waits for us to read") {
  constexpr uint32_t kRequests = 3000;
  ChildProcess child([] {
    alarm(kHangSeconds);
    TestService service;
    const auto connection = Connection::open("unix:" + service.path(), "test");
    if (!connection) return 1;
    std::vector<uint64_t> cookies;
    for (uint32_t i = 0; i < kRequests; ++i) {
      const auto cookie = (*connection)->send(request(control::Op::bind, i));
      if (!cookie) return 2;
      cookies.push_back(*cookie);
    }
    for (const uint64_t cookie : cookies) {
      if (!(*connection)->wait_answer(cookie, kHangSeconds * kSecond)) return 3;
    }
    return 0;
  });
  CHECK(child.wait() == 0);
}

TEST_CASE("events wait for their endpoint, in order") {
  TestService service;
  const auto connection = open(service);
  for (uint32_t i = 0; i < 10; ++i) service.send_closed(i % 2, i);
  const auto even = connection->take_events(0), odd = connection->take_events(1);
  REQUIRE((even.size() == 5 && odd.size() == 5));
  CHECK(connection->take_events(0).empty());
  CHECK(connection->take_events(2).empty());
}

TEST_CASE("when the service is gone, what waits and what comes later fails at once, with what had arrived still there") {
  TestService service;
  const auto connection = open(service);
  service.keep(control::Op::bind);
  const auto waiting = connection->send(request(control::Op::bind));
  const auto answered = connection->send(request(control::Op::bind));
  service.take();
  service.send(service.reply_to(service.take()));
  service.send_closed(0, 1);
  service.die();
  CHECK(connection->take_answer(*answered));
  const auto lost = connection->wait_answer(*waiting, kHangSeconds * kSecond);
  REQUIRE_FALSE(lost);
  CHECK(lost.error().code == Errc::disconnected);
  CHECK_FALSE(connection->alive());
  CHECK(connection->take_events(0).size() == 1);
  const auto later = connection->call(request(control::Op::unbind));
  REQUIRE_FALSE(later);
  CHECK(later.error().code == Errc::disconnected);
}

}  // namespace
}  // namespace unet::connection_test
