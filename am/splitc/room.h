// room.h - whether the spread memory that a job asks for can exist; used by Job::fits_here().
//
// Only the used part of spread memory costs anything, so a job may ask for more than the machine has. A job is refused only if it surely
// cannot have it: the user set UNET_SPLITC_MEMORY so high that all ranks of this host together could never fill it, or a rank lacks the
// addresses. The default size is no request of the user.
#pragma once

#include <cstdint>
#include <string>

#include "am/splitc/job.h"
#include "unet/base/result.h"

namespace unet::splitc {

// Bytes; kAnyRoom: no limit is known.
struct Room {
  static constexpr uint64_t kAnyRoom = ~uint64_t{0};

  uint64_t machine = kAnyRoom;        // memory and swap of this host, used or not
  uint64_t control_group = kAnyRoom;  // memory and swap that this process's control groups allow
  uint64_t addresses = kAnyRoom;      // bytes that this process may map (RLIMIT_AS)
  bool one_group = false;             // all ranks of this host are in the same control groups

  // `root`: prefix of /proc and /sys, for tests.
  static Room here(const std::string& root = "");
};

// `asked`: the user has set job.memory; it is not the default. Errors: out_of_memory, with a size that would do.
Status check_room(const Job& job, bool asked, const Room& room);

}  // namespace unet::splitc
