// service_wire.cc - channels over a wire: between the requests of clients and the signalling machine.
#include <algorithm>

#include "ni/service/log.h"
#include "ni/service/service.h"
#include "unet/base/bytes.h"
#include "unet/base/check.h"
#include "unet/base/probe.h"

namespace unet::service {

using control::ChannelKind;
using control::Op;
using State = ChannelRecord::State;

Status Service::reserve_static_channels() {
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

Status Service::connect_wire(EndpointRecord& endpoint, const control::Connect& packet, std::string_view name,
                             std::string_view host) {
  if (ports_.empty()) {
    return fail(Errc::unavailable, "this network interface has no wire, so host " + in_quotes(host) +
                                       " cannot be reached: give it one (--port)");
  }
  const Result<ChannelRecord*> made = new_channel(endpoint, 0);
  if (!made) return tl::unexpected(made.error());
  ChannelRecord& channel = **made;
  const std::optional<Tag> tag = engine_channels_.tags().allocate();
  if (!tag) {
    end_channel(endpoint, channel.number, control::CloseReason::closed_by_peer);  // not yet a wire's
    return tl::unexpected(EngineChannels::no_tags());
  }
  channel.kind = ChannelKind::ni;
  channel.wire = true;
  channel.local_tag = *tag;
  channel.peer = std::string(packet.target.view());
  channel.cookie = packet.header.cookie;
  const uint32_t timeout_ms = packet.timeout_ms == 0 ? kConnectMsDefault : std::min(packet.timeout_ms, kConnectMsMax);
  const auto pid = static_cast<uint32_t>(clients_.at(endpoint.client)->who.pid);
  channel.request = signalling_->connect(host, name, *tag, pid, timeout_ms * kMillisecond, now_);
  connects_[channel.request] = {endpoint.id, channel.number};
  tag_owner_[static_cast<uint32_t>(*tag)] = {endpoint.id, channel.number};
  return {};
}

Status Service::accept_wire(EndpointRecord& endpoint, const RequestRecord& request, const control::Header& header) {
  const Result<ChannelRecord*> made = new_channel(endpoint, 0);
  const Tag tag = made ? engine_channels_.tags().allocate().value_or(kSignallingTag) : kSignallingTag;  // no channel has that one
  remove_request(request.id);
  if (tag == kSignallingTag) {
    const Error error = made ? EngineChannels::no_tags() : made.error();
    if (made) end_channel(endpoint, (*made)->number, control::CloseReason::closed_by_peer);
    fail_connect(request, error);
    return tl::unexpected(error);
  }
  ChannelRecord& channel = **made;
  channel.kind = ChannelKind::ni;
  channel.wire = true;
  channel.side = 1;
  channel.local_tag = tag;
  channel.peer = request.from;
  channel.cookie = header.cookie;
  tag_owner_[static_cast<uint32_t>(tag)] = {endpoint.id, channel.number};
  const Result<Signalling::Accepted> accepted = signalling_->accept(request.wire_request, tag, now_);
  if (!accepted) {
    end_channel(endpoint, channel.number, control::CloseReason::closed_by_peer);
    return tl::unexpected(accepted.error());
  }
  channel.state = State::confirming;
  channel.port = accepted->remote.port;
  engine_channels_.open_wire(endpoint, channel, accepted->remote_tag, accepted->remote);
  return {};
}

void Service::open_static_channels(EndpointRecord& endpoint, std::string_view name) {
  for (const StaticChannel& fixed : options_.channels) {
    if (fixed.endpoint != name || tag_owner_.count(static_cast<uint32_t>(fixed.local_tag)) != 0) continue;
    ClientRecord& client = *clients_.at(endpoint.client);
    const Result<ChannelRecord*> made = new_channel(endpoint, 0);
    if (!made) {
      if (now_ < next_static_log_) continue;  // a client can bind as often as it likes
      next_static_log_ = now_ + kSecond;
      log::warn("static channel {} of {}: {}", static_cast<uint32_t>(fixed.local_tag), name, made.error().text);
      continue;
    }
    ChannelRecord& channel = **made;
    channel.kind = ChannelKind::ni;
    channel.state = State::open;
    channel.wire = true;
    channel.fixed = true;
    UNET_PROBE(channel_open, endpoint.id, channel.number, static_cast<int>(channel.kind));
    channel.local_tag = fixed.local_tag;
    channel.port = fixed.port;
    channel.peer = "tag " + std::to_string(static_cast<uint32_t>(fixed.remote_tag));
    tag_owner_[static_cast<uint32_t>(fixed.local_tag)] = {endpoint.id, channel.number};
    engine_channels_.open_wire(endpoint, channel, fixed.remote_tag, {fixed.port, fixed.peer});
    auto event = zeroed<control::ChannelOpened>();
    event.header = {.op = Op::channel_opened, .endpoint = endpoint.id, .cookie = 0};
    event.channel = info_of(endpoint, channel);
    clients_.send_packet(client, event);
  }
}

// The endpoint gave up its name: the channels that came with it go to the next one that binds it.
void Service::close_static_channels(EndpointRecord& endpoint) {
  for (auto& [number, channel] : endpoint.channels) {
    if (channel.fixed) tell_closed(endpoint, channel, control::CloseReason::closed_by_peer);
  }
}

void Service::run_signalling() {
  if (signalling_->next_timeout() <= now_) {
    signalling_->handle_timeout(now_);
    worked_ = true;
  }
  while (const std::optional<SignallingEvent> event = signalling_->poll_event()) {
    std::visit([this](const auto& e) { on_signal_event(e); }, *event);
  }
}

// Not before what they say is in the journal: an NI that takes over must know of it.
void Service::send_signals() {
  if (others_unasked_) return;
  while (const std::optional<SignalTransmit> out = signalling_->poll_transmit()) {
    push_signal({.port = out->to.port, .to = out->to.mac, .length = out->length, .bytes = out->bytes});
  }
}

// After a takeover, signals wait until the engine has taken all commands of the takeover: they may be more than its mailbox holds, and
// signals that find no room are lost. Newer commands of clients do not count, or a busy client could keep us silent: once the last command
// of the takeover is in the mailbox, an engine that is never found without commands gets kMailboxTime. But while commands wait for room,
// a signal would be dropped.
void Service::ask_others() {
  constexpr Nanoseconds kMailboxTime = 50 * kMillisecond;
  if (!others_unasked_ || !commands_.counted_down()) return;
  if (ask_others_by_ == 0) ask_others_by_ = now_ + kMailboxTime;
  if (backlogged() || (!commands_.has_taken_all(0) && now_ < ask_others_by_)) return;
  others_unasked_ = false;
  signalling_->resumed(now_);
}

ChannelRecord* Service::channel_of_tag(Tag tag, EndpointRecord*& endpoint) {
  const auto at = tag_owner_.find(static_cast<uint32_t>(tag));
  if (at == tag_owner_.end()) return nullptr;
  endpoint = endpoints_.at(at->second.first);
  return &endpoint->channels.at(at->second.second);
}

void Service::on_signal_event(const Connected& event) {
  const auto [endpoint_id, number] = connects_.at(event.connect);
  EndpointRecord& endpoint = *endpoints_.at(endpoint_id);
  ChannelRecord& channel = endpoint.channels.at(number);
  connects_.erase(event.connect);
  channel.port = event.remote.port;
  engine_channels_.open_wire(endpoint, channel, event.remote_tag, event.remote);
  finish_connect(endpoint, channel, Op::connect, channel.cookie, {});
}

void Service::on_signal_event(const ConnectFailed& event) {
  const auto [endpoint_id, number] = connects_.at(event.connect);
  EndpointRecord& endpoint = *endpoints_.at(endpoint_id);
  ChannelRecord& channel = endpoint.channels.at(number);
  const control::Header header{.op = Op::connect, .endpoint = endpoint.id, .cookie = channel.cookie};
  end_channel(endpoint, number, control::CloseReason::closed_by_peer);  // cancel() of a connect that ended does nothing
  clients_.fail_request(*clients_.at(endpoint.client), header, event.error);
}

void Service::on_signal_event(const Requested& event) {
  const std::optional<uint32_t> target = endpoints_.names().find(event.target);
  Status status = operation_.takes_more();
  if (status && target) {
    RequestRecord request;
    request.id = requests_.take_id();
    request.target = *target;
    request.wire = true;
    request.wire_request = event.request;
    request.from = event.host;
    status = offer(request, -1, static_cast<int32_t>(event.pid), false);
  } else if (status) {
    status = fail(Errc::not_found, "no endpoint is bound to the name " + in_quotes(event.target) + " on host " + in_quotes(options_.host));
  }
  if (!status) signalling_->reject(event.request, status.error().code, status.error().text, now_);
}

void Service::on_signal_event(const Withdrawn& event) {
  if (const auto id = requests_.of_wire(event.request)) remove_request(*id);
}

void Service::on_signal_event(const Confirmed& event) {
  EndpointRecord* endpoint = nullptr;
  ChannelRecord* channel = channel_of_tag(event.local_tag, endpoint);
  if (channel == nullptr || channel->state != State::confirming) return;
  finish_connect(*endpoint, *channel, Op::accept, channel->cookie, {});
}

void Service::on_signal_event(const ChannelLost& event) {
  EndpointRecord* endpoint = nullptr;
  ChannelRecord* channel = channel_of_tag(event.local_tag, endpoint);
  if (channel == nullptr) return;
  if (channel->state == State::open) return tell_closed(*endpoint, *channel, event.reason);
  UNET_CHECK(channel->state == State::confirming);
  const control::Header header{.op = Op::accept, .endpoint = endpoint->id, .cookie = channel->cookie};
  end_channel(*endpoint, channel->number, event.reason);  // close() of a forgotten tag does nothing
  clients_.fail_request(*clients_.at(endpoint->client), header,
               {Errc::disconnected, "the other side went away while the channel was being opened"});
}

}  // namespace unet::service
