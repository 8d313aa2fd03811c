// memif_greeting.h - lets DPDK's memif server greet a client that has already gone; used by memif_gate, in EAL's interrupt thread.
//
// DPDK's server accepts a connection, logs it, registers its descriptor with EAL, and sends the greeting. If sending fails, because the
// client has died or hung up, it closes the descriptor and frees the connection, but both stay registered. EAL then aborts the process. Or
// the next connection gets the same number: then EAL handles each message twice and sleeps until another comes.
//
// Therefore a socket of ours takes the descriptor's number between those two log lines. It receives the greeting, which is then passed to
// the client. DPDK then notices a dead client by end of file, as for a client that dies later. Older connections of the server are replaced
// likewise: DPDK does not use them between the two lines.
#pragma once

#include <string_view>
#include <vector>

namespace unet::drivers {

class MemifGreeting {
 public:
  // Handles a line of DPDK's log before DPDK goes on: a server has accepted a connection, or has greeted it.
  void on_log(std::string_view line);

 private:
  struct Diverted {
    int number;    // DPDK's descriptor
    int client;    // our copy of the connection
    int greeting;  // our end, where the greeting arrives
  };
  void divert(int descriptor);
  void deliver() noexcept;

  std::vector<Diverted> diverted_;
};

}  // namespace unet::drivers
