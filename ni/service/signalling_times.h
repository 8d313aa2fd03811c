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

constexpr Nanoseconds kResolveFor = 3 * kSecond;       // then the host is not there
constexpr uint32_t kAttemptsBeforeResolve = 5;         // unanswered at a learned address: it may have moved
constexpr Nanoseconds kAnswerKept = 5 * kSecond;       // for duplicates of a request
constexpr Nanoseconds kCloseFor = 3 * kSecond;         // repeating a close, at least

constexpr Nanoseconds kConfirmFor = 4 * kSecond;       // at most, for an answer: whatever silence the other NI allows itself

constexpr uint32_t kQuestions = 4;                     // unanswered ones until an NI counts as lost
constexpr uint32_t kAskedAtOnce = 256;                 // of other NIs, when more are due: an engine's mailbox has room for them
constexpr Nanoseconds kLostAfterMin = 100 * kMillisecond;
constexpr Nanoseconds kLostAfterMax = 3600 * kSecond;

constexpr size_t kPeersMax = 4096;
constexpr size_t kOfferedMax = 4096;      // requests that wait for an application
constexpr size_t kAnsweredMax = 16 * 1024;
constexpr size_t kClosingsMax = 4096;     // closes that are repeated; more are sent once
constexpr size_t kTransmitsMax = 16 * 1024;
constexpr size_t kUnaskedMax = 64;        // of them, when a question would be answered by many

}  // namespace unet::service
