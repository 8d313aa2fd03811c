// port_space.h - message ports: queues of messages with one receiver, and rights to them that travel in messages; the C++ API.
//
//   auto space = unet::rpc::PortSpace::create(context, "server");
//   unet::rpc::ReceiveRight port = (*space)->make_port();
//   (*space)->publish("requests", port.make_send_right());
//   while (!message) (*space)->wait(), message = (*space)->receive(port);
//
//   auto right = (*space)->look_up("server@host", "requests");         // in another process, also on another host
//   (*space)->send(right, bytes, mine.make_send_right());              // the message carries a right to a message port of ours
//
// Many send rights lead to a message port, and one receive right. All of them may be sent in messages and work where they arrive. The
// queue follows the receive right when a program receives it. Messages of one send right are received in the order in which they were
// sent, and once, wherever the receive right moves meanwhile. A send right dies with its message port, or if the process is lost that
// stands between it and its message port; error() then has the reason. Messages of a right that has died may have been received.
//
// A message port that moves lives in its former process until the new receiver has its queue. A process that has sent messages or given
// receive rights away therefore calls flush() before it ends. Do not send two receive rights to each other's message ports: no program
// could receive either.
//
// A space belongs to one thread at a time. Rights and messages end before their space.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "am/endpoint.h"
#include "am/rpc/port/port_router.h"

namespace unet::rpc {

class PortSpace;

// A right of this process. Ends when it is destroyed, or leaves in a message.
class PortRight {
 public:
  explicit operator bool() const noexcept { return space_ != nullptr; }

 protected:
  friend class PortSpace;
  explicit PortRight(bool receive) noexcept : receive_(receive) {}
  PortRight(bool receive, PortSpace* space, uint32_t number) noexcept;
  PortRight(PortRight&& other) noexcept
      : receive_(other.receive_), space_(std::exchange(other.space_, nullptr)), number_(other.number_) {}
  PortRight& operator=(PortRight&& other) noexcept;
  ~PortRight() { end(); }
  uint32_t leave() noexcept;
  void end() noexcept;

  const bool receive_;
  PortSpace* space_ = nullptr;
  uint32_t number_ = 0;
};

class SendRight : public PortRight {
 public:
  SendRight() noexcept : PortRight(false) {}
  // Returns another right to the message port. Messages of the two have no common order. An empty one: the space has no room.
  SendRight copy() const;
  PortError error() const;    // none: it is alive, as far as this process knows
  bool can_send() const;      // whether send() would not return would_block or dead

 private:
  friend class PortSpace;
  friend class ReceiveRight;
  SendRight(PortSpace* space, uint32_t number) noexcept : PortRight(false, space, number) {}
};

class ReceiveRight : public PortRight {
 public:
  ReceiveRight() noexcept : PortRight(true) {}
  SendRight make_send_right() const;  // empty: the space has no room
  // Not none: the right was forged or claimed before (bad_right), or its message port was lost on the way. Nothing more will come.
  PortError error() const;

 private:
  friend class PortSpace;
  ReceiveRight(PortSpace* space, uint32_t number) noexcept : PortRight(true, space, number) {}
};

struct PortMessage {
  PortEvent event = PortEvent::message;   // no_more_senders and dead_name carry neither bytes nor rights
  uint64_t cookie = 0;                    // dead_name: the number given to notify_dead_name()
  std::vector<std::byte> bytes;
  std::vector<SendRight> send_rights;     // in the order of the send() call; empty where this space had no room
  std::vector<ReceiveRight> receive_rights;
};

struct PortSpaceOptions {
  PortOptions ports;
  am::Options endpoint;      // `both_ways` is always set
  uint32_t peers_max = 1024; // other spaces that send records to this one; the channel of one more is closed
};

class PortSpace : private PortCarrier {
 public:
  // Binds the space's name, by which other spaces reach it. Errors: those of am::Endpoint::create() and bind().
  static Result<std::unique_ptr<PortSpace>> create(Context& context, std::string_view name, const PortSpaceOptions& options = {});
  // A right or message that is still alive ends the program, because it would use freed memory.
  ~PortSpace() override;
  PortSpace(const PortSpace&) = delete;
  PortSpace& operator=(const PortSpace&) = delete;

  // Returns an empty right if there is no room.
  ReceiveRight make_port() { return {this, router_.make_port()}; }
  // Gives the right to each process that looks up this name. Errors: already_exists, invalid_argument (the right is empty, dead, or not
  // attached yet), and then `right` is gone.
  Status publish(std::string name, SendRight right);
  void unpublish(const std::string& name) { router_.unpublish(name); }
  // Asks the space "name" or "name@host" for the right that is published there. Messages may be sent by it at once; they leave when the
  // answer comes. error() of the right is not_found or unreachable if there is none.
  SendRight look_up(std::string_view space, std::string_view name);

  // Sends a message; `rights` are rvalues of SendRight and ReceiveRight. Never waits. The rights are taken only if the result is sent.
  template <typename... Rights>
  SendResult send(SendRight& to, std::vector<std::byte> bytes, Rights&&... rights) {
    const std::array<PortRight*, sizeof...(rights)> all{&rights...};
    const std::array<Given, sizeof...(rights)> given{Given{rights.number_, rights.receive_}...};
    static_assert((std::is_rvalue_reference_v<Rights&&> && ...), "a right leaves this process with the message: std::move() it");
    return send_given(to, std::move(bytes), given, all);
  }
  template <typename... Rights>
  SendResult send(SendRight& to, Bytes bytes, Rights&&... rights) {
    if (!to.can_send()) bytes = {};  // they are copied only if they can be sent
    return send(to, router_.copy_of(bytes), std::forward<Rights>(rights)...);
  }
  // Returns the oldest message, if there is one. Does not poll.
  std::optional<PortMessage> receive(ReceiveRight& from);

  // Asks for one no_more_senders message, as soon as no send right to the message port exists. The request moves with the receive right. A
  // right on its way from a process that dies may be counted as gone although it arrives.
  void notify_no_senders(ReceiveRight& right) {
    if (right.space_ == this) router_.notify_no_senders(right.number_);
  }
  // Asks for one dead_name message with `cookie` at `to` when `right` dies.
  void notify_dead_name(SendRight& right, ReceiveRight& to, uint64_t cookie) {
    if (right.space_ == this && to.space_ == this) router_.notify_dead_name(right.number_, to.number_, cookie);
  }

  // As those of am::Endpoint. poll() returns the number of Active Messages that arrived.
  uint32_t poll();
  WaitOutcome wait(Nanoseconds timeout = unet::Endpoint::kForever, Nanoseconds spin = unet::Endpoint::kDefaultSpin);
  Result<int> descriptor() { return endpoint_->descriptor(); }
  bool arm(Nanoseconds& limit);
  // Waits until all messages are in their queues, all rights are where they were sent, and all receive rights that left were received.
  // False if `timeout` is over first.
  bool flush(Nanoseconds timeout);

  const PortCounters& counters() const noexcept { return router_.counters(); }
  uint64_t malformed() const noexcept { return malformed_; }
  am::Endpoint& endpoint() noexcept { return *endpoint_; }
  PortRouter& router() noexcept { return router_; }

 private:
  friend class PortRight;
  friend class SendRight;
  friend class ReceiveRight;
  enum class PeerState : uint8_t { none, opening, connected, open };  // connected: the peer has opened the channel, map_back() comes next
  struct PortPeer {
    PeerState state = PeerState::none;
    bool broken = false;             // a request to it came back
    uint64_t source = 0;             // connected: Token::source()
    std::string target;              // opening: the space that we reach by it
    std::string host;                // empty: this one
    std::vector<std::byte> encoded;  // a record without room in the channel
  };
  PortSpace(std::unique_ptr<am::Endpoint> endpoint, std::string_view name, const PortSpaceOptions& options);
  SendResult send_given(SendRight& to, std::vector<std::byte> bytes, std::span<const Given> given, std::span<PortRight* const> rights);
  PeerId reach(std::string_view space) override;
  std::string_view host_of(PeerId peer) const override;
  PeerId free_peer();
  PeerId peer_of(const am::Token& token);
  static void arrive(am::Token& token, void* context);
  static void come_back(am::Endpoint& endpoint, const am::Returned& returned, void* context);
  void serve(bool idle);
  void connect_peers();
  void look_at_peers();
  void lose(PeerId peer);
  void turn_away();
  bool send_records(PeerId id, PortPeer& peer);
  bool send_record(PeerId id, PortPeer& peer, const Record& record);

  std::unique_ptr<am::Endpoint> endpoint_;
  const uint32_t peers_max_;
  std::vector<PortPeer> peers_;      // by PeerId, which is also the translation
  uint32_t peers_used_ = 0;
  uint32_t unconnected_ = 0;         // peers that are opening or connected
  std::vector<uint64_t> unwelcome_;  // Token::source() of spaces for which there is no room
  uint32_t looks_ = 0;               // polls since the last look_at_peers()
  bool any_broken_ = false;
  bool arrived_ = false;             // a record has come since the last poll() or wait()
  std::vector<PeerId> outgoing_;     // serve() uses its memory again
  uint64_t malformed_ = 0;           // records that do not parse
  uint32_t rights_ = 0;              // of the program
  PortRouter router_;
};

}  // namespace unet::rpc
