// own_channels.cc - an endpoint's own channels: sending and receiving beyond the inline functions, channels that open and close.
#include "unet/own_channels.h"

#include <string>
#include <utility>

#include "unet/connection.h"
#include "unet/endpoint.h"

namespace unet {
namespace {

constexpr uint32_t kPastQueueMax = 1023;  // bytes up to which a reservation is copied into a frame instead of read in place

}  // namespace

OwnChannels::OwnChannels(Connection& connection, uint32_t endpoint, std::unique_ptr<NiQueues> queues) noexcept
    : queues_(std::move(queues)),
      embedded_(connection.embedded(), connection.embedded_handle(), endpoint),
      connection_(&connection),
      endpoint_(endpoint) {}

// ---- sending

SendOutcome OwnChannels::send(Channel channel, Bytes data, bool more) noexcept {
  const State* const to = find(channel);
  if (to == nullptr) return SendOutcome::no_channel;
  return to->open_local != nullptr ? to->open_local->send(data) : send_ni(*to, channel, data, more);
}

SendOutcome OwnChannels::send_ni(const State& to, Channel channel, Bytes data, bool more) noexcept {
  if (!to.open) return SendOutcome::no_channel;
  if (data.size() > to.longest) return SendOutcome::too_long;
  const auto length = static_cast<uint32_t>(data.size());
  if (embedded_ && embedded_.send(channel, {data.data(), length}, more)) return SendOutcome::sent;
  SendOutcome outcome = queues_->send(channel, data.data(), length);
  if (!embedded_) return outcome;
  if (outcome == SendOutcome::full) {
    embedded_.poll();
    outcome = queues_->send(channel, data.data(), length);
  }
  return after_ni_send(outcome, more);
}

SendOutcome OwnChannels::after_ni_send(SendOutcome outcome, bool more) noexcept {
  if (embedded_ && outcome == SendOutcome::sent) embedded_.queued(more);
  return outcome;
}

MutableBytes OwnChannels::reserve(Channel channel, uint32_t length) noexcept {
  const State* const to = find(channel);
  if (to == nullptr || !to->open) return {};
  if (to->open_local != nullptr) return to->open_local->reserve(length);
  if (length > to->longest) return queues_->refuse(), MutableBytes();
  MutableBytes room = queues_->reserve(length);
  if (room.empty() && embedded_) {
    embedded_.poll();
    room = queues_->reserve(length);
  }
  return room;
}

SendOutcome OwnChannels::post(Channel channel, uint32_t length, bool more) noexcept {
  const State* const to = find(channel);
  if (to == nullptr || !to->open) return SendOutcome::no_channel;
  if (to->open_local != nullptr) return to->open_local->post(length);
  if (length > to->longest) return SendOutcome::too_long;
  if (embedded_ && length <= kPastQueueMax && length <= queues_->reserved().size() &&
      embedded_.send(channel, queues_->reserved().first(length), more)) {
    queues_->forget_reserved();
    return SendOutcome::sent;
  }
  return after_ni_send(queues_->post(channel, length), more);
}

SendOutcome OwnChannels::post(Channel channel, uint32_t length, std::span<const Bytes> pieces) noexcept {
  const State* const to = find(channel);
  const bool by_ni = to != nullptr && to->open && to->open_local == nullptr;
  return by_ni ? after_ni_send(queues_->post(channel, length, pieces), false) : SendOutcome::no_channel;
}

SendOutcome OwnChannels::put(Channel channel, uint64_t region_offset, Bytes data, bool notify, bool more) noexcept {
  State* const to = find(channel);
  if (to == nullptr || !to->open) return SendOutcome::no_channel;
  if (to->open_local != nullptr) {
    // The first put maps the peer's region (a round trip to the service), unless map_peer_region() has done so.
    if (!to->mapped_region && !map_peer_region(channel)) return SendOutcome::out_of_bounds;
    return to->open_local->put(region_offset, data, notify);
  }
  SendOutcome outcome = queues_->put(channel, region_offset, data, notify);
  if (outcome == SendOutcome::full && embedded_) {
    embedded_.poll();
    outcome = queues_->put(channel, region_offset, data, notify);
  }
  return after_ni_send(outcome, more);
}

bool OwnChannels::has_message() const noexcept { return queues_->has_message() || locals_.has_message(); }

bool OwnChannels::has_room(Channel channel) noexcept {
  if (!traits(channel).open) return true;
  LocalChannel* const to = open_local(channel);
  return to != nullptr ? to->has_room() : queues_->has_room();
}

// The NI needs microseconds to take messages.
void OwnChannels::linger() noexcept {
  if (embedded_.has_unsent()) embedded_.push();
  for (const Nanoseconds start = monotonic_now(); !queues_->all_completed() && connection_->alive();) {
    const Nanoseconds waited = monotonic_now() - start;
    if (waited > Endpoint::kLinger) return;
    if (embedded_) {
      embedded_.poll();
    } else if (waited > Endpoint::kDefaultSpin) {
      connection_->wait_activity(kMillisecond);
      connection_->process();
    }
  }
}

// ---- receiving

bool OwnChannels::receive_or_fetch(Message& message) noexcept {
  locals_.renew_budget();
  if (embedded_.has_unsent()) {
    embedded_.push();
  } else if (queues_->receive(message)) {
    return true;
  }
  embedded_.pull();
  return false;
}

void OwnChannels::release(const Message& message) noexcept {
  if (!message.from_local) return queues_->release(message);
  // If the channel was closed before, its messages are gone, too.
  if (LocalChannel* const from = local(message.channel); from != nullptr) from->release(message);
}

void OwnChannels::flush_credits() noexcept {
  queues_->flush_credits();
  locals_.flush_credits();
}

// ---- channels

std::vector<Channel> OwnChannels::ni_channels() const {
  std::vector<Channel> list;
  for (uint32_t i = 0; i < channels_.size(); ++i) {
    if (channels_[i].kind == control::ChannelKind::ni) list.push_back(Channel{i});
  }
  return list;
}

Result<Channel> OwnChannels::adopt(const control::ChannelInfo& info, std::vector<Descriptor> descriptors) {
  const Channel channel{info.channel};
  if (info.known != 0) {
    // Not "not_found": the port has a claim, and its other owners take connections.
    if (traits(channel).kind != control::ChannelKind::local) return fail(Errc::refused, "the channel has been closed meanwhile");
    return channel;
  }
  State state;
  state.kind = info.kind;
  state.open = true;
  state.same_user = info.same_user == 1;
  state.peer_pid = info.peer_pid;
  state.over_wire = info.wire_mtu != 0;
  if (info.kind == control::ChannelKind::local) {
    if (descriptors.size() != 3) return fail(Errc::protocol, "the NI sent a local channel without its memory");
    auto local = LocalChannel::open(channel, info, std::move(descriptors[0]), std::move(descriptors[1]), std::move(descriptors[2]));
    if (!local) return tl::unexpected(local.error());
    state.local = std::move(*local);
    state.local->set_own_region(region_.size());
    state.open_local = state.local.get();
  }
  if (channels_.size() <= info.channel) channels_.resize(info.channel + 1);
  State& place = channels_[info.channel];
  clear(place);
  place = std::move(state);
  if (place.local != nullptr) {
    locals_.add(*place.local);
    epoll_.add(place.local->descriptor());
  }
  return channel;
}

bool OwnChannels::end(Channel channel) noexcept {
  State* const state = find(channel);
  if (state == nullptr) return false;
  state->open_local = nullptr;
  return std::exchange(state->open, false);
}

bool OwnChannels::forget(Channel channel) noexcept {
  State* const state = find(channel);
  if (state == nullptr || state->kind == control::ChannelKind::none) return false;
  if (state->open && state->open_local == nullptr) linger();
  clear(*state);
  return true;
}

void OwnChannels::clear(State& state) noexcept {
  if (state.local != nullptr) {
    locals_.remove(*state.local);
    epoll_.remove(state.local->descriptor());
  }
  state = State{};
}

// ---- direct access

Result<MutableBytes> OwnChannels::expose(uint64_t bytes) {
  if (region_) return fail(Errc::already_exists, "this endpoint exposes a region already");
  if (bytes == 0 || bytes > kRegionMax) {
    return fail(Errc::invalid_argument, "an exposed region has 1 to " + std::to_string(kRegionMax) + " bytes");
  }
  auto request = request_for<control::Expose>(control::Op::expose, endpoint_);
  request.bytes = bytes;
  auto answer = connection_->call(request);
  if (!answer) return tl::unexpected(answer.error());
  if (answer->descriptors.size() != 1) return fail(Errc::protocol, "the NI sent no region");
  auto mapping = Mapping::map(answer->descriptors[0].get(), bytes);
  if (!mapping) return tl::unexpected(mapping.error());
  region_ = std::move(*mapping);
  for (LocalChannel* local : locals_.channels()) local->set_own_region(bytes);
  return region_.bytes();
}

Result<uint64_t> OwnChannels::map_peer_region(Channel channel) {
  if (local(channel) == nullptr) {
    return fail(Errc::not_found, "channel " + std::to_string(static_cast<uint32_t>(channel)) + " is no local channel");
  }
  return map_region(*find(channel), channel, endpoint_);
}

Result<uint64_t> OwnChannels::map_region(State& state, Channel channel, uint32_t endpoint) {
  if (state.mapped_region) return state.local->peer_region().size();
  auto request = request_for<control::PeerRegion>(control::Op::peer_region, endpoint);
  request.channel = static_cast<uint32_t>(channel);
  auto answer = connection_->call(request);
  if (!answer) return tl::unexpected(answer.error());
  if (answer->descriptors.size() != 1) return fail(Errc::protocol, "the NI sent no region");
  auto mapping = Mapping::map(answer->descriptors[0].get(), answer->reply.region.bytes);
  if (!mapping) return tl::unexpected(mapping.error());
  state.local->set_peer_region(std::move(*mapping));
  state.mapped_region = true;
  return state.local->peer_region().size();
}

// ---- inspection

ChannelSet::Counters OwnChannels::counters() const {
  Counters result;
  for (size_t i = 0; i < kEndpointCounters; ++i) {
    result.emplace_back(kEndpointCounterNames[i], queues_->counter(static_cast<EndpointCounter>(i)));
  }
  add_local_counters(result, locals_.counters());
  result.emplace_back("gathered_messages", queues_->gathered());
  return result;
}

void OwnChannels::add_local_counters(Counters& to, const LocalCounters& sum) {
  to.emplace_back("local_sent_messages", sum.sent_messages);
  to.emplace_back("local_sent_bytes", sum.sent_bytes);
  to.emplace_back("local_received_messages", sum.received_messages);
  to.emplace_back("local_received_bytes", sum.received_bytes);
  to.emplace_back("local_bad_descriptor", sum.bad_descriptor);
  to.emplace_back("local_wakeups", sum.wakeups);
}

}  // namespace unet
