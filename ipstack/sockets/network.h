// network.h - what a stack needs of the network interface: ports of its own, packets out, and channels to its neighbours, the stacks of
// other applications of the same interface. Implemented over an endpoint (endpoint_network.h), and by the tests.
#pragma once

#include <cerrno>
#include <cstdint>
#include <span>

#include "ipstack/sockets/address.h"
#include "unet/base/bytes.h"
#include "unet/base/check.h"
#include "unet/ip.h"
#include "unet/message.h"
#include "unet/socket_table.h"

namespace unet::sockets {

class Network {
 public:
  virtual ~Network() = default;

  struct Claimed {
    int error = 0;       // 0, or an errno: EADDRINUSE, EACCES, EADDRNOTAVAIL, ENOBUFS, ENETDOWN
    uint32_t claim = 0;  // for release()
    uint16_t port = 0;   // the first one
    bool plenty = false;  // IpClaimed::plenty
  };
  // Set-up: a round trip to the network interface's service.
  virtual Claimed claim(const IpClaim& claim) = 0;
  virtual void release(uint32_t claim) = 0;
  // Of a claim that others share: whether it takes new flows. 0, or an errno: EADDRINUSE.
  virtual int set_accepts_new_flows([[maybe_unused]] uint32_t claim, [[maybe_unused]] AcceptsNewFlows accepts) { return 0; }
  // Of such a claim: a TCP connection that another member of the share has comes to this network from now on, or a moment later. 0, or an
  // errno.
  virtual int own_flow(uint32_t claim, const Address& local, const Address& remote) {
    return static_cast<void>(claim), static_cast<void>(local), static_cast<void>(remote), ENETDOWN;
  }
  virtual const IpConfiguration& configuration() = 0;
  // Memory to tell of further sockets in, as Endpoint::open_sockets(); none: nobody wants to know.
  virtual SocketTableView open_sockets() { return {}; }

  // Room for a message of at most so many bytes (IpMessageHeader and a packet), which post() sends, or as much of it as it says. Empty:
  // none now.
  virtual MutableBytes reserve(uint32_t bytes) noexcept = 0;
  virtual void post(uint32_t bytes) noexcept = 0;

  // Memory of which messages may be sent without a copy, at least `bytes` of it; empty: none, or something was sent before. It lives as
  // long as this.
  virtual MutableBytes keep(uint64_t bytes) noexcept { return static_cast<void>(bytes), MutableBytes(); }
  // As post(), with what lies in that memory behind it, at most kKeptMax pieces. They stay as they are until taken() has come to what
  // posted() says after this.
  virtual void post(uint32_t bytes, std::span<const Bytes> kept) noexcept {
    UNET_CHECK(kept.empty());
    post(bytes);
  }
  virtual uint64_t posted() const noexcept { return 0; }
  virtual uint64_t taken() noexcept { return 0; }
  // What is posted leaves while the application polls, and only then.
  virtual bool is_polled() const noexcept { return false; }
  // A stack that waits for room (Stack::wants_room()) waits for taken() to come that far, unless reserve() finds none after this.
  virtual void await_taken(uint64_t posted) noexcept { static_cast<void>(posted); }

  // Neighbours are small numbers, which the stack is told by handle_neighbour(). Asks for a channel to the one that has claimed a port of
  // this interface; the answer is Stack::handle_neighbour_found(). False: it is no use asking.
  virtual bool ask_neighbour(uint8_t protocol, const Address& to) = 0;
  // Sends a message of a head, at most kHeadedMax bytes if there is data, and data, at most kMessageMax bytes. False: no room now.
  virtual bool send_to_neighbour(uint32_t neighbour, Bytes head, Bytes data) noexcept = 0;
  // Whether a message of so many bytes beside its head may be sent now.
  virtual bool has_room(uint32_t neighbour, uint32_t bytes) noexcept = 0;
  // The same without a copy: room for the data of a message, which post_to_neighbour() sends with its head, or as much of it as it says.
  virtual MutableBytes reserve_to_neighbour(uint32_t neighbour, uint32_t bytes) noexcept = 0;
  virtual void post_to_neighbour(uint32_t neighbour, Bytes head, uint32_t bytes) noexcept = 0;
  // Gives back a message that the stack has kept, of a neighbour's or of the IP channel (kNoNeighbour).
  virtual void release(uint32_t neighbour, const Message& message) noexcept = 0;
  static constexpr uint32_t kNoNeighbour = ~uint32_t{0};
};

}  // namespace unet::sockets
