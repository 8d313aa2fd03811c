// fast_open_handshake.h - data with the SYN (RFC 7413): cookies that our SYNs carry, and SYNs with cookies of ours; used by the stack.
#pragma once

#include "ipstack/sockets/fast_open.h"
#include "ipstack/sockets/socket.h"
#include "ipstack/sockets/stack_counters.h"
#include "unet/wire/tcp.h"

namespace unet::sockets {

class FastOpen {
 public:
  FastOpen(const HashKey& given, const HashKey& known, StackCounters& counters) : cookies_(given), cache_(known), counters_(counters) {}

  // The SYN, which has not left, has a cookie or asks for one. True: data may go with it.
  bool begin(Socket& socket, Nanoseconds now);
  // The handshake that asked for fast open is over: learns of the server.
  void learn(Socket& socket, const ip::TcpView& answer, Nanoseconds now);
  // Between listen() and the SYN. A peer with no cookie, or a wrong one, is given one, and its data comes again (RFC 7413, 4.2.2); so it is
  // when too many have not finished their handshakes, as cookies can be stolen (5.1).
  void answer(Socket& socket, ListenerPart& part, const ip::TcpView& segment, Nanoseconds now);

 private:
  FastOpenCookies cookies_;  // that we give
  FastOpenCache cache_;      // that we have been given
  StackCounters& counters_;
};

}  // namespace unet::sockets
