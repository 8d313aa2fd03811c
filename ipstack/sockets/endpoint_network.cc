// endpoint_network.cc - passes arrivals of an endpoint to the stack, and manages the channels to local peers.
#include "ipstack/sockets/endpoint_network.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "ipstack/sockets/stack.h"
#include "unet/base/bytes.h"

namespace unet::sockets {
namespace {

constexpr uint32_t kPollsPerLook = 256;             // polls between two looks at the control socket
constexpr uint32_t kShort = 512;                    // bytes: the sender of a single message up to this size may wait for the answer
constexpr uint32_t kLastMax = 100'000;              // most messages taken from a channel that has closed
constexpr Nanoseconds kRefreshSoon = kSecond / 10;  // interval of configuration questions while an address is tentative
constexpr Nanoseconds kAnswerWithin = kSecond;      // time within which a local peer must answer
constexpr Nanoseconds kPatience = kSecond;          // time-out of calls to the service that may be repeated later

int errno_of(const Error& error) noexcept {
  switch (error.code) {
    case Errc::already_exists: return EADDRINUSE;
    case Errc::not_permitted: return EACCES;
    case Errc::not_found: return EADDRNOTAVAIL;
    case Errc::invalid_argument: return EINVAL;
    case Errc::quota_exceeded:
    case Errc::out_of_memory: return ENOBUFS;
    default: return ENETDOWN;
  }
}

}  // namespace

Result<std::unique_ptr<EndpointNetwork>> EndpointNetwork::open(Context& context, const EndpointNetworkOptions& options) {
  auto endpoint = context.create_endpoint(options.endpoint);
  if (!endpoint && endpoint.error().code == Errc::quota_exceeded) {  // sends then cost one more copy
    EndpointOptions smaller = options.endpoint;
    smaller.send_bytes = std::min(smaller.send_bytes, EndpointOptions{}.send_bytes);
    endpoint = context.create_endpoint(smaller);
  }
  if (!endpoint) return tl::unexpected(endpoint.error());
  LayerEndpoint layer(std::move(*endpoint));
  const auto ip = layer.open_ip();
  if (!ip) return tl::unexpected(ip.error());
  std::unique_ptr<EndpointNetwork> network(new EndpointNetwork(std::move(layer), *ip, options));
  if (!network->refresh()) return fail(Errc::disconnected, "the network interface has told nothing of its addresses");
  return network;
}

EndpointNetwork::EndpointNetwork(LayerEndpoint endpoint, Channel ip, const EndpointNetworkOptions& options)
    : endpoint_(std::move(endpoint)), ip_(ip), options_(options) {}

EndpointNetwork::~EndpointNetwork() = default;

bool EndpointNetwork::refresh() {
  auto configuration = endpoint_.ip_configuration();
  if (configuration) configure(std::move(*configuration));
  return configuration.has_value();
}

void EndpointNetwork::configure(IpConfiguration configuration) {
  configuration_ = std::move(configuration);
  const auto& addresses = configuration_.addresses;
  const bool waits = std::any_of(addresses.begin(), addresses.end(), [](const auto& each) { return each.tentative; });
  refresh_at_ = monotonic_now() + (waits ? kRefreshSoon : options_.refresh);
}

// Asks for the configuration, and takes the answer at a later poll, as the thread of the streams must not wait for the service.
void EndpointNetwork::poll_configuration() {
  if (refreshing_) {
    auto answer = endpoint_.poll_ip_configuration(*refreshing_);
    if (!answer) return;
    refreshing_.reset();
    is_late_ = false;
    if (*answer) return configure(std::move(**answer));
  } else if (endpoint_.take_ip_changed() || monotonic_now() >= refresh_at_) {
    const auto pending = endpoint_.start_ip_configuration();
    if (pending) refreshing_ = *pending;
  } else {
    return;
  }
  refresh_at_ = monotonic_now() + options_.refresh;
}

// While the service does not answer, only claims wait for it, and not for long, as a later claim is of no use.
Nanoseconds EndpointNetwork::patience() const noexcept { return is_late_ ? 0 : kPatience; }

void EndpointNetwork::record_patience(const Error& error) noexcept {
  if (error.code != Errc::timed_out || is_late_) return;
  is_late_ = true;
  refresh_at_ = 0;  // asks soon: an answer shows that the service is back
  news_ = true;
}

// ---- ports and packets

Network::Claimed EndpointNetwork::claim(const IpClaim& claim) {
  const auto claimed = endpoint_.claim_ip(claim, is_late_ ? kPatience : Endpoint::kAnswerWithin);
  if (!claimed) {
    record_patience(claimed.error());
    return {.error = errno_of(claimed.error())};
  }
  return {.claim = claimed->claim, .port = claimed->port, .plenty = claimed->plenty};
}

void EndpointNetwork::release(uint32_t claim) {
  const Status released = endpoint_.release_ip(claim, patience());
  if (!released) record_patience(released.error());  // if the NI is gone, so is the claim
}

int EndpointNetwork::set_accepts_new_flows(uint32_t claim, AcceptsNewFlows accepts_new_flows) {
  const Status set = endpoint_.set_ip_claim(claim, accepts_new_flows, patience());
  if (set) return 0;
  record_patience(set.error());
  return errno_of(set.error());
}

int EndpointNetwork::own_flow(uint32_t claim, const Address& local, const Address& remote) {
  const Status owned = endpoint_.own_ip_flow(claim, local.host, local.port, remote.host, remote.port, patience());
  if (owned) return 0;
  record_patience(owned.error());
  return errno_of(owned.error());
}

MutableBytes EndpointNetwork::reserve(uint32_t bytes) noexcept {
  const MutableBytes room = endpoint_.reserve(ip_, bytes);
  if (room.empty()) refused_ = ip_;
  return room;
}

void EndpointNetwork::post(uint32_t bytes) noexcept { static_cast<void>(endpoint_.post(ip_, bytes)); }

void EndpointNetwork::post(uint32_t bytes, std::span<const Bytes> pieces) noexcept {
  static_cast<void>(endpoint_.post(ip_, bytes, pieces));
}

void EndpointNetwork::notify_completion(uint64_t submitted) noexcept {
  endpoint_.notify_completion(submitted);
  refused_ = ip_;
}

// ---- what comes

uint32_t EndpointNetwork::poll(Stack& stack, uint32_t local_peers, bool for_answer) {
  uint32_t count = 0;
  if (news_ || ++polls_ % kPollsPerLook == 0) {
    poll_service(stack);
    count = 1;  // may have changed something
  }
  bool after_local = false;
  uint32_t keeps = stack.intake();
  if (keeps == 0) {
    ++taken_in_;  // a waiter must not sleep, as messages may be there
    return 1;
  }
  const auto receive = [&](Message& message) {
    if (local_peers == 0) return endpoint_.receive_queued(message);
    return after_local ? endpoint_.receive_next(message) : endpoint_.receive(message);
  };
  for (Message message; count < kPollMost && receive(message); ++count) {
    after_local = for_answer && message.from_local;
    if (message.from_local) --local_peers;
    const bool kept = take(stack, message);
    const bool enough = kept && !message.from_local && --keeps == 0;
    const bool alone = count < 2 && message.length <= kShort && endpoint_.would_fetch();
    if (!kept) endpoint_.release(message);
    if (alone) return 1;
    if (enough) return count + 1;
  }
  if (count == 0) stack.copy_stale();
  return count;
}

// Passes a message to the stack. True: the stack releases it later.
bool EndpointNetwork::take(Stack& stack, const Message& message) {
  ++taken_in_;
  if (message.channel == ip_) return stack.handle_message(message);
  const uint32_t local_peer = local_peer_of(message.channel);
  if (local_peer == kNone) return false;
  const Bytes head = message.kind == MessageKind::headed ? endpoint_.head(message) : Bytes();
  return stack.handle_local_peer_message(local_peer, message, head);
}

// Requests for channels, closed channels, and answers to our own requests.
void EndpointNetwork::poll_service(Stack& stack) {
  news_ = false;
  poll_requests();
  take_accepted(stack);
  while (const auto event = endpoint_.next_event()) {
    if (event->kind == ChannelEvent::Kind::closed) lose_channel(stack, event->channel);
  }
  for (size_t i = 0; i < asked_.size();) {
    bool shared = false;
    auto answer = endpoint_.poll_connect(asked_[i].pending, &shared);
    if (!answer) {
      ++i;
      continue;
    }
    const Asked asked = asked_[i];
    asked_.erase(asked_.begin() + static_cast<ptrdiff_t>(i));
    bool found = *answer && endpoint_.kind(**answer) == control::ChannelKind::local;
    if (found && local_peer_of(**answer) == kNone) found = may_add_local_peer();
    if (*answer && !found) static_cast<void>(endpoint_.close(**answer, 0));
    if (found && local_peer_of(**answer) == kNone) add_local_peer(stack, **answer);  // else the peer is known already
    const bool unclaimed = !*answer && answer->error().code == Errc::not_found;
    const uint32_t local_peer = found ? local_peer_of(**answer) : unclaimed ? Stack::kUnclaimed : kNone;
    stack.handle_local_peer_found(asked.protocol, asked.to, local_peer, shared);
  }
  poll_configuration();
}

// ---- local peers

void EndpointNetwork::poll_requests() {
  while (const auto request = endpoint_.next_request()) {
    // Any application with IP may open a channel, as it could send the same by the network interface.
    if (!options_.use_local_peers || !may_add_local_peer()) {
      static_cast<void>(endpoint_.reject(request->id, 0));
    } else if (const auto pending = endpoint_.start_accept(request->id)) {
      accepting_.push_back(*pending);
      news_ = true;
    }
  }
}

void EndpointNetwork::take_accepted(Stack& stack) {
  std::erase_if(accepting_, [&](PendingId pending) {
    const auto channel = endpoint_.poll_connect(pending);
    if (channel && *channel) add_local_peer(stack, **channel);
    return channel.has_value();
  });
}

bool EndpointNetwork::ask_local_peer(uint8_t protocol, const Address& to) {
  if (!options_.use_local_peers) return false;
  const std::string target =
      (protocol == ip::Protocol::kTcp ? "tcp:" : "udp:") + std::to_string(to.port) + ":" + ip::text_of(to.host);
  ConnectOptions options;
  options.path = control::Path::local;
  options.timeout = kAnswerWithin;
  options.local = options_.local_peers;
  const auto pending = endpoint_.start_connect(target, options);
  if (!pending) return false;
  asked_.push_back({protocol, to, *pending});
  news_ = true;
  return true;
}

bool EndpointNetwork::may_add_local_peer() const noexcept {
  const auto unused = static_cast<size_t>(std::count(channels_.begin(), channels_.end(), kNone));
  return channels_.size() - unused + accepting_.size() < Stack::kLocalPeersMax;
}

void EndpointNetwork::add_local_peer(Stack& stack, Channel channel) {
  const auto index = static_cast<uint32_t>(channel);
  if (index >= local_peers_.size()) local_peers_.resize(index + 1, kNone);
  const auto free = std::find(channels_.begin(), channels_.end(), kNone);
  const auto local_peer = static_cast<uint32_t>(free - channels_.begin());
  if (free == channels_.end()) channels_.push_back(index);
  else *free = index;
  local_peers_[index] = local_peer;
  ++taken_in_;
  stack.handle_local_peer(local_peer, endpoint_.same_user(channel));
}

void EndpointNetwork::lose_channel(Stack& stack, Channel channel) {
  const uint32_t local_peer = local_peer_of(channel);
  if (local_peer == kNone) return;
  // Takes in messages that arrived before the channel closed.
  Message message;
  for (uint32_t i = 0; i < kLastMax && (endpoint_.receive(message) || endpoint_.has_message()); ++i) {
    if (message.data == nullptr) continue;  // receive() scans a few of many channels each time
    if (!take(stack, message)) endpoint_.release(message);
    message = {};
  }
  stack.handle_local_peer_gone(local_peer);
  ++taken_in_;
  local_peers_[static_cast<uint32_t>(channel)] = kNone;
  channels_[local_peer] = kNone;
  static_cast<void>(endpoint_.close(channel, 0));
}

uint32_t EndpointNetwork::local_peer_of(Channel channel) const noexcept {
  const auto index = static_cast<uint32_t>(channel);
  return index < local_peers_.size() ? local_peers_[index] : kNone;
}

bool EndpointNetwork::send_to_local_peer(uint32_t local_peer, Bytes head, Bytes data) noexcept {
  const auto channel = static_cast<Channel>(channels_[local_peer]);
  const size_t bytes = head.size() + data.size();
  SendOutcome outcome;  // no_channel: it is closed, and its event follows
  if (data.empty()) {
    outcome = endpoint_.send(channel, head);
  } else if (bytes <= kInlineMax) {
    outcome = endpoint_.send_composed(channel, static_cast<uint32_t>(bytes), [&](std::byte* to) {
      copy_small(to, head.data(), head.size());
      copy_small(to + head.size(), data.data(), data.size());
    });
  } else {
    outcome = endpoint_.send_headed(channel, head, data);
  }
  if (outcome == SendOutcome::full) refused_ = channel;
  return outcome != SendOutcome::full;
}

bool EndpointNetwork::has_room(uint32_t local_peer, uint32_t bytes) noexcept {
  const auto channel = static_cast<Channel>(channels_[local_peer]);
  // A reservation that is not posted costs nothing.
  const bool room = !endpoint_.is_open(channel) || !endpoint_.reserve(channel, std::min(bytes, kMessageMax)).empty();
  if (!room) refused_ = channel;
  return room;
}

MutableBytes EndpointNetwork::reserve_to_local_peer(uint32_t local_peer, uint32_t bytes) noexcept {
  const auto channel = static_cast<Channel>(channels_[local_peer]);
  const MutableBytes room = endpoint_.reserve(channel, bytes);
  if (room.empty()) refused_ = channel;
  return room;
}

void EndpointNetwork::post_to_local_peer(uint32_t local_peer, Bytes head, uint32_t bytes) noexcept {
  static_cast<void>(endpoint_.post_headed(static_cast<Channel>(channels_[local_peer]), bytes, head));
}

void EndpointNetwork::release(uint32_t, const Message& message) noexcept { endpoint_.release(message); }

// ---- waiting

bool EndpointNetwork::wait(const Stack& stack, Nanoseconds timeout) {
  if (!asked_.empty()) timeout = std::min(timeout, kAnswerWithin);
  WaitOutcome outcome;
  // A short wait, as another channel may lack the room.
  if (stack.wants_room() && endpoint_.is_open(refused_)) outcome = endpoint_.wait_room(refused_, std::min(timeout, kMillisecond));
  else outcome = endpoint_.wait(timeout);
  news_ = true;
  return outcome != WaitOutcome::disconnected;
}

bool EndpointNetwork::arm(const Stack& stack) noexcept {
  news_ = true;
  return stack.wants_room() && endpoint_.is_open(refused_) ? endpoint_.arm(refused_) : endpoint_.arm();
}

}  // namespace unet::sockets
