// unet_c_test.cc - the set-up calls of the C ABI: all functions with good and with bad arguments, over a network interface.
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <set>
#include <string>
#include <thread>

#include "unet/test_daemon.h"
#include "unet/unet.h"

namespace unet {
namespace {

bool says(const char* words) {
  INFO("the sentence is: " << unet_error_text());
  const bool found = std::strstr(unet_error_text(), words) != nullptr;
  CHECK(found);
  return found;
}

TEST_CASE("every error code has a word of its own") {
  std::set<std::string> words;
  for (const int code : {UNET_EINVALID, UNET_EPERMISSION, UNET_EQUOTA, UNET_ENOTFOUND, UNET_EEXISTS, UNET_EREFUSED, UNET_ETIMEDOUT,
                         UNET_EDISCONNECTED, UNET_EUNAVAILABLE, UNET_ENOMEMORY, UNET_EPROTOCOL, UNET_ESYSTEM, UNET_EFULL,
                         UNET_ETOOLONG, UNET_ENOCHANNEL, UNET_EBOUNDS, UNET_EINTERRUPTED, UNET_EPENDING}) {
    words.insert(unet_error_name(code));
  }
  REQUIRE(words.size() == 18);
  REQUIRE(words.count("unknown") == 0);
  for (const int code : {1, -13, -99, -100, -107, -2147483647 - 1}) REQUIRE(unet_error_name(code) == std::string("unknown"));
}

TEST_CASE("opening says what is wrong") {
  unet_context* context = reinterpret_cast<unet_context*>(1);
  REQUIRE(unet_context_open("unix:/tmp/unet-test-no-such-socket", nullptr, &context) == UNET_EUNAVAILABLE);
  REQUIRE(context == nullptr);
  REQUIRE(says("/tmp/unet-test-no-such-socket"));
  REQUIRE(says("unetd"));
  REQUIRE(unet_context_open("", nullptr, nullptr) == UNET_EINVALID);
  REQUIRE(unet_context_open(("unix:/tmp/" + std::string(200, 'x')).c_str(), nullptr, &context) == UNET_EINVALID);
  unet_context_close(nullptr);
  unet_free(nullptr);
  unet_endpoint_destroy(nullptr);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
TEST_CASE("the old names of contexts, endpoints and channels still work") {
  const TestDaemon daemon;
  const unet_open_options options{.size = sizeof options, .program = "old"};
  unet_context* context = nullptr;
  unet_endpoint* endpoint = nullptr;
  REQUIRE(unet_open(daemon.ni(), &options, &context) == 0);
  REQUIRE(unet_create_endpoint(context, nullptr, &endpoint) == 0);
  REQUIRE(unet_close_channel(endpoint, 0) == UNET_ENOTFOUND);
  unet_destroy_endpoint(endpoint);
  unet_close(context);
}
#pragma GCC diagnostic pop

TEST_CASE("the sentence belongs to the thread that failed") {
  REQUIRE(unet_context_open("", nullptr, nullptr) == UNET_EINVALID);
  REQUIRE(unet_error_text()[0] != '\0');
  std::string other = "not set";
  std::thread([&] { other = unet_error_text(); }).join();
  REQUIRE(other.empty());
}

TEST_CASE("options of other versions") {
  const TestDaemon daemon;
  unet_context* context = nullptr;
  unet_context_options options{};
  REQUIRE(unet_context_open(daemon.ni(), &options, &context) == UNET_EINVALID);  // size 0
  REQUIRE(says("size"));

  // A later version's structure is accepted if its new members are unused.
  struct {
    unet_context_options known;
    uint64_t later;
  } grown{};
  grown.known.size = sizeof grown;
  grown.later = 1;
  REQUIRE(unet_context_open(daemon.ni(), &grown.known, &context) == UNET_EINVALID);
  REQUIRE(says("older"));
  grown.later = 0;
  grown.known.program = "named";
  REQUIRE(unet_context_open(daemon.ni(), &grown.known, &context) == 0);

  // An earlier version's structure may lack members.
  unet_endpoint_options endpoint_options{};
  endpoint_options.size = offsetof(unet_endpoint_options, buffer_size);
  endpoint_options.buffer_size = 1;  // would be refused
  unet_endpoint* endpoint = nullptr;
  REQUIRE(unet_endpoint_create(context, &endpoint_options, &endpoint) == 0);
  unet_endpoint_destroy(endpoint);
  unet_context_close(context);
}

TEST_CASE("endpoints") {
  const TestDaemon daemon;
  TestPair pair(daemon);
  REQUIRE(unet_endpoint_id(pair.a) != unet_endpoint_id(pair.b));
  unet_endpoint* endpoint = nullptr;
  REQUIRE(unet_endpoint_create(nullptr, nullptr, &endpoint) == UNET_EINVALID);
  REQUIRE(unet_endpoint_create(pair.context, nullptr, nullptr) == UNET_EINVALID);
  unet_endpoint_options options{};
  options.size = sizeof options;
  options.buffer_size = 100;
  REQUIRE(unet_endpoint_create(pair.context, &options, &endpoint) == UNET_EINVALID);
  REQUIRE(says("multiples of 64"));
  REQUIRE(endpoint == nullptr);
  options = {.size = sizeof options, .send_depth = 4, .receive_depth = 4, .buffers = 32, .buffer_size = 4096, .send_bytes = 65536};
  REQUIRE(unet_endpoint_create(pair.context, &options, &endpoint) == 0);
  unet_endpoint_destroy(endpoint);
  options = {.size = sizeof options, .emulated = 2};
  REQUIRE(unet_endpoint_create(pair.context, &options, &endpoint) == UNET_EINVALID);
  for (const uint64_t weight : {uint64_t{101}, uint64_t{1} << 32, (uint64_t{1} << 32) + 3, ~uint64_t{0}}) {
    options = {.size = sizeof options, .weight = weight};
    REQUIRE(unet_endpoint_create(pair.context, &options, &endpoint) == UNET_EINVALID);
    REQUIRE(says("weight 1 to 100"));
  }
  options = {.size = sizeof options, .weight = 100};
  REQUIRE(unet_endpoint_create(pair.context, &options, &endpoint) == 0);
  unet_endpoint_destroy(endpoint);
  options = {.size = sizeof options, .emulated = 1, .weight = 2};
  REQUIRE(unet_endpoint_create(pair.context, &options, &endpoint) == UNET_EINVALID);
  REQUIRE(says("no weight of its own"));
  options = {.size = sizeof options, .emulated = 1, .weight = 1};
  REQUIRE(unet_endpoint_create(pair.context, &options, &endpoint) == 0);
  unet_endpoint_destroy(endpoint);
  // A program compiled before weights existed: bytes after its structure are not ours to read.
  options = {.size = offsetof(unet_endpoint_options, weight), .weight = ~uint64_t{0}};
  REQUIRE(unet_endpoint_create(pair.context, &options, &endpoint) == 0);
  unet_endpoint_destroy(endpoint);
  // A program compiled before emulated endpoints existed.
  options = {.size = offsetof(unet_endpoint_options, reserved), .emulated = 1};
  REQUIRE(unet_endpoint_create(pair.context, &options, &endpoint) == 0);
  REQUIRE(unet_endpoint_id(endpoint) < 16 * 1024);
  unet_endpoint_destroy(endpoint);
}

TEST_CASE("emulated endpoints talk as others do, to each other and to those with queues") {
  const TestDaemon daemon;
  unet_endpoint_options options{};
  options.size = sizeof options;
  options.emulated = 1;
  const int path = GENERATE(as<int>(), UNET_PATH_AUTOMATIC, UNET_PATH_NI, UNET_PATH_LOCAL);
  TestPair pair(daemon, &options);
  pair.connect(path);
  for (uint32_t size : {0u, 8u, 48u, 49u, 5000u, 65536u}) {
    const std::string text(size, 'x');
    REQUIRE(unet_send(pair.a, pair.a_to_b, text.data(), text.size(), 0) == 0);
    const unet_message message = TestPair::next(pair.b);
    REQUIRE(message.length == size);
    REQUIRE(message.channel == pair.b_to_a);
    REQUIRE(std::memcmp(message.data, text.data(), size) == 0);
    unet_release(pair.b, &message);
    unet_release(pair.b, &message);
  }
  void* region = nullptr;
  REQUIRE(unet_expose(pair.a, 4096, &region) == UNET_EINVALID);
  REQUIRE(says("exposes no region"));
}

TEST_CASE("names") {
  const TestDaemon daemon;
  TestPair pair(daemon);
  REQUIRE(unet_unbind(pair.a) == UNET_ENOTFOUND);
  REQUIRE(unet_bind(pair.a, "test/name") == 0);
  REQUIRE(unet_bind(pair.b, "test/name") == UNET_EEXISTS);
  REQUIRE(unet_bind(pair.b, "no such name") == UNET_EINVALID);
  REQUIRE(says("63"));
  REQUIRE(unet_bind(pair.b, "") == UNET_EINVALID);
  REQUIRE(unet_bind(pair.b, nullptr) == UNET_EINVALID);
  REQUIRE(unet_bind(nullptr, "name") == UNET_EINVALID);
  REQUIRE(unet_unbind(pair.a) == 0);
  REQUIRE(unet_bind(pair.b, "test/name") == 0);
  REQUIRE(unet_unbind(nullptr) == UNET_EINVALID);
}

TEST_CASE("connecting waits until the name is bound", "[threads]") {
  const TestDaemon daemon;
  TestPair pair(daemon);
  int bound = -1, accepted = -1;
  std::thread server([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
    bound = unet_bind(pair.b, "late");
    accepted = unet_accept_next(pair.b, 10'000'000'000, nullptr);
  });
  unet_connect_options options{};
  options.size = sizeof options;
  options.wait_ns = 10'000'000'000;
  const int channel = unet_connect(pair.a, "late", &options);
  server.join();
  REQUIRE(channel >= 0);
  REQUIRE(bound == 0);
  REQUIRE(accepted >= 0);
  options.wait_ns = 60'000'000;
  REQUIRE(unet_connect(pair.a, "never", &options) == UNET_ENOTFOUND);
}

TEST_CASE("connecting fails with a reason") {
  const TestDaemon daemon;
  TestPair pair(daemon);
  unet_connect_options options{};
  options.size = sizeof options;
  uint64_t pending = 0;
  REQUIRE(unet_connect(pair.a, "nobody", nullptr) == UNET_ENOTFOUND);
  REQUIRE(says("nobody"));
  REQUIRE(unet_connect(pair.a, "not a name", nullptr) == UNET_EINVALID);
  REQUIRE(unet_connect(pair.a, nullptr, nullptr) == UNET_EINVALID);
  REQUIRE(unet_connect_start(pair.a, "b", nullptr, nullptr) == UNET_EINVALID);
  REQUIRE(unet_accept(pair.b, 12345) == UNET_ENOTFOUND);
  REQUIRE(unet_reject(pair.b, 12345) == 0);
  REQUIRE(unet_accept_next(pair.b, 1'000'000, nullptr) == UNET_ETIMEDOUT);
  options.path = 3;
  REQUIRE(unet_connect(pair.a, "b", &options) == UNET_EINVALID);
  options = {.size = sizeof options, .local_bytes = 64};
  REQUIRE(unet_connect(pair.a, "b", &options) == UNET_EINVALID);
  REQUIRE(says("data_bytes"));

  SECTION("nobody accepts in time") {
    REQUIRE(unet_bind(pair.b, "b") == 0);
    options = {.size = sizeof options, .timeout_ns = 50'000'000};
    REQUIRE(unet_connect(pair.a, "b", &options) == UNET_ETIMEDOUT);
  }
  SECTION("the peer rejects") {
    REQUIRE(unet_bind(pair.b, "b") == 0);
    REQUIRE(unet_connect_start(pair.a, "b", nullptr, &pending) == 0);
    unet_request request{};
    REQUIRE(unet_next_request(pair.b, &request) == UNET_EINVALID);  // size 0
    request.size = sizeof request;
    while (unet_next_request(pair.b, &request) == 0) REQUIRE(unet_wait(pair.b, kHang, -1) == UNET_READY);
    REQUIRE(request.peer_pid == ::getpid());
    REQUIRE(request.peer_uid == static_cast<int>(::getuid()));
    REQUIRE(request.same_user == 1);
    REQUIRE(std::strlen(request.peer) > 0);
    REQUIRE(request.size == sizeof request);
    REQUIRE(unet_next_request(pair.b, &request) == 0);
    REQUIRE(unet_reject(pair.b, request.id) == 0);
    int answer;
    while ((answer = unet_connect_poll(pair.a, pending)) == UNET_EPENDING) REQUIRE(unet_wait(pair.a, kHang, -1) == UNET_READY);
    REQUIRE(answer == UNET_EREFUSED);
    REQUIRE(unet_connect_poll(pair.a, pending) == UNET_EINVALID);
    REQUIRE(says("under way"));
  }
  SECTION("who asked cancels") {
    REQUIRE(unet_bind(pair.b, "b") == 0);
    REQUIRE(unet_connect_start(pair.a, "b", nullptr, &pending) == 0);
    REQUIRE(unet_connect_cancel(pair.a, pending) == 0);
    REQUIRE(unet_connect_cancel(pair.a, pending) == UNET_EINVALID);
    REQUIRE(unet_connect_poll(pair.a, pending) == UNET_EINVALID);
    REQUIRE(unet_connect_cancel(nullptr, pending) == UNET_EINVALID);
    const int channel = unet_accept_next(pair.b, kHang, nullptr);
    REQUIRE(channel >= 0);
    // An earlier version's structure gets the members that it has.
    unet_event event{};
    event.size = offsetof(unet_event, peer);
    event.peer[0] = '?';
    int taken;
    while ((taken = unet_next_event(pair.b, &event)) == 0) unet_wait(pair.a, 1'000'000, 0), unet_wait(pair.b, 1'000'000, 0);
    REQUIRE(taken == 1);
    REQUIRE((event.kind == UNET_EVENT_CLOSED && event.channel == channel && event.reason == UNET_REASON_CLOSED_BY_PEER));
    REQUIRE((event.peer[0] == '?' && event.size == offsetof(unet_event, peer)));
  }
}

TEST_CASE("connecting from a thread of its own", "[threads]") {
  const TestDaemon daemon;
  TestPair pair(daemon);
  REQUIRE(unet_bind(pair.b, "b") == 0);
  int accepted = -1;
  unet_request from{};
  from.size = sizeof from;
  std::thread server([&] { accepted = unet_accept_next(pair.b, kHang, &from); });
  const int channel = unet_connect(pair.a, "b", nullptr);
  server.join();
  REQUIRE(channel >= 0);
  REQUIRE(accepted >= 0);
  REQUIRE(from.peer_pid == ::getpid());
  REQUIRE(unet_channel_kind(pair.a, channel) == UNET_KIND_LOCAL);
}

TEST_CASE("channels that close") {
  const TestDaemon daemon;
  TestPair pair(daemon);
  pair.connect(UNET_PATH_AUTOMATIC);
  REQUIRE(unet_channel_kind(pair.a, pair.a_to_b) == UNET_KIND_LOCAL);
  REQUIRE(unet_is_open(pair.a, pair.a_to_b) == 1);
  for (const int wrong : {-1, 77, 4096, -2147483647 - 1}) {
    REQUIRE(unet_is_open(pair.a, wrong) == 0);
    REQUIRE(unet_channel_kind(pair.a, wrong) == UNET_KIND_NONE);
    REQUIRE(unet_channel_close(pair.a, wrong) == UNET_ENOTFOUND);
  }
  unet_event event{};
  REQUIRE(unet_next_event(pair.b, &event) == UNET_EINVALID);  // size 0
  event.size = sizeof event;
  REQUIRE(unet_next_event(pair.b, &event) == 0);

  // A message sent before the close is received after it.
  REQUIRE(unet_send(pair.a, pair.a_to_b, "last", 4, 0) == 0);
  REQUIRE(unet_channel_close(pair.a, pair.a_to_b) == 0);
  REQUIRE(unet_channel_close(pair.a, pair.a_to_b) == UNET_ENOTFOUND);
  while (unet_next_event(pair.b, &event) == 0) REQUIRE(unet_wait(pair.b, kHang, -1) == UNET_READY);
  REQUIRE(event.kind == UNET_EVENT_CLOSED);
  REQUIRE(event.channel == pair.b_to_a);
  REQUIRE(event.reason == UNET_REASON_CLOSED_BY_PEER);
  REQUIRE(unet_is_open(pair.b, pair.b_to_a) == 0);
  REQUIRE(unet_send(pair.b, pair.b_to_a, "x", 1, 0) == UNET_ENOCHANNEL);
  const unet_message message = TestPair::next(pair.b);
  REQUIRE(std::string(static_cast<const char*>(message.data), message.length) == "last");
  unet_release(pair.b, &message);
  REQUIRE(unet_channel_close(pair.b, pair.b_to_a) == 0);
  unet_release(pair.b, &message);  // too late: does nothing
}

TEST_CASE("counters and the report") {
  const TestDaemon daemon;
  TestPair pair(daemon);
  pair.connect(UNET_PATH_NI);
  std::set<std::string> names;
  for (size_t i = 0; unet_counter_name(pair.a, i) != nullptr; ++i) names.insert(unet_counter_name(pair.a, i));
  REQUIRE(names.size() > 20);
  uint64_t value = 77;
  for (const std::string& name : names) REQUIRE(unet_counter(pair.a, name.c_str(), &value) == 0);
  REQUIRE(unet_counter(pair.a, "no_such_counter", &value) == UNET_ENOTFOUND);
  REQUIRE(says("no_such_counter"));
  REQUIRE(unet_counter(pair.a, nullptr, &value) == UNET_EINVALID);

  REQUIRE(unet_counter(pair.b, "received_messages", &value) == 0);
  REQUIRE(value == 0);
  REQUIRE(unet_send(pair.a, pair.a_to_b, "counted", 7, 0) == 0);
  const unet_message message = TestPair::next(pair.b);
  unet_release(pair.b, &message);
  // The network interface publishes its counters a moment after the message.
  for (int i = 0; i < 60'000 && value != 7; ++i) {
    REQUIRE(unet_wait(pair.b, 1'000'000, 0) == UNET_TIMED_OUT);
    REQUIRE(unet_counter(pair.b, "received_bytes", &value) == 0);
  }
  REQUIRE(value == 7);

  char* json = nullptr;
  REQUIRE(unet_report(nullptr, &json) == UNET_EINVALID);
  REQUIRE(unet_report(pair.context, nullptr) == UNET_EINVALID);
  REQUIRE(unet_report(pair.context, &json) == 0);
  REQUIRE(std::string(json).find("\"b\"") != std::string::npos);
  unet_free(json);
}

TEST_CASE("a network interface that dies", "[daemon]") {
  TestDaemon daemon;
  TestPair pair(daemon);
  pair.connect(UNET_PATH_LOCAL);
  REQUIRE(unet_alive(pair.context) == 1);
  daemon.end(SIGKILL);
  uint64_t pending = 0;
  REQUIRE(unet_connect_start(pair.a, "b", nullptr, &pending) == UNET_EDISCONNECTED);
  REQUIRE(unet_alive(pair.context) == 0);
  REQUIRE(unet_unbind(pair.b) == UNET_EDISCONNECTED);
  REQUIRE(unet_accept_next(pair.b, kHang, nullptr) == UNET_EDISCONNECTED);
  char* json = nullptr;
  REQUIRE(unet_report(pair.context, &json) == UNET_EDISCONNECTED);
  REQUIRE(json == nullptr);
  // The local channel works without the network interface.
  REQUIRE(unet_send(pair.a, pair.a_to_b, "still here", 10, 0) == 0);
  const unet_message message = TestPair::next(pair.b);
  REQUIRE(message.length == 10);
  unet_release(pair.b, &message);
}

}  // namespace
}  // namespace unet
