// memif_regions.h - closes what DPDK's memif leaves open of a peer's memory; used by memif_gate, in EAL's interrupt thread.
//
// A memif client sends its server the descriptor of each region of its memory, then those of its rings, and then asks to be connected.
// DPDK's server maps the regions only then, and in the end closes the descriptors of those that it had mapped alone. Of a client that
// dies in between, or hangs up, a descriptor would stay for ever, and with it all of the client's memory.
//
// Such a descriptor is told by three things together: its name is one that a memif client gives its memory, nothing of it is mapped in
// this process, and no client is just connecting to any memif of this process. What cannot be told from memory of our own stays open:
// hugepages of a client without copies, in a process that has hugepages itself. And so does what was there before the first memif of ours.
// A program that is a memif server by another library as well must not begin with that later: a region which that one has taken from a
// client, and has not mapped yet, looks like one of ours.
//
// Who connects and then says nothing would keep all that from being closed. So it is hung up on, where it cannot be a port's client: at a
// socket none of whose ports is connected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unet/base/time.h"

namespace unet::drivers {

// A socket at which memif servers of the process listen.
struct MemifServers {
  int listener = -1;     // -1: nobody can connect to it
  size_t ports = 0;      // that listen there, each for one client
  size_t connected = 0;  // of them
};

class OrphanedRegions {
 public:
  static constexpr Nanoseconds kSilence = 5 * kSecond;  // of who has connected to a socket and to none of its ports

  // Before the first port: what is open now is somebody else's, and stays open.
  void spare_present();
  // Closes every descriptor that a dead client has left. False: a client may be just connecting to one of `servers`, so ask again later.
  bool close(std::span<const MemifServers> servers, Nanoseconds now);

 private:
  struct Connection {
    int descriptor;
    uint64_t inode;
    Nanoseconds since;  // when it was seen first
  };
  struct File {
    uint64_t device, inode;
    bool operator==(const File&) const = default;
  };
  void hang_up_on_silent(std::vector<Connection> unconnected, Nanoseconds now) noexcept;

  std::vector<Connection> unconnected_;  // at the last look
  std::vector<File> spared_;
};

}  // namespace unet::drivers
