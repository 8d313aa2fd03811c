// counters.h - what an Active Message endpoint counts; part of the public API of Active Messages.
#pragma once

#include <cstdint>

namespace unet::am {

struct Counters {
  uint64_t requests = 0;          // sent
  uint64_t replies = 0;
  uint64_t handled = 0;           // messages handled by their handlers
  uint64_t completed = 0;         // asynchronous requests that have released their payload
  uint64_t returned = 0;          // returned to our error handler
  uint64_t refused = 0;           // undeliverable requests of peers, which were returned to them
  uint64_t malformed = 0;         // messages of peers that do not parse
  uint64_t bad_credit = 0;        // messages that acknowledge more requests than were sent
  uint64_t bad_reply = 0;         // replies that answer no get, or undeliverable replies (our error handler gets reply_rejected)
  uint64_t bad_request = 0;       // requests on a channel that we opened, which carries only replies to us
  uint64_t lost_replies = 0;      // replies for which a peer that releases nothing had no room
  uint64_t unknown_channel = 0;   // messages on a channel that has no peer
  uint64_t not_admitted = 0;      // peers refused by Options::admit or same_user_only
};

}  // namespace unet::am
