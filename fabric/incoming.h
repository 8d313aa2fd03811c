// incoming.h - the bytes of announced messages: copied from the peer's memory where the kernel allows it, else received in pieces; used by
// Receiver and RemoteMemory.
#pragma once

#include <optional>
#include <vector>

#include "am/endpoint.h"
#include "fabric/buffer.h"
#include "fabric/matching.h"
#include "fabric/memory_region.h"
#include "fabric/outbox.h"
#include "fabric/peers.h"
#include "fabric/slots.h"

namespace unet::fabric {

struct Fetch;

// Hears of the end of fetches.
class FetchOwner {
 public:
  // Whether the memory of a fetch may still be written.
  virtual bool may_write(const Fetch& fetch) noexcept = 0;
  // Asks the peer to send the bytes of a read: they cannot be copied. `message`: the peer's.
  virtual void ask_pieces(Fetch&, uint32_t /*token*/, am::Token* /*message*/) {}
  // The bytes are there, as many as the buffer takes; or `error` tells why not.
  virtual void fetched(const Fetch& fetch, int error) = 0;

 protected:
  ~FetchOwner() = default;
};

struct Fetch {
  bool busy = false;
  FetchOwner* owner = nullptr;
  Envelope envelope;            // the peer, the length, where the bytes are, and the peer's operation that waits for `done`
  bool is_answered = false;     // whether the peer has such an operation
  Buffer to;                    // may be shorter than the message
  Posted* receive = nullptr;    // Receiver: the receive and the offset in its buffer
  size_t offset = 0;
  uint64_t region = 0;          // RemoteMemory: the serial number of the region that a write of a peer goes to; 0: a read of ours
  uint64_t key = 0;             // RemoteMemory: the key of the region
  bool is_atomic = false;       // RemoteMemory: what a call of ours was
  bool in_pieces = false;       // RemoteMemory: a read that asks the peer to send the bytes
  uint64_t source = 0;          // a copy: where the bytes are in the peer's memory
  uint32_t front = 0;           // a copy: how many chunks are read
  void* context = nullptr;
  uint64_t flags = 0;
  uint64_t arrived = 0;         // bytes
};

class Incoming {
 public:
  Incoming(am::Endpoint& endpoint, Peers& peers, Outbox& outbox);
  Incoming(const Incoming&) = delete;
  Incoming& operator=(const Incoming&) = delete;

  // Fetches the bytes that a peer has announced, at once or in pieces. `token`: its message.
  void fetch(Fetch fetch, am::Token* token);
  // Waits for bytes that the peer sends by itself. Returns the token for its pieces; nullopt: there are too many.
  std::optional<uint32_t> expect(Fetch fetch);
  // Lets the peer help with the copy that ends such a wait, if it can.
  bool share(uint32_t token, const Fetch& fetch) noexcept { return is_long(fetch) && fetch.envelope.peer->memory.share(token); }
  // Copies the bytes of such a wait from the peer's memory. `message`: the peer's, which tells the address.
  void copy(uint32_t token, Fetch& fetch, uint64_t address, am::Token& message);
  // Ends such a wait.
  void end(uint32_t token, int error);
  // The request for the bytes could not be sent.
  void drop(uint32_t token) {
    --fetches_.find(token)->envelope.peer->operations;
    fetches_.remove(token);
  }
  // No peer writes to a region any more.
  void close(const MemoryRegion& region) noexcept;
  // Goes on with long copies.
  void progress();
  bool has_work() const noexcept { return !copies_.empty(); }
  void fail_all(const Peer& peer, int error);
  // The fetch of a token that a peer has told; nullptr: the token is forged or old.
  Fetch* find(const Peer* peer, uint32_t token) noexcept {
    Fetch* const fetch = fetches_.find(token);
    return fetch != nullptr && fetch->envelope.peer == peer ? fetch : nullptr;
  }

 private:
  static void on_piece(am::Token& token, void* incoming);
  void answer(const Fetch& fetch, am::Token* token, int error);
  Fetch* add(const Peer& peer, uint32_t& token) { return peer.transfers < kPeerTransfersMax ? fetches_.add(token) : nullptr; }
  // Whether both processes can do the copy.
  static bool is_long(const Fetch& fetch) noexcept {
    const uint64_t length = fetch.envelope.length;
    return fetch.envelope.peer->memory.can_share(length) && fetch.to.is_one_piece() && fetch.to.size() >= length;
  }
  void ask_pieces(uint32_t token, Fetch& fetch, am::Token* message);
  bool may_write(uint32_t token, const Fetch& fetch, am::Token* message);
  bool advance(uint32_t token, Fetch& fetch, am::Token* message);

  am::Endpoint& endpoint_;
  Peers& peers_;
  Outbox& outbox_;
  Slots<Fetch> fetches_;
  std::vector<uint32_t> copies_;  // tokens of those that go on in progress()
};

}  // namespace unet::fabric
