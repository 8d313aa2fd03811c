// endpoint.cc - the parts of an endpoint's data path that are not inline: several sources, the NI's queues, direct access.
#include "unet/endpoint.h"

#include <algorithm>

#include "unet/connection.h"
#include "unet/emulated.h"
#include "unet/layer_endpoint.h"

namespace unet {
namespace {

constexpr uint32_t kLookAtSocket = 65536;  // empty polls between checks whether the NI still exists
constexpr uint32_t kPastQueueMax = 1023;   // bytes up to which a reservation is copied into a frame instead of read in place

}  // namespace

// The NI drops messages in the send queue of a closed channel. It needs microseconds to take them.
void Endpoint::linger() noexcept {
  if (emulated_ != nullptr) return emulated_->linger();
  if (queues_ == nullptr) return;
  if (embedded_ && embedded_.has_unsent()) embedded_.push();
  for (const Nanoseconds start = monotonic_now(); !queues_->all_completed() && connection_->alive();) {
    const Nanoseconds waited = monotonic_now() - start;
    if (waited > kLinger) return;
    if (embedded_) {
      embedded_.poll();
    } else if (waited > kDefaultSpin) {
      connection_->wait_activity(kMillisecond);
      connection_->process();
    }
  }
}

// ---- sending

SendOutcome Endpoint::send_ni(ChannelState& state, Channel channel, Bytes data, bool more) noexcept {
  if (!state.open) return SendOutcome::no_channel;
  if (data.size() > state.longest) return SendOutcome::too_long;
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

SendOutcome Endpoint::after_ni_send(SendOutcome outcome, bool more) noexcept {
  if (embedded_ && outcome == SendOutcome::sent) embedded_.queued(more);
  return outcome;
}

MutableBytes Endpoint::reserve(Channel channel, uint32_t length) noexcept {
  const auto index = static_cast<uint32_t>(channel);
  if (index >= channels_.size()) return emulated_ != nullptr ? emulated_->reserve(channel, length) : MutableBytes();
  if (!channels_[index].open) return {};
  if (channels_[index].sends_locally) return channels_[index].local->reserve(length);
  if (length > channels_[index].longest) return queues_->refuse(), MutableBytes();
  MutableBytes room = queues_->reserve(length);
  if (room.empty() && embedded_) {
    embedded_.poll();
    room = queues_->reserve(length);
  }
  return room;
}

SendOutcome Endpoint::post(Channel channel, uint32_t length, bool more) noexcept {
  const auto index = static_cast<uint32_t>(channel);
  if (index >= channels_.size()) return emulated_ != nullptr ? emulated_->post(channel, length, more) : SendOutcome::no_channel;
  if (!channels_[index].open) return SendOutcome::no_channel;
  if (channels_[index].sends_locally) return channels_[index].local->post(length);
  if (length > channels_[index].longest) return SendOutcome::too_long;
  if (embedded_ && length <= kPastQueueMax && length <= queues_->reserved().size() &&
      embedded_.send(channel, queues_->reserved().first(length), more)) {
    queues_->forget_reserved();
    return SendOutcome::sent;
  }
  return after_ni_send(queues_->post(channel, length), more);
}

SendOutcome LayerEndpoint::post(Channel channel, uint32_t length, std::span<const Bytes> pieces) noexcept {
  const auto index = static_cast<uint32_t>(channel);
  const bool by_ni = queues_ != nullptr && index < channels_.size() && channels_[index].open && !channels_[index].sends_locally;
  return by_ni ? after_ni_send(queues_->post(channel, length, pieces), false) : SendOutcome::no_channel;
}

MutableBytes Endpoint::peer_region(Channel channel) const noexcept {
  const auto index = static_cast<uint32_t>(channel);
  if (index >= channels_.size() || channels_[index].local == nullptr) return {};
  const Mapping& region = channels_[index].local->peer_region();
  return {region.data(), region.size()};
}

SendOutcome Endpoint::put(Channel channel, uint64_t region_offset, Bytes data, bool notify, bool more) noexcept {
  const auto index = static_cast<uint32_t>(channel);
  if (index >= channels_.size() && emulated_ != nullptr) return emulated_->put(*this, channel, region_offset, data, notify, more);
  if (index >= channels_.size() || !channels_[index].open) return SendOutcome::no_channel;
  ChannelState& state = channels_[index];
  if (state.sends_locally) {
    // The first put maps the peer's region (a round trip to the service), unless map_peer_region() has done so.
    if (!state.mapped_region && !map_peer_region(channel)) return SendOutcome::out_of_bounds;
    return state.local->put(region_offset, data, notify);
  }
  SendOutcome outcome = queues_->put(channel, region_offset, data, notify);
  if (outcome == SendOutcome::full && embedded_) {
    embedded_.poll();
    outcome = queues_->put(channel, region_offset, data, notify);
  }
  return after_ni_send(outcome, more);
}

// ---- receiving

bool Endpoint::receive_any(Message& message) noexcept {
  locals_.renew_budget();
  if (special_) {
    if (emulated_ != nullptr) return receive_emulated(message);
    // Takes arrived messages before the engine fetches more. A burst per received message would overrun the receive queue; frames left on
    // the wire slow down their sender instead.
    if (!embedded_.has_unsent() && queues_->receive(message)) return true;
    if (embedded_.has_unsent()) embedded_.push();
    embedded_.pull();
    if (connection_->event_count() == last_events_ && queues_->receive(message)) return true;
  }
  if (connection_->event_count() != last_events_) process_events();
  // The NI's queue and the local channels alternate in being checked first.
  ni_first_ = !ni_first_;
  if (ni_first_ && queues_->receive(message)) return true;
  if (locals_.receive(message)) return true;
  if (!ni_first_ && queues_->receive(message)) return true;
  queues_->flush_credits();
  // An empty poll pauses. A core that reads a line without a break delays the store that it waits for: the pause shortens a round trip from
  // 120 ns to 87 ns (docs/ARCHITECTURE.md, "Pause in an empty poll"). A turn of an embedded NI is break enough.
  if (!embedded_) spin_pause();
  if (++empty_polls_ % kLookAtSocket == 0) process_events();
  return false;
}

bool Endpoint::has_message() const noexcept {
  if (emulated_ != nullptr) return emulated_->has_message();
  return queues_->has_message() || locals_.has_message();
}

// A closed channel counts as having room, so that its sender tries again and learns of the close.
bool Endpoint::has_room(Channel channel) noexcept {
  if (emulated_ != nullptr) return emulated_->has_room(channel);
  const auto index = static_cast<uint32_t>(channel);
  if (!is_open(channel)) return true;
  return channels_[index].sends_locally ? channels_[index].local->has_room() : queues_->has_room();
}

// ---- emulated endpoints

SendOutcome Endpoint::send_emulated(Channel channel, Bytes data, bool more) noexcept {
  return emulated_ != nullptr ? emulated_->send(channel, data, more) : SendOutcome::no_channel;
}

bool Endpoint::receive_emulated(Message& message) noexcept {
  if (connection_->event_count() != last_events_) process_events();
  if (emulated_->receive(message)) return true;
  if (++empty_polls_ % kLookAtSocket == 0) process_events();
  return false;
}

void Endpoint::release_emulated(const Message& message) noexcept {
  if (emulated_ != nullptr) emulated_->release(message);
}

// ---- inspection

std::vector<std::pair<std::string_view, uint64_t>> Endpoint::counters() const {
  if (emulated_ != nullptr) return emulated_->counters();
  std::vector<std::pair<std::string_view, uint64_t>> result;
  for (size_t i = 0; i < kEndpointCounters; ++i) {
    result.emplace_back(kEndpointCounterNames[i], queues_->counter(static_cast<EndpointCounter>(i)));
  }
  add_local_counters(result, locals_.counters());
  result.emplace_back("gathered_messages", queues_->gathered());
  return result;
}

void Endpoint::add_local_counters(std::vector<std::pair<std::string_view, uint64_t>>& to, const LocalCounters& sum) {
  to.emplace_back("local_sent_messages", sum.sent_messages);
  to.emplace_back("local_sent_bytes", sum.sent_bytes);
  to.emplace_back("local_received_messages", sum.received_messages);
  to.emplace_back("local_received_bytes", sum.received_bytes);
  to.emplace_back("local_bad_descriptor", sum.bad_descriptor);
  to.emplace_back("local_wakeups", sum.wakeups);
}

}  // namespace unet
