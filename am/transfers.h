// transfers.h - asynchronous long requests that are not sent completely; used by Endpoint.
#pragma once

#include <array>
#include <vector>

#include "am/peer_table.h"

namespace unet::am {

// Runs when the caller may reuse the `payload` of a request_long_async(). It may do what a handler may do: it sends nothing.
using DoneFunction = void (*)(Endpoint& endpoint, void* context);

struct Transfer {
  Peer* peer;
  Tag tag;
  Index index;
  uint8_t handler, count;
  uint64_t offset;
  Bytes payload;
  uint64_t at;             // bytes sent so far
  DoneFunction done;
  void* context;
  bool sent;
  std::array<uint32_t, kArgumentsMax> arguments;
};

class Transfers {
 public:
  // `endpoint` is only passed on, to the program's functions.
  Transfers(Endpoint& endpoint, PeerTable& peers, HandlerTable& handlers, Counters& counters) noexcept
      : endpoint_(endpoint), peers_(peers), handlers_(handlers), counters_(counters) {}
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  bool empty() const noexcept { return transfers_.empty(); }
  bool full() const noexcept { return transfers_.size() >= kTransfersMax; }
  // Takes a transfer, and sends what may be sent now. Outcome: sent or returned.
  Outcome begin(Transfer transfer);
  // Sends as credits come back, and ends transfers that are sent or that have lost their peers.
  void poll();
  // Ends those of a peer that is removed.
  void end_all(const Peer& peer);
  // Calls all done functions: the endpoint ends.
  void release_all() noexcept;

 private:
  static constexpr size_t kTransfersMax = 256;
  // A peer's credits that transfers may take; a call that waits for a credit gets one of the rest.
  static constexpr uint32_t kCreditsMax = kFlowWindow * 3 / 4;

  bool push(Transfer& transfer);
  template <typename Ends>
  void end_if(const Ends& ends);
  void end(size_t index);

  Endpoint& endpoint_;
  PeerTable& peers_;
  HandlerTable& handlers_;
  Counters& counters_;
  std::vector<Transfer> transfers_;
};

}  // namespace unet::am
