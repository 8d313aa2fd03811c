// test_journal.h - a journal with one of everything, and network interfaces that go on with what a test makes of it; for tests.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>  // tidy: allow include because only tests include this file
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ni/engine/test_wire.h"
#include "ni/service/journal_store.h"
#include "ni/service/test_client.h"
#include "unet/wire/address.h"

namespace unet::service::test {

struct Ends {
  Ends() : Ends(std::move(*JournalLink::make_pair())) {}
  explicit Ends(std::pair<Descriptor, Descriptor> pair) : ni(std::move(pair.first)), supervisor(std::move(pair.second)) {}
  JournalLink ni, supervisor;
};

// Everything that has come.
inline JournalLink::Received take_all(JournalLink& from, JournalStore& store, std::vector<JournalItem>& orders) {
  for (;;) {
    std::vector<JournalItem> items;
    bool last = false;
    const JournalLink::Received received = from.receive(items, last);
    if (received != JournalLink::Received::items) return received;
    if (!store.take(std::move(items), last, orders)) return JournalLink::Received::broken;
  }
}

inline void give_all(const JournalStore& store, JournalLink& to) {
  JournalStore::Progress progress;
  const auto sent = store.send_some(to, progress);
  REQUIRE((sent && *sent == JournalLink::Sent::all));
}

// With a wire it has IP there.
inline Result<std::unique_ptr<Ni>> make_ni(std::unique_ptr<Journal> journal, bool inherits_policy = false,
                                           engine::TestWire* wire = nullptr, bool automatic = false) {
  NiOptions options;
  options.service.host = "testhost";
  options.service.own_user = geteuid();
  options.service.policy = Policy(geteuid());
  options.service.inherit_policy = inherits_policy;
  std::vector<std::unique_ptr<Driver>> drivers;
  if (wire != nullptr) {
    drivers.push_back(std::make_unique<engine::TestPort>(*wire));
    options.engine.ip.ports.push_back(
        {.port = 0, .addresses = {{*ip::parse_ip("10.1.0.1"), 24}}, .autoconfigure = automatic, .dhcp = automatic});
  }
  return Ni::create(std::move(options), std::move(drivers), std::move(journal));
}

// A journal with one of everything, from an NI with clients.
class Original {
 public:
  // With `wire`: and an IP channel with claims.
  explicit Original(const JournalOptions& bounds = {}, engine::TestWire* wire = nullptr) : wire_(wire) {
    auto journal = Journal::open(std::move(pair_.first), bounds);
    REQUIRE(journal);
    // The answer to its hello: nothing is kept yet.
    REQUIRE(supervisor_.send(true));
    REQUIRE((*journal)->inherit());
    auto ni = make_ni(std::move(*journal), false, wire_);
    REQUIRE(ni);
    ni_ = std::move(*ni);
    a_ = std::make_unique<TestClient>(*ni_);
    a_->hello();
    const uint32_t first = a_->endpoint(), second = a_->endpoint();
    a_->bind(second, "target");
    for (const control::Path path : {control::Path::local, control::Path::ni, control::Path::ni}) {
      control::Connect connect{};
      connect.header = {control::Op::connect, first, 100 + static_cast<uint64_t>(path)};
      connect.target.set("target");
      connect.path = path;
      connect.local = {.depth = 16, .data_bytes = 4 * kMessageMax};
      a_->send(connect);
      const auto event = a_->next();
      REQUIRE(event);
      if (++connects_ < 3) a_->accept(second, event->as<control::ConnectRequest>().request);
    }
    control::Expose expose{};
    expose.header = {control::Op::expose, first, 9};
    expose.bytes = 4096;
    a_->call(expose);
    a_->call(a_->simple<control::GetDescriptor>(control::Op::get_descriptor, first));
    if (wire != nullptr) open_ip(first);
    keep();
  }
  void open_ip(uint32_t endpoint) {
    REQUIRE(code_of(a_->call(a_->simple<control::OpenIp>(control::Op::open_ip, endpoint))) == Errc::ok);
    for (const uint8_t protocol : {uint8_t{6}, uint8_t{17}}) {
      auto claim = a_->simple<control::ClaimIp>(control::Op::claim_ip, endpoint);
      claim.claim = {.protocol = protocol, .local = *ip::parse_ip("10.1.0.1"), .port = 8000, .ports = 3};
      REQUIRE(code_of(a_->call(claim)) == Errc::ok);
    }
  }

  // Takes the records that the NI has written into the store.
  void keep() {
    std::vector<JournalItem> orders;
    REQUIRE(take_all(supervisor_, store_, orders) == JournalLink::Received::nothing);
  }
  // Goes on until then, in a thread of its own. False: something that was written is refused.
  bool keep_until(const std::atomic<bool>& done) {
    bool takes_all = true;
    for (bool last = false; !last;) {
      last = done.load(std::memory_order_acquire);
      std::vector<JournalItem> orders;
      takes_all = take_all(supervisor_, store_, orders) != JournalLink::Received::broken && takes_all;
      pollfd readable{.fd = supervisor_.descriptor(), .events = POLLIN, .revents = 0};
      if (!last) ::poll(&readable, 1, 1);
    }
    return takes_all;
  }
  Ni& ni() { return *ni_; }
  TestClient& client() { return *a_; }
  size_t descriptors() const {
    size_t count = 0;
    for (const JournalKind kind : {JournalKind::client, JournalKind::page, JournalKind::segment, JournalKind::region, JournalKind::wake}) {
      for (uint32_t a = 0; a < 512; ++a) {
        for (size_t i = 0; store_.descriptor_of({kind, a, 0}, i) >= 0; ++i) ++count;
      }
    }
    return count;
  }

  // An NI that goes on with the journal as `change` leaves it; `look` at it.
  Status take_over(const std::function<void(std::vector<JournalItem>&)>& change, const std::function<void(Ni&)>& look = {},
                   bool inherits_policy = false) {
    auto link = std::move(*JournalLink::make_pair());
    JournalLink supervisor(std::move(link.first));
    auto journal = Journal::open(std::move(link.second));
    REQUIRE(journal);
    Ends copy;
    give_all(store_, copy.ni);
    std::vector<JournalItem> items;
    bool last = false;
    while (!last) REQUIRE(copy.supervisor.receive(items, last) == JournalLink::Received::items);
    change(items);
    for (const JournalItem& item : items) {
      std::vector<int> descriptors;
      for (const Descriptor& each : item.descriptors) descriptors.push_back(each.get());
      REQUIRE(supervisor.add(item.op, item.key, item.value, descriptors));
    }
    REQUIRE(supervisor.send(true));
    REQUIRE((*journal)->inherit());
    auto ni = make_ni(std::move(*journal), inherits_policy, next_wire, next_automatic);
    if (!ni) return tl::unexpected(ni.error());
    for (int i = 0; i < 4; ++i) (*ni)->poll();
    if (look) look(**ni);
    weight_ = nlohmann::json::parse(report_text(**ni))["users"][0]["weight"];
    (*ni)->service().stop(monotonic_now());
    for (int i = 0; i < 1000 && !(*ni)->service().idle(); ++i) (*ni)->wait(0);
    if (!(*ni)->service().idle()) FAIL("what was taken over does not end");
    return {};
  }
  engine::TestWire* next_wire = nullptr;  // the wire of the NI that takes over next
  bool next_automatic = false;                 // likewise: the wire's port asks a server
  int weight() const { return weight_; }
  const JournalStore& store() const { return store_; }

 private:
  std::pair<Descriptor, Descriptor> pair_ = std::move(*JournalLink::make_pair());
  JournalLink supervisor_{std::move(pair_.second)};
  JournalStore store_;
  std::unique_ptr<Ni> ni_;
  std::unique_ptr<TestClient> a_;
  engine::TestWire* wire_;
  int connects_ = 0;
  int weight_ = 0;
};

}  // namespace unet::service::test
