// outbox.h - answers to peers that wait for a credit; used by Receiver, Incoming and RemoteMemory.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "am/endpoint.h"
#include "fabric/peers.h"

namespace unet::fabric {

class Outbox {
 public:
  explicit Outbox(am::Endpoint& endpoint) noexcept : endpoint_(endpoint) {}

  // Answers by a reply to the message of `token`, if there is one that has none; else by a request, now or later.
  void answer(Peer& peer, am::Token* token, uint8_t handler, std::span<const uint32_t> words) {
    if (token != nullptr && token->can_reply()) {
      token->reply_short(handler, words);
    } else if (token != nullptr || !waiting_.empty() || !send(peer, handler, words)) {
      waiting_.push_back({&peer, handler, {words.begin(), words.end()}});
    }
  }
  // Drops the answers to a peer that is lost: their tokens mean nothing to the next process of its name.
  void drop(const Peer& peer) {
    std::erase_if(waiting_, [&](const Waiting& each) { return each.peer == &peer; });
  }
  bool empty() const noexcept { return waiting_.empty(); }
  // Sends what may be sent now. Called outside of handlers.
  void progress() {
    for (size_t left = waiting_.size(); left != 0; --left) {
      Waiting each = std::move(waiting_.front());
      waiting_.pop_front();
      if (each.peer->state == Peer::State::open && !send(*each.peer, each.handler, each.words)) waiting_.push_back(std::move(each));
    }
  }

 private:
  struct Waiting {
    Peer* peer;
    uint8_t handler;
    std::vector<uint32_t> words;
  };
  // False: it must wait. A peer that is lost needs no answer.
  bool send(const Peer& peer, uint8_t handler, std::span<const uint32_t> words) {
    return peer.index != am::kNoIndex && endpoint_.request_now(peer.index, handler, {}, words) != am::Outcome::not_sent;
  }

  am::Endpoint& endpoint_;
  std::deque<Waiting> waiting_;
};

}  // namespace unet::fabric
