// peers.h - the processes that an endpoint exchanges messages with, and the channels to them; used by Endpoint.
//
// A channel is opened by the first send to a peer, and leads both ways. Before anything else the two sides exchange `hello` and `welcome`
// (protocol.h). If both open a channel at the same time, they use that of the lower address. So each pair has one channel, and a message
// carries the credits of the other direction.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "am/endpoint.h"
#include "fabric/address_vector.h"
#include "fabric/direct_copy.h"
#include "fabric/protocol.h"

namespace unet::fabric {

// A peer that asks for more transfers in pieces at a time is refused, so that it does not take all slots.
constexpr uint32_t kPeerTransfersMax = 16 * 1024;

struct Peer {
  enum class State : uint8_t {
    closed,    // no channel, or none any more
    opening,   // the NI connects
    greeting,  // we have sent `hello`
    waiting,   // the peer's channel is to be used, and its `hello` is not here yet
    open,
  };
  std::string target;
  std::string full;                      // NAME@HOST, in the order of which channels are chosen
  fi_addr_t number = FI_ADDR_NOTAVAIL;   // as completions tell it
  State state = State::closed;
  Pace pace = Pace::early;               // which messages it takes from us
  bool is_queued = false;                // sends wait in Sender's queue
  bool takes_sends = false;              // the channel is open, nothing is queued, and the pace is not `none`
  bool is_self = false;
  Pace told = Pace::early;               // the pace that we have told it
  bool over_wire = false;
  am::Index index = am::kNoIndex;        // the translation, from `opening` on
  int error = 0;                         // why the last channel could not be opened
  bool died = false;                     // the last channel ended without the peer's close
  Nanoseconds give_up = 0;               // waiting: until then
  uint32_t unexpected = 0;               // messages of the peer that we store
  uint64_t early_bytes = 0;              // their bytes
  uint32_t operations = 0;               // under way; FI_FENCE waits for their ends
  uint32_t transfers = 0;                // long ones, that the peer has asked for
  PeerMemory memory;

  // Most bytes in one message of Active Messages. A wire carries these in three frames. More would take so long on an empty wire that the
  // delay looks like a queue.
  uint32_t part_max() const noexcept { return over_wire ? am::kPieceMax : am::kMediumMax; }
  void set_pace(Pace to) noexcept {
    pace = to;
    update();
  }
  void set_queued(bool queued) noexcept {
    is_queued = queued;
    update();
  }
  // Called after each change of the state.
  void update() noexcept { takes_sends = state == State::open && !is_queued && pace != Pace::none; }
};

class Peers {
 public:
  Peers(am::Endpoint& endpoint, AddressVector& vector, const Address& own);
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  // The peer of an address; nullptr: the address vector has no such number.
  Peer* get(fi_addr_t number) {
    if (__builtin_expect(number < by_number_.size() && by_number_[number] != nullptr, 1)) return by_number_[number];
    return find(number);
  }
  // The sender of a message; nullptr: it has not said hello.
  Peer* sender(const am::Token& token) noexcept {
    const am::Index index = token.index();
    if (__builtin_expect(index < by_index_.size() && by_index_[index] != nullptr, 1)) return by_index_[index];
    const auto at = by_source_.find(token.source());
    return at != by_source_.end() ? at->second : nullptr;
  }
  // The number of a peer for completions, which may have been inserted since its channel was opened.
  fi_addr_t number_of(Peer& peer) noexcept {
    if (__builtin_expect(peer.number == FI_ADDR_NOTAVAIL, 0)) peer.number = vector_.find(peer.target);
    return peer.number;
  }

  // No peer writes to this process any more: the program may free its memory.
  void forget_memory() noexcept {
    for (auto& [target, peer] : all_) peer.memory.forget();
  }
  // The number was removed from the address vector.
  void forget(fi_addr_t number, const std::string& target) noexcept;

  // Opens a channel for a send. 0: it is open. -FI_EAGAIN: not yet. Others: it cannot be opened; the next call tries again.
  int open(Peer& peer);

  // Called after each poll of the endpoint. Returns the peers that are lost; their operations have failed.
  bool has_work() noexcept { return ++polls_ % kLookEvery == 0 || unsettled_ != 0 || !accepted_.empty(); }
  uint32_t polls() const noexcept { return polls_; }
  std::vector<Peer*> progress();
  bool is_opening() const noexcept { return unsettled_ != 0 || !accepted_.empty(); }
  // A message to this translation has come back.
  void note_returned(am::Index index) noexcept;

 private:
  static constexpr uint32_t kLookEvery = 256;  // polls between two looks for lost peers
  struct Accepted {
    Peer* peer;
    uint64_t source;
    Identity identity;
    int process;  // as the NI knows it
  };

  Peer* find(fi_addr_t number);
  Peer& named(const Address& address);
  static void on_hello(am::Token& token, void* peers);
  static void on_welcome(am::Token& token, void* peers);
  Answer answer(Peer* peer, uint32_t version) const noexcept;
  void note_path(Peer& peer);
  void greet(Peer& peer);
  void settle(Peer& peer);
  void settle(const Accepted& accepted);
  void fail(Peer& peer, int error);
  void drop(Peer& peer);
  void set_state(Peer& peer, Peer::State state) noexcept;
  am::Index take_index(Peer& peer);

  am::Endpoint& endpoint_;
  AddressVector& vector_;
  const Address own_;
  const std::string own_full_;
  OwnIdentity identity_;
  std::map<std::string, Peer> all_;
  std::vector<Peer*> by_number_, by_index_;
  std::unordered_map<uint64_t, Peer*> by_source_;
  std::vector<Accepted> accepted_;     // channels of peers, of which the endpoint needs translations
  std::vector<am::Index> free_;
  uint32_t unsettled_ = 0;             // peers in states between closed and open
  uint32_t polls_ = 0;
};

}  // namespace unet::fabric
