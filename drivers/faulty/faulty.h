// faulty.h - a wrapper that loses, duplicates, reorders, corrupts, delays and throttles frames, by a seed; to test a program on a bad
// network.
//
// All faults draw from one generator, so that a seed and a sequence of frames give the same result every time. They apply to each frame of
// the chosen direction in this order:
//   loss -> corrupt (one to `corrupt_bits` bits) -> duplicate -> rate (serialisation) -> delay (uniform) -> reorder
// A frame without a fault passes unchanged and uncopied. A delayed, throttled, duplicated, corrupted or reordered frame is copied into
// memory that the constructor allocated. When that is full, the frame is lost and counted as `faulty_overflow`.
//
// A reordered frame waits until a later one has passed it, at most `reorder_hold`. Different delays reorder frames, too.
#pragma once

#include <cstdint>
#include <memory>

#include "drivers/wrapper.h"


namespace unet::drivers {

enum class FaultyDirection : uint8_t { receive, transmit, both };

struct FaultyOptions {
  double loss = 0;       // probabilities, 0 to 1
  double duplicate = 0;
  double reorder = 0;
  double corrupt = 0;
  uint32_t corrupt_bits = 4;         // several flipped bits may leave the Internet checksum correct
  Nanoseconds delay_min = 0;
  Nanoseconds delay_max = 0;         // each frame is delayed by delay_min to delay_max
  Nanoseconds reorder_hold = kMillisecond;
  uint64_t bits_per_second = 0;      // 0: no limit
  uint64_t seed = 1;
  FaultyDirection direction = FaultyDirection::transmit;
  uint32_t frames = 1024;            // maximum of frames that wait, per direction
};

class Faulty final : public Wrapper {
 public:
  Faulty(std::unique_ptr<Driver> wire, const FaultyOptions& options);
  ~Faulty() override;

  uint32_t receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept override;
  void release(std::span<const ReceivedFrame> frames) noexcept override;
  uint32_t allocate(std::span<TransmitFrame> frames) noexcept override;
  uint32_t transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept override;
  void discard(std::span<const TransmitFrame> frames) noexcept override;
  void poll(Nanoseconds now) noexcept override;
  Nanoseconds next_event() const noexcept override;
  bool register_memory(std::span<std::byte> memory) noexcept override;
  void forget_memory(std::span<std::byte> memory) noexcept override;
  std::vector<DriverCounter> counters() const override;
  std::string description() const override;

 private:
  struct Held;
  class Line;

  void pass_on(Nanoseconds now) noexcept;

  FaultyOptions options_;
  std::unique_ptr<Line> receive_line_;   // null: this direction has no faults
  std::unique_ptr<Line> transmit_line_;
};

}  // namespace unet::drivers
