// syn_cookies.cc - making and checking SYN cookies.
#include "ipstack/sockets/syn_cookies.h"

#include <algorithm>
#include <array>

namespace unet::sockets {
namespace {

constexpr std::array<uint16_t, 8> kCookieMss{216, 536, 1220, 1380, 1440, 1460, 4312, 8940};
constexpr Nanoseconds kCookieTick = 64 * kSecond;
constexpr uint32_t kCookieTicks = 2;  // validity of a cookie, in ticks of its clock
constexpr uint32_t kScaleBits = 15, kNoScale = kScaleBits, kSackBit = 16, kStampBits = kScaleBits | kSackBit;  // bits of a timestamp

uint32_t cookie_of(const HashKey& key, const Address& local, const Address& remote, uint32_t sequence, uint64_t tick,
                   uint32_t mss) noexcept {
  const uint64_t more = uint64_t{sequence} << 32 | (tick & 0xFFFFFF) << 3 | mss;
  const auto hash = static_cast<uint32_t>(keyed_hash({key.first ^ 1, key.second}, local, remote, more));
  return hash << 8 | static_cast<uint32_t>(tick & 31) << 3 | mss;
}

// The SYN's options, from the echo of our timestamp.
ip::TcpOptions options_of(uint32_t stamp) noexcept {
  ip::TcpOptions options;
  const uint32_t scale = stamp & kScaleBits;
  if (scale != kNoScale) options.window_scale = static_cast<uint8_t>(scale);
  options.sack_permitted = (stamp & kSackBit) != 0;
  return options;
}

}  // namespace

uint32_t SynCookies::make(const Address& local, const Address& remote, const ip::TcpView& syn, Nanoseconds now) {
  const uint16_t asked = syn.options.mss != 0 ? syn.options.mss : (local.host.is_ipv4() ? uint16_t{536} : uint16_t{1220});
  uint32_t mss = 0;
  while (mss + 1 < kCookieMss.size() && kCookieMss[mss + 1] <= asked) ++mss;
  sent_at_ = now;
  return cookie_of(key_, local, remote, syn.sequence.value, now / kCookieTick, mss);
}

uint32_t SynCookies::timestamp(uint32_t clock, const ip::TcpOptions& syn) noexcept {
  const bool scales = syn.window_scale != ip::TcpOptions::kNoScale;
  const uint32_t scale = scales ? std::min<uint32_t>(syn.window_scale, kNoScale - 1) : kNoScale;
  const uint32_t said = scale | (syn.sack_permitted ? kSackBit : 0);
  const uint32_t stamp = (clock & ~kStampBits) | said;
  return (clock & kStampBits) < said ? stamp - (kStampBits + 1) : stamp;
}

bool SynCookies::has_recent(Nanoseconds now) const noexcept { return sent_at_ != 0 && now - sent_at_ <= kCookieTicks * kCookieTick; }

SynCookies::Answer SynCookies::check(const Address& local, const Address& remote, const ip::TcpView& segment,
                                     Nanoseconds now) const noexcept {
  const uint32_t cookie = segment.acknowledgement.value - 1;
  const uint64_t now_tick = now / kCookieTick;
  const uint64_t age = (now_tick - (cookie >> 3 & 31)) & 31;
  const bool right = age < kCookieTicks && cookie_of(key_, local, remote, segment.sequence.value - 1, now_tick - age, cookie & 7) == cookie;
  if (right) return Answer::first;
  return now - sent_at_ <= kLate ? Answer::later : Answer::none;
}

ip::TcpView SynCookies::syn_of(const ip::TcpView& answer) noexcept {
  ip::TcpView syn;
  syn.source_port = answer.source_port;
  syn.destination_port = answer.destination_port;
  syn.sequence = answer.sequence - 1;
  syn.flags = ip::TcpFlags::kSyn;
  syn.window = answer.window;
  if (answer.options.has_timestamps) {
    syn.options = options_of(answer.options.timestamp_echo);
    syn.options.has_timestamps = true;
    syn.options.timestamp = answer.options.timestamp;
  }
  syn.options.mss = kCookieMss[(answer.acknowledgement.value - 1) & 7];
  return syn;
}

}  // namespace unet::sockets
