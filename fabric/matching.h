// matching.h - the matching engine: pairs posted receives with messages that have arrived, in order; used by Receiver.
//
// A posted receive matches the oldest message that has its source and, outside its ignored bits, its tag. A message matches the oldest
// such receive. Messages without a tag use an engine of their own, where all tags are 0.
#pragma once

#include <cstdint>

#include "fabric/buffer.h"
#include "fabric/list.h"

namespace unet::fabric {

struct Peer;

// Which messages a receive takes.
struct Selector {
  const Peer* source = nullptr;  // nullptr: any
  uint64_t tag = 0;
  uint64_t ignore = 0;

  bool takes(const Peer* from, uint64_t of) const noexcept { return ((tag ^ of) & ~ignore) == 0 && (source == nullptr || source == from); }
};

// A posted receive.
struct Posted : Linked<Posted> {
  Selector selector;
  Buffer buffer;
  void* context = nullptr;
  uint64_t flags = 0;        // of the call: FI_COMPLETION, FI_MULTI_RECV
  size_t used = 0;           // FI_MULTI_RECV: bytes of the buffer that messages have taken
  uint32_t under_way = 0;    // transfers into the buffer
  bool is_posted = false;    // whether the engine has it
};

// What a message says before its bytes.
struct Envelope {
  Peer* peer = nullptr;
  uint64_t tag = 0;
  uint64_t data = 0;       // for the receiver's completion
  uint64_t length = 0;     // bytes
  uint64_t address = 0;    // rendezvous: where the bytes are in the sender's memory
  uint32_t token = 0;      // the sender's operation that waits for an answer
  uint8_t flags = 0;       // MessageFlags
};

// A message that no receive has matched yet: unexpected, or claimed by a peek.
struct Arrived : Linked<Arrived> {
  Envelope envelope;
  std::unique_ptr<std::byte[]> payload;   // eager: the bytes, if they do not fit `line`
  alignas(8) std::byte line[32];
  void* claimed_by = nullptr;             // the context of the claim
  bool is_announced = false;              // rendezvous: the bytes are to be fetched
  bool is_lost = false;                   // claimed, and its peer is gone with the bytes
  Bytes bytes() const noexcept { return {payload != nullptr ? payload.get() : line, static_cast<size_t>(envelope.length)}; }
};

class Matcher {
 public:
  // Returns the oldest receive that takes the message.
  Posted* match(const Peer* source, uint64_t tag) noexcept {
    for (Posted* each = posted_.first(); each != nullptr; each = each->next) {
      if (each->selector.takes(source, tag)) return each;
    }
    return nullptr;
  }
  // Returns the oldest message that the receive takes.
  Arrived* match(const Selector& selector) noexcept {
    for (Arrived* each = arrived_.first(); each != nullptr; each = each->next) {
      if (selector.takes(each->envelope.peer, each->envelope.tag)) return each;
    }
    return nullptr;
  }

  void add(Posted& receive) noexcept {
    receive.is_posted = true;
    posted_.add(receive);
  }
  void remove(Posted& receive) noexcept {
    receive.is_posted = false;
    posted_.remove(receive);
  }
  void add(Arrived& message) noexcept { arrived_.add(message); }
  void remove(Arrived& message) noexcept { arrived_.remove(message); }
  // Sets a message aside for the receive that gives the same context.
  void claim(Arrived& message, void* context) noexcept {
    arrived_.remove(message);
    message.claimed_by = context;
    claimed_.add(message);
  }
  // Removes and returns a message that was claimed; nullptr: none was.
  Arrived* take_claimed(const void* context) noexcept {
    for (Arrived* each = claimed_.first(); each != nullptr; each = each->next) {
      if (each->claimed_by != context) continue;
      claimed_.remove(*each);
      return each;
    }
    return nullptr;
  }
  // The oldest receive of a context, for a cancellation.
  Posted* find(const void* context) const noexcept {
    Posted* each = posted_.first();
    while (each != nullptr && each->context != context) each = each->next;
    return each;
  }

  List<Posted>& posted() noexcept { return posted_; }
  List<Arrived>& arrived() noexcept { return arrived_; }
  List<Arrived>& claimed() noexcept { return claimed_; }

 private:
  List<Posted> posted_;
  List<Arrived> arrived_, claimed_;
};

}  // namespace unet::fabric
