// timer_heap.h - finds the socket with the earliest timer, among any number; used by the stack.
//
// A timer that moves to a later time, as most do with each segment, keeps its place. Its entry is moved when the old time comes, so a
// segment costs the heap nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "unet/base/time.h"

namespace unet::sockets {

class TimerHeap {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  // Items below `count` may have timers. Entries take memory only while a timer is set, and idle connections have none.
  void reserve(uint32_t count) { places_.resize(count, kNone); }

  // Sets the timer of `item` to `at`; kNever: it has none. An earlier entry of the item stays until take() returns it.
  void set(uint32_t item, Nanoseconds at) {
    const uint32_t place = places_[item];
    if (place == kNone) {
      if (at == kNever) return;
      entries_.push_back({at, item});
      places_[item] = static_cast<uint32_t>(entries_.size() - 1);
      up(places_[item]);
    } else if (at < entries_[place].at) {
      entries_[place].at = at;
      up(place);
    }
  }
  void remove(uint32_t item) noexcept {
    const uint32_t place = places_[item];
    if (place == kNone) return;
    places_[item] = kNone;
    const Entry last = entries_.back();
    entries_.pop_back();
    if (place == entries_.size()) return;
    put(place, last);
    up(place);
    down(places_[last.item]);
  }

  // No timer is due before this.
  Nanoseconds first() const noexcept { return entries_.empty() ? kNever : entries_.front().at; }
  // Removes and returns the first item with an entry up to `now`; kNone: there is none. The caller checks whether the timer is due, and
  // sets it again.
  uint32_t take(Nanoseconds now) noexcept {
    if (first() > now) return kNone;
    const uint32_t item = entries_.front().item;
    remove(item);
    return item;
  }

 private:
  static constexpr uint32_t kWays = 4;
  struct Entry {
    Nanoseconds at;
    uint32_t item;
  };

  void put(uint32_t place, const Entry& entry) noexcept {
    entries_[place] = entry;
    places_[entry.item] = place;
  }
  void up(uint32_t place) noexcept {
    const Entry entry = entries_[place];
    while (place != 0) {
      const uint32_t parent = (place - 1) / kWays;
      if (entries_[parent].at <= entry.at) break;
      put(place, entries_[parent]);
      place = parent;
    }
    put(place, entry);
  }
  void down(uint32_t place) noexcept {
    const Entry entry = entries_[place];
    const auto size = static_cast<uint32_t>(entries_.size());
    while (true) {
      uint32_t least = place * kWays + 1;
      if (least >= size) break;
      for (uint32_t child = least + 1; child < size && child < place * kWays + 1 + kWays; ++child) {
        if (entries_[child].at < entries_[least].at) least = child;
      }
      if (entries_[least].at >= entry.at) break;
      put(place, entries_[least]);
      place = least;
    }
    put(place, entry);
  }

  std::vector<Entry> entries_;
  std::vector<uint32_t> places_;  // by item
};

}  // namespace unet::sockets
