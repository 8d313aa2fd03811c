// emulated.cc - emulated endpoints: one carrier per connection, which moves messages from its queues to the endpoints.
#include "unet/emulated.h"

#include <algorithm>

#include "unet/base/bytes.h"
#include "unet/base/check.h"
#include "unet/connection.h"

namespace unet {
namespace {

// Large enough for bursts to many endpoints, and small enough for a core's own cache while few messages are queued.
constexpr EndpointOptions kCarrierOptions{
    .send_depth = 1024, .receive_depth = 1024, .buffers = 1024, .buffer_size = 2048, .send_bytes = 1024 * 1024, .emulated = 0};

// The service reuses a closed channel's number after at least 63 other channels, unless nearly all 4,096 are in use. The engine knows of
// the close by then, because it learns of later channels after it. Until this many channels were requested, messages under the number
// belong to the closed channel. A new channel that gets the number sooner loses messages until its owner knows it: lost rather than
// mistaken.
constexpr uint64_t kNotReused = 32;

}  // namespace

// ---- the carrier

Result<std::shared_ptr<Carrier>> Carrier::of(const std::shared_ptr<Connection>& connection) {
  const std::lock_guard lock(connection->carrier_mutex());
  if (auto carrier = connection->carrier().lock()) return carrier;
  auto real = Endpoint::create(connection, kCarrierOptions);
  if (!real) return fail(real.error().code, "the endpoint that carries the emulated ones: " + real.error().text);
  real->own_.reserve_numbers();  // owners read their states without the lock
  std::shared_ptr<Carrier> carrier(new Carrier(std::move(*real)));
  connection->carrier() = carrier;
  return carrier;
}

Carrier::~Carrier() {
  if (!dispatcher_.is_running()) return;
  if (!connection().is_own()) {
    dispatcher_.forget();  // the thread belongs to the parent process
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    wake_leader();
    dispatcher_due_.notify_all();
  }
  dispatcher_.join();
}

// Takes arrived messages, until `wanted` has one.
void Carrier::pump(const Emulated* wanted) noexcept {
  Message message;
  for (uint32_t i = 0; i < kPumped && real_.receive(message); ++i) {
    deliver(message);
    if (wanted != nullptr && wanted->list_.first != kNone) break;
  }
  if (!real_.events_.empty()) real_.events_.clear();  // events about the NI's end, which each owner notices by itself
}

void Carrier::deliver(const Message& message) noexcept {
  const auto channel = static_cast<uint32_t>(message.channel);
  Emulated* const owner = channel < routes_.size() ? routes_[channel] : nullptr;
  if (owner == nullptr) {
    // A channel without an owner was just closed, unless one is being opened. Messages of a closed channel must be dropped: the next
    // channel may get its number, with another peer.
    const bool closed = channel < closed_until_.size() && openings_ < closed_until_[channel];
    if (!message.from_local && !closed && !opening_.empty() && unowned_count_ != kUnownedMax) {
      ++unowned_count_;
      append(unowned_, take_parcel(message));
    } else {
      ++unclaimed_;
    }
    return real_.release(message);
  }
  // Emulated endpoints expose no region, and senders of heads use local channels.
  if (message.kind != MessageKind::message || (!message.from_local && !owner->fits(message.length))) return real_.release(message);
  owner->take(take_parcel(message));
  if (!message.from_local) real_.release(message);
  if (owner == leader_) wake_leader();
  if (owner->listening_) notify(*owner);
}

uint32_t Carrier::take_parcel(const Message& message) noexcept {
  uint32_t index = pop(free_);
  if (index == kNone) {
    index = static_cast<uint32_t>(parcels_.size());
    parcels_.emplace_back();
  }
  Parcel& parcel = parcels_[index];
  parcel.length = message.length;
  parcel.channel = message.channel;
  parcel.local = message.from_local;
  parcel.position = message.position;
  parcel.data = message.data;
  if (message.from_local) return index;
  if (message.length > Parcel::kSmall) parcel.large.reset(new std::byte[message.length]);
  std::byte* const to = parcel.large != nullptr ? parcel.large.get() : parcel.small.data();
  copy_bytes(to, message.data, message.length);
  parcel.data = to;
  return index;
}

void Carrier::free_parcel(uint32_t index) noexcept {
  Parcel& parcel = parcels_[index];
  parcel.owner = nullptr;
  parcel.lent = false;
  parcel.large.reset();
  parcel.next = free_.first;  // the most recently used parcel is in the cache
  free_.first = index;
  if (free_.last == kNone) free_.last = index;
}

void Carrier::append(List& list, uint32_t index) noexcept {
  parcels_[index].next = kNone;
  (list.first == kNone ? list.first : parcels_[list.last].next) = index;
  list.last = index;
}

uint32_t Carrier::pop(List& list) noexcept {
  const uint32_t index = list.first;
  if (index == kNone) return kNone;
  list.first = parcels_[index].next;
  if (list.first == kNone) list.last = kNone;
  return index;
}

// Delivers messages that came by a channel before its owner had the answer that opened it.
void Carrier::adopt_unowned(uint32_t channel, Emulated& owner) noexcept {
  List rest;
  for (uint32_t index; (index = pop(unowned_)) != kNone;) {
    Parcel& parcel = parcels_[index];
    if (parcel.channel != Channel{channel}) {
      append(rest, index);
      continue;
    }
    --unowned_count_;
    if (!owner.fits(parcel.length)) {
      free_parcel(index);
      continue;
    }
    owner.take(index);
  }
  unowned_ = rest;
}

void Carrier::drop_unowned() noexcept {
  for (uint32_t index; (index = pop(unowned_)) != kNone;) free_parcel(index);
  unclaimed_ += unowned_count_;
  unowned_count_ = 0;
}

// Frees all of its messages, or those that came by one local channel.
void Carrier::free_all_of(Emulated& owner, std::optional<Channel> only) noexcept {
  const auto goes = [&](const Parcel& parcel) { return !only || (parcel.local && parcel.channel == *only); };
  List rest;
  for (uint32_t index; (index = pop(owner.list_)) != kNone;) {
    if (!goes(parcels_[index])) {
      append(rest, index);
      continue;
    }
    owner.waiting_.fetch_sub(1, std::memory_order_relaxed);
    free_parcel(index);
  }
  owner.list_ = rest;
  for (uint32_t index = 0; owner.lent_ != 0 && index < parcels_.size(); ++index) {
    if (parcels_[index].owner != &owner || !parcels_[index].lent || !goes(parcels_[index])) continue;
    --owner.lent_;
    free_parcel(index);
  }
}

// ---- an emulated endpoint

Emulated::Emulated(uint32_t id, std::shared_ptr<Carrier> carrier, const EndpointOptions& options)
    : id_(id),
      carrier_(std::move(carrier)),
      held_max_(options.receive_depth),
      held_bytes_max_(uint64_t{options.buffers} * options.buffer_size) {
  const std::lock_guard lock(carrier_->mutex_);
  carrier_->all_[id_] = this;
}

Emulated::~Emulated() {
  if (!carrier_->connection().is_own()) return;
  const std::lock_guard lock(carrier_->mutex_);
  disarm();
  carrier_->free_all_of(*this, {});
  UNET_CHECK(mine_.empty());
}

// Whether one more message may wait here. If not, counts the drop.
bool Emulated::fits(uint32_t length) noexcept {
  const bool queue = held_ < held_max_, memory = held_bytes_ + length <= held_bytes_max_;
  if (queue && memory) return true;
  ++counters_[queue ? EndpointCounter::no_free_buffer : EndpointCounter::receive_queue_full];
  return false;
}

void Emulated::take(uint32_t index) noexcept {
  Parcel& parcel = carrier_->parcels_[index];
  parcel.owner = this;
  carrier_->append(list_, index);
  waiting_.store(waiting_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (parcel.local) return;
  ++held_;
  held_bytes_ += parcel.length;
}

void Emulated::lend(uint32_t index, Message& message) noexcept {
  Parcel& parcel = carrier_->parcels_[index];
  parcel.lent = true;
  ++lent_;
  parcel.serial = ++carrier_->serial_;
  message = {.data = parcel.data,
             .length = parcel.length,
             .channel = parcel.channel,
             .kind = MessageKind::message,
             .from_local = true,  // so that Endpoint::release() finds no channel and calls us
             .position = index,
             .region_offset = parcel.serial};
  if (parcel.local) {
    ++counters_.local.received_messages;
    counters_.local.received_bytes += parcel.length;
  } else {
    ++counters_[EndpointCounter::received_messages];
    counters_[EndpointCounter::received_bytes] += parcel.length;
  }
}

bool Emulated::receive(Message& message) noexcept {
  std::unique_lock lock(carrier_->mutex_, std::defer_lock);
  if (waiting_.load(std::memory_order_relaxed) != 0) {
    lock.lock();
  } else {
    if (!lock.try_lock()) return false;  // the holder of the lock takes our messages, too
    carrier_->pump(this);
  }
  const uint32_t index = carrier_->pop(list_);
  if (index == Carrier::kNone) return false;
  waiting_.store(waiting_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
  lend(index, message);
  return true;
}

void Emulated::release(const Message& message) noexcept {
  const std::lock_guard lock(carrier_->mutex_);
  if (message.position >= carrier_->parcels_.size()) return;
  const Parcel& parcel = carrier_->parcels_[message.position];
  if (parcel.owner != this || !parcel.lent || parcel.serial != message.region_offset) return;  // released before
  --lent_;
  if (parcel.local) {
    carrier_->own().release({.channel = parcel.channel, .from_local = true, .position = parcel.position});
  } else {
    --held_;
    held_bytes_ -= parcel.length;
  }
  carrier_->free_parcel(message.position);
}

bool Emulated::has_message() const noexcept {
  if (waiting_.load(std::memory_order_relaxed) != 0) return true;
  const std::unique_lock lock(carrier_->mutex_, std::try_to_lock);
  if (lock.owns_lock()) carrier_->pump(this);
  return waiting_.load(std::memory_order_relaxed) != 0;
}

// ---- sending

Emulated::State* Emulated::state(Channel channel) const noexcept {
  const auto index = static_cast<uint32_t>(channel);
  return index < carrier_->routes_.size() && carrier_->routes_[index] == this ? carrier_->own().find(channel) : nullptr;
}

SendOutcome Emulated::sent(const State& state, SendOutcome outcome, size_t bytes) noexcept {
  if (outcome != SendOutcome::sent) return outcome;
  if (state.kind == control::ChannelKind::local) {
    ++counters_.local.sent_messages;
    counters_.local.sent_bytes += bytes;
  } else {
    ++counters_[EndpointCounter::sent_messages];
    counters_[EndpointCounter::sent_bytes] += bytes;
    sent_until_ = carrier_->own().queues()->submitted();
  }
  return outcome;
}

SendOutcome Emulated::send(Channel channel, Bytes data, bool more) noexcept {
  const std::lock_guard lock(carrier_->mutex_);
  const State* const to = state(channel);
  if (to == nullptr) return SendOutcome::no_channel;
  return sent(*to, carrier_->own().send(channel, data, more), data.size());
}

// The carrier has one reservation, and others may send before this one is posted. This therefore uses a buffer and a copy.
MutableBytes Emulated::reserve(Channel channel, uint32_t length) noexcept {
  reserved_ = 0;
  if (!traits(channel).open || length > kMessageMax) return {};
  const uint32_t size = std::max<uint32_t>(length, 1);
  if (reservation_size_ < size) {
    reservation_.reset(new std::byte[size]);
    reservation_size_ = size;
  }
  reserved_ = size;
  return {reservation_.get(), size};
}

SendOutcome Emulated::post(Channel channel, uint32_t length, bool more) noexcept {
  if (!traits(channel).open) return SendOutcome::no_channel;
  if (length > reserved_ || reserved_ == 0) return SendOutcome::too_long;
  const SendOutcome outcome = send(channel, {reservation_.get(), length}, more);
  if (outcome == SendOutcome::sent) reserved_ = 0;
  return outcome;
}

SendOutcome Emulated::put(Channel channel, uint64_t region_offset, Bytes data, bool notify, bool more) noexcept {
  std::unique_lock lock(carrier_->mutex_);
  const State* const to = state(channel);
  if (to == nullptr || !to->open) return SendOutcome::no_channel;
  if (to->open_local != nullptr && !to->mapped_region) {
    lock.unlock();
    if (!map_peer_region(channel)) return SendOutcome::out_of_bounds;
    lock.lock();
  }
  return sent(*to, carrier_->own().put(channel, region_offset, data, notify, more), data.size());
}

bool Emulated::has_room(Channel channel) noexcept {
  const std::lock_guard lock(carrier_->mutex_);
  return state(channel) == nullptr || carrier_->own().has_room(channel);
}

Result<MutableBytes> Emulated::expose(uint64_t /*bytes*/) {
  return fail(Errc::invalid_argument, "an emulated endpoint exposes no region: create one with queues of its own for that");
}

Result<uint64_t> Emulated::map_peer_region(Channel channel) {
  std::unique_lock lock(carrier_->mutex_);
  State* const to = state(channel);
  if (to == nullptr || to->local == nullptr) {
    return fail(Errc::not_found, "channel " + std::to_string(static_cast<uint32_t>(channel)) + " is no local channel");
  }
  lock.unlock();  // only its owner changes it
  return carrier_->own().map_region(*to, channel, id_);
}

void Emulated::linger() noexcept {
  std::unique_lock lock(carrier_->mutex_);
  OwnChannels& own = carrier_->own();
  if (own.embedded().has_unsent()) own.embedded().push();
  Connection& connection = carrier_->connection();
  const Nanoseconds start = monotonic_now();
  Nanoseconds paid = 0;
  for (Nanoseconds now = start; sent_until_ && connection.alive();) {
    if (own.queues()->completed(*sent_until_)) {
      sent_until_.reset();
      carrier_->forgive_linger(paid);
      return;
    }
    if (now - start > Endpoint::kLinger || !carrier_->may_linger(now)) return;
    if (own.embedded()) {
      own.embedded().poll();
    } else {
      lock.unlock();
      if (now - start > Endpoint::kDefaultSpin) {
        connection.wait_activity(kMillisecond);
        connection.process();
      }
      lock.lock();
    }
    const Nanoseconds after = monotonic_now();
    carrier_->pay_linger(after - now, after);
    paid += after - now;
    now = after;
  }
}

void Emulated::flush_credits() noexcept {
  const std::lock_guard lock(carrier_->mutex_);
  carrier_->own().flush_credits();
}

// ---- channels

ChannelTraits Emulated::traits(Channel channel) const noexcept {
  const std::lock_guard lock(carrier_->mutex_);
  const State* const of = state(channel);
  if (of == nullptr) return {};
  return *of;
}

bool Emulated::has_locals() const noexcept {
  const std::lock_guard lock(carrier_->mutex_);
  return std::any_of(mine_.begin(), mine_.end(), [this](const Mine& each) { return carrier_->own().local(each.channel) != nullptr; });
}

std::vector<Channel> Emulated::ni_channels() const {
  const std::lock_guard lock(carrier_->mutex_);
  std::vector<Channel> list;
  for (const Mine& each : mine_) {
    if (carrier_->own().traits(each.channel).kind == control::ChannelKind::ni) list.push_back(each.channel);
  }
  return list;
}

void Emulated::opening(uint64_t asked) noexcept {
  const std::lock_guard lock(carrier_->mutex_);
  carrier_->opening_.push_back(this);
  carrier_->openings_ += asked;
}

void Emulated::opened() noexcept {
  const std::lock_guard lock(carrier_->mutex_);
  auto& opening = carrier_->opening_;
  const auto at = std::find(opening.begin(), opening.end(), this);
  UNET_CHECK(at != opening.end());
  opening.erase(at);
  if (opening.empty()) carrier_->drop_unowned();
}

Result<Channel> Emulated::adopt(const control::ChannelInfo& info, std::vector<Descriptor> descriptors) {
  const std::lock_guard lock(carrier_->mutex_);
  auto channel = carrier_->own().adopt(info, std::move(descriptors));
  if (!channel) return channel;
  // If the number had an owner before: one that closed the channel loses the number, and one that did not is not told again.
  if (Emulated* const before = carrier_->routes_[info.channel]; before != nullptr) {
    std::erase_if(before->mine_, [&](const Mine& each) { return each.channel == *channel; });
  }
  carrier_->routes_[info.channel] = this;
  carrier_->closed_until_[info.channel] = 0;
  mine_.push_back({*channel, false});
  carrier_->adopt_unowned(info.channel, *this);
  if (info.kind == control::ChannelKind::local) carrier_->wake_leader();  // the leader's announcement does not cover this channel
  return channel;
}

bool Emulated::end(Channel channel) noexcept {
  const std::lock_guard lock(carrier_->mutex_);
  const auto at = std::find_if(mine_.begin(), mine_.end(), [&](const Mine& each) { return each.channel == channel; });
  if (at == mine_.end()) return false;
  carrier_->own().end(channel);
  return !std::exchange(at->ended, true);
}

bool Emulated::forget(Channel channel) noexcept {
  const ChannelTraits before = traits(channel);
  if (before.open && before.kind == control::ChannelKind::ni) linger();
  const std::lock_guard lock(carrier_->mutex_);
  State* const of = state(channel);
  if (of == nullptr) return false;
  for (uint32_t pumped = 0; pumped < kCarrierOptions.receive_depth; pumped += Carrier::kPumped) carrier_->pump(nullptr);
  if (of->local != nullptr) {
    const LocalCounters counted = of->local->counters();
    counters_.local.bad_descriptor += counted.bad_descriptor;
    counters_.local.wakeups += counted.wakeups;
    carrier_->free_all_of(*this, channel);
  }
  carrier_->own().clear(*of);
  const auto index = static_cast<uint32_t>(channel);
  carrier_->routes_[index] = nullptr;
  carrier_->closed_until_[index] = carrier_->openings_ + kNotReused;
  std::erase_if(mine_, [&](const Mine& each) { return each.channel == channel; });
  return true;
}

void Emulated::forget_all() noexcept {
  // Another thread that adopts one of our old numbers removes it from the list.
  const auto last = [this]() -> std::optional<Channel> {
    const std::lock_guard lock(carrier_->mutex_);
    return mine_.empty() ? std::nullopt : std::optional(mine_.back().channel);
  };
  while (const auto channel = last()) forget(*channel);
  const std::lock_guard lock(carrier_->mutex_);
  carrier_->all_.erase(id_);
}

// ---- inspection

ChannelSet::Counters Emulated::counters() const {
  const std::lock_guard lock(carrier_->mutex_);
  Counters result;
  for (size_t i = 0; i < kEndpointCounters; ++i) result.emplace_back(kEndpointCounterNames[i], counters_.values[i]);
  LocalCounters sum = counters_.local;
  for (const Mine& each : mine_) {
    const LocalChannel* const local = carrier_->own().local(each.channel);
    if (local == nullptr) continue;
    sum.bad_descriptor += local->counters().bad_descriptor;
    sum.wakeups += local->counters().wakeups;
  }
  OwnChannels::add_local_counters(result, sum);
  result.emplace_back("gathered_messages", 0);
  result.emplace_back("unclaimed_messages", carrier_->unclaimed_);  // of all endpoints of the carrier
  return result;
}

}  // namespace unet
