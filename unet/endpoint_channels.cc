// endpoint_channels.cc - an endpoint's set-up: names, connecting and accepting, channels that open and close.
#include <algorithm>
#include <ctime>
#include <string>

#include "unet/connection.h"
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
  explicit Opening(ChannelSet& of, uint64_t asked = 1) noexcept : channels(of) { channels.opening(asked); }
  ~Opening() { channels.opened(); }
  Opening(const Opening&) = delete;
  Opening& operator=(const Opening&) = delete;

  ChannelSet& channels;
};

// ---- names

Status Endpoint::bind(std::string_view name) {
  if (!control::valid_name(name)) return bad_name(name);
  auto request = request_for<control::Bind>(control::Op::bind, id_);
  request.name.set(name);
  // The name may have static channels, which the service announces before it answers. Their messages may come even sooner.
  const Opening opening(channels(), 0);
  const Status status = without_value(connection_->call(request));
  process_events();
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
  channels().opening(1);
  return begin_pending(connection_->send(request, false));
}

Result<PendingId> Endpoint::begin_pending(Result<uint64_t> sent) {
  if (sent) return pending_.emplace_back(PendingId{*sent});
  channels().opened();
  return tl::unexpected(sent.error());
}

void Endpoint::end_pending(PendingId pending) noexcept {
  const auto at = std::find(pending_.begin(), pending_.end(), pending);
  if (at == pending_.end()) return;
  pending_.erase(at);
  channels().opened();
}

bool Endpoint::is_pending(PendingId pending) const noexcept {
  return std::find(pending_.begin(), pending_.end(), pending) != pending_.end();
}

std::optional<Result<Channel>> Endpoint::poll_connect(PendingId pending, bool* shared) {
  auto answer = poll_answer(pending);
  if (!answer) return std::nullopt;
  const Opening opening(channels());
  end_pending(pending);
  if (!*answer) return Result<Channel>(tl::unexpected(answer->error()));
  if (shared != nullptr) *shared = (*answer)->reply.channel.shared != 0;
  return adopt(std::move(**answer));
}

std::optional<Result<Answer>> Endpoint::poll_answer(PendingId pending) {
  if (!is_pending(pending)) return Result<Answer>(not_under_way(pending));
  if (own_.embedded()) own_.embedded().wait(0);
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
  const Opening opening(channels());
  end_pending(*pending);
  // The service answers within the timeout; the margin is for a busy service.
  auto answer = connection_->wait_answer(cookie_of(*pending), answer_time(options) + kSecond);
  if (!answer) return tl::unexpected(answer.error());
  // The peer waits for our confirmation, and this program may not poll its NI again for a while.
  if (own_.embedded()) own_.embedded().poll();
  return adopt(std::move(*answer));
}

std::optional<ConnectionRequest> Endpoint::next_request() {
  if (own_.embedded()) own_.embedded().wait(0);
  look_for_events();
  if (requests_.empty()) return std::nullopt;
  ConnectionRequest request = std::move(requests_.front());
  requests_.pop_front();
  return request;
}

Result<Channel> Endpoint::accept(RequestId request_id) {
  auto request = request_for<control::Accept>(control::Op::accept, id_);
  request.request = static_cast<uint64_t>(request_id);
  const Opening opening(channels());
  auto answer = connection_->call(request);
  if (!answer) return tl::unexpected(answer.error());
  return adopt(std::move(*answer));
}

Result<PendingId> LayerEndpoint::start_accept(RequestId request_id) {
  auto request = request_for<control::Accept>(control::Op::accept, id_);
  request.request = static_cast<uint64_t>(request_id);
  channels().opening(1);
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
  const auto of_this = [&](const EarlyClose& each) { return each.channel == Channel{answer.reply.channel.channel}; };
  for (const EarlyClose& each : early_closes_) {
    if (of_this(each) && each.order > answer.order) channel_closed(each.channel, each.reason, each.order);
  }
  early_closes_.erase(std::remove_if(early_closes_.begin(), early_closes_.end(), of_this), early_closes_.end());
  return channel;
}

Result<Channel> Endpoint::adopt(const control::ChannelInfo& info, std::vector<Descriptor> descriptors) {
  if (info.channel >= kChannelsPerEndpointMax) return fail(Errc::protocol, "the NI sent a channel number out of range");
  auto channel = channels().adopt(info, std::move(descriptors));
  upcall_->wake();  // the thread's announcement does not cover this channel
  return channel;
}

// ---- closing

Status Endpoint::close(Channel channel, Nanoseconds timeout) {
  const auto index = static_cast<uint32_t>(channel);
  if (!channels().forget(channel)) return fail(Errc::not_found, "no channel " + std::to_string(index));
  auto request = request_for<control::CloseChannel>(control::Op::close_channel, id_);
  request.channel = index;
  auto answer = connection_->call(request, timeout);
  if (!answer && answer.error().code == Errc::disconnected) return {};  // the channel has ended with the NI
  return without_value(answer);
}

void Endpoint::channel_closed(Channel channel, control::CloseReason reason, uint64_t order) {
  if (kind(channel) == control::ChannelKind::none) {
    // The channel's answer may not have been processed yet.
    if (!pending_.empty() && static_cast<uint32_t>(channel) < kChannelsPerEndpointMax) early_closes_.push_back({channel, reason, order});
  } else if (channels().end(channel)) {
    events_.push_back({.kind = ChannelEvent::Kind::closed, .channel = channel, .reason = reason, .peer = {}});
  }
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
      channel_closed(Channel{closed->channel}, closed->reason, order);
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
  for (const Channel each : channels().ni_channels()) channel_closed(each, control::CloseReason::ni_stopped, 0);
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

}  // namespace unet
