// outgoing.h - operations that wait for a peer's answer, and the pieces that the peer asks for; used by Sender and RemoteMemory.
#pragma once

#include <rdma/fi_errno.h>

#include <vector>

#include "am/endpoint.h"
#include "fabric/buffer.h"
#include "fabric/memory_region.h"
#include "fabric/peers.h"
#include "fabric/protocol.h"
#include "fabric/reports.h"
#include "fabric/slots.h"

namespace unet::fabric {

// The result of a call that has sent a request.
inline ssize_t outcome(am::Outcome of) noexcept {
  if (__builtin_expect(of == am::Outcome::sent, 1)) return 0;
  return of == am::Outcome::not_sent ? -FI_EAGAIN : -FI_ECONNRESET;
}

class Outgoing {
 public:
  struct Operation {
    bool busy = false;
    Peer* peer = nullptr;
    Buffer buffer;
    std::unique_ptr<std::byte[]> copy;  // FI_INJECT: the bytes
    const Reports* reports = nullptr;   // nullptr: the end is told nowhere
    void* context = nullptr;
    uint64_t flags = 0;                 // of the call
    uint64_t kind = 0;                  // flags of the completion
    bool is_silent = false;             // success is told by no queue
    bool is_active = false;             // sends pieces
    uint32_t receiver = 0;              // the receiver's token for pieces
    uint64_t sent = 0;                  // bytes
    uint64_t region = 0, key = 0;       // a read of a peer: the serial number and key of the region that has the bytes
  };

  Outgoing(am::Endpoint& endpoint, Peers& peers, MemoryRegions& regions);
  Outgoing(const Outgoing&) = delete;
  Outgoing& operator=(const Outgoing&) = delete;

  // Begins an operation, of which the caller sets the rest; `copies`: FI_INJECT. nullptr: there are too many.
  Operation* begin(Peer& peer, std::span<const iovec> pieces, bool copies, uint32_t& token);
  // Sends the bytes of an operation to a receiver that is known already.
  void send_pieces(uint32_t token, uint32_t receiver);
  // The operation could not be sent.
  void drop(uint32_t token) { remove(token, *operations_.find(token)); }
  // Begins to send a region's bytes that a peer reads in pieces. False: there are too many transfers.
  bool begin_read(Peer& peer, const iovec& piece, const MemoryRegion& region, uint32_t receiver);
  // Tells the end, if the token is good.
  void end(uint32_t token, int error);
  // Ends those of a peer that is lost.
  void fail_all(const Peer& peer, int error);
  // The peer has returned the message of an operation.
  void note_returned(uint32_t token) { returned_.push_back(token); }
  // For the endpoint's messages to itself.
  const Buffer& buffer_of(uint32_t token) noexcept { return operations_.find(token)->buffer; }

  // Sends the pieces that the channels take now.
  void progress();
  bool has_work() const noexcept { return !active_.empty() || !returned_.empty(); }
  // Whether bytes of FI_INJECT wait for their receivers.
  bool has_copies() const noexcept { return copies_ != 0; }

 private:
  static void on_go(am::Token& token, void* outgoing);
  static void on_done(am::Token& token, void* outgoing);
  static void on_share(am::Token& token, void* outgoing);
  Operation* find(const am::Token& token, uint32_t number) noexcept;
  bool is_there(const Operation& operation) noexcept;
  bool push(uint32_t token, Operation& operation);
  void remove(uint32_t token, const Operation& operation);

  am::Endpoint& endpoint_;
  Peers& peers_;
  MemoryRegions& regions_;
  Slots<Operation> operations_;
  std::vector<uint32_t> active_;    // tokens of operations that send pieces
  uint32_t copies_ = 0;             // operations with bytes of FI_INJECT
  std::vector<uint32_t> returned_;  // tokens of operations that the peer has refused
};

}  // namespace unet::fabric
