// fast_open_state.h - TCP Fast Open (RFC 7413) of one connection: the cookie until the handshake is over, and the data of the SYN. Used by
// Connection.
#pragma once

#include <algorithm>

#include "ipstack/tcp/chunk_pool.h"
#include "ipstack/tcp/info.h"
#include "unet/base/check.h"

namespace unet::tcp {

class FastOpenState {
 public:
  // Client. An empty `cookie` asks for one. Otherwise the SYN carries it, and at most `data_max` bytes of options and data.
  void request(ChunkPool& pool, Bytes cookie, uint16_t data_max) noexcept {
    keep(pool, cookie);
    used_ = has_cookie();
    failure_ = cookie.empty() ? FastOpenFailure::no_cookie : FastOpenFailure::none;
    syn_data_ = !used_ || cookie.empty() ? uint16_t{0} : data_max;
  }
  // Server. `valid`: the SYN has a valid cookie. `cookie`: for the next connection; empty: none.
  void answer(ChunkPool& pool, bool valid, Bytes cookie) noexcept {
    used_ = valid;
    if (!cookie.empty()) keep(pool, cookie);
  }
  // Client: the SYN has the option. Server: the SYN had a valid cookie.
  bool is_used() const noexcept { return used_; }

  bool has_cookie() const noexcept { return cookie_ != kNoChunk; }
  Bytes cookie(const ChunkPool& pool) const noexcept {
    if (!has_cookie()) return {};
    const std::byte* const at = pool.data(cookie_);
    return {at + 1, static_cast<size_t>(at[0])};
  }
  void drop_cookie(ChunkPool& pool) noexcept {
    if (has_cookie()) pool.give_back(cookie_);
    cookie_ = kNoChunk;
  }

  uint16_t syn_data() const noexcept { return syn_data_; }  // bytes sent with the SYN; before that, the limit
  void set_syn_data(uint16_t bytes) noexcept { syn_data_ = bytes; }
  // The peer has taken `taken` of the `sent` bytes of our SYN.
  void handle_answer(uint32_t taken, uint32_t sent, bool syn_resent) noexcept {
    data_taken_ = taken != 0;
    if (taken < sent) failure_ = syn_resent ? FastOpenFailure::syn_repeated : FastOpenFailure::data_not_taken;
  }
  void set_data_taken(bool taken) noexcept { data_taken_ = taken; }
  bool data_taken() const noexcept { return data_taken_; }
  FastOpenFailure failure() const noexcept { return failure_; }

 private:
  static constexpr size_t kCookieMax = 16;  // RFC 7413, 4.1.1

  void keep(ChunkPool& pool, Bytes cookie) noexcept {
    UNET_CHECK(cookie.size() <= kCookieMax);
    if (!has_cookie()) cookie_ = pool.take();
    if (!has_cookie()) return;
    std::byte* const at = pool.data(cookie_);
    at[0] = static_cast<std::byte>(cookie.size());
    std::copy(cookie.begin(), cookie.end(), at + 1);
  }

  ChunkIndex cookie_ = kNoChunk;  // the length, then the cookie
  uint16_t syn_data_ = 0;
  bool used_ : 1 = false;
  bool data_taken_ : 1 = false;
  FastOpenFailure failure_ : 2 = FastOpenFailure::none;
};

}  // namespace unet::tcp
