// room.h - whether the spread memory that a job asks for can be there at all; used by Job::fits_here().
//
// Spread memory costs only what is used of it, so a job may have more than the machine. It is refused where it surely cannot be had: where
// the user has asked for so much (UNET_SPLITC_MEMORY) that all ranks of this host together could never fill it, or a rank has no addresses
// for it. Who leaves the default has asked for nothing.
#pragma once

#include <cstdint>
#include <string>

#include "am/splitc/job.h"
#include "unet/base/result.h"

namespace unet::splitc {

// Bytes; kAnyRoom: no limit is known.
struct Room {
  static constexpr uint64_t kAnyRoom = ~uint64_t{0};

  uint64_t machine = kAnyRoom;        // memory and swap of this host, whoever uses them now
  uint64_t control_group = kAnyRoom;  // what this process's control groups let it have, and swap
  uint64_t addresses = kAnyRoom;      // that this process may map (RLIMIT_AS)
  bool one_group = false;             // all ranks of this host are in the same control groups

  // `root`: what stands before /proc and /sys, in tests.
  static Room here(const std::string& root = "");
};

// `asked`: job.memory is what the user has asked for, not the default. Errors: out_of_memory, with what would do.
Status check_room(const Job& job, bool asked, const Room& room);

}  // namespace unet::splitc
