// techniques.h - ways in which a message goes from one process to the other; ipc-techniques compares pairs of them.
#pragma once

#include <cstdint>

namespace unet::bench {

// Slice::condition of Workload::technique.
enum class Way : uint32_t {
  line,      // in the slot's own cache line
  buffer,    // in a buffer that the slot describes
  gathered,  // parts from several places in one message
  several,   // each part in a message of its own
  in_place,  // composed and read where it travels
  copied,    // copied in by the sender, and copied out by the receiver
  // Both processes are on one core, and a receiver without a message:
  yields,    // gives the core away: one system call for each message
  sleeps,    // sleeps until the sender wakes it: a call of each side for each message
  spins,     // polls until the scheduler takes the core away
};

}  // namespace unet::bench
