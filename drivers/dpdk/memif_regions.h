// memif_regions.h - closes memory of memif peers that DPDK leaves open; used by memif_gate, in EAL's interrupt thread.
//
// A memif client sends its server the descriptors of its memory regions, then those of its rings, and then asks to be connected. DPDK's
// server maps the regions only then, and at the end closes only the descriptors of mapped regions. If a client dies or hangs up in between,
// its descriptors, and with them all of its memory, would stay open for ever.
//
// Three properties together identify such a descriptor. Its name is one that memif clients give their memory. Nothing of it is mapped in
// this process. No client is just connecting to any memif of this process. Memory that looks like ours stays open: hugepages of a client
// without copies, in a process that has hugepages itself. Files that were open before our first memif also stay open. A program that serves
// memif by another library as well must start that before. Otherwise a region that the library has received but not mapped yet looks like
// an orphan.
//
// A client that connects and stays silent would block all this. It is disconnected where it cannot be a port's client: at a socket without
// a connected port.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unet/base/time.h"

namespace unet::drivers {

// A listening socket of this process's memif servers.
struct MemifServers {
  int listener = -1;     // -1: no client can connect to it
  size_t ports = 0;      // ports that listen there, each for one client
  size_t connected = 0;  // ports that are connected
};

class OrphanedRegions {
 public:
  static constexpr Nanoseconds kSilence = 5 * kSecond;  // limit for a client that has connected to a socket but to none of its ports

  // Call this before the first port: files that are open now belong to others and stay open.
  void spare_present();
  // Closes every descriptor that a dead client has left. False: a client may be connecting to one of `servers`, so call again later.
  bool close(std::span<const MemifServers> servers, Nanoseconds now);

 private:
  struct Connection {
    int descriptor;
    uint64_t inode;
    Nanoseconds since;  // when it was first seen
  };
  struct File {
    uint64_t device, inode;
    bool operator==(const File&) const = default;
  };
  void hang_up_on_silent(std::vector<Connection> unconnected, Nanoseconds now) noexcept;

  std::vector<Connection> unconnected_;  // at the last call
  std::vector<File> spared_;
};

}  // namespace unet::drivers
