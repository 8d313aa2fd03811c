// channels_wire.cc - channels over a wire: between the requests of clients and the signalling machine.
#include "ni/service/channels.h"
#include "ni/service/log.h"
#include "unet/base/bytes.h"
#include "unet/base/check.h"
#include "unet/base/probe.h"

namespace unet::service {

using control::Op;
using State = ChannelRecord::State;

Status Channels::connect_wire(EndpointRecord& endpoint, const control::Connect& packet, std::string_view name,
                             std::string_view host) {
  if (ports_.empty()) {
    return fail(Errc::unavailable, "this network interface has no wire, so host " + in_quotes(host) +
                                       " cannot be reached: give it one (--port)");
  }
  const Result<ChannelRecord*> made = create(endpoint, 0);
  if (!made) return tl::unexpected(made.error());
  ChannelRecord& channel = **made;
  channel.peer = std::string(packet.target.view());
  channel.cookie = packet.header.cookie;
  const Status status = wires_.connect(endpoint, channel, host, name, connect_timeout(packet));
  if (!status) end(endpoint, channel.number, control::CloseReason::closed_by_peer);
  return status;
}

Status Channels::accept_wire(EndpointRecord& endpoint, const RequestRecord& request, const control::Header& header) {
  const Result<ChannelRecord*> made = create(endpoint, 0);
  requests_.remove(request.id);
  Status status = made ? Status{} : Status(tl::unexpected(made.error()));
  if (made) {
    ChannelRecord& channel = **made;
    channel.side = 1;
    channel.peer = request.from;
    channel.cookie = header.cookie;
    status = wires_.accept(endpoint, channel, request.wire_request);
    if (!status) end(endpoint, channel.number, control::CloseReason::closed_by_peer);
  }
  if (!status) fail_connect(request, status.error());
  return status;
}

void Channels::open_static(EndpointRecord& endpoint, std::string_view name) {
  for (const StaticChannel& fixed : wires_.of_configuration()) {
    if (fixed.endpoint != name || wires_.find(fixed.local_tag)) continue;
    ClientRecord& client = *clients_.at(endpoint.client);
    const Result<ChannelRecord*> made = create(endpoint, 0);
    if (!made) {
      if (now_ < next_static_log_) continue;  // a client can bind as often as it likes
      next_static_log_ = now_ + kSecond;
      log::warn("static channel {} of {}: {}", static_cast<uint32_t>(fixed.local_tag), name, made.error().text);
      continue;
    }
    ChannelRecord& channel = **made;
    wires_.open_static(endpoint, channel, fixed);
    UNET_PROBE(channel_open, endpoint.id, channel.number, static_cast<int>(channel.kind));
    auto event = zeroed<control::ChannelOpened>();
    event.header = {.op = Op::channel_opened, .endpoint = endpoint.id, .cookie = 0};
    event.channel = info_of(endpoint, channel);
    clients_.send_packet(client, event);
  }
}

void Channels::close_static(EndpointRecord& endpoint) {
  for (auto& [number, channel] : endpoint.channels) {
    if (channel.fixed) tell_closed(endpoint, channel, control::CloseReason::closed_by_peer);
  }
}

bool Channels::run_signalling() {
  const bool due = wires_.handle_timeout();
  while (const std::optional<SignallingEvent> event = wires_.signalling().poll_event()) {
    std::visit([this](const auto& e) { on_signal_event(e); }, *event);
  }
  return due;
}

void Channels::on_signal_event(const Connected& event) {
  const auto [endpoint, channel] = wires_.open_connected(event);
  finish_connect(endpoint, channel, Op::connect, channel.cookie, {});
}

void Channels::on_signal_event(const ConnectFailed& event) {
  const auto [endpoint, channel] = wires_.take_connect(event.connect);
  const control::Header header{.op = Op::connect, .endpoint = endpoint.id, .cookie = channel.cookie};
  end(endpoint, channel.number, control::CloseReason::closed_by_peer);  // cancel() of a connect that ended does nothing
  clients_.fail_request(*clients_.at(endpoint.client), header, event.error);
}

void Channels::on_signal_event(const Requested& event) {
  const std::optional<uint32_t> target = endpoints_.names().find(event.target);
  Status status = operation_.takes_more();
  if (status && target) {
    RequestRecord request;
    request.id = requests_.take_id();
    request.target = *target;
    request.wire = true;
    request.wire_request = event.request;
    request.from = event.host;
    status = requests_.offer(request, -1, static_cast<int32_t>(event.pid), false);
  } else if (status) {
    status = fail(Errc::not_found, "no endpoint is bound to the name " + in_quotes(event.target) + " on host " + in_quotes(options_.host));
  }
  if (!status) wires_.reject(event.request, status.error());
}

void Channels::on_signal_event(const Withdrawn& event) {
  if (const auto id = requests_.of_wire(event.request)) requests_.remove(*id);
}

void Channels::on_signal_event(const Confirmed& event) {
  const auto found = wires_.find(event.local_tag);
  if (!found || found->channel.state != State::confirming) return;
  finish_connect(found->endpoint, found->channel, Op::accept, found->channel.cookie, {});
}

void Channels::on_signal_event(const ChannelLost& event) {
  const auto found = wires_.find(event.local_tag);
  if (!found) return;
  auto& [endpoint, channel] = *found;
  if (channel.state == State::open) return tell_closed(endpoint, channel, event.reason);
  UNET_CHECK(channel.state == State::confirming);
  const control::Header header{.op = Op::accept, .endpoint = endpoint.id, .cookie = channel.cookie};
  end(endpoint, channel.number, event.reason);  // close() of a forgotten tag does nothing
  clients_.fail_request(*clients_.at(endpoint.client), header,
                        {Errc::disconnected, "the other side went away while the channel was being opened"});
}

}  // namespace unet::service
