// journal_test.cc - packets of a journal that are damaged, steps that were not finished, and journals that make no sense.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <thread>

#include "ni/engine/engine_checkpoint.h"
#include "ni/service/journal_records.h"
#include "ni/service/test_journal.h"
#include "unet/capture_memory.h"

namespace unet::service::journal_test {
namespace {

using namespace test;

std::vector<std::byte> packet_of(const std::function<void(JournalLink&)>& write) {
  Ends ends;
  write(ends.ni);
  std::vector<std::byte> packet(JournalLink::kPacketMax);
  const ssize_t n = recv(ends.supervisor.descriptor(), packet.data(), packet.size(), MSG_DONTWAIT);
  REQUIRE(n > 0);
  packet.resize(static_cast<size_t>(n));
  return packet;
}

const JournalKey kKey{JournalKind::endpoint, 7, 0};
constexpr uint64_t kValue = 0x0123'4567'89ab'cdef;

}  // namespace

TEST_CASE("what was not finished never was, and the newest value of a record is the one that is kept") {
  Ends ends;
  JournalStore store;
  std::vector<JournalItem> orders;
  const uint64_t first = 1, second = 2;
  int pipe_ends[2];
  REQUIRE(pipe2(pipe_ends, O_CLOEXEC) == 0);
  const Descriptor reads(pipe_ends[0]);
  Descriptor writes(pipe_ends[1]);
  REQUIRE(ends.ni.add(JournalOp::put, kKey, as_bytes(&first, sizeof first), std::array{writes.get()}));
  REQUIRE(ends.ni.send(true));
  REQUIRE(ends.ni.add(JournalOp::put, kKey, as_bytes(&second, sizeof second)));
  REQUIRE(ends.ni.add(JournalOp::put, {JournalKind::channel, 7, 1}, as_bytes(&second, sizeof second)));
  REQUIRE(ends.ni.add(JournalOp::ready, {}));
  REQUIRE(ends.ni.send(false));
  CHECK(take_all(ends.supervisor, store, orders) == JournalLink::Received::nothing);
  CHECK(store.size() == 1);
  CHECK(orders.empty());
  store.forget_pending();

  // The supervisor's descriptor is the last that keeps the pipe open.
  writes.reset();
  char byte = 0;
  CHECK(store.descriptor_of(kKey, 0) >= 0);
  give_all(store, ends.supervisor);
  std::vector<JournalItem> items;
  bool last = false;
  REQUIRE(ends.ni.receive(items, last) == JournalLink::Received::items);
  CHECK(last);
  REQUIRE(items.size() == 1);
  uint64_t value = 0;
  CHECK((items[0].read(value) && value == first && items[0].key == kKey && items[0].descriptors.size() == 1));
  REQUIRE(::write(items[0].descriptors[0].get(), "x", 1) == 1);
  CHECK(::read(reads.get(), &byte, 1) == 1);
  items.clear();

  REQUIRE(ends.ni.add(JournalOp::erase, kKey));
  REQUIRE(ends.ni.add(JournalOp::stop, {}));
  REQUIRE(ends.ni.send(true));
  CHECK(take_all(ends.supervisor, store, orders) == JournalLink::Received::nothing);
  CHECK(store.size() == 0);
  REQUIRE(orders.size() == 1);
  CHECK(orders[0].op == JournalOp::stop);
  CHECK(::read(reads.get(), &byte, 1) == 0);  // no process has the writing end any more
}

TEST_CASE("a packet that is cut off anywhere, or whose sizes lie, is not one") {
  const auto packet = packet_of([](JournalLink& link) {
    REQUIRE(link.add(JournalOp::put, kKey, as_bytes(&kValue, sizeof kValue)));
    REQUIRE(link.add(JournalOp::put, kKey, as_bytes(&kValue, 5)));
    REQUIRE(link.send(true));
  });
  const auto received = [](const std::vector<std::byte>& bytes) {
    Ends ends;
    REQUIRE(send(ends.ni.descriptor(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    std::vector<JournalItem> items;
    bool last = false;
    const auto outcome = ends.supervisor.receive(items, last);
    return std::pair(outcome, items.size());
  };
  CHECK(received(packet) == std::pair(JournalLink::Received::items, size_t{2}));
  const size_t header = 8, item = 32 + 8;
  for (size_t size = 1; size < packet.size(); ++size) {
    const bool whole = size == header || size == header + item;
    CAPTURE(size);
    CHECK((received({packet.begin(), packet.begin() + static_cast<ptrdiff_t>(size)}).first == JournalLink::Received::items) == whole);
  }
  uint32_t broken = 0;
  for (size_t at = 0; at + 4 <= packet.size(); at += 4) {
    for (const uint32_t lie : {0xFFFF'FFFFu, 0x7FFF'FFFFu, 5u, 100u}) {
      auto copy = packet;
      std::memcpy(copy.data() + at, &lie, sizeof lie);
      broken += received(copy).first == JournalLink::Received::broken ? 1 : 0;
    }
  }
  // The magic; whether it is the last; and of each item the operation, the size and the number of descriptors.
  CHECK(broken >= 2 * 4 + 2 * 8);
}

TEST_CASE("what went to the supervisor with a descriptor counts only after a commit, too") {
  auto pair = std::move(*JournalLink::make_pair());
  auto journal = std::move(*Journal::open(std::move(pair.first)));
  journal->commit();
  CHECK_FALSE(journal->pending());
  journal->put(JournalKind::policy, 0, 0, PolicyValue{}, {STDIN_FILENO});
  CHECK(journal->pending());
  journal->commit();
  CHECK_FALSE(journal->pending());
}

TEST_CASE("a journal that makes no sense is an error with the record's name, or costs nobody but those it is about") {
  Original original;
  REQUIRE(original.store().size() >= 14);
  const size_t count = original.store().size();
  std::vector<size_t> words(count);  // of each value; texts follow
  REQUIRE(original.take_over([&](auto& items) {
    for (size_t i = 0; i < count; ++i) words[i] = std::min<size_t>(items[i].value.size() / 4, 24);
  }));
  uint32_t refused = 0, taken = 0;
  const auto try_with = [&](const std::function<void(std::vector<JournalItem>&)>& change) {
    const Status status = original.take_over(change);
    ++(status ? taken : refused);
    if (!status) CHECK(status.error().text != "");
  };
  for (size_t i = 0; i < count; ++i) {
    CAPTURE(i);
    try_with([&](auto& items) { items.erase(items.begin() + static_cast<ptrdiff_t>(i)); });
    try_with([&](auto& items) { items[i].value.resize(items[i].value.size() / 2); });
    try_with([&](auto& items) { items[i].value.push_back(std::byte{0}); });
    try_with([&](auto& items) { items[i].descriptors.clear(); });
    try_with([&](auto& items) { std::reverse(items[i].descriptors.begin(), items[i].descriptors.end()); });
    for (const uint32_t number : {1u, 5000u, ~0u}) {
      try_with([&](auto& items) { items[i].key.a = number; });
      try_with([&](auto& items) { items[i].key.b = number; });
      try_with([&](auto& items) { items[i].key.kind = static_cast<JournalKind>(number); });
    }
    for (size_t word = 0; word < words[i]; ++word) {
      for (const uint32_t lie : {0u, 1u, 77u, 0x7FFF'FFFFu, ~0u}) {
        try_with([&](auto& items) { std::memcpy(items[i].value.data() + word * 4, &lie, sizeof lie); });
      }
    }
  }
  CHECK(refused > 100);
  CHECK(taken > 100);
}

TEST_CASE("endpoints keep their weights when another network interface goes on") {
  Original original;
  TestClient client(original.ni());
  const auto page = Mapping::map(client.hello().descriptors.at(0).get(), sizeof(ClientPage));
  REQUIRE(page);
  auto& bells = *reinterpret_cast<ClientPage*>(page->data());
  Flood one(client, 1), three(client, 3);
  original.keep();
  one.fill(bells);
  three.fill(bells);
  CHECK(one.taken() + three.taken() == 0);
  REQUIRE(original.take_over([](auto&) {}, [&](Ni& next) {
    while (three.taken() < Flood::kDepth / 2) next.poll();
    uint32_t shown = 0;
    const auto report = nlohmann::json::parse(report_text(next));
    for (const auto& endpoint : report["endpoints"]) shown += endpoint["endpoint"] == three.id && endpoint["weight"] == 3 ? 1 : 0;
    CHECK(shown == 1);
  }));
  CHECK(static_cast<double>(three.taken()) / static_cast<double>(one.taken()) == Approx(3).epsilon(0.05));
}

TEST_CASE("what a client wrote over the words of its memory costs nobody else when another network interface goes on") {
  Original original;
  TestClient liar(original.ni()), honest(original.ni());
  const auto liars = Mapping::map(liar.hello().descriptors.at(0).get(), sizeof(ClientPage));
  const auto honests = Mapping::map(honest.hello().descriptors.at(0).get(), sizeof(ClientPage));
  REQUIRE((liars && honests));
  Flood lies(liar, 1), good(honest, 1);
  original.keep();
  good.fill(*reinterpret_cast<ClientPage*>(honests->data()));
  lies.fill(*reinterpret_cast<ClientPage*>(liars->data()));
  lies.lie();
  std::memset(liars->data(), 0xFF, sizeof(ClientPage));
  REQUIRE(original.take_over([](auto&) {}, [&](Ni& next) {
    for (uint32_t turn = 0; turn < Flood::kDepth && good.taken() < Flood::kDepth; ++turn) next.poll();
    CHECK(good.taken() == Flood::kDepth);
  }));
}

TEST_CASE("a channel over a port that is not there any more is lost, or was before, and everything else goes on") {
  for (const bool open : {true, false}) {
    CAPTURE(open);
    Original original;
    const auto over_a_wire = [&](auto& items) {
      const auto is_one = [](const JournalItem& item) { return item.key.kind == JournalKind::channel; };
      const auto at = std::find_if(items.begin(), items.end(), is_one);
      REQUIRE(at != items.end());
      ChannelValue value{};
      REQUIRE(at->read(value));
      value.wire = 1;
      value.port = 3;
      value.kind = control::ChannelKind::ni;
      value.state = static_cast<uint32_t>(open ? ChannelRecord::State::open : ChannelRecord::State::closed);
      std::memcpy(at->value.data(), static_cast<const void*>(&value), sizeof value);
      const JournalKey other{JournalKind::channel, value.peer_endpoint, value.peer_channel};
      REQUIRE(std::erase_if(items, [&](const JournalItem& item) { return item.key == other; }) == 1);
    };
    while (original.client().receive()) {}
    const Status status = original.take_over(over_a_wire);
    CAPTURE((status ? "" : status.error().text));
    REQUIRE(status);
    const auto event = original.client().receive();
    REQUIRE(event.has_value() == open);
    if (!open) continue;
    CHECK(event->op() == control::Op::channel_closed);
    CHECK(event->as<control::ChannelClosed>().reason == control::CloseReason::wire_lost);
  }
}

TEST_CASE("the policy in force goes on, unless the next one reads it itself") {
  Original original;
  const auto with_text = [](std::string_view text) {
    return [text](std::vector<JournalItem>& items) {
      JournalItem& item = items.emplace_back();
      item.op = JournalOp::put;
      item.key = {JournalKind::policy, 0, 0};
      item.value.resize(sizeof(PolicyValue));
      item.descriptors.push_back(std::move(*create_text("policy", text)));
      std::sort(items.begin(), items.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
    };
  };
  const auto weight_with = [&](std::string_view text, bool inherits) {
    REQUIRE(original.take_over(with_text(text), {}, inherits));
    return original.weight();
  };
  constexpr std::string_view kRule = "[[rule]]\nany = true\nweight = 7\n";
  CHECK(weight_with(kRule, true) == 7);
  CHECK(weight_with(kRule, false) == 1);
  // Its users may be gone since.
  CHECK(weight_with("[[rule]]\nuser = \"nobody has this name\"\nweight = 7\n", true) == 1);
  REQUIRE_FALSE(original.take_over([&](auto& items) {
    with_text(kRule)(items);
    std::find_if(items.begin(), items.end(), [](const auto& each) { return each.key.kind == JournalKind::policy; })->descriptors.clear();
  }));
}

TEST_CASE("clients that end before they were greeted, under a journal") {
  Original original;
  for (int i = 0; i < 8; ++i) {
    TestClient silent(original.ni()), rude(original.ni());
    const uint32_t junk[] = {0xFFFF'FFFF, 1, 2, 3};
    REQUIRE(rude.send_bytes(junk, sizeof junk));
    REQUIRE(rude.send_bytes(junk, sizeof junk));
    CHECK(rude.closed());
    silent.close();
    original.client().turn();
  }
  const auto clients = nlohmann::json::parse(report_text(original.ni()))["clients"];
  CHECK(clients.size() == 1);
  original.keep();
  REQUIRE(original.take_over([](auto&) {}));
}

TEST_CASE("a new endpoint's number has nothing of the one before, from the moment on in which another engine could find it") {
  Original original;
  const int memory = original.store().descriptor_of({JournalKind::ni, 0, 0}, 0);
  const engine::EngineCheckpoint checkpoint = std::move(*engine::EngineCheckpoint::open(memory));
  constexpr uint32_t kNew = 2;  // there are two
  const uint32_t words = TestClient::small().buffers / 64 + 1;
  checkpoint.endpoint(kNew).send_position = checkpoint.endpoint(kNew).receive_position = checkpoint.endpoint(kNew).free_position = 77;
  checkpoint.endpoint(kNew).delivered_runs = 1;
  checkpoint.endpoint(kNew).counters[0] = 77;
  std::fill_n(checkpoint.held(kNew), words, ~uint64_t{0});
  control::CreateEndpoint create{};
  create.header = {control::Op::create_endpoint, 0, 1000};
  create.options = TestClient::small();
  original.client().send(create);
  original.ni().service().poll(monotonic_now());  // and the engine has not seen it
  original.keep();
  REQUIRE(original.store().descriptor_of({JournalKind::segment, kNew, 0}, 0) >= 0);
  const engine::EndpointCheckpoint& now = checkpoint.endpoint(kNew);
  CHECK(now.send_position + now.receive_position + now.free_position + now.delivered_runs == 0);
  CHECK(now.counters[0] == 0);
  for (uint32_t i = 0; i < words; ++i) CHECK(checkpoint.held(kNew)[i] == 0);
}

TEST_CASE("a capture ends with the network interface that made it") {
  Original original;
  control::CaptureStart start{};
  start.header = {control::Op::capture_start, ~uint32_t{0}, 0};
  start.channel = ~uint32_t{0};
  start.port = -1;
  start.bytes = kCaptureBytesMin;
  start.snap_length = 64;
  const Incoming answer = original.client().call(start);
  REQUIRE(code_of(answer) == Errc::ok);
  REQUIRE(answer.descriptors.size() == 1);
  const Mapping memory = std::move(*Mapping::map(answer.descriptors[0].get(), kCapturePage));
  const auto& header = *reinterpret_cast<const CaptureHeader*>(memory.data());
  original.keep();
  CHECK(header.ended == 0);
  REQUIRE(original.take_over([](auto&) {}));
  CHECK(header.ended == 1);

  // A capture that was stopped leaves no record.
  control::CaptureStop stop{};
  stop.header.op = control::Op::capture_stop;
  stop.capture = answer.as<control::Reply>().capture.capture;
  REQUIRE(code_of(original.client().call(stop)) == Errc::ok);
  original.client().turn();
  original.keep();
  CHECK(original.store().descriptor_of({JournalKind::capture, 0, 0}, 0) < 0);
}

TEST_CASE("a supervisor that can hold no more descriptors: what would need them is refused with words, and all else goes on") {
  Original original({.user = 0, .listening_at = {}, .descriptors_max = 200});
  size_t made = 0;
  std::vector<uint32_t> endpoints;
  for (Incoming answer;; ++made) {
    answer = original.client().create();
    original.keep();
    if (code_of(answer) != Errc::ok) {
      CHECK(code_of(answer) == Errc::quota_exceeded);
      CHECK(contains(text_of(answer.as<control::Reply>()), "limit of open files"));
      break;
    }
    REQUIRE(made < 200);
    endpoints.push_back(answer.as<control::Reply>().create_endpoint.endpoint);
  }
  original.client().turn();
  original.keep();
  CHECK(made > 50);
  CHECK(original.descriptors() <= 200 - 96 - 32);
  CHECK(original.descriptors() > 200 - 96 - 32 - 3);
  REQUIRE(original.take_over([](auto&) {}));

  // The others' words are no different, and what is given back can be had again.
  TestClient other(original.ni());
  CHECK(contains(text_of(other.hello().as<control::Reply>()), "limit of open files"));
  CHECK(other.closed());
  for (int i = 0; i < 4; ++i) {
    const uint32_t last = endpoints.back();
    endpoints.pop_back();
    const auto destroy = original.client().simple<control::DestroyEndpoint>(control::Op::destroy_endpoint, last);
    CHECK(code_of(original.client().call(destroy)) == Errc::ok);
  }
  original.client().turn();
  CHECK(code_of(original.client().create()) == Errc::ok);
}

TEST_CASE("a supervisor that may hold no more records: what would need them is refused with words, and all else goes on") {
  Original original({.user = 0, .listening_at = {}, .records_max = 100});
  const uint32_t carrier = original.client().endpoint();
  control::CreateEmulated create{};
  create.header = {control::Op::create_emulated, carrier, 0};
  uint32_t made = 0;
  const auto make = [&] {
    create.header.cookie = 10'000 + made;
    Incoming answer = original.client().call(create);
    original.keep();
    return answer;
  };
  while (code_of(make()) == Errc::ok) REQUIRE(++made < 100);
  CHECK(original.store().size() > 90);
  CHECK(original.store().size() <= 100);
  const auto refused = [](const Incoming& answer) {
    return code_of(answer) == Errc::quota_exceeded && contains(text_of(answer.as<control::Reply>()), "as many records as it may");
  };
  CHECK(refused(make()));
  CHECK(refused(original.client().create()));
  control::Connect connect{};
  connect.header = {control::Op::connect, carrier, 20'000};
  connect.target.set("target");
  connect.path = control::Path::ni;
  CHECK(refused(original.client().call(connect)));
  REQUIRE(original.take_over([](auto&) {}));

  // Descriptors that are given back can be used again.
  const auto destroy = original.client().simple<control::DestroyEndpoint>(control::Op::destroy_endpoint, carrier);
  CHECK(code_of(original.client().call(destroy)) == Errc::ok);
  original.client().turn();
  original.keep();
  CHECK(code_of(original.client().create()) == Errc::ok);
}

TEST_CASE("the largest number of emulated endpoints ends in one step, and the supervisor takes it") {
  Original original;
  const uint32_t carrier = original.client().endpoint();
  control::CreateEmulated create{};
  for (uint32_t i = 0; i < kEmulatedMax; ++i) {
    create.header = {control::Op::create_emulated, carrier, 10'000 + i};
    original.client().send(create);
    if (i % 16 != 15) continue;
    original.client().turn(2);
    while (original.client().receive()) {}
    original.keep();
  }
  CHECK(original.store().size() > kEmulatedMax);
  original.client().close();
  // A supervisor reads while it is being written to.
  std::atomic<bool> done{false};
  bool takes_all = false;
  std::thread supervisor([&] { takes_all = original.keep_until(done); });
  for (int i = 0; i < 8; ++i) original.ni().wait(0);
  done.store(true, std::memory_order_release);
  supervisor.join();
  CHECK(takes_all);
  CHECK(original.store().size() < 10);
}

}  // namespace unet::service::journal_test
