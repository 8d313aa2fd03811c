// fast_open_handshake.h - TCP Fast Open handshakes (RFC 7413) of both sides, which send data with the SYN; used by the stack.
#pragma once

#include "ipstack/sockets/fast_open.h"
#include "ipstack/sockets/socket.h"
#include "ipstack/sockets/stack_counters.h"
#include "unet/wire/tcp.h"

namespace unet::sockets {

class FastOpen {
 public:
  FastOpen(const HashKey& given, const HashKey& known, StackCounters& counters) : cookies_(given), cache_(known), counters_(counters) {}

  // Adds a cookie, or the request for one, to a SYN that is not sent yet. True: data may go with it.
  bool begin(Socket& socket, Nanoseconds now);
  // After a handshake with fast open: learns the server's cookie, or that the path loses such SYNs.
  void learn(Socket& socket, const ip::TcpView& answer, Nanoseconds now);
  // Handles the fast open option of a peer's SYN. A peer without a valid cookie gets one, and repeats its data (RFC 7413, 4.2.2). The data
  // is also ignored while too many handshakes are unfinished, as cookies can be stolen (5.1).
  void answer(Socket& socket, ListenerPart& part, const ip::TcpView& segment, Nanoseconds now);

 private:
  FastOpenCookies cookies_;  // for our clients
  FastOpenCache cache_;      // from servers
  StackCounters& counters_;
};

}  // namespace unet::sockets
