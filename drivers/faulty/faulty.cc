// faulty.cc - the faults, and memory for delayed frames.
#include "drivers/faulty/faulty.h"

#include <algorithm>
#include <cstring>

#include "unet/base/check.h"

namespace unet::drivers {

namespace {

constexpr uint32_t kBurst = 32;

// splitmix64 (Steele, Lea, Flood 2014): small, and good enough to decide faults.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}
  uint64_t next() noexcept {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  bool hit(double probability) noexcept {
    // A fault that is off draws nothing, so switching one on changes the sequence of all later draws.
    return probability > 0 && static_cast<double>(next() >> 11) * 0x1.0p-53 < probability;
  }
  uint64_t below(uint64_t limit) noexcept { return limit == 0 ? 0 : next() % limit; }

 private:
  uint64_t state_;
};

}  // namespace

// A copy of a frame that waits, or that the engine has received and not yet released.
struct Faulty::Held {
  Nanoseconds due;
  uint64_t order;
  std::byte* data;
  uint32_t length;
  bool waits_for_later;  // reordered: leaves after a later frame, or at `due`
};

// One direction: its random generator and its delayed frames.
class Faulty::Line {
 public:
  struct Counters {
    uint64_t passed = 0, lost = 0, duplicated = 0, reordered = 0, corrupted = 0, delayed = 0, overflow = 0;
  };

  Line(const FaultyOptions& options, uint32_t room, uint64_t seed)
      : options_(options), dice_(seed), room_(room), memory_(new std::byte[size_t{room} * options.frames]), pool_(options.frames) {
    free_.reserve(pool_.size());
    waiting_.reserve(pool_.size());
    for (size_t i = pool_.size(); i-- > 0;) {
      pool_[i].data = memory_.get() + i * room;
      free_.push_back(&pool_[i]);
    }
  }

  // Applies the faults to a frame. True: forward it unchanged. False: it was lost, or a copy of it waits here.
  bool meet(const std::byte* data, uint32_t length, const std::byte* external, uint32_t external_length, Nanoseconds now) noexcept {
    if (dice_.hit(options_.loss)) {
      ++counters_.lost;
      return false;
    }
    const bool corrupt = dice_.hit(options_.corrupt);
    const bool duplicate = dice_.hit(options_.duplicate);
    const uint32_t total = length + external_length;
    const Nanoseconds due = due_time(total, now);
    const bool reorder = dice_.hit(options_.reorder);
    // Waiting frames go first, except those that wait to be overtaken.
    if (!corrupt && !duplicate && !reorder && due <= now && !blocked()) {
      overtake(now);
      ++counters_.passed;
      return true;
    }
    const std::pair<const std::byte*, uint32_t> pieces[] = {{data, length}, {external, external_length}};
    Held* held = hold(pieces, reorder ? std::max(due, now + options_.reorder_hold) : due, reorder);
    if (held == nullptr) return false;
    counters_.reordered += reorder;
    counters_.delayed += due > now;
    if (corrupt && total > 0) {
      ++counters_.corrupted;
      for (uint64_t bits = 1 + dice_.below(options_.corrupt_bits); bits > 0; --bits) {
        held->data[dice_.below(total)] ^= static_cast<std::byte>(1u << dice_.below(8));
      }
    }
    if (duplicate) {
      const std::pair<const std::byte*, uint32_t> copy[] = {{held->data, held->length}, {nullptr, 0}};
      if (hold(copy, due, false) != nullptr) ++counters_.duplicated;
    }
    if (!reorder) overtake(now);
    return false;
  }

  // The waiting frame that is due next, or null. take() removes it from the queue, give_back() frees it.
  Held* due(Nanoseconds now) noexcept { return !waiting_.empty() && waiting_.front()->due <= now ? waiting_.front() : nullptr; }
  void take() noexcept {
    std::pop_heap(waiting_.begin(), waiting_.end(), later);
    waiting_.pop_back();
  }
  void give_back(Held* held) noexcept { free_.push_back(held); }
  Nanoseconds next_event() const noexcept { return waiting_.empty() ? kNever : waiting_.front()->due; }
  bool owns(const void* handle) const noexcept { return handle >= pool_.data() && handle < pool_.data() + pool_.size(); }
  bool blocked() const noexcept { return in_order_ != 0; }
  void gone(const Held& held) noexcept { in_order_ -= !held.waits_for_later; }
  Counters& counters() noexcept { return counters_; }

 private:
  static bool later(const Held* a, const Held* b) noexcept { return a->due != b->due ? a->due > b->due : a->order > b->order; }

  Nanoseconds due_time(uint32_t bytes, Nanoseconds now) noexcept {
    Nanoseconds time = now;
    if (options_.bits_per_second != 0) {
      line_free_ = std::max(line_free_, now) + uint64_t{bytes} * 8 * kSecond / options_.bits_per_second;
      time = line_free_;
    }
    if (options_.delay_max != 0) time += options_.delay_min + dice_.below(options_.delay_max - options_.delay_min + 1);
    return time;
  }

  Held* hold(std::span<const std::pair<const std::byte*, uint32_t>, 2> pieces, Nanoseconds due, bool waits_for_later) noexcept {
    const uint32_t length = pieces[0].second + pieces[1].second;
    if (free_.empty() || length > room_) {
      ++counters_.overflow;
      return nullptr;
    }
    Held* held = free_.back();
    free_.pop_back();
    if (pieces[0].second != 0) std::memcpy(held->data, pieces[0].first, pieces[0].second);
    if (pieces[1].second != 0) std::memcpy(held->data + pieces[0].second, pieces[1].first, pieces[1].second);
    held->length = length;
    held->due = due;
    held->order = order_++;
    held->waits_for_later = waits_for_later;
    in_order_ += !waits_for_later;
    waiting_.push_back(held);
    std::push_heap(waiting_.begin(), waiting_.end(), later);
    return held;
  }

  // A frame was forwarded: frames that waited to be overtaken may follow.
  void overtake(Nanoseconds now) noexcept {
    if (waiting_.size() == in_order_) return;
    for (Held* held : waiting_) {
      if (!held->waits_for_later) continue;
      held->due = std::min(held->due, now);
      held->order = order_++;  // behind every frame that came before now
    }
    std::make_heap(waiting_.begin(), waiting_.end(), later);
  }

  const FaultyOptions options_;
  Dice dice_;
  uint32_t room_;
  std::unique_ptr<std::byte[]> memory_;
  std::vector<Held> pool_;
  std::vector<Held*> free_;
  std::vector<Held*> waiting_;  // a heap, the earliest frame on top
  size_t in_order_ = 0;         // waiting frames that a later frame must not overtake
  uint64_t order_ = 0;
  Nanoseconds line_free_ = 0;
  Counters counters_;
};

Faulty::Faulty(std::unique_ptr<Driver> wire, const FaultyOptions& options)
    : Wrapper(std::move(wire)), options_(options) {
  UNET_CHECK(options_.delay_min <= options_.delay_max);
  const uint32_t room = (capabilities_.mtu + kEthernetBytes + 63) / 64 * 64;
  if (options_.direction != FaultyDirection::transmit) receive_line_ = std::make_unique<Line>(options_, room, options_.seed * 2);
  if (options_.direction != FaultyDirection::receive) transmit_line_ = std::make_unique<Line>(options_, room, options_.seed * 2 + 1);
}

Faulty::~Faulty() = default;

uint32_t Faulty::receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept {
  pass_on(now);
  if (receive_line_ == nullptr) return wire_->receive(frames, now);
  uint32_t count = 0;
  const auto take_due = [&] {
    for (Held* held; count < frames.size() && (held = receive_line_->due(now)) != nullptr;) {
      receive_line_->take();
      receive_line_->gone(*held);
      frames[count++] = {.data = held->data, .length = held->length, .handle = held};
    }
  };
  take_due();
  while (count < frames.size()) {
    const auto arrived = frames.subspan(count, std::min<size_t>(frames.size() - count, kBurst));
    const uint32_t got = wire_->receive(arrived, now);
    ReceivedFrame unwanted[kBurst];
    uint32_t unwanted_count = 0;
    for (uint32_t i = 0; i < got; ++i) {
      const ReceivedFrame frame = arrived[i];
      if (receive_line_->meet(frame.data, frame.length, nullptr, 0, now)) {
        frames[count++] = frame;
      } else {
        unwanted[unwanted_count++] = frame;
      }
    }
    wire_->release({unwanted, unwanted_count});
    take_due();
    if (got < arrived.size()) break;
  }
  return count;
}

void Faulty::release(std::span<const ReceivedFrame> frames) noexcept {
  if (receive_line_ == nullptr) return wire_->release(frames);
  for (const ReceivedFrame& frame : frames) {
    if (receive_line_->owns(frame.handle)) {
      receive_line_->give_back(static_cast<Held*>(frame.handle));
    } else {
      wire_->release({&frame, 1});
    }
  }
}

uint32_t Faulty::allocate(std::span<TransmitFrame> frames) noexcept { return wire_->allocate(frames); }

void Faulty::discard(std::span<const TransmitFrame> frames) noexcept { wire_->discard(frames); }

uint32_t Faulty::transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept {
  if (transmit_line_ == nullptr) return wire_->transmit(frames, now);
  pass_on(now);
  uint32_t done = 0;
  for (TransmitFrame& frame : frames) {
    if (transmit_line_->due(now) != nullptr) break;  // the wire is full
    const Line::Counters before = transmit_line_->counters();
    if (transmit_line_->meet(frame.data, frame.length, frame.external, frame.external_length, now)) {
      if (wire_->transmit({&frame, 1}, now) == 0) {
        // The wire is full: the engine holds the frame, and the next attempt draws again.
        transmit_line_->counters() = before;
        break;
      }
    } else {
      if (frame.external != nullptr && frame.completion != nullptr) --frame.completion->pending;
      wire_->discard({&frame, 1});
    }
    ++done;
    pass_on(now);
  }
  return done;
}

// Sends the frames that are due.
void Faulty::pass_on(Nanoseconds now) noexcept {
  if (transmit_line_ == nullptr) return;
  while (Held* held = transmit_line_->due(now)) {
    TransmitFrame frame;
    if (wire_->allocate({&frame, 1}) == 0) return;
    std::memcpy(frame.data, held->data, held->length);
    frame.length = held->length;
    if (wire_->transmit({&frame, 1}, now) == 0) {
      wire_->discard({&frame, 1});
      return;
    }
    transmit_line_->take();
    transmit_line_->gone(*held);
    transmit_line_->give_back(held);
  }
}

void Faulty::poll(Nanoseconds now) noexcept {
  pass_on(now);
  wire_->poll(now);
}

Nanoseconds Faulty::next_event() const noexcept {
  Nanoseconds next = wire_->next_event();
  for (const auto& line : {receive_line_.get(), transmit_line_.get()}) {
    if (line != nullptr) next = std::min(next, line->next_event());
  }
  return next;
}

bool Faulty::register_memory(std::span<std::byte> memory) noexcept { return wire_->register_memory(memory); }

void Faulty::forget_memory(std::span<std::byte> memory) noexcept { wire_->forget_memory(memory); }

std::vector<DriverCounter> Faulty::counters() const {
  std::vector<DriverCounter> all = wire_->counters();
  const auto add = [&](const std::string& prefix, Line& line) {
    const Line::Counters& c = line.counters();
    for (const auto& [name, value] : {std::pair<const char*, uint64_t>{"passed", c.passed}, {"lost", c.lost},
                                      {"duplicated", c.duplicated}, {"reordered", c.reordered}, {"corrupted", c.corrupted},
                                      {"delayed", c.delayed}, {"overflow", c.overflow}}) {
      all.push_back({prefix + name, value});
    }
  };
  if (receive_line_ != nullptr) add("faulty_rx_", *receive_line_);
  if (transmit_line_ != nullptr) add("faulty_tx_", *transmit_line_);
  return all;
}

std::string Faulty::description() const { return "faulty (seed " + std::to_string(options_.seed) + ") over " + wire_->description(); }

}  // namespace unet::drivers
