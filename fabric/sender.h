// sender.h - messages on their way out: in one cache line, with their envelope, or by rendezvous; used by Endpoint.
//
// Copies of a payload byte: one into the channel; none if the receiver reads it from our memory.
#pragma once

#include <deque>
#include <map>

#include "fabric/matching.h"
#include "fabric/outgoing.h"
#include "fabric/reports.h"

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
  Sender(am::Endpoint& endpoint, Peers& peers, Outgoing& outgoing, const Reports& reports);
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;
  void set_receiver(Receiver& receiver) noexcept { receiver_ = &receiver; }

  // Returns 0, -FI_EAGAIN, or the error of a peer that cannot be reached. The channel to the peer is open.
  ssize_t send(const SendCall& call);
  // Sends when the channel is open. The end of the operation tells if that fails. -FI_EAGAIN: too many sends wait for this peer.
  ssize_t queue(const SendCall& call);
  // Sends what waits.
  void progress();
  bool empty() const noexcept { return queues_.empty(); }
  // Ends the sends that wait for a lost peer.
  void fail_all(Peer& peer, int error);

 private:
  struct Queued {
    SendCall call;
    Buffer buffer;                      // the pieces of the call
    std::unique_ptr<std::byte[]> copy;  // FI_INJECT: the bytes
  };
  static void on_pace(am::Token& token, void* sender);

  ssize_t send_line(const SendCall& call, size_t length);
  ssize_t send_eager(const SendCall& call, size_t length, bool answered);
  ssize_t send_ready(const SendCall& call, size_t length);
  ssize_t send_to_self(const SendCall& call, size_t length);
  const Outgoing::Operation* begin(const SendCall& call, bool copies, uint32_t& token);
  void succeed(const SendCall& call) const noexcept;
  void fail(const SendCall& call, int error) const;

  am::Endpoint& endpoint_;
  Peers& peers_;
  Outgoing& outgoing_;
  const Reports& reports_;
  Receiver* receiver_ = nullptr;
  std::map<Peer*, std::deque<Queued>> queues_;
};

}  // namespace unet::fabric
