// layer_endpoint.h - what a layer above an endpoint (an IP stack, Active Messages) needs beyond endpoint.h; applications do not use it.
//
//   LayerEndpoint endpoint(std::move(*context.create_endpoint()));
//
// The threads' rules are those of Endpoint. This interface follows the layers of its own release: it may change with any of them.
#pragma once

#include "unet/endpoint.h"
#include "unet/ip.h"
#include "unet/socket_table.h"

namespace unet {

class LayerEndpoint : public Endpoint {
 public:
  explicit LayerEndpoint(Endpoint endpoint) noexcept : Endpoint(std::move(endpoint)) {}

  // The first step of accept(); poll_connect() gets the result.
  Result<PendingId> start_accept(RequestId request);

  // ---- IP (unet/ip.h)

  // Opens the endpoint's IP channel, which carries IP packets. It exists once, until it is closed. Errors: already_exists, not_found (the
  // NI has no IP), not_permitted (policy), invalid_argument (an emulated endpoint, or one with channels of another engine).
  Result<Channel> open_ip();
  // Claims ports; the IP channel must be open. Errors: already_exists (another claim has one of them), not_permitted (policy), not_found
  // (the NI does not have that address), quota_exceeded, invalid_argument.
  Result<IpClaimed> claim_ip(const IpClaim& claim, Nanoseconds timeout = kAnswerWithin);
  // Releases a claim. Sent packets leave first, unless the NI takes none for 100 ms.
  Status release_ip(uint32_t claim, Nanoseconds timeout = kAnswerWithin);
  // Sets whether a shared claim takes new flows. Errors: not_found.
  Status set_ip_claim(uint32_t claim, AcceptsNewFlows accepts_new_flows, Nanoseconds timeout = kAnswerWithin);
  // Takes over a TCP connection between these ends from another endpoint of the claim's share. The engine switches a few microseconds after
  // the answer. Errors: not_found (the claim), invalid_argument (its port is not shared, or is not TCP).
  Status own_ip_flow(uint32_t claim, const ip::IpAddress& local, uint16_t local_port, const ip::IpAddress& remote, uint16_t remote_port,
                     Nanoseconds timeout = kAnswerWithin);
  // Creates the next socket table (unet/socket_table.h), so that others can list the sockets, and peers are told when this process ends.
  // Valid as long as the endpoint. Errors: quota_exceeded, invalid_argument (no IP channel), already_exists (kSocketTablesMax), unavailable
  // (the NI is embedded).
  Result<SocketTableView> open_sockets();
  // The NI's addresses and ports as they are now. Errors: not_found (the NI has no IP).
  Result<IpConfiguration> ip_configuration();
  // True once after the NI has announced a change of these. next_event() receives the announcement.
  bool take_ip_changed() noexcept { return std::exchange(ip_changed_, false); }
  // The two steps of ip_configuration(), for a thread that must not wait: call poll_ip_configuration() until it has a value.
  Result<PendingId> start_ip_configuration();
  std::optional<Result<IpConfiguration>> poll_ip_configuration(PendingId pending);

  // ---- sending on local channels (any other channel is no_channel)

  // Sends `length` bytes, at most kInlineMax, which compose(std::byte*) writes straight into the slot.
  template <typename Compose>
  SendOutcome send_composed(Channel channel, uint32_t length, Compose compose) noexcept {
    LocalChannel* const local = own_.open_local(channel);
    return __builtin_expect(local != nullptr, 1) ? local->send_composed(length, compose) : SendOutcome::no_channel;
  }
  // Send a message of two parts: see LocalChannel::send_headed() and post_headed().
  SendOutcome send_headed(Channel channel, Bytes head, Bytes data) noexcept {
    LocalChannel* const local = own_.open_local(channel);
    return __builtin_expect(local != nullptr, 1) ? local->send_headed(head, data) : SendOutcome::no_channel;
  }
  SendOutcome post_headed(Channel channel, uint32_t length, Bytes head) noexcept {
    LocalChannel* const local = own_.open_local(channel);
    return __builtin_expect(local != nullptr, 1) ? local->post_headed(length, head) : SendOutcome::no_channel;
  }

  // ---- sending without a copy through the NI

  // Reserves the last `bytes` of EndpointOptions::send_bytes as memory from which messages can be sent repeatedly without a copy. Call this
  // before the first send. Empty: there is too little, or the endpoint is emulated.
  MutableBytes register_send_memory(uint64_t bytes) noexcept {
    return own_.queues() == nullptr ? MutableBytes() : own_.queues()->register_send_memory(bytes);
  }
  // Works like post() on a channel through the NI, with `pieces` appended: at most kSendPiecesMax, of memory from register_send_memory().
  // They must not change until completed() has reached the value of submitted() after this call.
  SendOutcome post(Channel channel, uint32_t length, std::span<const Bytes> pieces) noexcept { return own_.post(channel, length, pieces); }
  // The number of messages given to the NI, and the number of them that it has taken.
  uint64_t submitted() const noexcept { return own_.queues() == nullptr ? 0 : own_.queues()->submitted(); }
  uint64_t completed() noexcept { return own_.queues() == nullptr ? 0 : own_.queues()->completed(); }
  // Whether the NI is in this process: then posted messages leave while the application polls or waits.
  bool is_embedded() const noexcept { return static_cast<bool>(own_.embedded()); }
  // Makes wait_room() on a channel through the NI wait until completed() has reached `submitted`, as if a send had been refused. It
  // returns at once.
  void notify_completion(uint64_t submitted) noexcept {
    if (own_.queues() != nullptr) own_.queues()->notify_completion(submitted);
  }
  using Endpoint::post;

  // ---- receiving

  // Whether there is a message on any channel. With many local channels, a single receive() checks only a few and may miss it.
  using Endpoint::has_message;
  // Whether the next receive() would only fetch from the wires of this endpoint's embedded NI: all arrived messages have been received.
  bool would_fetch() const noexcept {
    return own_.embedded() && own_.queues() != nullptr && !own_.has_locals() && !own_.queues()->has_message();
  }
  // Receives the next message of the channel that delivered last. False says nothing about other channels. It costs next to nothing, for
  // callers that would rather continue than check all channels.
  bool receive_next(Message& message) noexcept { return own_.receive_hot(message); }
  // Receives the next message of the NI's queue; never true for an emulated endpoint.
  bool receive_queued(Message& message) noexcept { return own_.queues() != nullptr && own_.queues()->receive(message); }
  // The head of an unreleased message of kind `headed`. The peer can still write to it.
  Bytes head(const Message& message) const noexcept {
    const LocalChannel* const local = own_.local(message.channel);
    return local != nullptr ? local->head(message) : Bytes();
  }

  // ---- inspection

  Connection& connection() noexcept { return *connection_; }
};
static_assert(sizeof(LayerEndpoint) == sizeof(Endpoint));

}  // namespace unet
