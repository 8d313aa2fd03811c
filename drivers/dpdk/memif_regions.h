// memif_regions.h - closes what DPDK's memif leaves open of a peer's memory; used by memif_gate, in EAL's interrupt thread.
//
// A memif client sends its server the descriptor of each region of its memory, then those of its rings, and then asks to be connected.
// DPDK's server maps the regions only then, and in the end closes the descriptors of those that it had mapped alone. Of a client that
// dies in between, or hangs up, a descriptor would stay for ever, and with it all of the client's memory.
//
// Such a descriptor is told by three things together: its name is one that a memif client gives its memory, nothing of it is mapped in
// this process, and no client is just connecting to any memif of this process. What cannot be told from memory of our own stays open:
// hugepages of a client without copies, in a process that has hugepages itself.
#pragma once

#include <span>
#include <string_view>

namespace unet::drivers {

// One of the process's memif servers, as its control sockets show it.
struct MemifServer {
  int listener = -1;       // -1: nobody can connect to it
  bool connected = false;  // to its one client
};

// Closes every descriptor that a dead client has left. False: a client is just connecting to one of `servers`, so ask again later.
bool close_orphaned_regions(std::span<const MemifServer> servers) noexcept;

}  // namespace unet::drivers
