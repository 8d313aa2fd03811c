// capture_requests.cc - rights to a capture, its start and its end.
#include "ni/service/capture_requests.h"

#include <bit>
#include <string>

#include "unet/base/bytes.h"
#include "unet/capture_memory.h"

namespace unet::service {
namespace {

constexpr uint32_t kSnapMin = 14;

}  // namespace

Status CaptureRequests::may_capture(ClientRecord& client, const control::CaptureStart& packet) {
  const auto wrong = [](const std::string& why) { return fail(Errc::invalid_argument, "capture: " + why); };
  if (!std::has_single_bit(packet.bytes) || packet.bytes < kCaptureBytesMin || packet.bytes > kCaptureBytesMax) {
    return wrong("the buffer is a power of two of " + std::to_string(kCaptureBytesMin) + " to " + std::to_string(kCaptureBytesMax) +
                 " bytes");
  }
  if (packet.snap_length < kSnapMin) return wrong("at least " + std::to_string(kSnapMin) + " bytes are kept of a frame");
  if (packet.port < -1 || packet.port >= static_cast<int32_t>(ports_.size())) {
    return wrong("there is no port " + std::to_string(packet.port) + ": this network interface has " + std::to_string(ports_.size()));
  }
  const bool operates = operation_.is_operator(client.who);
  if (packet.header.endpoint == Captures::kAny) {
    if (packet.channel != Captures::kAny) return wrong("a channel is one of an endpoint: say which endpoint");
    if (operates) return {};
    return fail(Errc::not_permitted, "only root and user " + std::to_string(options_.own_user) +
                                         ", whose network interface this is, may capture what is others'; name an endpoint of your own");
  }
  const EndpointRecord* endpoint = endpoints_.at(packet.header.endpoint);
  const bool known = endpoint != nullptr && !endpoint->detaching &&
                     (operates || owner_of(*clients_.at(endpoint->client)) == owner_of(client));
  if (known && endpoint->carrier) {
    return wrong("endpoint " + std::to_string(endpoint->id) + " is emulated and has no queues: name endpoint " +
                 std::to_string(*endpoint->carrier) + ", which carries it" +
                 (packet.channel == Captures::kAny ? "" : ", and channel " + std::to_string(packet.channel) + " of that"));
  }
  // One text for a free id and for another user's endpoint: ids of others must not be probed.
  if (known) return {};
  return fail(Errc::not_found,
              "endpoint " + std::to_string(packet.header.endpoint) + (operates ? " does not exist" : " is not one of yours"));
}

// The engines that see its frames: an endpoint's engine, or those that have the port. An endpoint that no engine serves has no frames:
// to capture it does not choose its engine (Captures::on_endpoint_assigned).
uint32_t CaptureRequests::engines_of(const CaptureRecord& capture) {
  if (capture.endpoint) {
    const EndpointRecord& endpoint = *endpoints_.at(*capture.endpoint);
    return endpoint.engine ? 1u << *endpoint.engine : 0;
  }
  return capture.port >= 0 ? engines_.of(static_cast<uint32_t>(capture.port)) : engines_.all();
}

void CaptureRequests::handle(ClientRecord& client, const control::CaptureStart& packet) {
  if (Status status = may_capture(client, packet); !status) return clients_.fail_request(client, packet.header, status.error());
  const Result<CaptureRecord*> created = captures_.create(client, owner_of(client), operation_.is_operator(client.who), packet, now_);
  if (!created) return clients_.fail_request(client, packet.header, created.error());
  CaptureRecord& capture = **created;
  captures_.start(capture, engines_of(capture));
  control::Reply reply = make_reply(packet.header);
  reply.capture = {.capture = capture.capture, .bytes = capture.bytes, .epoch = wall_now() - now_};
  if (!clients_.send_packet(client, reply, {capture.shared.descriptor.get()})) captures_.stop(capture);
  capture.shared.descriptor.reset();
}

void CaptureRequests::handle(ClientRecord& client, const control::CaptureStop& packet) {
  CaptureRecord* const capture = captures_.find(packet.capture);
  const bool operates = operation_.is_operator(client.who);
  if (capture == nullptr || (!operates && capture->owner != owner_of(client))) {
    return clients_.fail_request(client, packet.header, {Errc::not_found, "no capture " + std::to_string(packet.capture) +
                                                                     (operates ? " runs" : " of yours runs")});
  }
  captures_.stop(*capture);
  clients_.ok(client, packet.header);
}

}  // namespace unet::service
