// engine_commands.h - commands to the engines, in order for each engine; commands without room in a mailbox wait here; used by Service and
// its parts.
//
// An engine that takes no commands delays no other. Commands to two engines are unordered. Therefore an engine with waiting commands takes
// no frames that other engines relay, and refuses no channel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "ni/service/engine_side.h"
#include "unet/limits.h"

namespace unet::service {

class EngineCommands {
 public:
  EngineCommands(std::vector<EngineLine> lines, EngineSide& side) noexcept : lines_(std::move(lines)), side_(side) {}

  uint32_t engines() const noexcept { return static_cast<uint32_t>(lines_.size()); }
  uint32_t all() const noexcept { return (1u << engines()) - 1; }  // bit e: engine e
  engine::EventMailbox& events(uint32_t engine) noexcept { return lines_[engine].events; }
  bool has_events() const noexcept;

  void push(uint32_t engine, const engine::Command& command);
  // Pushes the command to each engine with a bit in `among`.
  void push_each(uint32_t among, const engine::Command& command);
  // Remote hosts cause signals, so signals do not queue behind commands. The signal is sent only when the engines of `owners` have all
  // their commands, as frames in reply may arrive at any of them. False: the signal is dropped.
  bool push_signal(uint32_t engine, uint32_t owners, const engine::SendSignal& signal);

  // Moves commands to mailboxes that have room, and wakes engines with commands.
  void flush();
  size_t waiting() const noexcept;                      // number of commands that wait for room in a mailbox
  const std::deque<engine::Command>& waiting(uint32_t engine) const noexcept { return backlogs_[engine]; }
  bool has_taken_all(uint32_t engine) const noexcept { return lines_[engine].commands.empty(); }

  // Counts down the commands that wait for engine 0 now.
  void begin_countdown() noexcept { countdown_ = backlogs_[0].size(); }
  bool counted_down() const noexcept { return countdown_ == 0; }

  // Whether anything was pushed since the last call.
  bool take_pushed() noexcept { return std::exchange(pushed_, false); }

 private:
  std::vector<EngineLine> lines_;
  EngineSide& side_;
  std::array<std::deque<engine::Command>, kEnginesMax> backlogs_;
  size_t countdown_ = 0;
  bool pushed_ = false;
};

}  // namespace unet::service
