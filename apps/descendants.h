// descendants.h - ends what programs leave behind; used by unet-run and unet-agent.
#pragma once

#include <sys/types.h>

#include <set>

namespace unet::apps {

// Orphans of our descendants become our children from now on.
void adopt_descendants() noexcept;

// Ends all children but `except`, in any session, and those that become our children when these end.
void end_descendants(pid_t except = 0) noexcept;

std::set<pid_t> children();

}  // namespace unet::apps
