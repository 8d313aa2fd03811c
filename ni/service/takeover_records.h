// takeover_records.h - how values of the journal's records are written and checked; used by what saves and restores them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "ni/service/journal_link.h"
#include "ni/service/memory.h"
#include "ni/service/requests.h"
#include "unet/base/result.h"
#include "unet/base/time.h"

namespace unet::service {

// ---- records that are restored. Only a network interface can have written them. Still, nothing is believed that would make this one fall.

tl::unexpected<Error> wrong_record(const JournalItem& item, const char* what);

template <typename T>
Result<T> record_value(const JournalItem& item, size_t descriptors) {
  T value;
  if (!item.read(value)) return wrong_record(item, "a value of another size");
  if (item.descriptors.size() != descriptors) return wrong_record(item, "other descriptors than it should have");
  return value;
}

// A record that is one value, which is believed or not.
template <typename T, typename Take>
Status take_record(const JournalItem& item, const char* what, Take take) {
  return record_value<T>(item, 0).and_then([&](const T& value) { return take(value) ? Status{} : Status(wrong_record(item, what)); });
}

// Numbers that only grow: none has got so far, and from there on the next ones could be those that have been.
constexpr uint64_t kJournalNumbersMax = uint64_t{1} << 63;

Result<SharedMemory> map_again(Descriptor memory, uint64_t bytes);
// An engine writes to it in its turn, and must not wait there: it is an eventfd, and one that does not block. Where there is no /proc, what
// it is cannot be seen; whatever it is, it does not block.
bool make_wake(int descriptor);

// ---- times. Records have times of CLOCK_MONOTONIC: the time of each service begins with itself.
inline uint64_t monotonic_of(Nanoseconds at, Nanoseconds now) { return at - now + monotonic_now(); }

inline Nanoseconds time_left(uint64_t monotonic) {
  const Nanoseconds at = monotonic_now();
  return monotonic > at ? std::min(monotonic - at, Requests::kConnectMsMax * kMillisecond) : 0;  // no client can ask for more
}

}  // namespace unet::service
