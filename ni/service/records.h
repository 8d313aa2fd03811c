// records.h - what the service knows of clients, endpoints, channels and requests: plain values, changed by Service and its parts.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ni/engine/mailbox.h"
#include "ni/service/memory.h"
#include "ni/service/packet_socket.h"
#include "ni/service/policy.h"
#include "ni/service/report.h"
#include "unet/base/time.h"
#include "unet/control.h"
#include "unet/layout.h"
#include "unet/wire/frame.h"

namespace unet::service {

// One side of a channel.
struct ChannelRecord {
  enum class State {
    connecting,   // asked for; the number is taken, the client does not know it yet
    confirming,   // accepted over the wire; the other NI has not confirmed yet
    open,
    closed,       // by the other side: the client was told, and keeps the number until it closes, too
  };
  uint32_t number = 0;
  State state = State::connecting;
  control::ChannelKind kind = control::ChannelKind::none;
  uint32_t side = 0;              // 0 connected, 1 accepted
  std::string peer;               // for people
  uint64_t memory = 0;            // charged to this side's user
  LocalOptions local{};

  uint64_t cookie = 0;            // connecting, confirming: of the request to answer
  uint64_t request = 0;           // connecting on this NI: RequestRecord; over the wire: Signalling's connect

  uint32_t peer_endpoint = 0, peer_channel = 0;  // on this NI

  bool wire = false;
  bool fixed = false;             // from the configuration: no signalling, the tag stays reserved
  Tag local_tag{};
  uint32_t port = 0;
  uint32_t relays = 0;            // bit e: engine e passes frames of the tag on: its port or queue, another's endpoint
  bool linked = false;            // on this NI, between two engines: local_tag is taken
  bool ip = false;                // its endpoint's IP channel: it has no other end
  bool shared = false;            // the connect named a claim that several endpoints share
};

struct EndpointRecord {
  uint32_t id = 0;
  uint32_t client = 0;
  std::optional<uint32_t> engine; // that serves it; with several, none before its first channel that is not local
  uint32_t doorbell = 0;          // while an engine serves it
  uint32_t weight = 1;            // of its user's share, against the user's other endpoints
  SegmentGeometry geometry{};
  SharedMemory segment;
  SharedMemory region;            // exposed; empty if none
  uint64_t region_bytes = 0;      // as asked for; the memory is whole pages
  bool region_sent = false;       // its owner has it; false: only the engine
  Descriptor wake;                // eventfd the engine writes
  Descriptor sleep;               // the epoll descriptor around it that the client gets, however often it asks
  uint64_t memory = 0;            // charged for segment and region
  std::map<uint32_t, ChannelRecord> channels;
  uint32_t next_channel = 0;      // number to try next
  std::optional<uint32_t> carrier;  // emulated: the endpoint whose queues it uses; it has no doorbell, segment, region and wake
  std::set<uint32_t> emulated;    // ids of those that it carries
  std::set<uint32_t> lent;        // numbers of their channels: they and ours are different ones
  std::optional<uint32_t> ip_channel;  // number of it, while it is open
  std::set<uint32_t> ip_claims;   // numbers; none without that
  std::vector<SharedMemory> socket_tables;  // unet/socket_table.h; none without that
  uint32_t orphans_number = 0;       // under which the engine expects what they leave, once the IP channel is closed
  uint64_t sockets_asked = 0;     // when they were to be brought up to date last
  std::set<uint64_t> requests;    // waiting for accept or reject
  bool detaching = false;         // the engine was told to let go
  bool answer_detach = false;     // destroy_endpoint waits for it
  uint64_t detach_cookie = 0;

  // What the engine knows it by.
  uint32_t engine_id() const noexcept { return carrier.value_or(id); }
};

// A request for a channel to an endpoint of this NI, until it is accepted, rejected or too late.
struct RequestRecord {
  uint64_t id = 0;
  uint32_t target = 0;
  bool wire = false;
  uint64_t wire_request = 0;      // Signalling's
  std::string from;               // for people
  uint32_t connector = 0, connector_channel = 0;  // on this NI
  control::Path path{};
  Nanoseconds deadline = ~Nanoseconds{0};
};

// One control connection.
struct ClientRecord {
  // Packets that may wait for a client that does not read, besides what its own channels can cause.
  static constexpr size_t kWaitingMax = 1024;

  ClientRecord(uint32_t index_, Descriptor socket_, Credentials who_, Rights rights_)
      : index(index_), socket(std::move(socket_)), who(std::move(who_)), rights(std::move(rights_)) {}

  // A peer that dies may end all of an innocent client's channels in one turn: the answer to its connect and the event of
  // its end, for each. While packets wait, no request of the client is read, so it can open no further ones.
  size_t waiting_max() const noexcept { return kWaitingMax + 2 * channels_peak; }

  uint32_t index;
  PacketSocket socket;
  Credentials who;
  Rights rights;
  std::string program;
  Nanoseconds hello_by = 0;       // 0: not known yet
  bool greeted = false;           // hello was answered: page and wake exist, the engine knows the client
  bool dropped = false;           // socket closed; stays until the engine has let go of everything
  bool told_engine = false;       // DetachClient was sent
  uint32_t engines = 0;           // bit e: engine e knows it, and its sleep watches `wake`
  bool starved = false;           // its answers wait for descriptors, not for room
  uint32_t watched = 0x001;       // epoll events: EPOLLIN, EPOLLOUT for room, or none
  SharedMemory page;
  uint32_t events = 0;            // ClientPage::control_events, our own copy
  Descriptor wake;                // the client writes, the engines' sleeps watch
  std::set<uint32_t> endpoints;
  size_t channels = 0;            // of all endpoints, in any state
  size_t channels_peak = 0;       // since no packet waited
  size_t uncommitted = 0;           // of the packets that wait, the last so many do not count yet, and may not leave
  // Its socket has no room for what could leave.
  bool blocked() const noexcept { return socket.packets_waiting() > uncommitted; }
  bool deferred = false;              // its next request waits for what dead processes left (IpRequests::must_wait)
  uint64_t outputs = 0;           // packets to it that the journal has had, and
  uint64_t outputs_sent = 0;      // those of them that have left
  uint64_t events_numbered = 0;
  uint64_t handled_cookie = 0;    // of the last request of which all is in the journal
  uint32_t handled_op = 0;        // 0: none
  std::unique_ptr<Report> report; // of which it has not had all parts
  bool maybe_handled = false;        // the next request may be that one, still in the socket
  std::vector<uint64_t> doorbells = std::vector<uint64_t>(ClientPage::kWords);  // taken bits
};

// The user, as the service compares users. A user that the kernel cannot name here owns what its own connection has: another with the same
// number may be another user.
inline uint64_t owner_of(const Credentials& who, uint32_t client) noexcept {
  return who.unknown ? uint64_t{1} << 32 | client : uint64_t{who.uid};
}
inline uint64_t owner_of(const ClientRecord& client) noexcept { return owner_of(client.who, client.index); }

}  // namespace unet::service
