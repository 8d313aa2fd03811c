// wire_channels.cc - channels over a wire, from the tag to the end, and the way of signals.
#include "ni/service/wire_channels.h"

#include <algorithm>
#include <string>

#include "unet/base/check.h"

namespace unet::service {
namespace {

SignallingOptions signalling_options(const ServiceOptions& options, const Ports& ports) {
  SignallingOptions signalling{.host = options.host,
                               .port_mtus = {},
                               .incarnation = options.incarnation,
                               .lost_after = options.lost_after,
                               .peers = options.peers};
  for (const PortInfo& port : ports.all()) signalling.port_mtus.push_back(port.mtu);
  return signalling;
}

}  // namespace

WireChannels::WireChannels(const ServiceOptions& options, const Ports& ports, const Nanoseconds& now, ServiceCounters& counters,
                           EngineCommands& commands, EngineChannels& engine_channels, EndpointEngines& engines,
                           const Clients& clients, const Endpoints& endpoints)
    : options_(options), ports_(ports), now_(now), counters_(counters), commands_(commands), engine_channels_(engine_channels),
      engines_(engines), clients_(clients), endpoints_(endpoints), signalling_(signalling_options(options, ports)) {}

Status WireChannels::reserve_static() {
  for (const StaticChannel& channel : options_.channels) {
    const std::string what = "static channel of endpoint " + in_quotes(channel.endpoint) + ": ";
    if (channel.port >= ports_.size()) {
      return fail(Errc::invalid_argument, what + "port " + std::to_string(channel.port) + " does not exist; this network interface has " +
                                              std::to_string(ports_.size()) + " (the first is 0)");
    }
    if (!control::valid_name(channel.endpoint)) return fail(Errc::invalid_argument, what + name_rule(channel.endpoint));
    if (TagTable::index_of(channel.remote_tag) == 0) {
      return fail(Errc::invalid_argument, what + "remote_tag: its low 16 bits must not be 0");
    }
    if (!engine_channels_.tags().reserve(channel.local_tag)) {
      return fail(Errc::invalid_argument, what + "local_tag " + std::to_string(static_cast<uint32_t>(channel.local_tag)) +
                                              ": its low 16 bits must not be 0 nor those of another static channel");
    }
  }
  return {};
}

const StaticChannel* WireChannels::static_channel(Tag local_tag) const {
  const auto at = std::find_if(options_.channels.begin(), options_.channels.end(),
                               [&](const StaticChannel& each) { return each.local_tag == local_tag; });
  return at == options_.channels.end() ? nullptr : &*at;
}

void WireChannels::take_tag(const EndpointRecord& endpoint, ChannelRecord& channel, Tag tag) {
  channel.kind = control::ChannelKind::ni;
  channel.wire = true;
  channel.local_tag = tag;
  tag_owner_[static_cast<uint32_t>(tag)] = {endpoint.id, channel.number};
}

Status WireChannels::connect(const EndpointRecord& endpoint, ChannelRecord& channel, std::string_view host, std::string_view name,
                             Nanoseconds timeout) {
  const std::optional<Tag> tag = engine_channels_.tags().allocate();
  if (!tag) return tl::unexpected(EngineChannels::no_tags());
  take_tag(endpoint, channel, *tag);
  const auto pid = static_cast<uint32_t>(clients_.at(endpoint.client)->who.pid);
  channel.request = signalling_.connect(host, name, *tag, pid, timeout, now_);
  connects_[channel.request] = {endpoint.id, channel.number};
  return {};
}

Status WireChannels::accept(EndpointRecord& endpoint, ChannelRecord& channel, uint64_t wire_request) {
  const std::optional<Tag> tag = engine_channels_.tags().allocate();
  if (!tag) return tl::unexpected(EngineChannels::no_tags());
  take_tag(endpoint, channel, *tag);
  const Result<Signalling::Accepted> accepted = signalling_.accept(wire_request, *tag, now_);
  if (!accepted) return tl::unexpected(accepted.error());
  channel.state = ChannelRecord::State::confirming;
  channel.port = accepted->remote.port;
  engine_channels_.open_wire(endpoint, channel, accepted->remote_tag, accepted->remote);
  return {};
}

void WireChannels::open_static(EndpointRecord& endpoint, ChannelRecord& channel, const StaticChannel& fixed) {
  take_tag(endpoint, channel, fixed.local_tag);
  channel.state = ChannelRecord::State::open;
  channel.fixed = true;
  channel.port = fixed.port;
  channel.peer = "tag " + std::to_string(static_cast<uint32_t>(fixed.remote_tag));
  engine_channels_.open_wire(endpoint, channel, fixed.remote_tag, {fixed.port, fixed.peer});
}

WireChannels::Found WireChannels::open_connected(const Connected& event) {
  const Found found = take_connect(event.connect);
  found.channel.port = event.remote.port;
  engine_channels_.open_wire(found.endpoint, found.channel, event.remote_tag, event.remote);
  return found;
}

WireChannels::Found WireChannels::take_connect(uint64_t connect) {
  const Found found = at(connects_.at(connect));
  connects_.erase(connect);
  return found;
}

WireChannels::Found WireChannels::at(const Place& place) const {
  EndpointRecord& endpoint = *endpoints_.at(place.first);
  return {endpoint, endpoint.channels.at(place.second)};
}

std::optional<WireChannels::Found> WireChannels::find(Tag local_tag) const {
  const auto owner = tag_owner_.find(static_cast<uint32_t>(local_tag));
  if (owner == tag_owner_.end()) return std::nullopt;
  return at(owner->second);
}

void WireChannels::reject(uint64_t wire_request, const Error& error) { signalling_.reject(wire_request, error.code, error.text, now_); }

void WireChannels::cancel(const ChannelRecord& channel) {
  signalling_.cancel(channel.request, now_);
  release(channel);
}

void WireChannels::close(const ChannelRecord& channel, control::CloseReason reason) {
  if (!channel.fixed) signalling_.close(channel.local_tag, reason, now_);
  release(channel);
}

void WireChannels::release(const ChannelRecord& channel) {
  tag_owner_.erase(static_cast<uint32_t>(channel.local_tag));
  if (!channel.fixed) engine_channels_.tags().release(channel.local_tag);
  connects_.erase(channel.request);
}

void WireChannels::handle_signal(const engine::SignalReceived& signal) {
  UNET_CHECK(signal.length <= engine::kSignalMax);
  signalling_.handle_signal({signal.port, signal.from}, Bytes(signal.bytes.data(), signal.length), now_);
}

bool WireChannels::handle_timeout() {
  if (signalling_.next_timeout() > now_) return false;
  signalling_.handle_timeout(now_);
  return true;
}

void WireChannels::send_signals() {
  if (others_unasked_) return;
  while (const std::optional<SignalTransmit> out = signalling_.poll_transmit()) {
    const engine::SendSignal signal{.port = out->to.port, .to = out->to.mac, .length = out->length, .bytes = out->bytes};
    if (!commands_.push_signal(ports_[signal.port].engine, engines_.of(signal.port), signal)) ++counters_.dropped_signals;
  }
}

Nanoseconds WireChannels::next_timeout() const noexcept {
  const Nanoseconds next = signalling_.next_timeout();
  return others_unasked_ ? std::min(next, now_ + kMillisecond) : next;
}

void WireChannels::stop() {
  others_unasked_ = false;
  signalling_.goodbye();
}

// After a takeover, signals wait until the engine has taken all commands of the takeover: they may be more than its mailbox holds, and
// signals that find no room are lost. Newer commands of clients do not count, or a busy client could keep us silent: once the last command
// of the takeover is in the mailbox, an engine that is never found without commands gets kMailboxTime. But while commands wait for room,
// a signal would be dropped.
void WireChannels::ask_others() {
  constexpr Nanoseconds kMailboxTime = 50 * kMillisecond;
  if (!others_unasked_ || !commands_.counted_down()) return;
  if (ask_others_by_ == 0) ask_others_by_ = now_ + kMailboxTime;
  if (commands_.waiting() != 0 || (!commands_.has_taken_all(0) && now_ < ask_others_by_)) return;
  others_unasked_ = false;
  signalling_.resumed(now_);
}

}  // namespace unet::service
