// direct_copy.h - copies from the memory of a process of the same host, where the kernel allows it; used by Receiver.
#pragma once

#include <sys/types.h>

#include <memory>

#include "fabric/buffer.h"
#include "fabric/protocol.h"

namespace unet::fabric {

// The secret of this process that peers look for.
class OwnIdentity {
 public:
  OwnIdentity();
  Identity identity() const noexcept;

 private:
  struct alignas(64) Secret {
    uint64_t words[2];
  };
  std::unique_ptr<Secret> secret_;
};

// The memory of a peer. Only the process that the NI knows the peer by is read: a peer could name another one of the same user. Each copy
// also reads the secret: it fails if the process is gone, and another one has its number.
class PeerMemory {
 public:
  // Looks for the secret. `process`: the peer's, as the NI knows it; -1: it does not, so nothing is read.
  void find(const Identity& identity, int process) noexcept;
  void forget() noexcept { found_ = false; }
  bool is_found() const noexcept { return found_; }
  // Copies min(to.size(), length) bytes. False: the peer's memory cannot be read there.
  bool read(const Buffer& to, uint64_t address, uint64_t length) const noexcept;

 private:
  Identity identity_{};
  bool found_ = false;
};

}  // namespace unet::fabric
