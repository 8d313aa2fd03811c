// sender.h - messages on their way out: in one cache line, with their envelope, or by rendezvous; used by Endpoint.
//
// Copies of a payload byte: one into the channel; none if the receiver reads it from our memory.
#pragma once

#include <vector>

#include "fabric/matching.h"
#include "fabric/outbox.h"
#include "fabric/reports.h"
#include "fabric/slots.h"

namespace unet::fabric {

class Receiver;

// The arguments of a send.
struct SendCall {
  Peer* peer = nullptr;
  std::span<const iovec> pieces;
  uint64_t tag = 0;
  uint64_t data = 0;
  uint64_t flags = 0;  // FI_INJECT, FI_REMOTE_CQ_DATA, FI_COMPLETION, ...
  void* context = nullptr;
  bool is_tagged = false;
  bool is_silent = false;  // fi_inject(): success is told by no queue
};

class Sender {
 public:
  Sender(am::Endpoint& endpoint, Peers& peers, Outbox& outbox, const Reports& reports);
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;
  void set_receiver(Receiver& receiver) noexcept { receiver_ = &receiver; }

  // Returns 0, -FI_EAGAIN, or the error of a peer that cannot be reached. The channel to the peer is open.
  ssize_t send(const SendCall& call);

  // Sends the pieces that the channels take now.
  void progress();
  bool has_work() const noexcept { return !active_.empty() || !returned_.empty(); }
  // Ends the operations of a peer that is lost.
  void fail_all(const Peer& peer, int error);
  // The peer has returned a `ready`.
  void note_returned(uint32_t token) { returned_.push_back(token); }

  // For the endpoint's messages to itself: the buffer of an operation, and its end.
  const Buffer& buffer_of(uint32_t token) noexcept { return operations_.find(token)->buffer; }
  void end(uint32_t token, int error);

 private:
  struct Operation {
    bool busy = false;
    Peer* peer = nullptr;
    Buffer buffer;
    std::unique_ptr<std::byte[]> copy;  // FI_INJECT: the bytes
    void* context = nullptr;
    uint64_t flags = 0;                 // of the call
    uint64_t kind = 0;                  // FI_MSG or FI_TAGGED
    uint32_t receiver = 0;              // the receiver's token, once it has asked for pieces
    uint64_t sent = 0;
    bool is_active = false;             // it sends pieces
    bool is_silent = false;
  };
  static void on_go(am::Token& token, void* sender);
  static void on_done(am::Token& token, void* sender);
  static void on_slower(am::Token& token, void* sender);

  ssize_t send_line(const SendCall& call, size_t length);
  ssize_t send_eager(const SendCall& call, size_t length, bool answered);
  ssize_t send_ready(const SendCall& call, size_t length);
  ssize_t send_to_self(const SendCall& call, size_t length);
  Operation* begin(const SendCall& call, size_t length, bool copies, uint32_t& token);
  bool push(uint32_t token, Operation& operation);
  void succeed(uint64_t flags, uint64_t kind, void* context, bool is_silent) const noexcept;
  static ssize_t outcome(am::Outcome of) noexcept;

  am::Endpoint& endpoint_;
  Peers& peers_;
  Outbox& outbox_;
  const Reports& reports_;
  Receiver* receiver_ = nullptr;
  Slots<Operation> operations_;
  std::vector<uint32_t> active_;    // tokens of operations that send pieces
  std::vector<uint32_t> returned_;  // tokens of operations that the peer has refused
};

}  // namespace unet::fabric
