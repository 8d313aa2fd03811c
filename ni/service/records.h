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
#include "unet/mapping.h"
#include "unet/wire/frame.h"

namespace unet::service {

// The NI maps one page of at most this many local channels, to report their message counts. A process has at most 64 Ki mappings.
constexpr uint32_t kLocalPagesMax = 4096;

// One side of a channel.
struct ChannelRecord {
  enum class State {
    connecting,   // requested; the number is taken, but the client does not know it yet
    confirming,   // accepted a remote NI's connect; that NI has not confirmed yet
    open,
    closed,       // closed by the peer; the client knows, and keeps the number until it closes the channel, too
  };
  uint32_t number = 0;
  State state = State::connecting;
  control::ChannelKind kind = control::ChannelKind::none;
  uint32_t side = 0;              // 0 connected, 1 accepted
  std::string peer;               // the peer's name, for logs and reports
  uint64_t memory = 0;            // charged to this side's user
  LocalOptions local{};
  std::shared_ptr<const Mapping> local_page;  // a local channel's numbers of messages; none after a takeover, and beyond kLocalPagesMax

  uint64_t cookie = 0;            // connecting, confirming: cookie of the client's request that is not answered yet
  uint64_t request = 0;           // connecting: id of the RequestRecord (on this NI) or of Signalling's connect (over a wire)

  uint32_t peer_endpoint = 0, peer_channel = 0;  // if the peer is on this NI

  bool wire = false;
  bool fixed = false;             // from the configuration: no signalling, the tag stays reserved
  Tag local_tag{};
  uint32_t port = 0;
  uint32_t relays = 0;            // bit e: engine e relays frames of the tag, as they arrive at its port or queue, to the endpoint's engine
  bool linked = false;            // between two engines of this NI, which uses local_tag
  bool ip = false;                // the endpoint's IP channel, which has no peer
  bool shared = false;            // the connect named a claim that several endpoints share
};

struct EndpointRecord {
  uint32_t id = 0;
  uint32_t client = 0;
  std::optional<uint32_t> engine; // serves the endpoint; if there are several, none before the first channel that is not local
  uint32_t doorbell = 0;          // while an engine serves it
  uint32_t weight = 1;            // share of the user's sending time, relative to the user's other endpoints
  SegmentGeometry geometry{};
  SharedMemory segment;
  SharedMemory region;            // the exposed region; empty if none
  uint64_t region_bytes = 0;      // the requested size; the memory is whole pages
  bool region_sent = false;       // the owner has the region; false: only the engine has it
  Descriptor wake;                // eventfd the engine writes
  Descriptor sleep;               // an epoll descriptor with `wake` in it; the client gets this one at each request
  uint64_t memory = 0;            // charged for segment and region
  std::map<uint32_t, ChannelRecord> channels;
  uint32_t next_channel = 0;      // number to try next
  std::optional<uint32_t> carrier;  // an emulated endpoint's; such an endpoint has no doorbell, segment, region and wake
  std::set<uint32_t> emulated;    // ids of the emulated endpoints that it carries
  std::set<uint32_t> lent;        // numbers of the emulated endpoints' channels, distinct from those of its own
  std::optional<uint32_t> ip_channel;  // channel number, while the IP channel is open
  std::set<uint32_t> ip_claims;   // claim numbers; none without an IP channel
  std::vector<SharedMemory> socket_tables;  // unet/socket_table.h; none without an IP channel
  uint32_t orphans_number = 0;       // the engine expects the tables' orphaned connections under it, once the IP channel is closed
  uint64_t sockets_asked = 0;     // when the service last asked the client to update the tables
  std::set<uint64_t> requests;    // ids of requests that wait for accept or reject
  bool detaching = false;         // DetachEndpoint was sent to the engine
  bool answer_detach = false;     // the client's destroy_endpoint waits for the engine's answer
  uint64_t detach_cookie = 0;

  // The number by which the engine knows the endpoint.
  uint32_t engine_id() const noexcept { return carrier.value_or(id); }
};

// A request for a channel to an endpoint of this NI, until it is accepted, rejected or too late.
struct RequestRecord {
  uint64_t id = 0;
  uint32_t target = 0;
  bool wire = false;
  uint64_t wire_request = 0;      // Signalling's id of it
  std::string from;               // the connector's name, for logs and reports
  uint32_t connector = 0, connector_channel = 0;  // if the connector is on this NI
  control::Path path{};
  Nanoseconds deadline = ~Nanoseconds{0};
};

// One control connection.
struct ClientRecord {
  // Packets that may wait for a client that does not read, in addition to those that its channels can cause.
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
  Nanoseconds hello_by = 0;       // deadline for hello; 0: not set yet
  bool greeted = false;           // hello was answered: page and wake exist, the engine knows the client
  bool dropped = false;           // socket closed; stays until the engine has let go of everything
  bool told_engine = false;       // DetachClient was sent
  uint32_t engines = 0;           // bit e: engine e knows it, and its sleep watches `wake`
  bool starved = false;           // its answers wait for free descriptors, not for room in the socket
  uint32_t watched = 0x001;       // epoll events: EPOLLIN, EPOLLOUT for room, or none
  SharedMemory page;
  uint32_t events = 0;            // ClientPage::control_events, our own copy
  Descriptor wake;                // eventfd that the client writes, and that ends the engines' sleep
  std::set<uint32_t> endpoints;
  size_t channels = 0;            // channels of all its endpoints, in any state
  size_t channels_peak = 0;       // most channels since no packet waited
  size_t uncommitted = 0;           // the last so many waiting packets are not in the journal yet, and may not leave
  // Packets that may leave wait, as the socket has no room.
  bool blocked() const noexcept { return socket.packets_waiting() > uncommitted; }
  bool deferred = false;              // its next request waits for what dead processes left (IpRequests::must_wait)
  uint64_t outputs = 0;           // packets to it that were written to the journal so far
  uint64_t outputs_sent = 0;      // those of `outputs` that have left
  uint64_t events_numbered = 0;
  uint64_t handled_cookie = 0;    // cookie of the last request that is wholly in the journal
  uint32_t handled_op = 0;        // its operation; 0: there was none
  std::unique_ptr<Report> report; // a report with parts that it has not fetched
  bool maybe_handled = false;        // after a takeover: the next request may be the handled one, still in the socket
  std::vector<uint64_t> doorbells = std::vector<uint64_t>(ClientPage::kWords);  // taken bits
};

// The user, as the service compares users. A user that the kernel cannot name here owns what its own connection has: another with the same
// number may be another user.
inline uint64_t owner_of(const Credentials& who, uint32_t client) noexcept {
  return who.unknown ? uint64_t{1} << 32 | client : uint64_t{who.uid};
}
inline uint64_t owner_of(const ClientRecord& client) noexcept { return owner_of(client.who, client.index); }

}  // namespace unet::service
