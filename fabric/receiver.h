// receiver.h - posted receives and arrived messages, and the way of the bytes between them; used by Endpoint.
//
// Copies of a payload byte: one, from the channel or the sender's memory into the posted buffer. An unexpected early message is copied once
// more. Its sender is asked for rendezvous when such messages take too much memory.
#pragma once

#include "fabric/incoming.h"
#include "fabric/matching.h"
#include "fabric/outbox.h"
#include "fabric/outgoing.h"
#include "fabric/reports.h"
#include "fabric/slots.h"

namespace unet::fabric {

// The arguments of a receive.
struct ReceiveCall {
  Selector selector;
  std::span<const iovec> pieces;
  uint64_t flags = 0;  // FI_COMPLETION, FI_MULTI_RECV, FI_PEEK, FI_CLAIM, FI_DISCARD
  void* context = nullptr;
  bool is_tagged = false;
};

class Receiver final : FetchOwner {
 public:
  Receiver(am::Endpoint& endpoint, Peers& peers, Outbox& outbox, Outgoing& outgoing, Incoming& incoming, const Reports& reports);
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  // ---- called by the program

  ssize_t post(const ReceiveCall& call);
  // Looks for a message, and tells by the completion queue whether there is one. With FI_CLAIM it is set aside, with FI_DISCARD dropped.
  ssize_t peek(const ReceiveCall& call);
  // Receives or discards a message that was set aside.
  ssize_t take_claimed(const ReceiveCall& call);
  // Ends the oldest receive with this context. False: there is none.
  bool cancel(const void* context);
  // FI_OPT_MIN_MULTI_RECV: with less room a buffer for several messages is returned.
  size_t least_room() const noexcept { return least_room_; }
  void set_least_room(size_t bytes) noexcept { least_room_ = bytes; }

  // ---- called for messages; `token`: the message, unless it is one of this endpoint to itself

  // A message with its bytes has arrived.
  void arrive(const Envelope& envelope, Bytes payload, am::Token* token);
  // A message has arrived of which the bytes are to be fetched.
  void announce(const Envelope& envelope, am::Token* token);
  // Drops messages with bytes that a lost peer has, and ends receives from it alone if it has died. The lost peer gets no more answers.
  void fail_all(const Peer& peer, int error);

 private:
  static void on_line(am::Token& token, void* receiver);
  static void on_eager(am::Token& token, void* receiver);
  static void on_ready(am::Token& token, void* receiver);

  Matcher& matcher(bool is_tagged) noexcept { return is_tagged ? tagged_ : plain_; }
  void accept(const Envelope& envelope, Bytes payload, am::Token* token);
  Arrived* add(const Envelope& envelope, bool is_announced, am::Token* token);
  Pace pace_of(const Peer& peer, uint64_t part) const noexcept;
  void store(const Envelope& envelope, Bytes payload, am::Token* token);
  void forget(Arrived& message) noexcept;
  void discard(Arrived& message);
  Posted& begin(const ReceiveCall& call);
  void take(Posted& receive, Arrived& message);
  size_t reserve(Posted& receive, const Envelope& envelope) noexcept;
  void deliver(Posted& receive, const Envelope& envelope, Bytes payload, am::Token* token);
  void fetch(Posted& receive, const Envelope& envelope, am::Token* token);
  bool may_write(const Fetch&) noexcept override { return true; }
  void fetched(const Fetch& fetch, int error) override;
  void complete(Posted& receive, const Envelope& envelope, size_t offset, size_t length, int error);
  void answer_done(const Envelope& envelope, am::Token* token, int error);
  void end(Posted& receive, int error);
  Completion completion_of(const Posted& receive, const Envelope& envelope, size_t length) noexcept;

  am::Endpoint& endpoint_;
  Peers& peers_;
  Outbox& outbox_;
  Outgoing& outgoing_;
  Incoming& incoming_;
  const Reports& reports_;
  Matcher plain_, tagged_;
  Pool<Posted> receives_;
  Pool<Arrived> messages_;
  size_t posted_ = 0;          // receives
  size_t least_room_ = 64;     // bytes
  uint64_t early_bytes_ = 0;   // of unexpected messages of all peers
};

}  // namespace unet::fabric
