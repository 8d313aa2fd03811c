// takeover_wires.cc - what a takeover keeps of channels over a wire: the state that two NIs share.
#include <optional>
#include <string_view>

#include "ni/service/journal_records.h"
#include "ni/service/takeover_records.h"
#include "ni/service/wire_channels.h"

namespace unet::service {

using State = ChannelRecord::State;

SharedValue WireChannels::shared_value(const Shared& shared) const {
  const PortInfo& port = ports_[shared.remote.port];
  return {.number = shared.number,
          .incarnation = shared.incarnation,
          .lost_after = shared.lost_after,
          .remote_tag = static_cast<uint32_t>(shared.remote_tag),
          .port = shared.remote.port,
          .mtu = port.mtu,
          .mac = shared.remote.mac,
          .own = port.address};
}

// The shared state of a channel, if its port still is the port that the other NI knows.
std::optional<Shared> WireChannels::shared_of(const SharedValue& value) const {
  if (value.port >= ports_.size() || ports_[value.port].address != value.own || ports_[value.port].mtu != value.mtu) return std::nullopt;
  return Shared{.remote = {value.port, value.mac},
                .incarnation = value.incarnation,
                .lost_after = value.lost_after,
                .number = value.number,
                .remote_tag = Tag{value.remote_tag}};
}

void WireChannels::save(const ChannelRecord& channel, ChannelValue& value) const {
  if (channel.state == State::connecting) {
    value.deadline = monotonic_of(signalling_.deadline_of(channel.request), now_);
  } else if (channel.fixed) {
    if (const StaticChannel* const fixed = static_channel(channel.local_tag)) {
      value.shared.remote_tag = static_cast<uint32_t>(fixed->remote_tag);
      value.shared.port = fixed->port;
      value.shared.mac = fixed->peer;
    }
  } else if (const auto shared = signalling_.shared_channel(channel.local_tag)) {
    value.shared = shared_value(*shared);
  }
}

void WireChannels::save(const RequestRecord& request, RequestValue& value) const {
  if (const auto shared = signalling_.shared_request(request.wire_request)) value.shared = shared_value(*shared);
}

uint64_t WireChannels::restore_request(const RequestValue& value) {
  const std::optional<Shared> shared = shared_of(value.shared);
  return shared ? signalling_.resume_request(*shared, now_) : 0;
}

// The configuration still has the channel, with the same other end: its endpoint must not talk to another peer than before.
bool WireChannels::is_static(const EndpointRecord& endpoint, const ChannelValue& value) const {
  const StaticChannel* const fixed = static_channel(Tag{value.local_tag});
  return fixed != nullptr && fixed->endpoint == endpoints_.names().name_of(endpoint.id) &&
         fixed->remote_tag == Tag{value.shared.remote_tag} && fixed->port == value.port && fixed->peer == value.shared.mac;
}

// The signalling machine's part of a channel over the wire, and its tag. Without them the channel is lost: resume() says so.
void WireChannels::restore(const EndpointRecord& endpoint, ChannelRecord& channel, const ChannelValue& value) {
  if (!channel.wire || channel.state == State::closed) return;
  const auto key = static_cast<uint32_t>(channel.local_tag);
  bool goes_on = channel.kind == control::ChannelKind::ni && tag_owner_.count(key) == 0;
  if (channel.fixed) {
    goes_on = goes_on && channel.state == State::open && is_static(endpoint, value);
  } else if (goes_on && (goes_on = engine_channels_.tags().reserve(channel.local_tag))) {
    goes_on = restore_signalling(endpoint, channel, value);
    if (!goes_on) engine_channels_.tags().release(channel.local_tag);
  }
  if (goes_on) {
    tag_owner_[key] = {endpoint.id, channel.number};
  } else {
    channel.local_tag = kSignallingTag;
    channel.fixed = true;  // there is no tag to give back
    channel.request = 0;
  }
}

bool WireChannels::restore_signalling(const EndpointRecord& endpoint, const ChannelRecord& channel, const ChannelValue& value) {
  const std::string_view target = channel.peer;  // name@host, if we asked
  const size_t at = target.find('@');
  const std::string_view name = target.substr(0, at), host = at == std::string_view::npos ? std::string_view() : target.substr(at + 1);
  const bool named = channel.side == 0 && control::valid_name(name) && control::valid_name(host);
  if (channel.state == State::connecting) {
    if (!named || connects_.count(channel.request) != 0) return false;
    const auto pid = static_cast<uint32_t>(clients_.at(endpoint.client)->who.pid);
    if (!signalling_.resume_connect(channel.request, host, name, channel.local_tag, pid, time_left(value.deadline), now_)) return false;
    connects_[channel.request] = {endpoint.id, channel.number};
    return true;
  }
  const std::optional<Shared> shared = shared_of(value.shared);
  const auto asked = channel.side == 0 ? Signalling::Stage::connected : Signalling::Stage::confirmed;
  const auto stage = channel.state == State::confirming ? Signalling::Stage::accepted : asked;
  if (!shared || !signalling_.resume_channel(channel.local_tag, stage, *shared, now_)) return false;
  if (named) signalling_.resume_host(host, shared->remote);
  return true;
}

bool WireChannels::resume(EndpointRecord& endpoint, ChannelRecord& channel) {
  if (channel.local_tag == kSignallingTag) return false;
  if (const auto shared = signalling_.shared_channel(channel.local_tag)) {
    channel.port = shared->remote.port;
    engine_channels_.open_wire(endpoint, channel, shared->remote_tag, shared->remote);
  } else if (channel.fixed) {
    const StaticChannel* const fixed = static_channel(channel.local_tag);
    channel.port = fixed->port;
    engine_channels_.open_wire(endpoint, channel, fixed->remote_tag, {fixed->port, fixed->peer});
  }
  return true;
}

}  // namespace unet::service
