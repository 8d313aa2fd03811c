// network.h - the interface between a stack and its NI: claims of ports, packets to send, and channels to local peers, the stacks of other
// applications of the same NI. Implemented over an endpoint (endpoint_network.h), and by the tests.
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
    int error = 0;       // 0 or EADDRINUSE, EACCES, EADDRNOTAVAIL, ENOBUFS, ENETDOWN
    uint32_t claim = 0;  // for release()
    uint16_t port = 0;   // the first port of the claim
    bool plenty = false;  // IpClaimed::plenty
  };
  // Set-up: a round trip to the network interface's service.
  virtual Claimed claim(const IpClaim& claim) = 0;
  virtual void release(uint32_t claim) = 0;
  // Says whether a claim of a shared port takes new flows. 0, or an errno: EADDRINUSE.
  virtual int set_accepts_new_flows([[maybe_unused]] uint32_t claim, [[maybe_unused]] AcceptsNewFlows accepts) { return 0; }
  // Takes over a TCP connection from another member of the share: its segments come to this network now, or a moment later. 0, or an errno.
  virtual int own_flow(uint32_t claim, const Address& local, const Address& remote) {
    return static_cast<void>(claim), static_cast<void>(local), static_cast<void>(remote), ENETDOWN;
  }
  virtual const IpConfiguration& configuration() = 0;
  // Memory for one more table of sockets, as by Endpoint::open_sockets(); none: no reader can show it.
  virtual SocketTableView open_sockets() { return {}; }

  // Room for a message of at most `bytes` (IpMessageHeader and a packet). post() sends as much of it as its `bytes`. Empty: no room now.
  virtual MutableBytes reserve(uint32_t bytes) noexcept = 0;
  virtual void post(uint32_t bytes) noexcept = 0;

  // Memory for payload that is sent without a copy, at least `bytes`. Empty: there is none, or a message was sent before this call. It
  // lives as long as this object.
  virtual MutableBytes register_send_memory(uint64_t bytes) noexcept { return static_cast<void>(bytes), MutableBytes(); }
  // Posts a message as post(bytes) does, with `pieces` of the registered memory appended, at most kSendPiecesMax. They must not change
  // until completed() has reached the value of submitted() after this call.
  virtual void post(uint32_t bytes, std::span<const Bytes> pieces) noexcept {
    UNET_CHECK(pieces.empty());
    post(bytes);
  }
  virtual uint64_t submitted() const noexcept { return 0; }
  virtual uint64_t completed() noexcept { return 0; }
  // Messages leave only while the application polls.
  virtual bool is_polled() const noexcept { return false; }
  // A stack that waits for room (Stack::wants_room()) waits until completed() reaches `submitted`, unless a later reserve() finds no room.
  virtual void notify_completion(uint64_t submitted) noexcept { static_cast<void>(submitted); }

  // Asks for a channel to the local peer that has claimed a port of this NI. The answer comes by Stack::handle_local_peer_found(). Local
  // peers have small numbers, which Stack::handle_local_peer() announces. False: no question was sent.
  virtual bool ask_local_peer(uint8_t protocol, const Address& to) = 0;
  // Sends a message of a head, at most kHeadedMax bytes if there is data, and data, at most kMessageMax bytes. False: no room now.
  virtual bool send_to_local_peer(uint32_t local_peer, Bytes head, Bytes data) noexcept = 0;
  // Whether a message of so many bytes beside its head may be sent now.
  virtual bool has_room(uint32_t local_peer, uint32_t bytes) noexcept = 0;
  // send_to_local_peer() without a copy: room for the data of a message. post_to_local_peer() sends its first `bytes` with a head.
  virtual MutableBytes reserve_to_local_peer(uint32_t local_peer, uint32_t bytes) noexcept = 0;
  virtual void post_to_local_peer(uint32_t local_peer, Bytes head, uint32_t bytes) noexcept = 0;
  // Releases a message that the stack has read in place, of a local peer or of the IP channel (kNoLocalPeer).
  virtual void release(uint32_t local_peer, const Message& message) noexcept = 0;
  static constexpr uint32_t kNoLocalPeer = ~uint32_t{0};
};

}  // namespace unet::sockets
