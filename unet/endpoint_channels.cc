// endpoint_channels.cc - an endpoint's set-up: creation, names, connecting and accepting, channels that open and close.
#include <algorithm>
#include <ctime>
#include <string>

#include "unet/connection.h"
#include "unet/emulated.h"
#include "unet/layer_endpoint.h"
#include "unet/upcall_thread.h"

namespace unet {
namespace {

constexpr uint32_t kLooksPerSocketLook = 1024;

Status bad_name(std::string_view name) {
  return fail(Errc::invalid_argument, "'" + std::string(name) + "' is not a valid name: 1 to " + std::to_string(kNameMax) +
                                          " characters of A-Z a-z 0-9 . _ - /, not beginning with - or /");
}

// The time for the peer's answer. The protocol carries it in milliseconds, where 0 would mean the service's default.
Nanoseconds answer_time(const ConnectOptions& options) {
  return std::clamp<Nanoseconds>(options.timeout, kMillisecond, 3600 * kSecond);
}

uint64_t cookie_of(PendingId pending) { return static_cast<uint64_t>(pending); }

tl::unexpected<Error> not_under_way(PendingId pending) {
  return fail(Errc::invalid_argument,
              "no request " + std::to_string(cookie_of(pending)) + " is under way: it was taken or cancelled before");
}

Status without_value(const Result<Answer>& answer) {
  if (!answer) return tl::unexpected(answer.error());
  return {};
}

}  // namespace

// While this object exists, messages may come by a channel before its answer has been processed.
struct Endpoint::Opening {
  explicit Opening(Emulated* emulated) noexcept : of(emulated) {
    if (of != nullptr) of->opening();
  }
  ~Opening() {
    if (of != nullptr) of->opened();
  }
  Opening(const Opening&) = delete;
  Opening& operator=(const Opening&) = delete;

  Emulated* of;
};

Result<Endpoint> Endpoint::create(std::shared_ptr<Connection> connection, const EndpointOptions& options) {
  if (options.emulated != 0 && options.weight != 1) {
    return fail(Errc::invalid_argument, "endpoint options: an emulated endpoint has no weight of its own, as all of a connection share "
                                        "one real endpoint; create one with queues of its own for that");
  }
  if (!valid_options(options)) {
    return fail(Errc::invalid_argument,
                "endpoint options out of range: queue depths " + std::to_string(kQueueDepthMin) + " to " +
                    std::to_string(kQueueDepthMax) + ", buffers " + std::to_string(kQueueDepthMin) + " to " +
                    std::to_string(kBuffersMax) + ", buffer_size " + std::to_string(kBufferSizeMin) + " to " +
                    std::to_string(kBufferSizeMax) + " in multiples of 64, send_bytes at least " +
                    std::to_string(kMessageMax) + ", the segment at most " + std::to_string(kSegmentMax) + " bytes, weight 1 to " +
                    std::to_string(kEndpointWeightMax));
  }
  if (options.emulated != 0) return create_emulated(std::move(connection), options);
  auto request = request_for<control::CreateEndpoint>(control::Op::create_endpoint, 0);
  request.options = options;
  auto answer = connection->call(request);
  if (!answer) return tl::unexpected(answer.error());
  const SegmentGeometry geometry = SegmentGeometry::of(options);
  Result<Mapping> segment = fail(Errc::protocol, "the NI sent no communication segment");
  if (answer->descriptors.size() == 1) segment = Mapping::map(answer->descriptors[0].get(), geometry.total);
  if (!segment) {
    connection->throw_away(answer->reply);
    return tl::unexpected(segment.error());
  }

  Endpoint endpoint(connection, answer->reply.create_endpoint.endpoint);
  endpoint.queues_ = std::make_unique<NiQueues>(std::move(*segment), geometry, connection->doorbells(),
                                                answer->reply.create_endpoint.doorbell);
  return endpoint;
}

Result<Endpoint> Endpoint::create_emulated(std::shared_ptr<Connection> connection, const EndpointOptions& options) {
  auto carrier = Carrier::of(connection);
  if (!carrier) return tl::unexpected(carrier.error());
  auto answer = connection->call(request_for<control::CreateEmulated>(control::Op::create_emulated, (*carrier)->id()));
  if (!answer) return tl::unexpected(answer.error());
  const uint32_t id = answer->reply.create_endpoint.endpoint;
  Endpoint endpoint(connection, id);
  endpoint.emulated_ = std::make_unique<Emulated>(id, std::move(*carrier), options);
  endpoint.special_ = true;
  return endpoint;
}

Endpoint::Endpoint(std::shared_ptr<Connection> connection, uint32_t id)
    : embedded_(connection->embedded(), connection->embedded_handle(), id),
      connection_(std::move(connection)),
      id_(id),
      upcall_(std::make_unique<UpcallThread>()) {
  special_ = static_cast<bool>(embedded_);
  last_events_ = connection_->event_count() - 1;  // forces one check
}

Endpoint::Endpoint(Endpoint&& other) noexcept = default;

Endpoint& Endpoint::operator=(Endpoint&& other) noexcept {
  if (this == &other) return *this;
  std::destroy_at(this);
  return *std::construct_at(this, std::move(other));
}

Endpoint::~Endpoint() {
  if (connection_ == nullptr) return;  // moved from
  if (!connection_->is_own()) {
    upcall_->detach();
    return;  // in a forked child only the memory and the descriptors may be released
  }
  stop_upcall();
  linger();
  std::vector<uint64_t> cookies;
  for (const PendingId pending : pending_) {
    cookies.push_back(cookie_of(pending));
    connection_->abandon(cookies.back());
    if (emulated_ != nullptr) emulated_->opened();
  }
  if (emulated_ != nullptr) emulated_->forget_all();
  auto request = request_for<control::DestroyEndpoint>(control::Op::destroy_endpoint, id_);
  if (connection_->call(request, kSecond)) connection_->forget(cookies);
}

// ---- names

Status Endpoint::bind(std::string_view name) {
  if (!control::valid_name(name)) return bad_name(name);
  auto request = request_for<control::Bind>(control::Op::bind, id_);
  request.name.set(name);
  if (emulated_ == nullptr) return without_value(connection_->call(request));
  // The name may have static channels, which the service announces before it answers. Their messages may come even sooner.
  emulated_->opening(0);
  const Status status = without_value(connection_->call(request));
  process_events();
  emulated_->opened();
  return status;
}

Status Endpoint::unbind() {
  return without_value(connection_->call(request_for<control::Unbind>(control::Op::unbind, id_)));
}

// ---- connecting

Result<PendingId> Endpoint::start_connect(std::string_view target, const ConnectOptions& options) {
  const size_t at = target.find('@');
  const std::string_view name = target.substr(0, at);
  if (!control::valid_name(name) && !control::names_claim(target)) return tl::unexpected(bad_name(name).error());
  if (at != std::string_view::npos && !control::valid_name(target.substr(at + 1))) {
    return tl::unexpected(bad_name(target.substr(at + 1)).error());
  }
  if (!valid_options(options.local)) {
    return fail(Errc::invalid_argument, "local channel options out of range: depth " + std::to_string(kQueueDepthMin) + " to " +
                                            std::to_string(kQueueDepthMax) + ", data_bytes " + std::to_string(4 * kMessageMax) +
                                            " to " + std::to_string(kLocalDataMax));
  }
  auto request = request_for<control::Connect>(control::Op::connect, id_);
  request.target.set(target);
  request.path = options.path;
  request.timeout_ms = static_cast<uint32_t>(answer_time(options) / kMillisecond);
  request.local = options.local;
  if (emulated_ != nullptr) emulated_->opening();
  return begin_pending(connection_->send(request, false));
}

Result<PendingId> Endpoint::begin_pending(Result<uint64_t> sent) {
  if (sent) return pending_.emplace_back(PendingId{*sent});
  if (emulated_ != nullptr) emulated_->opened();
  return tl::unexpected(sent.error());
}

void Endpoint::end_pending(PendingId pending) noexcept {
  const auto at = std::find(pending_.begin(), pending_.end(), pending);
  if (at == pending_.end()) return;
  pending_.erase(at);
  if (emulated_ != nullptr) emulated_->opened();
}

bool Endpoint::is_pending(PendingId pending) const noexcept {
  return std::find(pending_.begin(), pending_.end(), pending) != pending_.end();
}

std::optional<Result<Channel>> Endpoint::poll_connect(PendingId pending, bool* shared) {
  auto answer = poll_answer(pending);
  if (!answer) return std::nullopt;
  const Opening opening(emulated_.get());
  end_pending(pending);
  if (!*answer) return Result<Channel>(tl::unexpected(answer->error()));
  if (shared != nullptr) *shared = (*answer)->reply.channel.shared != 0;
  return adopt(std::move(**answer));
}

std::optional<Result<Answer>> Endpoint::poll_answer(PendingId pending) {
  if (!is_pending(pending)) return Result<Answer>(not_under_way(pending));
  if (embedded_) embedded_.wait(0);
  answer_due_ = false;
  return connection_->take_answer(cookie_of(pending));
}

Status Endpoint::cancel_connect(PendingId pending) {
  if (!is_pending(pending)) return not_under_way(pending);
  end_pending(pending);
  if (pending_.empty()) answer_due_ = false;
  connection_->abandon(cookie_of(pending));
  return {};
}

Result<Channel> Endpoint::connect(std::string_view target, const ConnectOptions& options) {
  const Nanoseconds deadline = monotonic_now() + options.wait;
  for (;;) {
    auto channel = connect_once(target, options);
    if (channel || channel.error().code != Errc::not_found || monotonic_now() >= deadline) return channel;
    constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 50 * kMillisecond};
    if (nanosleep(&kPause, nullptr) != 0) return channel;  // a signal: its handler may want the program to end
  }
}

Result<Channel> Endpoint::connect_once(std::string_view target, const ConnectOptions& options) {
  auto pending = start_connect(target, options);
  if (!pending) return tl::unexpected(pending.error());
  const Opening opening(emulated_.get());
  end_pending(*pending);
  // The service answers within the timeout; the margin is for a busy service.
  auto answer = connection_->wait_answer(cookie_of(*pending), answer_time(options) + kSecond);
  if (!answer) return tl::unexpected(answer.error());
  // The peer waits for our confirmation, and this program may not poll its NI again for a while.
  if (embedded_) embedded_.poll();
  return adopt(std::move(*answer));
}

std::optional<ConnectionRequest> Endpoint::next_request() {
  if (embedded_) embedded_.wait(0);
  look_for_events();
  if (requests_.empty()) return std::nullopt;
  ConnectionRequest request = std::move(requests_.front());
  requests_.pop_front();
  return request;
}

Result<Channel> Endpoint::accept(RequestId request_id) {
  auto request = request_for<control::Accept>(control::Op::accept, id_);
  request.request = static_cast<uint64_t>(request_id);
  const Opening opening(emulated_.get());
  auto answer = connection_->call(request);
  if (!answer) return tl::unexpected(answer.error());
  return adopt(std::move(*answer));
}

Result<PendingId> LayerEndpoint::start_accept(RequestId request_id) {
  auto request = request_for<control::Accept>(control::Op::accept, id_);
  request.request = static_cast<uint64_t>(request_id);
  if (emulated_ != nullptr) emulated_->opening();
  return begin_pending(connection_->send(request, false));
}

Status Endpoint::reject(RequestId request_id, Nanoseconds timeout) {
  auto request = request_for<control::Reject>(control::Op::reject, id_);
  request.request = static_cast<uint64_t>(request_id);
  return without_value(connection_->call(request, timeout));
}

Result<Channel> Endpoint::accept(Nanoseconds timeout, ConnectionRequest* from) {
  const Nanoseconds start = monotonic_now();
  while (true) {
    while (auto request = next_request()) {
      auto channel = accept(request->id);
      // The requester may have given up meanwhile: wait for the next request.
      if (!channel && channel.error().code == Errc::not_found) continue;
      if (from != nullptr) *from = std::move(*request);
      return channel;
    }
    const Nanoseconds waited = monotonic_now() - start;
    if (waited >= timeout) return fail(Errc::timed_out, "nobody asked for a channel in time");
    if (!connection_->alive()) return fail(Errc::disconnected, "the network interface is gone");
    connection_->wait_activity(timeout - waited);
    process_events();  // the service counts a request only after sending it
  }
}

Result<Channel> Endpoint::adopt(Answer answer) {
  auto channel = adopt(answer.reply.channel, std::move(answer.descriptors));
  if (!channel) {
    connection_->throw_away(answer.reply);
    return channel;
  }
  // The peer may have closed the channel before we processed the answer. Closes of older channels with this number came before the answer.
  const auto of_this = [&](const EarlyClose& each) { return each.channel == answer.reply.channel.channel; };
  for (const EarlyClose& each : early_closes_) {
    if (of_this(each) && each.order > answer.order) channel_closed(each.channel, each.reason, each.order);
  }
  early_closes_.erase(std::remove_if(early_closes_.begin(), early_closes_.end(), of_this), early_closes_.end());
  return channel;
}

Result<Channel> Endpoint::adopt(const control::ChannelInfo& info, std::vector<Descriptor> descriptors) {
  if (info.channel >= kChannelsPerEndpointMax) return fail(Errc::protocol, "the NI sent a channel number out of range");
  if (emulated_ != nullptr) return emulated_->adopt(info, std::move(descriptors));
  const Channel channel{info.channel};
  if (info.known != 0) {
    // Not "not_found": the port has a claim, and its other owners take connections.
    if (kind(channel) != control::ChannelKind::local) return fail(Errc::refused, "the channel has been closed meanwhile");
    return channel;
  }
  ChannelState state;
  state.kind = info.kind;
  state.open = true;
  state.same_user = info.same_user == 1;
  state.over_wire = info.wire_mtu != 0;
  if (info.kind == control::ChannelKind::local) {
    if (descriptors.size() != 3) return fail(Errc::protocol, "the NI sent a local channel without its memory");
    auto local = LocalChannel::open(channel, info, std::move(descriptors[0]), std::move(descriptors[1]), std::move(descriptors[2]));
    if (!local) return tl::unexpected(local.error());
    state.local = std::move(*local);
    state.local->set_own_region(region_.size());
    state.sends_locally = true;
  }
  if (channels_.size() <= info.channel) channels_.resize(info.channel + 1);
  if (channels_[info.channel].local != nullptr) forget_local(channels_[info.channel].local.get());
  channels_[info.channel] = std::move(state);
  LocalChannel* local = channels_[info.channel].local.get();
  if (local != nullptr) {
    locals_.add(*local);
    upcall_->wake();  // the thread's announcement does not cover this channel
    epoll_.add(local->descriptor());
  }
  return channel;
}

// ---- closing

Status Endpoint::close(Channel channel, Nanoseconds timeout) {
  const auto index = static_cast<uint32_t>(channel);
  const bool emulated = emulated_ != nullptr && emulated_->forget(index);
  if (!emulated && (index >= channels_.size() || channels_[index].kind == control::ChannelKind::none)) {
    return fail(Errc::not_found, "no channel " + std::to_string(index));
  }
  if (!emulated) {
    if (channels_[index].local != nullptr) forget_local(channels_[index].local.get());
    else if (channels_[index].open) linger();
    channels_[index] = ChannelState{};
  }
  auto request = request_for<control::CloseChannel>(control::Op::close_channel, id_);
  request.channel = index;
  auto answer = connection_->call(request, timeout);
  if (!answer && answer.error().code == Errc::disconnected) return {};  // the channel has ended with the NI
  return without_value(answer);
}

void Endpoint::forget_local(LocalChannel* local) noexcept {
  locals_.remove(*local);
  epoll_.remove(local->descriptor());
}

bool Endpoint::is_open(Channel channel) const noexcept {
  const auto index = static_cast<uint32_t>(channel);
  if (emulated_ != nullptr) return emulated_->is_open(channel);
  return index < channels_.size() && channels_[index].open;
}

control::ChannelKind Endpoint::kind(Channel channel) const noexcept {
  const auto index = static_cast<uint32_t>(channel);
  if (emulated_ != nullptr) return emulated_->kind(channel);
  return index < channels_.size() ? channels_[index].kind : control::ChannelKind::none;
}

bool Endpoint::same_user(Channel channel) const noexcept {
  const auto index = static_cast<uint32_t>(channel);
  if (emulated_ != nullptr) return emulated_->same_user(channel);
  return index < channels_.size() && channels_[index].same_user;
}

bool Endpoint::over_wire(Channel channel) const noexcept {
  const auto index = static_cast<uint32_t>(channel);
  if (emulated_ != nullptr) return emulated_->over_wire(channel);
  return index < channels_.size() && channels_[index].over_wire;
}

void Endpoint::channel_closed(uint32_t channel, control::CloseReason reason, uint64_t order) {
  const auto ended = emulated_ != nullptr ? emulated_->end(channel) : Emulated::Ended::not_ours;
  const bool known = ended != Emulated::Ended::not_ours ||
                     (channel < channels_.size() && channels_[channel].kind != control::ChannelKind::none);
  if (!known) {
    // The channel's answer may not have been processed yet.
    if (!pending_.empty() && channel < kChannelsPerEndpointMax) early_closes_.push_back({channel, reason, order});
    return;
  }
  if (emulated_ != nullptr ? ended == Emulated::Ended::before : !channels_[channel].open) return;
  if (emulated_ == nullptr) {
    channels_[channel].open = false;
    channels_[channel].sends_locally = false;
  }
  events_.push_back({.kind = ChannelEvent::Kind::closed, .channel = Channel{channel}, .reason = reason, .peer = {}});
}

void Endpoint::process_events() {
  last_events_ = connection_->event_count();
  // Only the caller that takes the events sees the count change. Remember therefore that an answer may be among them.
  answer_due_ = !pending_.empty();
  for (const auto& [event, order] : connection_->take_events(id_)) {
    if (const auto* request = std::get_if<control::ConnectRequest>(&event)) {
      requests_.push_back({RequestId{request->request}, request->peer_uid, request->peer_pid, std::string(request->peer.view()),
                           request->same_user == 1});
    } else if (const auto* opened = std::get_if<control::ChannelOpened>(&event)) {
      if (auto channel = adopt(opened->channel, {})) {
        const std::string peer(opened->channel.peer.view());
        events_.push_back({.kind = ChannelEvent::Kind::opened, .channel = *channel, .reason = {}, .peer = peer});
      }
    } else if (const auto* closed = std::get_if<control::ChannelClosed>(&event)) {
      channel_closed(closed->channel, closed->reason, order);
    } else {
      ip_changed_ = true;
    }
  }
  if (pending_.empty()) early_closes_.clear();
  if (!connection_->alive()) ni_lost();
}

// Channels through the NI end with it; local channels go on.
void Endpoint::ni_lost() {
  ni_lost_ = true;
  if (emulated_ != nullptr) {
    for (const uint32_t each : emulated_->channels_of(control::ChannelKind::ni)) channel_closed(each, control::CloseReason::ni_stopped, 0);
  }
  for (uint32_t i = 0; i < channels_.size(); ++i) {
    if (channels_[i].kind == control::ChannelKind::ni) channel_closed(i, control::CloseReason::ni_stopped, 0);
  }
}

// The end of the NI changes no count, so check the socket itself from time to time.
void Endpoint::look_for_events() {
  const bool news = connection_->event_count() != last_events_ || !connection_->alive();
  if (news || ++quiet_looks_ % kLooksPerSocketLook == 0) process_events();
}

std::optional<ChannelEvent> Endpoint::next_event() {
  look_for_events();
  if (events_.empty()) return std::nullopt;
  ChannelEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

// ---- direct access

Result<MutableBytes> Endpoint::expose(uint64_t bytes) {
  if (emulated_ != nullptr) return emulated_->expose();
  if (region_) return fail(Errc::already_exists, "this endpoint exposes a region already");
  if (bytes == 0 || bytes > kRegionMax) {
    return fail(Errc::invalid_argument, "an exposed region has 1 to " + std::to_string(kRegionMax) + " bytes");
  }
  auto request = request_for<control::Expose>(control::Op::expose, id_);
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

Result<uint64_t> Endpoint::map_peer_region(Channel channel) {
  const auto index = static_cast<uint32_t>(channel);
  if (emulated_ != nullptr) return emulated_->map_peer_region(*this, channel);
  if (index >= channels_.size() || channels_[index].local == nullptr) {
    return fail(Errc::not_found, "channel " + std::to_string(index) + " is no local channel");
  }
  return map_region_of(channels_[index], channel);
}

Result<uint64_t> Endpoint::map_region_of(ChannelState& state, Channel channel) {
  if (state.mapped_region) return state.local->peer_region().size();
  auto request = request_for<control::PeerRegion>(control::Op::peer_region, id_);
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

}  // namespace unet
