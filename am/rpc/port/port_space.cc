// port_space.cc - carries records of message ports by Active Messages, and the rights of a program.
#include "am/rpc/port/port_space.h"

#include <algorithm>
#include <cstring>

#include "am/clock.h"
#include "unet/base/misuse.h"

namespace unet::rpc {
namespace {

static_assert(kRecordMax == am::kMediumMax);

// A short record goes as arguments: a byte that tells how many bytes fill the last argument, the record, and those bytes.
constexpr uint8_t kShortHandler = 1, kMediumHandler = 2, kHelloHandler = 3;
constexpr uint32_t kShortBytes = 4 * am::kArgumentsMax;
constexpr uint32_t kLookEvery = 64;                     // polls between two looks for lost peers
constexpr uint32_t kRecordsPerTurn = 64;                // to one peer
constexpr Nanoseconds kNap = 100 * kMillisecond;        // the longest sleep, as moved message ports may wait for lost senders

}  // namespace

// ---- rights of the program

PortRight::PortRight(bool receive, PortSpace* space, uint32_t number) noexcept
    : receive_(receive), space_(number == 0 ? nullptr : space), number_(number) {
  if (space_ != nullptr) ++space_->rights_;
}

// Returns the number, which then belongs to the caller.
uint32_t PortRight::leave() noexcept {
  --std::exchange(space_, nullptr)->rights_;
  return number_;
}

PortRight& PortRight::operator=(PortRight&& other) noexcept {
  if (this != &other) {
    end();
    space_ = std::exchange(other.space_, nullptr);
    number_ = other.number_;
  }
  return *this;
}

void PortRight::end() noexcept {
  PortSpace* const space = space_;
  if (space == nullptr) return;
  if (receive_) {
    space->router_.destroy_port(leave());
  } else {
    space->router_.close(leave());
  }
}

SendRight SendRight::copy() const { return space_ == nullptr ? SendRight() : SendRight(space_, space_->router_.copy(number_)); }
PortError SendRight::error() const { return space_ == nullptr ? PortError::no_room : space_->router_.error_of(number_); }
bool SendRight::can_send() const { return space_ != nullptr && space_->router_.can_send(number_); }

SendRight ReceiveRight::make_send_right() const {
  return space_ == nullptr ? SendRight() : SendRight(space_, space_->router_.make_send_right(number_));
}
PortError ReceiveRight::error() const { return space_ == nullptr ? PortError::no_room : space_->router_.error_of_port(number_); }

// ---- the space

Result<std::unique_ptr<PortSpace>> PortSpace::create(Context& context, std::string_view name, const PortSpaceOptions& options) {
  am::Options of_endpoint = options.endpoint;
  of_endpoint.both_ways = true;
  auto endpoint = am::Endpoint::create(context, of_endpoint);
  if (!endpoint) return tl::unexpected(endpoint.error());
  std::unique_ptr<PortSpace> space(new PortSpace(std::move(*endpoint), name, options));
  if (const Status bound = space->endpoint_->bind(name); !bound) return tl::unexpected(bound.error());
  return space;
}

PortSpace::PortSpace(std::unique_ptr<am::Endpoint> endpoint, std::string_view name, const PortSpaceOptions& options)
    : endpoint_(std::move(endpoint)), peers_max_(std::min(options.peers_max, am::kTranslationsMax - 1)),
      router_(*this, std::string(name), options.ports) {
  endpoint_->set_handler(kShortHandler, arrive, this);
  endpoint_->set_handler(kMediumHandler, arrive, this);
  endpoint_->set_handler(kHelloHandler, [](am::Token&, void*) {}, nullptr);
  endpoint_->set_error_handler(come_back, this);
}

PortSpace::~PortSpace() {
  if (rights_ != 0) misused("rights and messages of message ports end before their space");
  endpoint_.reset();  // it may return requests to us
}

Status PortSpace::publish(std::string name, SendRight right) {
  if (!right) return fail(Errc::invalid_argument, "an empty right cannot be published");
  if (name.empty() || name.size() > kPublishedNameMax) return fail(Errc::invalid_argument, "a published name has 1 to 255 characters");
  switch (router_.publish(std::move(name), right.number_)) {
    case Published::yes: right.leave(); return {};
    case Published::name_in_use: return fail(Errc::already_exists, "another right is published under this name");
    case Published::not_attached: break;
  }
  return fail(Errc::invalid_argument, "only a right that is attached can be published: wait until its first message is acknowledged");
}

SendRight PortSpace::look_up(std::string_view space, std::string_view name) { return {this, router_.look_up(space, name)}; }

SendResult PortSpace::send_given(SendRight& to, std::vector<std::byte> bytes, std::span<const Given> given,
                                 std::span<PortRight* const> rights) {
  const auto is_foreign = [&](const PortRight* each) { return each->space_ != this; };
  if (to.space_ != this || std::any_of(rights.begin(), rights.end(), is_foreign)) return SendResult::bad_call;
  const SendResult result = router_.send(to.number_, std::move(bytes), given);
  if (result != SendResult::sent) return result;
  for (PortRight* const each : rights) each->leave();
  serve(false);
  return result;
}

std::optional<PortMessage> PortSpace::receive(ReceiveRight& from) {
  if (from.space_ != this) return std::nullopt;
  auto delivery = router_.receive(from.number_);
  if (!delivery) return std::nullopt;
  PortMessage message{.event = delivery->event, .cookie = delivery->cookie, .bytes = std::move(delivery->bytes), .send_rights = {},
                      .receive_rights = {}};
  for (const Given& each : delivery->rights) {
    if (each.receive) {
      message.receive_rights.push_back(ReceiveRight(this, each.number));
    } else {
      message.send_rights.push_back(SendRight(this, each.number));
    }
  }
  return message;
}

// ---- peers

PeerId PortSpace::free_peer() {
  if (peers_used_ >= peers_max_) return kNoPeer;
  const auto is_free = [](const PortPeer& each) { return each.state == PeerState::none; };
  const auto found = std::find_if(peers_.begin(), peers_.end(), is_free);
  ++peers_used_;
  ++unconnected_;
  if (found != peers_.end()) return static_cast<PeerId>(found - peers_.begin());
  peers_.emplace_back();
  return static_cast<PeerId>(peers_.size() - 1);
}

// A channel that another space has opened leads back to it, but not to its name: a space of another host may claim any name.
PeerId PortSpace::reach(std::string_view space) {
  if (space.empty()) return kNoPeer;
  const auto found = std::find_if(peers_.begin(), peers_.end(), [&](const PortPeer& each) {
    return each.state != PeerState::none && each.target == space && !each.broken;
  });
  if (found != peers_.end()) return static_cast<PeerId>(found - peers_.begin());
  const PeerId id = free_peer();
  if (id == kNoPeer) return id;
  const size_t at = space.find('@');
  peers_[id] = {.state = PeerState::opening, .target = std::string(space)};
  if (at != std::string_view::npos) peers_[id].host = space.substr(at + 1);
  return id;
}

std::string_view PortSpace::host_of(PeerId peer) const { return peers_[peer].host; }

// Returns the peer that has sent the message. A new one has no translation yet, because a handler maps nothing.
PeerId PortSpace::peer_of(const am::Token& token) {
  if (token.index() < peers_.size()) return token.index();
  const auto found = std::find_if(peers_.begin(), peers_.end(), [&](const PortPeer& each) {
    return each.state == PeerState::connected && each.source == token.source();
  });
  if (found != peers_.end()) return static_cast<PeerId>(found - peers_.begin());
  const PeerId id = free_peer();
  if (id == kNoPeer) {
    unwelcome_.push_back(token.source());
    return id;
  }
  const std::string_view name = token.source_name();
  const size_t at = name.find('@');
  peers_[id] = {.state = PeerState::connected, .source = token.source()};
  if (at != std::string_view::npos) peers_[id].host = name.substr(at + 1);
  return id;
}

// Opens the channels of new peers. Handlers and reach() only prepare that.
void PortSpace::connect_peers() {
  for (PeerId id = 0; id < peers_.size(); ++id) {
    const PeerState state = peers_[id].state;
    if (state == PeerState::connected) {
      if (endpoint_->map_back(id, peers_[id].source)) {
        peers_[id].state = PeerState::open;
        --unconnected_;
      } else {
        lose(id);
      }
    } else if (state == PeerState::opening) {
      if (!endpoint_->in_use(id) && !endpoint_->start_map(id, peers_[id].target)) {
        lose(id);
        continue;
      }
      // An empty message that never waits: it is returned if there is no channel.
      const am::Outcome outcome = endpoint_->request_long_async(id, kHelloHandler, 0, {}, {}, nullptr, nullptr);
      if (outcome == am::Outcome::sent) {
        peers_[id].state = PeerState::open;
        --unconnected_;
      } else if (outcome == am::Outcome::returned) {
        lose(id);
      }
    }
  }
}

void PortSpace::look_at_peers() {
  looks_ = 0;
  any_broken_ = false;
  for (PeerId id = 0; id < peers_.size(); ++id) {
    const bool closed = peers_[id].state == PeerState::open && !endpoint_->is_open(id);
    if (peers_[id].state != PeerState::none && (closed || peers_[id].broken || router_.is_overrun(id))) lose(id);
  }
}

void PortSpace::lose(PeerId id) {
  peers_[id].broken = true;
  if (endpoint_->in_use(id)) static_cast<void>(endpoint_->unmap(id));  // runs the handlers of what has arrived
  if (peers_[id].state != PeerState::open) --unconnected_;
  peers_[id] = {};
  --peers_used_;
  router_.peer_lost(id);
}

// Closes the channels of spaces that found no room, so that they do not wait for answers. The index behind those of the peers is free.
void PortSpace::turn_away() {
  for (const uint64_t source : std::exchange(unwelcome_, {})) {
    if (endpoint_->map_back(peers_max_, source)) static_cast<void>(endpoint_->unmap(peers_max_));
  }
}

void PortSpace::come_back(am::Endpoint&, const am::Returned& returned, void* context) {
  PortSpace& self = *static_cast<PortSpace*>(context);
  if (returned.index >= self.peers_.size() || self.peers_[returned.index].state == PeerState::none) return;
  self.peers_[returned.index].broken = true;  // gone, or no space of message ports
  self.any_broken_ = true;
}

// ---- records

void PortSpace::arrive(am::Token& token, void* context) {
  PortSpace& self = *static_cast<PortSpace*>(context);
  std::array<uint32_t, am::kArgumentsMax> words;
  Bytes bytes = token.payload();
  if (bytes.empty()) {
    std::copy(token.arguments().begin(), token.arguments().end(), words.begin());
    bytes = as_bytes(words.data(), token.arguments().size_bytes());
    const auto filling = bytes.empty() ? size_t{1} : std::to_integer<size_t>(bytes[0]);
    bytes = filling < bytes.size() ? bytes.subspan(1, bytes.size() - 1 - filling) : Bytes();
  }
  const auto record = decode_record(bytes);
  if (!record) {
    ++self.malformed_;
    return;
  }
  const PeerId peer = self.peer_of(token);
  if (peer == kNoPeer || !token.is_request()) return;  // no room for one more peer
  self.arrived_ = true;
  self.router_.handle(peer, *record);
}

// Returns false if the channel takes no more now.
bool PortSpace::send_record(PeerId id, PortPeer& peer, const Record& record) {
  const uint32_t size = head_size(record) + static_cast<uint32_t>(record.body.size());
  if (size < kShortBytes) {
    std::array<uint32_t, am::kArgumentsMax> words{};
    auto* const bytes = reinterpret_cast<std::byte*>(words.data());
    const uint32_t count = (size + 4) / 4;
    bytes[0] = static_cast<std::byte>(4 * count - size - 1);
    encode_record(record, bytes + 1);
    if (endpoint_->request_now(id, kShortHandler, {}, {words.data(), count}) != am::Outcome::not_sent) return true;
  } else if (const MutableBytes room = endpoint_->reserve_now(id, size, 0); !room.empty()) {
    encode_record(record, room.data());
    endpoint_->commit(kMediumHandler, size, {});
    return true;
  }
  peer.encoded.resize(size);
  encode_record(record, peer.encoded.data());
  return false;
}

// Returns false if something is left.
bool PortSpace::send_records(PeerId id, PortPeer& peer) {
  if (peer.state != PeerState::open || peer.broken) return false;
  if (!peer.encoded.empty()) {
    if (endpoint_->request_now(id, kMediumHandler, peer.encoded, {}) == am::Outcome::not_sent) return false;
    peer.encoded.clear();
  }
  Record record;
  for (uint32_t count = 0; count < kRecordsPerTurn; ++count) {
    if (!endpoint_->has_credit(id)) return false;
    if (!router_.take(id, record)) return true;
    if (!send_record(id, peer, record)) return false;
  }
  return false;
}

void PortSpace::serve(bool idle) {
  if (unconnected_ != 0) connect_peers();
  if (!unwelcome_.empty()) turn_away();
  if (any_broken_ || ++looks_ >= kLookEvery) look_at_peers();
  router_.poll(am::flow_now(), idle);
  router_.take_outgoing(outgoing_);
  for (const PeerId id : outgoing_) {
    if (id < peers_.size() && peers_[id].state != PeerState::none && !send_records(id, peers_[id])) router_.add_outgoing(id);
  }
}

uint32_t PortSpace::poll() {
  const uint32_t count = endpoint_->poll();
  arrived_ = false;
  serve(false);
  return count;
}

WaitOutcome PortSpace::wait(Nanoseconds timeout, Nanoseconds spin) {
  look_at_peers();
  serve(true);
  if (std::exchange(arrived_, false)) return WaitOutcome::ready;
  const Nanoseconds limit = unconnected_ != 0 ? kMillisecond : kNap;
  const WaitOutcome outcome = endpoint_->wait(std::min(timeout, limit), spin);
  serve(false);
  return outcome == WaitOutcome::timed_out && limit < timeout ? WaitOutcome::ready : outcome;
}

bool PortSpace::arm(Nanoseconds& limit) {
  look_at_peers();
  serve(true);
  if (std::exchange(arrived_, false)) return false;
  limit = std::min(limit, unconnected_ != 0 ? kMillisecond : kNap);
  return endpoint_->arm(limit);
}

bool PortSpace::flush(Nanoseconds timeout) {
  const Nanoseconds start = monotonic_now();
  while (!router_.is_settled()) {
    const Nanoseconds waited = monotonic_now() - start;
    if (waited >= timeout) return false;
    wait(std::min(timeout - waited, kMillisecond));
  }
  const Nanoseconds waited = monotonic_now() - start;
  return endpoint_->flush(timeout - std::min(timeout, waited));
}

}  // namespace unet::rpc
