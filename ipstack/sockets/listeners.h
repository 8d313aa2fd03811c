// listeners.h - listeners: handshakes that peers begin, cookies when there are too many of them (RFC 4987), and accept(); used by the
// stack, which checks the socket.
#pragma once

#include <cstdint>
#include <optional>

#include "ipstack/sockets/local_streams.h"
#include "ipstack/sockets/socket_names.h"
#include "ipstack/sockets/stack_core.h"
#include "ipstack/sockets/syn_cookies.h"
#include "ipstack/sockets/tcp_streams.h"

namespace unet::sockets {

class Listeners {
 public:
  Listeners(StackCore& core, SocketNames& names, TcpStreams& tcp, LocalStreams& local_streams) noexcept
      : core_(core), names_(names), tcp_(tcp), local_streams_(local_streams) {}

  // 0, or -errno.
  int listen(uint32_t index, int backlog);
  // The accepted socket, or -errno.
  int accept(uint32_t index, Address* peer);
  // The socket does not listen any more. Connections that were not accepted are reset.
  void end(uint32_t index);

  // The new connection's numbers begin after `begin`.
  void handle_syn(uint32_t listener, const Address& local, const Address& remote, const ip::TcpView& segment, uint8_t ecn,
                  const std::optional<tcp::Sequence>& begin);
  // An ACK for no connection may be the answer to a cookie; then there is one. True: it is answered by nothing else.
  bool take_cookie(uint32_t listener, const Address& local, const Address& remote, const ip::TcpView& segment);
  // Whether the segment to the socket answers a cookie. If it does (first), the socket is an embryo that must go, for the peer took the
  // cookie for the answer to its SYN.
  SynCookies::Answer overtakes_by_cookie(uint32_t index, const ip::TcpView& segment) const noexcept {
    return core_.sockets[index].stage == Stage::embryo ? cookie_of_embryo(index, segment) : SynCookies::Answer::none;
  }

 private:
  static constexpr uint32_t kNone = StackCore::kNone;

  uint32_t make_embryo(uint32_t listener, const Address& local, const Address& remote);
  SynCookies::Answer cookie_of_embryo(uint32_t index, const ip::TcpView& segment) const noexcept;
  void send_cookie(const Socket& listener, const Address& local, const Address& remote, const ip::TcpView& segment);

  StackCore& core_;
  SocketNames& names_;
  TcpStreams& tcp_;
  LocalStreams& local_streams_;     // listeners have some that wait for accept()
  SynCookies cookies_{tcp_.hashes().key};
};

}  // namespace unet::sockets
