// hostile_lies_test.cc - single lies of a raw client to a unetd: each increments exactly one counter, its own.
#include <catch2/catch.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/system/peer_process.h"
#include "tests/system/raw_queues.h"

namespace unet {
namespace {

using control::Op;
using control::Path;

// A liar with an endpoint and a victim with libunet, both in this process; and the NI's counters.
struct World {
  static constexpr EndpointOptions kOptions{
      .send_depth = 8, .receive_depth = 8, .buffers = 8, .buffer_size = 256, .send_bytes = kMessageMax};

  World() {
    page = page_of(liar.hello());
    REQUIRE(page);
    segment = segment_of(kOptions, liar.create(kOptions));
    REQUIRE(segment);
    REQUIRE(endpoint.bind("victim"));
  }
  // Opens a channel from the liar to the victim.
  std::optional<RawPacket> connect(Path path, const LocalOptions& local = {.depth = 8, .data_bytes = 4 * kMessageMax}) {
    const uint64_t cookie = liar.start_connect(segment->id, "victim", path, local, kHangSeconds * 1000);
    const auto accepted = endpoint.accept(kHang, nullptr);
    REQUIRE(accepted);
    victims = *accepted;
    auto answer = liar.answer(cookie);
    REQUIRE(answer);
    REQUIRE(answer->code() == Errc::ok);
    return answer;
  }
  uint64_t victim(std::string_view name) const {
    for (const auto& [each, value] : endpoint.counters()) {
      if (each == name) return value;
    }
    return ~uint64_t{0};
  }
  uint64_t service(const char* name) {
    const auto text = context.context.report();
    REQUIRE(text);
    return nlohmann::json::parse(*text)["counters"]["service"][name].get<uint64_t>();
  }
  // Puts one descriptor into the liar's send queue and waits until the engine has taken it.
  void send(uint32_t channel, const void* payload, size_t size, uint32_t length, SlotKind kind) {
    segment->send(channel, payload, size, length, kind);
    page->ring(segment->doorbell);
    const Nanoseconds start = monotonic_now();
    while (!segment->consumed() && monotonic_now() - start < kHang) std::this_thread::yield();
    REQUIRE(segment->consumed());
  }
  // All drops of both endpoints, in order: the liar's and then the victim's.
  std::vector<uint64_t> drops() const {
    std::vector<uint64_t> all;
    for (size_t i = static_cast<size_t>(kFirstEndpointDrop); i < kEndpointCounters; ++i) {
      all.push_back(segment->counter(static_cast<EndpointCounter>(i)));
    }
    for (size_t i = static_cast<size_t>(kFirstEndpointDrop); i < kEndpointCounters; ++i) all.push_back(victim(kEndpointCounterNames[i]));
    return all;
  }
  static size_t place(bool of_victim, EndpointCounter counter) {
    const size_t first = static_cast<size_t>(kFirstEndpointDrop);
    return static_cast<size_t>(counter) - first + (of_victim ? kEndpointCounters - first : 0);
  }

  NiProcess ni;
  Client context{ni};
  Endpoint& endpoint = *context.endpoint;
  RawClient liar{ni.directory() + "/socket"};
  std::optional<RawPage> page;
  std::optional<RawSegment> segment;
  Channel victims{};  // the victim's number for the channel
};

TEST_CASE("each lie in a send queue is dropped and counted once under its own name, and the next message arrives") {
  World world;
  const uint32_t channel = world.connect(Path::ni)->as<control::Reply>().channel.channel;
  const auto end = static_cast<uint32_t>(world.segment->geometry.total);
  constexpr uint32_t kRegion = 1000;
  using E = EndpointCounter;
  const auto gather = [](std::initializer_list<Fragment> fragments) {
    GatherDescriptor d{};
    std::copy(fragments.begin(), fragments.end(), d.fragments);
    std::vector<std::byte> bytes(sizeof d);
    std::memcpy(bytes.data(), &d, sizeof d);
    return bytes;
  };
  const auto put = [](uint64_t offset, uint32_t notify, Fragment fragment) {
    const PutDescriptor d{.region_offset = offset, .notify = notify, .spare = 0, .fragments = {fragment}};
    std::vector<std::byte> bytes(sizeof d);
    std::memcpy(bytes.data(), &d, sizeof d);
    return bytes;
  };
  const struct {
    const char* what;
    uint32_t channel, length;
    SlotKind kind;
    std::vector<std::byte> payload;
    bool of_victim;
    E counter;
  } lies[] = {
      {"a kind of no queue", channel, 8, SlotKind::none, {}, false, E::bad_send_descriptor},
      {"the kind of a receive queue", channel, 8, SlotKind::runs, {}, false, E::bad_send_descriptor},
      {"the kind of a local channel", channel, 8, SlotKind::local_data, {}, false, E::bad_send_descriptor},
      {"the kind of a notification", channel, 8, SlotKind::put_done, {}, false, E::bad_send_descriptor},
      {"an unknown kind", channel, 8, static_cast<SlotKind>(255), {}, false, E::bad_send_descriptor},
      {"inline data longer than a slot", channel, kInlineMax + 1, SlotKind::inline_data, {}, false, E::bad_send_descriptor},
      {"a channel that was never opened", channel + 1, 8, SlotKind::inline_data, {}, false, E::unknown_channel},
      {"a channel beyond all", kChannelsPerEndpointMax, 8, SlotKind::inline_data, {}, false, E::unknown_channel},
      {"the largest channel", ~0u, 100, SlotKind::gather, gather({{0, 100}}), false, E::unknown_channel},
      {"a fragment that ends behind the segment", channel, 100, SlotKind::gather, gather({{end - 99, 100}}), false, E::bad_send_descriptor},
      {"a fragment behind the segment", channel, 100, SlotKind::gather, gather({{end, 100}}), false, E::bad_send_descriptor},
      {"a fragment whose end wraps around", channel, 2, SlotKind::gather, gather({{~0u, 2}}), false, E::bad_send_descriptor},
      {"lengths whose sum wraps around", channel, 100, SlotKind::gather, gather({{0, ~0u}, {0, 101}}), false, E::bad_send_descriptor},
      {"fragments shorter than the message", channel, 100, SlotKind::gather, gather({{0, 99}}), false, E::bad_send_descriptor},
      {"fragments longer than the message", channel, 100, SlotKind::gather, gather({{0, 100}, {0, 1}}), false, E::bad_send_descriptor},
      {"a message longer than any", channel, kMessageMax + 1, SlotKind::gather, gather({{0, kMessageMax + 1}}), false,
       E::bad_send_descriptor},
      {"a put with another flag", channel, 8, SlotKind::put, put(0, 2, {0, 8}), false, E::bad_send_descriptor},
      {"a put from outside the segment", channel, 8, SlotKind::put, put(0, 0, {end, 8}), false, E::bad_send_descriptor},
      {"a put over the end of the region", channel, 8, SlotKind::put, put(kRegion - 7, 0, {0, 8}), true, E::put_out_of_bounds},
      {"a put behind the region", channel, 0, SlotKind::put, put(kRegion + 1, 1, {0, 0}), true, E::put_out_of_bounds},
      {"a put whose end wraps around", channel, 8, SlotKind::put, put(~uint64_t{0} - 3, 1, {0, 8}), true, E::put_out_of_bounds},
  };
  const auto nowhere = put(0, 1, {0, 8});
  auto expected = world.drops();
  const auto check = [&](bool of_victim, EndpointCounter counter) {
    ++expected[World::place(of_victim, counter)];
    CHECK(world.drops() == expected);
    const uint32_t word = 0x600DF00D;
    world.send(channel, &word, sizeof word, sizeof word, SlotKind::inline_data);
    Message message;
    REQUIRE(world.endpoint.wait(kHang) == WaitOutcome::ready);
    REQUIRE(world.endpoint.receive(message));
    CHECK((message.length == sizeof word && std::memcmp(message.data, &word, sizeof word) == 0 && message.channel == world.victims));
    world.endpoint.release(message);
    CHECK_FALSE(world.endpoint.receive(message));
    CHECK(world.drops() == expected);
  };
  world.send(channel, nowhere.data(), nowhere.size(), 8, SlotKind::put);
  check(true, E::put_no_region);
  const auto region = world.endpoint.expose(kRegion);
  REQUIRE(region);
  for (const auto& lie : lies) {
    CAPTURE(lie.what);
    world.send(lie.channel, lie.payload.data(), lie.payload.size(), lie.length, lie.kind);
    check(lie.of_victim, lie.counter);
  }
  CHECK(std::all_of(region->begin(), region->end(), [](std::byte each) { return each == std::byte{0}; }));
  CHECK(world.ni.log() == "");
}

TEST_CASE("each lie in a free queue is counted once, and no credit makes the engine write over what was not released") {
  World world;
  world.connect(Path::ni);
  RawSegment& segment = *world.segment;
  for (const uint32_t buffer : {8u, ~0u, 0x10000u, 3u, 3u, 3u}) segment.give(buffer);
  segment.header().receive_consumed.value.store(1u << 31);
  const std::vector<std::byte> text(200, std::byte{7});
  REQUIRE(world.endpoint.send(world.victims, text) == SendOutcome::sent);
  const auto counted = [&](EndpointCounter which, uint64_t value) {
    const Nanoseconds start = monotonic_now();
    while (segment.counter(which) != value && monotonic_now() - start < kHang) std::this_thread::yield();
    return segment.counter(which);
  };
  CHECK(counted(EndpointCounter::received_messages, 1) == 1);
  CHECK(segment.counter(EndpointCounter::bad_free_descriptor) == 5);
  const std::byte* const buffer = segment.mapping.data() + segment.geometry.receive_data + 3 * segment.geometry.buffer_size;
  CHECK(std::memcmp(buffer, text.data(), text.size()) == 0);
  // Its only buffer is in use, and seven slots are free.
  REQUIRE(world.endpoint.send(world.victims, text) == SendOutcome::sent);
  CHECK(counted(EndpointCounter::no_free_buffer, 1) == 1);
  for (uint32_t i = 0; i < 10; ++i) {
    segment.header().receive_consumed.value.store(1000 + i);
    REQUIRE(world.endpoint.send(world.victims, Bytes(text).first(8)) == SendOutcome::sent);
  }
  CHECK(counted(EndpointCounter::receive_queue_full, 3) == 3);
  CHECK(counted(EndpointCounter::received_messages, 8) == 8);
  CHECK(segment.counter(EndpointCounter::bad_free_descriptor) == 5);
  CHECK(world.ni.log() == "");
}

TEST_CASE("each lie to the peer of a local channel is dropped and counted once, and the next message arrives") {
  World world;
  auto local = local_of(world.connect(Path::local));
  REQUIRE(local);
  const uint64_t bytes = local->geometry.data_bytes;
  const struct {
    SlotKind kind;
    uint32_t length;
    uint64_t offset;
  } lies[] = {
      {SlotKind::none, 8, 0},          {SlotKind::gather, 8, 0},
      {SlotKind::put, 8, 0},           {SlotKind::runs, 8, 0},
      {static_cast<SlotKind>(255), 8, 0}, {SlotKind::inline_data, kInlineMax + 1, 0},
      {SlotKind::local_data, 1, bytes}, {SlotKind::local_data, 2, bytes - 1},
      {SlotKind::local_data, 8, ~uint64_t{0} - 3}, {SlotKind::local_data, kMessageMax + 1, 0},
      {SlotKind::headed, 1, bytes},    {SlotKind::headed, kMessageMax + 1, 0},
      {SlotKind::put_done, 1, 0},      {SlotKind::put_done, 0, ~uint64_t{0}},
      {SlotKind::in_slots, kInlineMax, 0}, {SlotKind::in_slots, kInSlotsMax + 1, 0},
      {SlotKind::in_slots, kInSlotsMax, 0},  // without its third slot
      {SlotKind::headed_in_slots, kInSlotsMax, 0}, {SlotKind::headed_in_slots, 0xFF'FFFF, 0},
  };
  uint64_t bad = 0;
  for (const auto& lie : lies) {
    CAPTURE(static_cast<int>(lie.kind), lie.length, lie.offset);
    const uint64_t word = 0x600DF00D;
    local->send(&lie.offset, sizeof lie.offset, lie.length, lie.kind);
    local->send(&word, sizeof word, sizeof word, SlotKind::inline_data);
    // Enough rounds for those that find the lie instead of a message.
    Message message;
    bool got = false;
    for (int i = 0; i < 100 && !got; ++i) got = world.endpoint.receive(message);
    REQUIRE(got);
    CHECK((message.length == sizeof word && std::memcmp(message.data, &word, sizeof word) == 0));
    world.endpoint.release(message);
    CHECK(world.victim("local_bad_descriptor") == ++bad);
  }
  const auto drops = world.drops();
  CHECK(std::all_of(drops.begin(), drops.end(), [](uint64_t each) { return each == 0; }));
}

// ---- the control socket

TEST_CASE("each packet that breaks the protocol ends its connection, is counted once, and others do not notice") {
  World world;
  const Holdings before = world.ni.rest(world.context.context);
  std::vector<std::byte> bytes(control::kPacketMax + 1);
  uint64_t broken = world.service("protocol_errors");
  const auto check = [&](bool greeted, Op op, size_t size, int descriptors) {
    CAPTURE(greeted, static_cast<uint32_t>(op), size, descriptors);
    RawClient client(world.ni.directory() + "/socket");
    REQUIRE(client.connected());
    if (greeted) REQUIRE(client.hello());
    std::memcpy(bytes.data(), &op, sizeof op);
    if (op == Op::hello) std::memcpy(bytes.data() + offsetof(control::Hello, version), &control::kVersion, sizeof control::kVersion);
    const std::vector<int> attached(static_cast<size_t>(descriptors), STDERR_FILENO);
    REQUIRE(client.send_bytes(bytes.data(), size, attached));
    const auto last_words = client.receive();
    REQUIRE(last_words);
    CHECK(last_words->code() == Errc::protocol);
    CHECK(client.is_closed());
    CHECK(world.service("protocol_errors") == ++broken);
  };
  const std::pair<Op, size_t> requests[] = {
      {Op::hello, sizeof(control::Hello)}, {Op::create_endpoint, sizeof(control::CreateEndpoint)},
      {Op::destroy_endpoint, sizeof(control::DestroyEndpoint)}, {Op::bind, sizeof(control::Bind)},
      {Op::unbind, sizeof(control::Unbind)}, {Op::connect, sizeof(control::Connect)},
      {Op::accept, sizeof(control::Accept)}, {Op::reject, sizeof(control::Reject)},
      {Op::close_channel, sizeof(control::CloseChannel)}, {Op::expose, sizeof(control::Expose)},
      {Op::peer_region, sizeof(control::PeerRegion)}, {Op::get_descriptor, sizeof(control::GetDescriptor)},
      {Op::report, sizeof(control::Report)}, {Op::policy_reload, sizeof(control::PolicyReload)},
      {Op::drain, sizeof(control::Drain)},
  };
  for (const auto& [op, size] : requests) {
    if (op != Op::hello) check(false, op, size, 0);     // before hello
    check(op != Op::hello, op, size - 1, 0);
    check(op != Op::hello, op, size + 1, 0);
    check(op != Op::hello, op, control::kPacketMax, 0);
    check(op != Op::hello, op, control::kPacketMax + 1, 0);
    check(op != Op::hello, op, size, 1);                // a descriptor that does not belong there
    check(op != Op::hello, op, size, 253);
  }
  check(true, Op::hello, sizeof(control::Hello), 0);    // a second hello
  for (size_t size = 1; size < sizeof(control::Header); ++size) check(size % 2 == 0, Op::hello, size, 0);
  for (const auto op : {Op{}, static_cast<Op>(99), Op::connect_request, Op::channel_opened, Op::channel_closed, static_cast<Op>(~0u)}) {
    check(true, op, sizeof(control::Header), 0);
    check(true, op, sizeof(control::ConnectRequest), 0);
  }
  // Texts with a length beyond their field.
  for (size_t i = sizeof(control::Header); i < bytes.size(); ++i) bytes[i] = std::byte{0xFF};
  check(true, Op::bind, sizeof(control::Bind), 0);
  check(true, Op::connect, sizeof(control::Connect), 0);
  check(false, Op::hello, sizeof(control::Hello), 0);
  CHECK(world.ni.settle(world.context.context, before) == before);
  CHECK(world.liar.call(RawClient::request<control::GetDescriptor>(Op::get_descriptor, world.segment->id)));
  CHECK(world.ni.log() == "");
}

TEST_CASE("each request for another client's object is refused and counted once, and its connection goes on") {
  World world;
  const uint32_t mine = world.segment->id, victims = world.endpoint.id();
  world.connect(Path::ni);
  uint64_t failed = world.service("failed_requests");
  const auto check = [&](const auto& request, Errc code) {
    CAPTURE(static_cast<uint32_t>(request.header.op), request.header.endpoint);
    const auto answer = world.liar.call(request);
    REQUIRE(answer);
    CHECK(answer->code() == code);
    CHECK(answer->descriptors.empty());
    CHECK(world.service("failed_requests") == ++failed);
  };
  for (const uint32_t id : {victims, kEndpointsMax, ~0u}) {
    check(RawClient::request<control::DestroyEndpoint>(Op::destroy_endpoint, id), Errc::not_found);
    check(RawClient::request<control::Bind>(Op::bind, id), Errc::not_found);
    check(RawClient::request<control::Unbind>(Op::unbind, id), Errc::not_found);
    check(RawClient::request<control::Connect>(Op::connect, id), Errc::not_found);
    check(RawClient::request<control::Accept>(Op::accept, id), Errc::not_found);
    check(RawClient::request<control::Reject>(Op::reject, id), Errc::not_found);
    check(RawClient::request<control::CloseChannel>(Op::close_channel, id), Errc::not_found);
    check(RawClient::request<control::Expose>(Op::expose, id), Errc::not_found);
    check(RawClient::request<control::PeerRegion>(Op::peer_region, id), Errc::not_found);
    check(RawClient::request<control::GetDescriptor>(Op::get_descriptor, id), Errc::not_found);
  }
  auto close = RawClient::request<control::CloseChannel>(Op::close_channel, mine);
  close.channel = ~0u;
  check(close, Errc::not_found);
  auto region = RawClient::request<control::PeerRegion>(Op::peer_region, mine);
  check(region, Errc::invalid_argument);  // a channel through the NI
  region.channel = ~0u;
  check(region, Errc::not_found);
  auto accept = RawClient::request<control::Accept>(Op::accept, mine);
  for (const uint64_t request : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
    accept.request = request;
    check(accept, Errc::not_found);
  }
  auto expose = RawClient::request<control::Expose>(Op::expose, mine);
  for (const uint64_t size : {uint64_t{0}, kRegionMax + 1, ~uint64_t{0}}) {
    expose.bytes = size;
    check(expose, Errc::invalid_argument);
  }
  expose.bytes = kRegionMax;
  check(expose, Errc::quota_exceeded);
  auto bind = RawClient::request<control::Bind>(Op::bind, mine);
  check(bind, Errc::invalid_argument);
  bind.name.set("victim");
  check(bind, Errc::already_exists);
  auto connect = RawClient::request<control::Connect>(Op::connect, mine);
  connect.target.set("victim");
  connect.local = {.depth = ~0u, .data_bytes = ~0u};
  check(connect, Errc::invalid_argument);
  connect.path = static_cast<Path>(77);
  check(connect, Errc::invalid_argument);
  auto create = RawClient::request<control::CreateEndpoint>(Op::create_endpoint);
  std::memset(static_cast<void*>(&create.options), 0xFF, sizeof create.options);
  check(create, Errc::invalid_argument);
  // The victim still has its name, its endpoint and its channel.
  CHECK(world.endpoint.is_open(world.victims));
  CHECK(world.endpoint.unbind());
  CHECK(world.ni.log() == "");
}

}  // namespace
}  // namespace unet
