// engine_commands.cc - mailboxes of the engines, and queues of commands without room in them.
#include "ni/service/engine_commands.h"

#include <algorithm>

namespace unet::service {

bool EngineCommands::has_events() const noexcept {
  return std::any_of(lines_.begin(), lines_.end(), [](const EngineLine& line) { return !line.events.empty(); });
}

void EngineCommands::push(uint32_t engine, const engine::Command& command) {
  pushed_ = true;
  std::deque<engine::Command>& backlog = backlogs_[engine];
  // An engine needs commands in order, so none overtakes one that waits.
  if (backlog.empty() && lines_[engine].commands.push(command)) return;
  if (backlog.empty()) lines_[engine].commands.announce_more(true);
  backlog.push_back(command);
}

void EngineCommands::push_each(uint32_t among, const engine::Command& command) {
  for (uint32_t engine = 0; engine < engines(); ++engine) {
    if ((among >> engine & 1) != 0) push(engine, command);
  }
}

bool EngineCommands::push_signal(uint32_t engine, uint32_t owners, const engine::SendSignal& signal) {
  pushed_ = true;
  for (uint32_t each = 0; each < engines(); ++each) {
    if ((owners >> each & 1) != 0 && !backlogs_[each].empty()) return false;
  }
  return lines_[engine].commands.push(signal);
}

void EngineCommands::flush() {
  for (uint32_t engine = 0; engine < engines(); ++engine) {
    std::deque<engine::Command>& backlog = backlogs_[engine];
    engine::CommandMailbox& commands = lines_[engine].commands;
    while (!backlog.empty() && commands.push(backlog.front())) {
      backlog.pop_front();
      if (engine == 0 && countdown_ != 0) --countdown_;
      if (backlog.empty()) commands.announce_more(false);
    }
    if (!commands.empty()) side_.wake_engine(engine);
  }
}

size_t EngineCommands::waiting() const noexcept {
  size_t waiting = 0;
  for (const auto& backlog : backlogs_) waiting += backlog.size();
  return waiting;
}

}  // namespace unet::service
