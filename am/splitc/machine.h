// machine.h - a parallel machine on which a job is simulated: LogGP's parameters of its network, and its speed; used by Simulation.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "unet/base/result.h"
#include "unet/base/time.h"

namespace unet::splitc {

// LogGP (Alexandrov et al., SPAA 1995). A processor works `send` for each packet. Its interface is busy for `gap`, or as long as the bytes
// take if that is longer. The packet arrives `latency` later, where interface and processor (`receive`) work in the same way.
struct Machine {
  std::string name;
  std::string text;                // one line for people
  Nanoseconds send = 0, receive = 0, latency = 0, gap = 0;
  double bytes_per_second = 0;
  double slowness = 1;             // time of a computation there over its time on this computer's core; 0: computations take no time
  uint32_t packet = 4096;          // payload bytes of a packet; a longer message travels in several
};

std::span<const Machine> known_machines();

// Finds a machine by name: "cm-5". Parameters may follow: "now,latency=10us,slowness=1,rate=1e9". Errors: invalid_argument, with the names.
Result<Machine> parse_machine(std::string_view text);

}  // namespace unet::splitc
