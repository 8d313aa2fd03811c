// router_discovery.h - when a host asks for routers (RFC 4861, 6.3.7), and when it reports what routers have changed; used by Host.
#pragma once

#include <algorithm>
#include <cstdint>

#include "unet/base/time.h"

namespace unet::ip {

class RouterDiscovery {
 public:
  // The first solicitation is due at `first`.
  void start(Nanoseconds first) noexcept { next_question_ = first; }
  // True: a solicitation is due now.
  bool poll_question(Nanoseconds now) noexcept {
    if (next_question_ > now) return false;
    next_question_ = ++questions_ >= kQuestions ? kNever : now + kQuestionEvery;
    return true;
  }
  // A router has answered.
  void stop() noexcept { next_question_ = kNever; }

  // Advertisements change something. They may come at any rate, so changes() counts them at most once in kPublishEvery.
  void note_change() noexcept { is_pending_ = true; }
  void publish(Nanoseconds now) noexcept {
    if (now < next_publication()) return;
    is_pending_ = false;
    published_at_ = now;
    ++changes_;
  }
  uint64_t changes() const noexcept { return changes_; }

  Nanoseconds next_event() const noexcept { return std::min(next_question_, next_publication()); }

 private:
  static constexpr uint32_t kQuestions = 3;  // RFC 4861, 10
  static constexpr Nanoseconds kQuestionEvery = 4 * kSecond;
  static constexpr Nanoseconds kPublishEvery = kSecond;

  Nanoseconds next_publication() const noexcept { return is_pending_ ? published_at_ + kPublishEvery : kNever; }

  uint32_t questions_ = 0;
  bool is_pending_ = false;
  Nanoseconds next_question_ = kNever;
  Nanoseconds published_at_ = 0;
  uint64_t changes_ = 0;
};

}  // namespace unet::ip
