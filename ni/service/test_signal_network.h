// test_signal_network.h - signalling machines of several hosts in a simulation; for tests.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>  // tidy: allow include because only tests include this file
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ni/service/signalling.h"
#include "unet/base/simulator.h"

namespace unet::service::test {

using control::CloseReason;

constexpr SimLinkOptions kGoodWire{.delay = 50 * kMicrosecond};

inline MacAddress mac_of(uint32_t host) { return {2, 0, 0, 0, 0, static_cast<uint8_t>(host + 1)}; }

// One NI: its signalling, and the state that its service would have.
struct Host {
  uint32_t index = 0;
  std::string name;
  std::unique_ptr<Signalling> machine;
  uint64_t incarnation = 0;
  uint32_t next_tag = 1;
  std::map<uint32_t, uint32_t> open;            // local tag -> remote tag: the engine would carry messages
  std::map<uint64_t, uint32_t> connecting;      // connect -> local tag
  std::map<uint64_t, std::string> wanted;       // connect -> target@host
  std::set<uint32_t> mine;                      // local tags of channels that we asked for
  std::set<uint32_t> confirming;                // accepted, not confirmed
  std::vector<Requested> asked;                 // not answered yet
  std::vector<Error> failures;
  uint64_t connected = 0, confirmed = 0, lost = 0, withdrawn = 0;
  std::map<uint32_t, CloseReason> reasons;      // of lost channels
};

class Network : public Simulator, private SimNode {
 public:
  Network(uint32_t hosts, uint64_t seed, const SimLinkOptions& wire = kGoodWire) : Simulator(seed), wire_(*this, wire) {
    add(*this);
    for (uint32_t i = 0; i < hosts; ++i) {
      Host& host = *hosts_.emplace_back(std::make_unique<Host>());
      host.index = i;
      host.name = "host" + std::to_string(i);
      start(host);
    }
  }

  Host& host(uint32_t i) { return *hosts_[i]; }
  SimLinkOptions& wire() { return wire_.options; }
  uint64_t frames() const { return frames_; }
  // From now on NIs are replaced between writing down what happened and saying so, with this probability.
  void set_crashes(double probability) { crashes_ = probability; }

  // A new life of the NI: it has forgotten everything.
  void start(Host& host) {
    host.machine = new_machine(host);
    host.incarnation = 1'000 + now() + host.index;
    host.open.clear();
    host.connecting.clear();
    host.confirming.clear();
    host.asked.clear();
    silent_.erase(host.index);
  }
  // Another NI goes on with what this one has written down; what it had not sent yet is lost.
  void take_over(Host& host) {
    const std::unique_ptr<Signalling> old = std::exchange(host.machine, new_machine(host));
    Signalling& next = *host.machine;
    next.resume(host.incarnation, old->next_id() + 3);
    for (const auto& [local, remote] : host.open) {
      const auto shared = old->shared_channel(Tag{local});
      REQUIRE(shared);
      REQUIRE(shared->remote_tag == Tag{remote});
      const auto accepted = host.confirming.count(local) != 0 ? Signalling::Stage::accepted : Signalling::Stage::confirmed;
      REQUIRE(next.resume_channel(Tag{local}, host.mine.count(local) != 0 ? Signalling::Stage::connected : accepted, *shared, now()));
    }
    for (const auto& [id, tag] : host.connecting) {
      const std::string& target = host.wanted.at(id);
      const size_t at = target.find('@');
      const Nanoseconds deadline = old->deadline_of(id);
      const Nanoseconds left = deadline > now() ? deadline - now() : 0;
      REQUIRE(next.resume_connect(id, target.substr(at + 1), target.substr(0, at), Tag{tag}, 42, left, now()));
    }
    for (Requested& each : host.asked) {
      const auto shared = old->shared_request(each.request);
      REQUIRE(shared);
      each.request = next.resume_request(*shared, now());
    }
    std::erase_if(host.asked, [](const Requested& each) { return each.request == 0; });
    next.resumed(now());
    ++takeovers_;
    collect(host);
  }
  uint64_t takeovers() const { return takeovers_; }
  // Everything that was ever sent arrives once more.
  void replay() {
    const Nanoseconds time = now() + wire_.options.delay + wire_.options.jitter;
    for (const Flying& frame : history_) at(time, [this, frame] { arrive(frame); });
  }
  void silence(Host& host) { silent_.insert(host.index); }
  void hear(Host& host) { silent_.erase(host.index); }
  void set_mtus(std::vector<uint32_t> mtus) { mtu_of_ = std::move(mtus); }

  uint32_t new_tag(Host& host) { return ((static_cast<uint32_t>(random()) & 0xFFFF) << 16) | host.next_tag++; }

  uint64_t connect(Host& from, const std::string& to, const std::string& target, Nanoseconds timeout) {
    const uint32_t tag = new_tag(from);
    const uint64_t id = from.machine->connect(to, target, Tag{tag}, 42, timeout, now());
    from.connecting[id] = tag;
    from.wanted[id] = target + "@" + to;
    collect(from);
    return id;
  }
  bool accept(Host& host, size_t which = 0) {
    const Requested request = host.asked[which];
    host.asked.erase(host.asked.begin() + static_cast<long>(which));
    const uint32_t tag = new_tag(host);
    const auto accepted = host.machine->accept(request.request, Tag{tag}, now());
    if (accepted) {
      host.open[tag] = static_cast<uint32_t>(accepted->remote_tag);
      host.confirming.insert(tag);
    }
    collect(host);
    return accepted.has_value();
  }
  void reject(Host& host) {
    host.machine->reject(host.asked.front().request, Errc::refused, "not today", now());
    host.asked.erase(host.asked.begin());
    collect(host);
  }
  void close(Host& host, uint32_t tag) {
    host.open.erase(tag);
    host.confirming.erase(tag);
    host.machine->close(Tag{tag}, CloseReason::closed_by_peer, now());
    collect(host);
  }

 private:
  std::unique_ptr<Signalling> new_machine(const Host& host) const {
    SignallingOptions options;
    options.host = host.name;
    options.port_mtus = {mtu_of_[host.index % mtu_of_.size()]};
    options.incarnation = 1'000 + now() + host.index;
    options.lost_after = 2 * kSecond;
    return std::make_unique<Signalling>(options);
  }

  struct Flying {
    uint32_t from, to;
    std::vector<std::byte> bytes;
  };

  void arrive(const Flying& frame) {
    wake();
    if (silent_.count(frame.to) != 0) return;
    host(frame.to).machine->handle_signal({0, mac_of(frame.from)}, frame.bytes, now());
    collect(host(frame.to));
  }
  Nanoseconds process() override {
    Nanoseconds next = kNever;
    for (const auto& host : hosts_) {
      if (host->machine->next_timeout() <= now()) {
        host->machine->handle_timeout(now());
        REQUIRE(host->machine->next_timeout() > now());
        collect(*host);
      }
      next = std::min(next, host->machine->next_timeout());
    }
    return next;
  }

  // Events before transmits, as the service does.
  void collect(Host& host) {
    while (auto event = host.machine->poll_event()) std::visit([&](const auto& e) { on(host, e); }, *event);
    if (chance(crashes_)) return take_over(host);
    while (auto out = host.machine->poll_transmit()) {
      ++frames_;
      require_own_number(*out);
      if (silent_.count(host.index) != 0) continue;
      for (const auto& other : hosts_) {
        if (other->index == host.index || (out->to.mac != kBroadcast && out->to.mac != mac_of(other->index))) continue;
        fly(host.index, other->index, *out);
      }
    }
  }
  // A number means one connect for the whole life of an NI, however many machines it has.
  void require_own_number(const SignalTransmit& out) {
    const auto signal = parse_signal(Bytes(out.bytes.data(), out.length));
    if (!signal) FAIL("what was sent is no signal");
    const auto* const connect = std::get_if<ConnectBody>(&signal->body);
    if (connect == nullptr) return;
    const auto [at, fresh] = numbers_.try_emplace({signal->header.from_incarnation, signal->header.number}, uint32_t{connect->tag});
    if (!fresh && at->second != connect->tag) FAIL("number " << signal->header.number << " means two connects");
  }
  void fly(uint32_t from, uint32_t to, const SignalTransmit& out) {
    const Flying frame{from, to, {out.bytes.begin(), out.bytes.begin() + out.length}};
    history_.push_back(frame);
    wire_.send(now(), out.length, [this, frame](bool) { arrive(frame); });
  }

  void on(Host& host, const Connected& e) {
    const auto at = host.connecting.find(e.connect);
    REQUIRE(at != host.connecting.end());  // one end per connect
    host.open[at->second] = static_cast<uint32_t>(e.remote_tag);
    host.mine.insert(at->second);
    host.connecting.erase(at);
    ++host.connected;
  }
  void on(Host& host, const ConnectFailed& e) {
    REQUIRE(host.connecting.erase(e.connect) == 1);
    REQUIRE(e.error.code != Errc::ok);
    REQUIRE(!e.error.text.empty());
    host.failures.push_back(e.error);
  }
  void on(Host& host, const Requested& e) { host.asked.push_back(e); }
  void on(Host& host, const Withdrawn& e) {
    ++host.withdrawn;
    const auto gone = std::remove_if(host.asked.begin(), host.asked.end(), [&](const Requested& r) { return r.request == e.request; });
    host.asked.erase(gone, host.asked.end());
  }
  void on(Host& host, const Confirmed& e) {
    REQUIRE(host.confirming.erase(static_cast<uint32_t>(e.local_tag)) == 1);  // once
    REQUIRE(host.open.count(static_cast<uint32_t>(e.local_tag)) == 1);
    ++host.confirmed;
  }
  void on(Host& host, const ChannelLost& e) {
    REQUIRE(host.open.erase(static_cast<uint32_t>(e.local_tag)) == 1);  // once
    host.confirming.erase(static_cast<uint32_t>(e.local_tag));
    host.reasons[static_cast<uint32_t>(e.local_tag)] = e.reason;
    ++host.lost;
  }

  SimLink wire_;
  uint64_t frames_ = 0;
  uint64_t takeovers_ = 0;
  double crashes_ = 0;
  std::vector<Flying> history_;
  std::map<std::pair<uint64_t, uint64_t>, uint32_t> numbers_;  // incarnation and number -> tag
  std::vector<uint32_t> mtu_of_{1500};
  std::set<uint32_t> silent_;
  std::vector<std::unique_ptr<Host>> hosts_;
};

// Every open channel has its other end, and only one.
inline void require_pairs(Network& net, uint32_t hosts) {
  std::set<std::pair<uint32_t, uint32_t>> ends;
  for (uint32_t i = 0; i < hosts; ++i) {
    for (const auto& [local, remote] : net.host(i).open) ends.insert({local, remote});
  }
  for (const auto& [local, remote] : ends) {
    INFO("channel " << local << " -> " << remote);
    REQUIRE(ends.count({remote, local}) == 1);
  }
}

}  // namespace unet::service::test
