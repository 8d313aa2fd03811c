// endpoint.h - Active Message endpoints in virtual time, in the place of am/endpoint.h; for the simulation of calls.
//
// A message arrives once and in order, as am/flow.h sees to, or its channel ends. Messages take random times. Sends find no room at times.
// A channel that is cut carries nothing more, and each end learns that at a time of its own.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "am/handler.h"
#include "am/local_link.h"
#include "am/tag_rule.h"
#include "unet/base/simulator.h"
#include "unet/context.h"

namespace unet::am {

constexpr uint32_t kTranslationsMax = 64 * 1024;

struct Options {
  EndpointOptions endpoint{};
  bool both_ways = false;
};

struct SimMessage {
  Kind kind{};
  uint8_t handler = 0;
  std::vector<uint32_t> words;
  std::vector<std::byte> payload;
};

class SimWire;

// One end of a channel.
struct Peer {
  Endpoint* endpoint = nullptr;  // nullptr: dead or unmapped
  SimWire* wire = nullptr;
  size_t side = 0;
  uint64_t id = 0;
  Index index = kNoIndex;
  bool open = true, ended = false;  // ended: learnt by the next poll
  std::deque<SimMessage> arrived;
  std::deque<SimMessage> unhandled;  // requests that the other end has not handled
};

class SimWire {
 public:
  explicit SimWire(Simulator& simulator) : simulator_(simulator) {
    const SimLinkOptions options{.delay = 1 + simulator.below(5000), .jitter = 1 + simulator.below(50'000), .in_order = true};
    for (size_t side = 0; side < 2; ++side) {
      ends[side].wire = this;
      ends[side].side = side;
      links_.emplace_back(simulator, options);
    }
  }
  void send(const Peer& from, SimMessage message) {
    if (is_cut) return;
    Peer& to = ends[1 - from.side];
    links_[from.side].send(simulator_.now(), 0, [&to, message = std::move(message)](bool) { to.arrived.push_back(message); });
  }
  // Nothing arrives any more, and the ends learn it at different times.
  void cut() {
    if (std::exchange(is_cut, true)) return;
    for (Peer& each : ends) simulator_.at(simulator_.now() + simulator_.below(kMillisecond), [&each] { each.ended = true; });
  }
  std::array<Peer, 2> ends{};
  bool is_cut = false;

 private:
  Simulator& simulator_;
  std::vector<SimLink> links_;
};

// All endpoints of a simulation.
struct SimWorld : Simulator {
  using Simulator::Simulator;
  std::map<std::string, Endpoint*, std::less<>> names;
  std::deque<SimWire> wires;
  uint64_t identities = 0;
};
inline SimWorld* sim_world = nullptr;  // of the simulation that runs

class Dispatcher {
 public:
  // Runs the handler, and returns whether it has replied.
  static bool run(Endpoint& endpoint, Peer& peer, const PacketFields& fields, Bytes payload, const Handler& handler) {
    Token token(endpoint, peer, fields, payload);
    handler.function(token, handler.context);
    return token.replied_;
  }
};

class Endpoint {
 public:
  static Result<std::unique_ptr<Endpoint>> create(Context&, const Options&) { return std::make_unique<Endpoint>(); }
  ~Endpoint() {
    std::erase_if(sim_world->names, [this](const auto& each) { return each.second == this; });
    for (Peer* const peer : peers_) remove(*peer);
  }

  Status bind(std::string_view name) {
    name_ = name;
    sim_world->names[name_] = this;
    return {};
  }
  Status map(Index index, std::string_view target, Tag = kAnyTag, const ConnectOptions& = {}) {
    if (in_use(index)) return fail(Errc::already_exists, "in use");
    const auto found = sim_world->names.find(target);
    if (found == sim_world->names.end()) return fail(Errc::not_found, "no such name");
    SimWire& wire = sim_world->wires.emplace_back(*sim_world);
    add(wire.ends[0]);
    found->second->add(wire.ends[1]);
    set_index(wire.ends[0], index);
    return {};
  }
  Status start_map(Index index, std::string_view target, Tag tag = kAnyTag, const ConnectOptions& options = {}) {
    const Status mapped = map(index, target, tag, options);
    if (!mapped) failures_.emplace(index, mapped.error());
    return {};
  }
  const Error* map_failure(Index index) noexcept {
    const auto found = failures_.find(index);
    return found == failures_.end() ? nullptr : &found->second;
  }
  Status map_back(Index index, uint64_t source, Tag = kAnyTag) {
    for (Peer* const peer : peers_) {
      if (peer->id != source || !peer->open) continue;
      set_index(*peer, index);
      return {};
    }
    return fail(Errc::not_found, "gone");
  }
  Status unmap(Index index) {
    if (failures_.erase(index) != 0) return {};
    Peer& peer = *translations_[index];
    take_arrived(peer);
    end(peer);
    remove(peer);
    std::erase(peers_, &peer);
    translations_[index] = nullptr;
    return {};
  }
  bool is_mapped(Index index) const noexcept { return index < translations_.size() && translations_[index] != nullptr; }
  bool in_use(Index index) const noexcept { return is_mapped(index) || failures_.contains(index); }
  bool is_open(Index index) const noexcept { return is_mapped(index) && translations_[index]->open; }
  bool has_credit(Index index) const noexcept { return is_mapped(index) && translations_[index]->unhandled.size() < kFlowWindow; }

  void set_handler(uint8_t index, HandlerFunction function, void* context) noexcept { handlers_[index] = {function, context}; }
  void set_error_handler(ErrorFunction function, void* context) noexcept { error_ = {function, context}; }
  void set_poll(uint32_t (*)(void*), void*) noexcept {}

  Outcome request_now(Index to, uint8_t handler, Bytes payload, std::span<const uint32_t> words) {
    SimMessage message{payload.empty() ? Kind::short_request : Kind::medium_request, handler, {words.begin(), words.end()},
                       {payload.begin(), payload.end()}};
    if (!in_use(to)) return come_back(ReturnStatus::bad_entry, to, message);
    if (!is_mapped(to)) return Outcome::not_sent;
    Peer& peer = *translations_[to];
    if (!peer.open) return come_back(ReturnStatus::unreachable, to, message);
    if (!has_credit(to) || sim_world->below(16) == 0) return Outcome::not_sent;
    peer.unhandled.push_back(message);
    peer.wire->send(peer, std::move(message));
    return Outcome::sent;
  }
  MutableBytes reserve_now(Index to, uint32_t bytes, uint8_t) {
    if (!is_open(to) || !has_credit(to) || sim_world->below(16) == 0) return {};
    reserved_ = {.to = to, .room = std::vector<std::byte>(bytes)};
    return reserved_.room;
  }
  Outcome commit(uint8_t handler, uint32_t length, std::span<const uint32_t> words) {
    Outcome outcome = Outcome::not_sent;
    while (outcome == Outcome::not_sent) outcome = request_now(reserved_.to, handler, Bytes(reserved_.room).first(length), words);
    return outcome;
  }

  uint32_t poll() {
    if (running_) return 0;
    uint32_t count = 0;
    const std::vector<Peer*> all = peers_;
    for (Peer* const peer : all) {
      count += take_arrived(*peer);
      if (!peer->ended || !peer->open) continue;
      end(*peer);
      ++count;
      if (peer->index == kNoIndex) {
        remove(*peer);
        std::erase(peers_, peer);
      }
    }
    return count;
  }
  // Virtual time passes.
  WaitOutcome wait(Nanoseconds timeout, Nanoseconds = 0) {
    const Nanoseconds end = deadline_after(sim_world->now(), timeout);
    while (poll() == 0) {
      if (sim_world->now() >= end) return WaitOutcome::timed_out;
      sim_world->run_for(kMicrosecond + sim_world->below(20 * kMicrosecond));
    }
    return WaitOutcome::ready;
  }
  bool arm(Nanoseconds&) { return false; }
  Result<int> descriptor() { return fail(Errc::unavailable, "not simulated"); }

  // The process is killed: nothing of it leaves any more.
  void kill() {
    for (Peer* const peer : peers_) peer->wire->cut();
  }
  size_t peers() const noexcept { return peers_.size(); }

 private:
  friend class Token;
  struct Reservation {
    Index to = 0;
    std::vector<std::byte> room;
  };

  void add(Peer& peer) {
    peer.endpoint = this;
    peer.id = ++sim_world->identities;
    peers_.push_back(&peer);
  }
  void set_index(Peer& peer, Index index) {
    if (translations_.size() <= index) translations_.resize(index + 1);
    translations_[index] = &peer;
    peer.index = index;
  }
  void remove(Peer& peer) {
    peer.wire->cut();
    peer.endpoint = nullptr;
    peer.arrived.clear();
  }
  void end(Peer& peer) {
    if (!std::exchange(peer.open, false)) return;
    for (const SimMessage& each : std::exchange(peer.unhandled, {})) come_back(ReturnStatus::unreachable, peer.index, each);
  }
  Outcome come_back(ReturnStatus status, Index index, const SimMessage& message) {
    const bool before = std::exchange(running_, true);
    const Returned returned{.status = status, .kind = message.kind, .handler = message.handler, .index = index, .arguments = message.words};
    if (error_.first != nullptr) error_.first(*this, returned, error_.second);
    running_ = before;
    return Outcome::returned;
  }
  uint32_t take_arrived(Peer& peer) {
    uint32_t count = 0;
    for (; !peer.arrived.empty() && peer.open && count < 32; ++count) {
      const SimMessage message = std::move(peer.arrived.front());
      peer.arrived.pop_front();
      if (!is_request(message.kind)) peer.unhandled.pop_front();
      if (message.kind == Kind::ack) continue;
      PacketFields fields({.kind = message.kind, .handler = message.handler, .count = static_cast<uint8_t>(message.words.size())});
      std::copy(message.words.begin(), message.words.end(), fields.arguments.begin());
      const bool before = std::exchange(running_, true);
      const bool replied = Dispatcher::run(*this, peer, fields, message.payload, handlers_[message.handler]);
      running_ = before;
      if (is_request(message.kind) && !replied) peer.wire->send(peer, {.kind = Kind::ack, .handler = 0, .words = {}, .payload = {}});
    }
    return count;
  }

  std::string name_;
  std::vector<Peer*> peers_, translations_;
  std::map<Index, Error> failures_;
  std::array<Handler, 256> handlers_{};
  std::pair<ErrorFunction, void*> error_{};
  Reservation reserved_;
  bool running_ = false;
};

inline Outcome Token::reply_medium(uint8_t handler, Bytes payload, std::span<const uint32_t> words) noexcept {
  replied_ = true;
  peer_->wire->send(*peer_, {payload.empty() ? Kind::short_reply : Kind::medium_reply, handler, {words.begin(), words.end()},
                             {payload.begin(), payload.end()}});
  return Outcome::sent;
}
inline Outcome Token::reply_short(uint8_t handler, std::span<const uint32_t> words) noexcept { return reply_medium(handler, {}, words); }
inline uint64_t Token::source() const noexcept { return peer_->id; }
inline std::string_view Token::source_name() const noexcept { return {}; }
inline uint32_t Token::index() const noexcept { return peer_->index; }

}  // namespace unet::am
