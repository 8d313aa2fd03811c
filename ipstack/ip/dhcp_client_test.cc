// dhcp_client_test.cc - a DHCP client and servers that answer, refuse, keep silent, and lie, in virtual time.
#include "ipstack/ip/dhcp_client.h"

#include <catch2/catch.hpp>
#include <vector>

namespace unet::ip::dhcp_client_test {
namespace {

using State = DhcpClient::State;

constexpr MacAddress kOwn{2, 0, 0, 0, 0, 1};
const IpAddress kAddress = *parse_ip("10.0.1.100"), kServer = *parse_ip("10.0.1.1"), kOther = *parse_ip("10.0.1.2");

struct Sent {
  Nanoseconds at;
  DhcpClient::Message message;
};

struct Run {
  explicit Run(uint64_t seed = 1) : client(kOwn, 1500, seed, now) {}

  // Runs until `until`, or until the first message.
  std::vector<Sent> step(Nanoseconds until, bool first = false) {
    std::vector<Sent> sent;
    while (client.next_event() <= until && !(first && !sent.empty())) {
      now = std::max(now, client.next_event());
      for (DhcpClient::Message message; client.poll_message(now, message);) {
        REQUIRE(sent.size() < 1000);
        sent.push_back({now, message});
        last = message.fields;
      }
    }
    if (!first) now = until;
    return sent;
  }
  Sent next() {
    const std::vector<Sent> sent = step(~Nanoseconds{0} - 1, true);
    REQUIRE(sent.size() == 1);
    return sent[0];
  }
  DhcpReply reply(DhcpKind kind, uint32_t lease_s = 1000) const {
    return {.kind = kind, .transaction = last.transaction, .station = kOwn, .server = kServer, .lease_s = lease_s, .address = kAddress,
            .prefix = 24, .router = kServer};
  }
  void give(const DhcpReply& reply) { client.handle_reply(reply, now); }
  void bind(uint32_t lease_s = 1000) {
    next();
    give(reply(DhcpKind::offer));
    next();
    give(reply(DhcpKind::ack, lease_s));
    REQUIRE(client.state() == State::bound);
  }

  Nanoseconds now = 10 * kSecond;
  DhcpClient client;
  DhcpFields last{};
};

}  // namespace

TEST_CASE("DHCP: discover, offer, request, ack: a lease") {
  Run run;
  const Sent discover = run.next();
  CHECK(discover.at < 11 * kSecond);
  CHECK(discover.message.fields.kind == DhcpKind::discover);
  CHECK(discover.message.fields.broadcast);
  CHECK_FALSE(discover.message.to);
  CHECK(run.client.state() == State::selecting);
  run.now += kSecond;
  run.give(run.reply(DhcpKind::offer));
  CHECK(run.client.state() == State::requesting);
  CHECK_FALSE(run.client.lease());
  // Another server's offer comes too late.
  DhcpReply late = run.reply(DhcpKind::offer);
  late.server = kOther;
  run.give(late);
  const Sent request = run.next();
  CHECK(request.at == run.now);
  const DhcpFields& fields = request.message.fields;
  CHECK(fields.kind == DhcpKind::request);
  CHECK(fields.transaction == discover.message.fields.transaction);
  CHECK(fields.seconds == 1);
  CHECK(fields.requested == kAddress);
  CHECK(fields.server == kServer);
  CHECK(fields.client.is_unspecified());
  CHECK_FALSE(request.message.to);
  run.give(run.reply(DhcpKind::ack));
  CHECK(run.client.state() == State::bound);
  REQUIRE(run.client.lease());
  CHECK(run.client.lease()->address == kAddress);
  CHECK(run.client.lease()->prefix == 24);
  CHECK(run.client.lease()->router == kServer);
  CHECK(run.client.counters().leases == 1);
  CHECK(run.client.counters().ignored == 1);
  // The next message is due at half of the lease, or slightly earlier.
  CHECK(run.client.next_event() > request.at + 468 * kSecond);
  CHECK(run.client.next_event() <= request.at + 500 * kSecond);
}

TEST_CASE("DHCP: discover backs off from 4 to 64 seconds, randomized, and never ends") {
  Nanoseconds first = 0;
  for (const uint64_t seed : {1, 2, 3, 4}) {
    Run run(seed);
    const std::vector<Sent> sent = run.step(10 * kSecond + 600 * kSecond);
    REQUIRE(sent.size() >= 11);
    REQUIRE(sent.size() <= 14);
    const Nanoseconds waits[] = {4, 8, 16, 32, 64, 64, 64, 64};
    for (size_t i = 0; i < 8; ++i) {
      const Nanoseconds wait = sent[i + 1].at - sent[i].at;
      CHECK(wait >= (waits[i] - 1) * kSecond);
      CHECK(wait <= (waits[i] + 1) * kSecond);
      CHECK(sent[i].message.fields.transaction == sent[0].message.fields.transaction);
    }
    CHECK(sent[0].at != first);
    first = sent[0].at;
  }
}

TEST_CASE("DHCP: a server that offers and is then silent: four requests, then a restart") {
  Run run;
  run.next();
  run.give(run.reply(DhcpKind::offer));
  for (int i = 0; i < 4; ++i) CHECK(run.next().message.fields.kind == DhcpKind::request);
  const uint32_t before = run.last.transaction;
  CHECK(run.next().message.fields.kind == DhcpKind::discover);
  CHECK(run.last.transaction != before);
}

TEST_CASE("DHCP: renewing with the server, rebinding with any server, expiry") {
  Run run;
  run.bind();
  const Nanoseconds bound = run.now;
  const std::vector<Sent> sent = run.step(bound + 999 * kSecond);
  REQUIRE(sent.size() >= 3);
  bool rebinding = false;
  for (size_t i = 0; i < sent.size(); ++i) {
    const DhcpFields& fields = sent[i].message.fields;
    const Nanoseconds since = sent[i].at - bound;
    CHECK(fields.kind == DhcpKind::request);
    CHECK(fields.client == kAddress);
    CHECK(fields.requested.is_unspecified());
    CHECK(fields.server.is_unspecified());
    CHECK_FALSE(fields.broadcast);
    rebinding = !sent[i].message.to;
    if (!rebinding) CHECK(*sent[i].message.to == kServer);
    CHECK(rebinding == (since >= 875 * kSecond));
    if (i != 0 && rebinding == !sent[i - 1].message.to) CHECK(sent[i].at - sent[i - 1].at >= 60 * kSecond);
  }
  CHECK(rebinding);
  CHECK(run.client.lease());
  const Sent anew = run.next();
  CHECK(anew.at == bound + 1000 * kSecond);
  CHECK(anew.message.fields.kind == DhcpKind::discover);
  CHECK_FALSE(run.client.lease());
  CHECK(run.client.counters().lost == 1);
}

TEST_CASE("DHCP: an ack in RENEWING or REBINDING extends the lease from the time of the request") {
  for (const bool rebinds : {false, true}) {
    Run run;
    run.bind();
    const Nanoseconds bound = run.now;
    do run.next();
    while (rebinds && run.client.state() != State::rebinding);
    const Nanoseconds asked = run.now;
    run.now += 5 * kSecond;
    DhcpReply ack = run.reply(DhcpKind::ack);
    ack.mtu = 1400;
    ack.server = kOther;  // in REBINDING any server may answer
    run.give(ack);
    if (!rebinds) {
      CHECK(run.client.state() == State::renewing);
      ack.server = kServer;
      run.give(ack);
    }
    CHECK(run.client.state() == State::bound);
    CHECK(run.client.lease()->mtu == 1400);
    CHECK(run.client.counters().renewed == 1);
    CHECK(run.client.next_event() > bound + 400 * kSecond);
    CHECK(run.client.next_event() <= asked + 500 * kSecond);
    // A lease that is renewed never ends.
    for (int i = 0; i < 100; ++i) {
      run.next();
      ack.transaction = run.last.transaction;
      run.give(ack);
      REQUIRE(run.client.state() == State::bound);
    }
    CHECK(run.client.counters().lost == 0);
  }
}

TEST_CASE("a nak ends a request and a lease, and who always refuses is asked less and less often") {
  for (const bool leased : {false, true}) {
    Run run;
    if (leased) run.bind();
    else {
      run.next();
      run.give(run.reply(DhcpKind::offer));
    }
    run.next();
    run.give(run.reply(DhcpKind::nak));
    CHECK(run.client.state() == State::init);
    CHECK_FALSE(run.client.lease());
  }
  Run run;
  Nanoseconds until = run.now + 1000 * kSecond;
  int discovers = 0;
  while (run.client.next_event() <= until) {
    const Sent sent = run.next();
    discovers += sent.message.fields.kind == DhcpKind::discover ? 1 : 0;
    run.give(run.reply(sent.message.fields.kind == DhcpKind::discover ? DhcpKind::offer : DhcpKind::nak));
  }
  CHECK(discovers <= 25);
  CHECK(discovers >= 15);
}

TEST_CASE("DHCP: a conflicting address is declined, and the client restarts ten seconds later") {
  Run run;
  run.bind();
  run.now += kSecond;
  run.client.handle_conflict(run.now);
  CHECK_FALSE(run.client.lease());
  const Sent decline = run.next();
  CHECK(decline.at == run.now);
  CHECK(decline.message.fields.kind == DhcpKind::decline);
  CHECK(decline.message.fields.requested == kAddress);
  CHECK(decline.message.fields.server == kServer);
  CHECK(decline.message.fields.client.is_unspecified());
  CHECK_FALSE(decline.message.to);
  const Sent anew = run.next();
  CHECK(anew.at == decline.at + 10 * kSecond);
  CHECK(anew.message.fields.kind == DhcpKind::discover);
  CHECK(run.client.counters().declined == 1);
  run.client.handle_conflict(run.now);  // there is no lease any more
  CHECK(run.client.state() == State::selecting);
}

TEST_CASE("DHCP: repeated conflicts limit the rate to one per minute, until an address is free") {
  Run run;
  const auto declined = [&](Nanoseconds later) {
    run.bind();
    run.now += later;
    run.client.handle_conflict(run.now);
    const Sent decline = run.next();
    REQUIRE(decline.message.fields.kind == DhcpKind::decline);
    return run.client.next_event() - decline.at;
  };
  for (int i = 0; i < 10; ++i) REQUIRE(declined(kSecond) == 10 * kSecond);
  for (int i = 0; i < 3; ++i) REQUIRE(declined(kSecond) == 60 * kSecond);
  CHECK(declined(100 * kSecond) == 10 * kSecond);
  CHECK(declined(kSecond) == 10 * kSecond);
}

TEST_CASE("who does not answer what was asked is not heard") {
  Run run;
  const auto ignores = [&](const DhcpReply& reply) {
    const State before = run.client.state();
    const uint64_t ignored = run.client.counters().ignored;
    run.give(reply);
    CHECK(run.client.counters().ignored == ignored + 1);
    CHECK(run.client.state() == before);
  };
  ignores(run.reply(DhcpKind::offer));  // before any discover
  run.next();
  ignores(run.reply(DhcpKind::ack));
  ignores(run.reply(DhcpKind::nak));
  DhcpReply other = run.reply(DhcpKind::offer);
  other.transaction ^= 1;
  ignores(other);
  other = run.reply(DhcpKind::offer);
  other.station[5] ^= 1;
  ignores(other);
  other = run.reply(DhcpKind::offer);
  const std::byte id[] = {std::byte{1}, std::byte{2}};
  other.client_id = id;
  ignores(other);
  run.give(run.reply(DhcpKind::offer));
  ignores(run.reply(DhcpKind::ack));  // before the request is sent
  run.next();
  other = run.reply(DhcpKind::ack);
  other.server = kOther;
  ignores(other);
  other.kind = DhcpKind::nak;
  ignores(other);
  other = run.reply(DhcpKind::ack);
  other.address = kOther;
  ignores(other);
  ignores(run.reply(DhcpKind::offer));
  const auto own = dhcp_client_id(kOwn);
  other = run.reply(DhcpKind::ack);
  other.client_id = as_bytes(own.data(), own.size());
  run.give(other);
  CHECK(run.client.state() == State::bound);
  ignores(run.reply(DhcpKind::ack));
  ignores(run.reply(DhcpKind::nak));
}

TEST_CASE("times that make no sense: the usual ones, and never without end") {
  struct Times {
    uint32_t lease_s, renew_s, rebind_s;
    Nanoseconds least_s, most_s;
  };
  for (const Times& each : {Times{1000, 100, 200, 93, 100}, {1000, 900, 200, 93, 100 * 5}, {1000, 0, 2000, 468, 500},
                            {1000, 1000, 1000, 468, 500}, {1, 0, 0, 0, 1}, {2, 5, 5, 0, 1}}) {
    Run run;
    run.next();
    run.give(run.reply(DhcpKind::offer));
    run.next();
    DhcpReply ack = run.reply(DhcpKind::ack, each.lease_s);
    ack.renew_s = each.renew_s;
    ack.rebind_s = each.rebind_s;
    run.give(ack);
    INFO(each.lease_s << ' ' << each.renew_s << ' ' << each.rebind_s);
    CHECK(run.client.next_event() >= run.now + each.least_s * kSecond);
    CHECK(run.client.next_event() <= run.now + each.most_s * kSecond);
    // Any times cause only a few messages during the lease.
    CHECK(run.step(run.now + each.lease_s * kSecond).size() <= 20);
  }
  Run run;
  run.bind(kDhcpForever);
  CHECK(run.client.next_event() == ~Nanoseconds{0});
  Run long_one;
  long_one.bind(kDhcpForever - 1);
  CHECK(long_one.client.next_event() >= long_one.now + Nanoseconds{2'000'000'000} * kSecond);
}

}  // namespace unet::ip::dhcp_client_test
