// dhcp_client.cc - the states, timers and messages of RFC 2131, 4.4.
#include "ipstack/ip/dhcp_client.h"

#include <algorithm>

#include "unet/base/random.h"

namespace unet::ip {
namespace {

constexpr Nanoseconds kFirstWait = 4 * kSecond, kLongestWait = 64 * kSecond;  // RFC 2131, 4.1
constexpr uint32_t kRequestsMax = 4;                                          // 3.1.5: about a minute
constexpr Nanoseconds kAgainAtLeast = 60 * kSecond;                           // 4.4.5: minimum between renewal requests
constexpr Nanoseconds kAfterDecline = 10 * kSecond;                           // 3.1.5
constexpr uint32_t kConflictsMax = 10;                                        // RFC 5227, 1.1: MAX_CONFLICTS in a row; afterwards
constexpr Nanoseconds kAfterConflicts = 60 * kSecond;                         // RATE_LIMIT_INTERVAL

}  // namespace

DhcpClient::DhcpClient(const MacAddress& own, uint16_t size_max, uint64_t seed, Nanoseconds now) noexcept
    : own_(own), size_max_(size_max), random_(seed) {
  next_ = now + next_random(random_) % kSecond;
}

// 4.1: exponential backoff from four seconds, randomized by a second.
Nanoseconds DhcpClient::back_off() noexcept {
  const Nanoseconds wait = std::min(kFirstWait << std::min(tries_ - 1, 4u), kLongestWait);
  return wait - kSecond + next_random(random_) % (2 * kSecond);
}

Nanoseconds DhcpClient::after(Nanoseconds time, uint32_t seconds) const noexcept {
  return seconds == kDhcpForever ? kNever : time + seconds * kSecond;
}

uint16_t DhcpClient::seconds_since_start(Nanoseconds now) const noexcept {
  return static_cast<uint16_t>(std::min<Nanoseconds>((now - started_) / kSecond, 0xFFFF));
}

// Restarts without a lease.
void DhcpClient::restart(Nanoseconds wait, Nanoseconds now) noexcept {
  if (lease_) ++counters_.lost;
  lease_.reset();
  state_ = State::init;
  next_ = now + wait;
}

void DhcpClient::begin(State state, Nanoseconds now) noexcept {
  if (state_ != state && (state == State::selecting || lease_)) started_ = now;
  state_ = state;
  tries_ = 0;
  // 4.4.1: a request has the transaction number of its discover.
  if (state != State::requesting) transaction_ = static_cast<uint32_t>(next_random(random_));
  asked_ = now;
  next_ = now;
}

bool DhcpClient::is_awaited(const DhcpReply& reply) const noexcept {
  if (reply.transaction != transaction_ || reply.station != own_) return false;
  const auto id = dhcp_client_id(own_);
  // RFC 6842, 3: a client identifier must be ours.
  const bool same = std::equal(reply.client_id.begin(), reply.client_id.end(), id.begin(), id.end(),
                               [](std::byte a, uint8_t b) { return std::to_integer<uint8_t>(a) == b; });
  if (!reply.client_id.empty() && !same) return false;
  const bool offer = reply.kind == DhcpKind::offer;
  switch (state_) {
    case State::init: case State::bound: return false;
    case State::selecting: return offer;
    // Only the server that was asked may grant or refuse.
    case State::requesting: case State::renewing: return !offer && reply.server == server_ && tries_ != 0;
    case State::rebinding: return !offer && tries_ != 0;
  }
  return false;
}

void DhcpClient::handle_reply(const DhcpReply& reply, Nanoseconds now) noexcept {
  const bool right = is_awaited(reply) && (reply.kind != DhcpKind::ack || reply.address == wanted_);
  if (!right) {
    ++counters_.ignored;
    return;
  }
  switch (reply.kind) {
    case DhcpKind::offer:
      wanted_ = reply.address;
      server_ = reply.server;
      return begin(State::requesting, now);
    case DhcpKind::ack: return take_ack(reply, now);
    case DhcpKind::nak: {
      ++counters_.refused;
      // A server that offers and then refuses is asked again only after a pause.
      const Nanoseconds wait = failures_ == 0 ? 0 : std::min(kSecond << std::min(failures_, 6u), kLongestWait);
      ++failures_;
      return restart(wait, now);
    }
    case DhcpKind::discover: case DhcpKind::request: case DhcpKind::decline: return;
  }
}

// RFC 2131, 4.4.1 and 4.4.5.
void DhcpClient::take_ack(const DhcpReply& reply, Nanoseconds) noexcept {
  if (lease_) ++counters_.renewed;
  else ++counters_.leases;
  failures_ = 0;
  server_ = reply.server;
  lease_ = DhcpLease{.address = reply.address, .server = reply.server, .prefix = reply.prefix, .router = reply.router, .mtu = reply.mtu,
                     .name_server_count = reply.name_server_count, .name_servers = reply.name_servers};
  uint32_t rebind = reply.rebind_s, renew = reply.renew_s;
  if (reply.lease_s == kDhcpForever) {
    renew = rebind = kDhcpForever;
  } else {
    // Use the server's times if they are in order, else the defaults.
    if (rebind == 0 || rebind >= reply.lease_s) rebind = reply.lease_s - reply.lease_s / 8;
    if (renew == 0 || renew >= rebind) renew = std::min(reply.lease_s / 2, rebind);
  }
  end_ = after(asked_, reply.lease_s);
  rebind_ = after(asked_, rebind);
  renew_ = after(asked_, renew);
  if (renew != kDhcpForever && renew != 0) renew_ -= next_random(random_) % (renew * (kSecond / 16));  // spreads the clients
  state_ = State::bound;
  next_ = renew_;
}

std::optional<LeaseCheckpoint> DhcpClient::checkpoint(Nanoseconds now) const noexcept {
  if (!lease_) return std::nullopt;
  const auto left = [&](Nanoseconds at) { return at == kNever ? kNever : at - std::min(at, now); };
  return LeaseCheckpoint{.lease = *lease_, .renew_in = left(renew_), .rebind_in = left(rebind_), .end_in = left(end_)};
}

void DhcpClient::resume(const LeaseCheckpoint& checkpoint, Nanoseconds now) noexcept {
  if (checkpoint.end_in == 0) return;
  lease_ = checkpoint.lease;
  server_ = checkpoint.lease.server;
  wanted_ = checkpoint.lease.address;
  renew_ = deadline_after(now, checkpoint.renew_in);
  rebind_ = deadline_after(now, checkpoint.rebind_in);
  end_ = deadline_after(now, checkpoint.end_in);
  state_ = State::bound;
  tries_ = 0;
  next_ = renew_;
}

void DhcpClient::handle_conflict(Nanoseconds now) noexcept {
  if (!lease_) return;
  ++counters_.declined;
  // A conflict much later is one of an address in use: it starts a new series.
  conflicts_ = now - std::min(now, asked_) < kAfterConflicts ? conflicts_ + 1 : 1;
  decline_ = true;
  restart(kAfterDecline, now);
  next_ = now;  // to send the decline
}

// Advances the state by the time.
void DhcpClient::advance(Nanoseconds now) noexcept {
  if (lease_ && now >= end_) {
    restart(0, now);
  } else if (lease_ && state_ != State::rebinding && now >= rebind_) {
    begin(State::rebinding, now);
  } else if (state_ == State::bound) {
    begin(State::renewing, now);
  } else if (state_ == State::requesting && tries_ == kRequestsMax) {
    ++failures_;
    restart(0, now);
  }
  if (state_ == State::init) begin(State::selecting, now);
}

bool DhcpClient::poll_message(Nanoseconds now, Message& message) noexcept {
  if (now < next_) return false;
  message = {.fields = {.seconds = 0, .station = own_, .size_max = size_max_}};
  if (decline_) {
    decline_ = false;
    message.fields.kind = DhcpKind::decline;
    message.fields.transaction = static_cast<uint32_t>(next_random(random_));
    message.fields.requested = wanted_;
    message.fields.server = server_;
    next_ = now + (conflicts_ > kConflictsMax ? kAfterConflicts : kAfterDecline);
    ++counters_.sent;
    return true;
  }
  advance(now);
  // A renewal request after a minute or more has a new transaction number.
  if (lease_ && tries_ != 0) begin(state_, now);
  ++tries_;
  ++counters_.sent;
  DhcpFields& fields = message.fields;
  fields.kind = state_ == State::selecting ? DhcpKind::discover : DhcpKind::request;
  fields.transaction = transaction_;
  fields.seconds = seconds_since_start(now);
  fields.broadcast = !lease_;
  if (state_ == State::requesting) {
    fields.requested = wanted_;
    fields.server = server_;
  }
  if (lease_) {
    // 4.4.5: half of the remaining time of this state, but at least a minute.
    const bool renewing = state_ == State::renewing;
    const Nanoseconds until = renewing ? rebind_ : end_;
    next_ = std::min(until, now + std::max((until - now) / 2, kAgainAtLeast));
    fields.client = lease_->address;
    if (renewing) message.to = server_;
    return true;
  }
  next_ = now + back_off();
  return true;
}

}  // namespace unet::ip
