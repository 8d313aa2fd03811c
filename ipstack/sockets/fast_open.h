// fast_open.h - cookies of TCP Fast Open (RFC 7413): those of this server for its clients, and those from other servers; used by the stack.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ipstack/sockets/keyed_hash.h"
#include "unet/base/bytes.h"
#include "unet/base/time.h"

namespace unet::sockets {

// Makes and checks cookies: a hash of both addresses with a key that changes each hour. The key of the last hour is good, too. No state per
// client is stored.
class FastOpenCookies {
 public:
  static constexpr size_t kBytes = 8;
  using Cookie = std::array<std::byte, kBytes>;
  enum class Verdict : uint8_t { bad, good, old };  // old: valid, but the client should get a new one

  explicit FastOpenCookies(const HashKey& key) : key_(key) {}

  Cookie make(const ip::IpAddress& local, const ip::IpAddress& remote, Nanoseconds now) const noexcept {
    return of_epoch(local, remote, now / kEpoch);
  }
  Verdict check(Bytes cookie, const ip::IpAddress& local, const ip::IpAddress& remote, Nanoseconds now) const noexcept {
    const auto is = [&](uint64_t epoch) {
      const Cookie expected = of_epoch(local, remote, epoch);
      return cookie.size() == kBytes && std::memcmp(cookie.data(), expected.data(), kBytes) == 0;
    };
    const uint64_t epoch = now / kEpoch;
    return is(epoch) ? Verdict::good : epoch != 0 && is(epoch - 1) ? Verdict::old : Verdict::bad;
  }

 private:
  static constexpr Nanoseconds kEpoch = 3600 * kSecond;
  Cookie of_epoch(const ip::IpAddress& local, const ip::IpAddress& remote, uint64_t epoch) const noexcept {
    const uint64_t hash = keyed_hash(key_, {local, 0}, {remote, 0}, epoch << 8 | 3);
    Cookie cookie;
    std::memcpy(cookie.data(), &hash, kBytes);
    return cookie;
  }

  const HashKey key_;
};

// Cookies from servers, by address: a table of fixed size, in which a new entry replaces an older one.
class FastOpenCache {
 public:
  struct Entry {
    ip::IpAddress server{};         // unspecified: free
    uint16_t mss = 0;               // MSS that the server announced
    uint8_t bytes = 0;              // length of the cookie; 0: the server gave none
    std::array<std::byte, 16> cookie{};
    Nanoseconds not_before = 0;     // no fast open before this time, as the path loses such SYNs

    Bytes value() const noexcept { return Bytes(cookie).first(bytes); }
  };

  explicit FastOpenCache(const HashKey& key) : key_(key) {}

  const Entry* find(const ip::IpAddress& server) const noexcept {
    const Entry& entry = entries_[place(server)];
    return entry.server == server && !server.is_unspecified() ? &entry : nullptr;
  }
  void learn(const ip::IpAddress& server, Bytes cookie, uint16_t mss) noexcept {
    if (cookie.size() < 4 || cookie.size() > 16) return;  // RFC 7413, 4.1.1
    Entry& entry = claim(server);
    entry.mss = mss;
    entry.bytes = static_cast<uint8_t>(cookie.size());
    std::copy(cookie.begin(), cookie.end(), entry.cookie.begin());
  }
  // Call when a SYN with a cookie or cookie request had no answer, but one without had (RFC 7413, 7.1). It disables fast open for an hour,
  // as Linux does.
  void avoid(const ip::IpAddress& server, Nanoseconds now) noexcept { claim(server).not_before = now + 3600 * kSecond; }

 private:
  static constexpr size_t kPlaces = 256;
  size_t place(const ip::IpAddress& server) const noexcept { return keyed_hash(key_, {server, 0}, {}, 4) % kPlaces; }
  Entry& claim(const ip::IpAddress& server) noexcept {
    Entry& entry = entries_[place(server)];
    if (entry.server != server) entry = {.server = server};
    return entry;
  }

  const HashKey key_;
  std::vector<Entry> entries_ = std::vector<Entry>(kPlaces);
};

}  // namespace unet::sockets
