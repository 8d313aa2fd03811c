// signalling_times.h - the times and table sizes of the signalling machine; used by its parts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "unet/base/time.h"

namespace unet::service {

// A message is repeated after 20 ms, then after twice as long each time, at most every 500 ms.
constexpr Nanoseconds kFirstInterval = 20 * kMillisecond;
constexpr Nanoseconds kLastInterval = 500 * kMillisecond;
constexpr Nanoseconds doubled(Nanoseconds interval) noexcept { return std::min(2 * interval, kLastInterval); }

constexpr Nanoseconds kResolveFor = 3 * kSecond;       // then the connect fails: no such host
constexpr uint32_t kAttemptsBeforeResolve = 5;         // unanswered attempts at a learned address, after which it is resolved again
constexpr Nanoseconds kAnswerKept = 5 * kSecond;       // lifetime of an answer, for duplicates of the request
constexpr Nanoseconds kCloseFor = 3 * kSecond;         // least time for which a close is repeated

constexpr Nanoseconds kConfirmFor = 4 * kSecond;       // longest wait for a confirm, whatever silence the remote NI announced

constexpr uint32_t kQuestions = 4;                     // unanswered questions until an NI counts as lost
constexpr uint32_t kAskedAtOnce = 256;                 // questions at once when more are due, so that an engine's mailbox has room
constexpr Nanoseconds kLostAfterMin = 100 * kMillisecond;
constexpr Nanoseconds kLostAfterMax = 3600 * kSecond;

constexpr size_t kPeersMax = 4096;
constexpr size_t kOfferedMax = 4096;      // requests that wait for an application
constexpr size_t kAnsweredMax = 16 * 1024;
constexpr size_t kClosingsMax = 4096;     // closes that are repeated; further ones are sent once
constexpr size_t kTransmitsMax = 16 * 1024;
constexpr size_t kUnaskedMax = 64;        // waiting transmits from which on unknown channels of a question are not answered

}  // namespace unet::service
