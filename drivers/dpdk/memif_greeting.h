// memif_greeting.h - lets DPDK's memif server greet a client that has gone already; used by memif_gate, in EAL's interrupt thread.
//
// DPDK's server accepts a connection, logs it, registers its descriptor with EAL, and sends the greeting. If that fails, because the
// client has died or hung up, it closes the descriptor and frees the connection, but leaves them registered: EAL then aborts the process,
// or, if the next connection gets the same number, handles each of its messages twice and sleeps until one more comes.
//
// So the greeting goes to a socket of ours, which takes the descriptor's number between those two lines of the log, and from there to the
// client. That it has gone is found as if it had gone later, by the end of what can be read from it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace unet::drivers {

class MemifGreeting {
 public:
  // A line of DPDK's log, before it does what follows: a server has accepted a connection, or has greeted it.
  void on_log(std::string_view line);

 private:
  struct Diverted {
    int number;    // DPDK's
    int client;    // the connection
    int greeting;  // where the greeting arrives
  };
  void divert(std::string_view server);
  void divert_one(int descriptor);
  void deliver() noexcept;

  std::vector<uint64_t> accepted_;   // inodes of servers' connections, as they were last looked at
  std::vector<Diverted> diverted_;   // between the two lines
};

}  // namespace unet::drivers
