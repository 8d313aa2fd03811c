// address_claim.cc - the timers and counts of RFC 5227, 1.1 and RFC 4862, 5.1.
#include "ipstack/ip/address_claim.h"

#include "unet/base/random.h"

namespace unet::ip {

namespace {

// RFC 5227, 1.1: timers and counts of IPv4.
constexpr Nanoseconds kProbeWait = kSecond, kProbeMin = kSecond, kProbeMax = 2 * kSecond, kAnnounceWait = 2 * kSecond,
                      kAnnounceEvery = 2 * kSecond, kDefendEvery = 10 * kSecond;
constexpr uint32_t kProbes4 = 3, kAnnouncements = 2;
// RFC 4862, 5.1: DupAddrDetectTransmits, and RetransTimer after the last probe.
constexpr uint32_t kProbes6 = 1;
constexpr Nanoseconds kListen6 = kSecond;

}  // namespace

AddressClaim::AddressClaim(const IpAddress& address, const MacAddress& own, bool probe, uint64_t seed, Nanoseconds now) noexcept
    : address_(address), own_(own), random_(seed) {
  if (probe) {
    next_ = now + random(0, kProbeWait);
    return;
  }
  state_ = State::assigned;
  next_ = now;
}

Nanoseconds AddressClaim::random(Nanoseconds from, Nanoseconds to) noexcept {
  return from + (to - from) / 1024 * (next_random(random_) % 1025);
}

void AddressClaim::handle_claim(const IpAddress& sender, const MacAddress& station, Nanoseconds now) noexcept {
  if (sender != address_ || station == own_ || state_ == State::conflict) return;
  if (state_ == State::tentative) {
    state_ = State::conflict;
    next_ = kNever;
    return;
  }
  if (!address_.is_ipv4()) return;
  // RFC 5227, 2.4 (b): defend the address, unless it was defended within kDefendEvery.
  if (defended_ != 0 && now - defended_ < kDefendEvery) {
    state_ = State::conflict;
    next_ = kNever;
    return;
  }
  defended_ = now;
  announcements_ = kAnnouncements - 1;
  next_ = now;
}

void AddressClaim::handle_probe(const IpAddress& target, const MacAddress& station, Nanoseconds) noexcept {
  if (target != address_ || station == own_ || state_ != State::tentative) return;
  state_ = State::conflict;
  next_ = kNever;
}

bool AddressClaim::poll_message(Nanoseconds now, Message& message) noexcept {
  if (now < next_ || state_ == State::conflict) return false;
  const bool ipv4 = address_.is_ipv4();
  if (state_ == State::tentative && probes_ < (ipv4 ? kProbes4 : kProbes6)) {
    message = Message::probe;
    ++probes_;
    if (!ipv4) next_ = now + kListen6;
    else next_ = now + (probes_ < kProbes4 ? random(kProbeMin, kProbeMax) : kAnnounceWait);
    return true;
  }
  state_ = State::assigned;
  if (!ipv4 || announcements_ == kAnnouncements) {
    next_ = kNever;
    return false;
  }
  message = Message::announce;
  ++announcements_;
  next_ = announcements_ < kAnnouncements ? now + kAnnounceEvery : kNever;
  return true;
}

}  // namespace unet::ip
