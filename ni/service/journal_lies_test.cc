// journal_lies_test.cc - journals that no network interface writes, though each record alone is valid: the next network interface refuses
// them, or ends what is not whole.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>

#include "ni/service/journal_records.h"
#include "ni/service/test_journal.h"

namespace unet::service::journal_lies_test {

using namespace test;

namespace {

using Items = std::vector<JournalItem>;

// The first record of a kind that `wanted` takes.
template <typename Value>
JournalItem& find(Items& items, JournalKind kind, const std::function<bool(const Value&)>& wanted = {}) {
  const auto at = std::find_if(items.begin(), items.end(), [&](const JournalItem& item) {
    Value value{};
    return item.key.kind == kind && item.read(value) && (!wanted || wanted(value));
  });
  REQUIRE(at != items.end());
  return *at;
}

template <typename Value>
void change(JournalItem& item, const std::function<void(Value&)>& by) {
  Value value{};
  REQUIRE(item.read(value));
  by(value);
  std::memcpy(item.value.data(), static_cast<const void*>(&value), sizeof value);
}

void sort(Items& items) {
  std::stable_sort(items.begin(), items.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
}

// Another record that differs from `one` by `by`.
void add_like(Items& items, const JournalItem& one, const std::function<void(JournalItem&)>& by) {
  JournalItem other{one.op, one.key, one.value, {}};
  by(other);
  items.push_back(std::move(other));
  sort(items);
}

void add_output(Items& items, uint64_t number) {
  control::Reply reply{};
  reply.header = {control::Op::bind, 0, 1};
  JournalItem& item = items.emplace_back();
  item.op = JournalOp::put;
  item.key = {JournalKind::output, find<ClientValue>(items, JournalKind::client).key.a, number};
  item.value.assign(as_bytes(&reply, sizeof reply).begin(), as_bytes(&reply, sizeof reply).end());
  sort(items);
}

bool is_asked_for(const ChannelValue& value) { return value.state == static_cast<uint32_t>(ChannelRecord::State::connecting); }
bool is_open(const ChannelValue& value) { return value.state == static_cast<uint32_t>(ChannelRecord::State::open); }

constexpr Nanoseconds kHang = 60 * kSecond;
constexpr uint64_t kTooMany = uint64_t{1} << 63;

}  // namespace

TEST_CASE("a journal that no network interface writes is refused, though each of its records could be one") {
  Original original;
  REQUIRE(original.take_over([](Items&) {}));
  const auto refused = [&](const char* what, const std::function<void(Items&)>& lie) {
    INFO(what);
    const Status status = original.take_over(lie);
    CHECK_FALSE(status);
    if (!status) CHECK(contains(status.error().text, "record "));
  };
  refused("channels of an endpoint that has ended", [](Items& items) {
    const uint32_t ended = find<ChannelValue>(items, JournalKind::channel, is_asked_for).key.a;
    for (JournalItem& item : items) {
      if (item.key.kind == JournalKind::endpoint && item.key.a == ended) change<EndpointValue>(item, [](auto& v) { v.detaching = 1; });
    }
  });
  refused("a request to an endpoint that has ended", [](Items& items) {
    RequestValue request{};
    REQUIRE(find<RequestValue>(items, JournalKind::request).read(request));
    std::erase_if(items, [&](const JournalItem& item) { return item.key.kind == JournalKind::channel && item.key.a == request.target; });
    for (JournalItem& item : items) {
      if (item.key.kind != JournalKind::endpoint || item.key.a != request.target) continue;
      change<EndpointValue>(item, [](auto& v) { v.detaching = 1, v.name = {}; });
    }
  });
  refused("an id of signalling", [](Items& items) {
    change<NiStateValue>(find<NiStateValue>(items, JournalKind::ni_state), [](auto& v) { v.ids = kTooMany; });
  });
  refused("an id of a request to come", [](Items& items) {
    change<NiStateValue>(find<NiStateValue>(items, JournalKind::ni_state), [](auto& v) { v.next_request = ~uint64_t{0}; });
  });
  refused("an id of a request", [](Items& items) {
    change<ChannelValue>(find<ChannelValue>(items, JournalKind::channel, is_asked_for), [](auto& v) { v.request = kTooMany; });
    find<RequestValue>(items, JournalKind::request).key.b = kTooMany;
  });
  refused("a number of events", [](Items& items) {
    change<ClientStateValue>(find<ClientStateValue>(items, JournalKind::client_state), [](auto& v) { v.events = kTooMany; });
  });
  refused("a number of a packet", [](Items& items) { add_output(items, kTooMany); });
  refused("packets with others missing between them", [](Items& items) {
    add_output(items, 0);
    add_output(items, kTooMany - 1);
  });
  refused("two requests of one id", [](Items& items) {
    add_like(items, find<RequestValue>(items, JournalKind::request), [](JournalItem& other) { other.key.a = 1; });
  });
  refused("two records of one endpoint", [](Items& items) {
    add_like(items, find<EndpointValue>(items, JournalKind::endpoint), [](JournalItem& other) { other.key.b = 1; });
  });
  refused("a request for a channel that is open", [](Items& items) {
    const JournalItem& open = find<ChannelValue>(items, JournalKind::channel, is_open);
    change<RequestValue>(find<RequestValue>(items, JournalKind::request), [&](auto& v) {
      v.connector = open.key.a;
      v.connector_channel = static_cast<uint32_t>(open.key.b);
    });
  });
  refused("a request for another kind of channel", [](Items& items) {
    change<RequestValue>(find<RequestValue>(items, JournalKind::request), [](auto& v) { v.path = control::Path::local; });
  });
  refused("an accept on this network interface that others have to confirm", [](Items& items) {
    change<ChannelValue>(find<ChannelValue>(items, JournalKind::channel, is_open),
                         [](auto& v) { v.state = static_cast<uint32_t>(ChannelRecord::State::confirming); });
  });
  refused("a client's descriptor that wakes nobody", [](Items& items) {
    find<PageValue>(items, JournalKind::page).descriptors[1] = Descriptor(memfd_create("unet-test", MFD_CLOEXEC));
  });
  refused("an endpoint's descriptor that wakes nobody", [](Items& items) {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    const Descriptor read_end(ends[0]);
    find<WakeValue>(items, JournalKind::wake).descriptors[0] = Descriptor(ends[1]);
  });
}

TEST_CASE("a descriptor that wakes somebody does not block from a takeover on, whatever it did") {
  Original original;
  const Descriptor of_client(eventfd(0, EFD_CLOEXEC)), of_endpoint(eventfd(0, EFD_CLOEXEC));
  const auto blocks = [](const Descriptor& each) { return (fcntl(each.get(), F_GETFL) & O_NONBLOCK) == 0; };
  REQUIRE((blocks(of_client) && blocks(of_endpoint)));
  REQUIRE(original.take_over([&](Items& items) {
    find<PageValue>(items, JournalKind::page).descriptors[1] = Descriptor(fcntl(of_client.get(), F_DUPFD_CLOEXEC, 3));
    find<WakeValue>(items, JournalKind::wake).descriptors[0] = Descriptor(fcntl(of_endpoint.get(), F_DUPFD_CLOEXEC, 3));
  }));
  CHECK_FALSE(blocks(of_client));
  CHECK_FALSE(blocks(of_endpoint));
}

TEST_CASE("of what a journal has one half only, the other ends") {
  Original original;
  while (original.client().receive()) {}
  SECTION("a channel's") {
    REQUIRE(original.take_over([](Items& items) {
      const JournalKey key = find<ChannelValue>(items, JournalKind::channel, is_open).key;
      std::erase_if(items, [&](const JournalItem& item) { return item.key == key; });
    }));
    const auto event = original.client().receive();
    REQUIRE((event && event->op() == control::Op::channel_closed));
    CHECK(event->as<control::ChannelClosed>().reason == control::CloseReason::peer_died);
  }
  SECTION("a channel's that names itself as the other one") {
    JournalKey left{};
    REQUIRE(original.take_over([&](Items& items) {
      const JournalKey key = find<ChannelValue>(items, JournalKind::channel, is_open).key;
      ChannelValue value{};
      REQUIRE(find<ChannelValue>(items, JournalKind::channel, is_open).read(value));
      left = {JournalKind::channel, value.peer_endpoint, value.peer_channel};
      for (JournalItem& item : items) {
        if (item.key != left) continue;
        change<ChannelValue>(item, [&](auto& v) { v.peer_endpoint = left.a, v.peer_channel = static_cast<uint32_t>(left.b); });
      }
      std::erase_if(items, [&](const JournalItem& item) { return item.key == key; });
    }));
    const auto event = original.client().receive();
    REQUIRE((event && event->op() == control::Op::channel_closed));
    CHECK(event->as<control::ChannelClosed>().channel == left.b);
  }
  SECTION("a request's") {
    const bool another_is_named = GENERATE(false, true);
    REQUIRE(original.take_over([&](Items& items) {
      const uint64_t kept = another_is_named ? find<RequestValue>(items, JournalKind::request).key.b : 0;
      std::erase_if(items, [&](const JournalItem& item) { return item.key.kind == JournalKind::request && item.key.b != kept; });
      for (JournalItem& item : items) {
        ChannelValue value{};
        if (!another_is_named || item.key.kind != JournalKind::channel || !item.read(value) || !is_asked_for(value)) continue;
        change<ChannelValue>(item, [&](auto& v) { v.request = kept; });
      }
    }));
    size_t answered = 0;
    for (; const auto answer = original.client().receive(); ++answered) {
      CHECK(answer->op() == control::Op::connect);
      CHECK(code_of(*answer) == Errc::disconnected);
    }
    CHECK(answered > 0);
  }
  CHECK_FALSE(original.client().receive());
}

TEST_CASE("nobody waits longer for an answer than he could have asked for, whatever a journal says") {
  Original original;
  const Nanoseconds longest = Requests::kConnectMsMax * kMillisecond;
  for (const uint64_t never : {~uint64_t{0}, ~uint64_t{0} - 1, kTooMany}) {
    REQUIRE(original.take_over(
        [&](Items& items) { change<RequestValue>(find<RequestValue>(items, JournalKind::request), [&](auto& v) { v.deadline = never; }); },
        [&](Ni& next) { CHECK(next.service().next_timeout() <= longest + kHang); }));
  }
}

}  // namespace unet::service::journal_lies_test
