// direct_copy.h - copies between the memory of processes of the same host, where the kernel allows it; used by Incoming and Outgoing.
#pragma once

#include <sys/types.h>

#include <memory>

#include "fabric/buffer.h"
#include "fabric/protocol.h"
#include "fabric/shared_copy.h"
#include "unet/mapping.h"

namespace unet::fabric {

// The secret of this process that peers look for.
class OwnIdentity {
 public:
  OwnIdentity();
  // `copies`: of the memory that a peer is offered (PeerMemory::offer()).
  Identity identity(int64_t copies) const noexcept;

 private:
  struct alignas(64) Secret {
    uint64_t words[2];
  };
  std::unique_ptr<Secret> secret_;
};

// Whether the bytes of a copy are here.
enum class Copied : uint8_t {
  all,
  not_yet,  // the peer writes its part
  none,     // the peer's memory cannot be read there
};

// The memory of a peer. Only the process that the NI knows the peer by is read or written: a peer could name another one of the same user.
// Each copy also reads the secret: it fails if the process is gone, and another one has its number. The claims of long copies are in
// memory that these two processes alone map, so a false claim harms only copies with its writer.
class PeerMemory {
 public:
  // Makes the memory of claims for a peer that has none yet. Returns its descriptor, for the peer; -1: there is none.
  int64_t offer() noexcept;
  // Looks for the secret, and maps the claims if the peer has made them. `process`: the peer's, as the NI knows it; -1: it does not, so
  // nothing is read.
  void find(const Identity& identity, int process) noexcept;
  // Calls stop(), and reads no more.
  void forget() noexcept;
  bool is_found() const noexcept { return found_; }
  // Copies min(to.size(), length) bytes. False: the peer's memory cannot be read there.
  bool read(const Buffer& to, uint64_t address, uint64_t length) const noexcept;

  // Whether both processes can do a copy of so many bytes.
  bool can_share(uint64_t length) const noexcept {
    return found_ && claims_ && length >= SharedCopy::kLeast && length <= SharedCopy::kMost;
  }
  // Lets the peer help with the copy of such a number. False: too many are under way.
  bool share(uint32_t number) noexcept;
  // Goes on with a copy of min(to.size(), length) bytes, which is done at once if the peer cannot help. `front`: how many chunks this
  // process has read.
  Copied read_shared(uint32_t number, const Buffer& to, uint64_t address, uint64_t length, uint32_t& front) noexcept;
  // The peer does not help any more with the copies under way, which this process ends alone. A peer that was stopped for more than 250 ms
  // after a claim writes that chunk later, into memory that the program may have freed by then.
  void stop() noexcept;
  // Helps with a copy of the peer, to `address` there.
  void help(uint32_t number, const Buffer& from, uint64_t address) noexcept;

 private:
  bool is_alive() const noexcept { return read({}, 0, 0); }
  SharedCopy* copy(uint32_t number, bool is_own) noexcept;

  Identity identity_{};
  bool found_ = false;
  bool is_offered_ = false;  // this process has made the memory of claims, and not the peer
  bool is_too_slow_ = false;  // it took longer than stop() waits, and helps no more
  Descriptor memory_;        // then for the peer to find it
  Mapping claims_;           // SharedCopy[kSlots] of the process that has made it, and as many of the other one
};

}  // namespace unet::fabric
