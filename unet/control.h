// control.h - the messages on the control socket between libunet and the service; a SOCK_SEQPACKET packet is one of them.
//
// The client sends requests; the service answers each with one Reply of the same cookie (some answers take as long as a
// peer on another host), and sends events in between. Descriptors travel with SCM_RIGHTS, in the order named here.
// Integers are in host order: both ends are on one host. Texts are not terminated: their length is beside them.
// Every packet is exactly sizeof(its type); anything else is a protocol error, and the service closes the connection.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "unet/base/result.h"
#include "unet/ip.h"
#include "unet/layout.h"
#include "unet/limits.h"

namespace unet::control {

// Raised when a packet changes or a request is new. Three things do not, so that releases that do not understand each other can say
// so: Header, Hello up to `version`, and Reply up to `error`.
constexpr uint32_t kVersion = 13;
constexpr size_t kPacketMax = 1024;  // bytes of any packet, both ways

// A short text in a packet. A length beyond the room is a lie; view() shortens it.
template <size_t N>
struct Text {
  uint16_t length = 0;
  char bytes[N] = {};

  std::string_view view() const noexcept { return {bytes, length <= N ? length : N}; }
  void set(std::string_view text) noexcept {
    length = static_cast<uint16_t>(text.size() < N ? text.size() : N);
    if (length != 0) std::memcpy(bytes, text.data(), length);  // nothing may come from nowhere
  }
};
using NameText = Text<kNameMax + 1>;
using TargetText = Text<2 * kNameMax + 2>;  // name@host
using ErrorText = Text<400>;

enum class Op : uint32_t {
  // requests (answered by a reply of the same op)
  hello = 1,
  create_endpoint = 2,
  destroy_endpoint = 3,
  bind = 4,
  unbind = 5,
  connect = 6,
  accept = 7,
  reject = 8,
  close_channel = 9,
  expose = 10,
  peer_region = 11,
  get_descriptor = 12,
  report = 13,
  policy_reload = 14,  // of root and the NI's own user only
  drain = 15,          // likewise
  upgrade = 16,        // likewise
  create_emulated = 17,
  open_ip = 18,
  claim_ip = 19,
  release_ip = 20,
  ip_configuration = 21,
  open_sockets = 22,
  list_sockets = 23,
  set_ip_claim = 24,
  own_ip_flow = 25,
  capture_start = 30,
  capture_stop = 31,
  // events (cookie: 0, or a number that grows: one that is not larger than the last is an event that came before)
  connect_request = 100,
  channel_opened = 101,
  channel_closed = 102,
  ip_changed = 103,
};

enum class Path : uint32_t {
  automatic = 0,  // a local channel if the peer is on this NI and neither is emulated, else through the engine
  local = 1,      // a local channel or an error
  ni = 2,         // through the engine, even if the peer is on this NI
};

struct Header {
  Op op;
  uint32_t endpoint;  // the endpoint's id, where the op concerns one
  uint64_t cookie;    // chosen by the client, repeated in the reply
};

// ---- requests

struct Hello {
  Header header;
  uint32_t version;  // kVersion
  NameText program;  // for lists
};
struct CreateEndpoint {
  Header header;
  EndpointOptions options;
};
// An endpoint without queues (docs/ARCHITECTURE.md, "Emulated endpoints"): its channels are channels of a real one, which its owner
// has created before, and carry that one's numbers. All other requests that name it are as for a real one.
struct CreateEmulated {
  Header header;       // endpoint: the one that carries it
};
struct DestroyEndpoint { Header header; };
struct Bind {
  Header header;
  NameText name;
};
struct Unbind { Header header; };
struct Connect {
  Header header;
  TargetText target;  // "name", "name@host", or "tcp:PORT:ADDRESS" or "udp:PORT:ADDRESS": who has that claim
  Path path;
  uint32_t timeout_ms;
  LocalOptions local;  // if it becomes a local channel
};
struct Accept {
  Header header;
  uint64_t request;  // from ConnectRequest
};
struct Reject {
  Header header;
  uint64_t request;
};
struct CloseChannel {
  Header header;
  uint32_t channel;
};
struct Expose {
  Header header;
  uint64_t bytes;  // at most one region per endpoint
};
struct PeerRegion {
  Header header;
  uint32_t channel;
};
struct GetDescriptor { Header header; };
struct Report {
  Header header;
  uint32_t part;   // 0: a new one; else the number of parts that were answered
  uint32_t spare;
};
struct PolicyReload { Header header; };
struct Drain {
  Header header;
  uint32_t on;  // 1: no new endpoints, names and channels from now on; 0: again
};
struct Upgrade {
  Header header;
  Text<255> program;  // whose unetd takes over; empty: the one that was started
};

// IP (unet/ip.h). The IP channel is closed with close_channel or with the endpoint, and its claims with it.
struct OpenIp { Header header; };
struct ClaimIp {
  Header header;
  IpClaim claim;
};
struct ReleaseIp {
  Header header;
  uint32_t claim;
};
struct SetIpClaim {
  Header header;
  uint32_t claim;
  uint32_t takes_new;  // TakesNew
};
// A connection of TCP that another member of the claim's share has is this member's from now on.
struct OwnIpFlow {
  Header header;
  uint32_t claim;
  uint16_t local_port, remote_port;
  ip::IpAddress local, remote;
};
struct GetIpConfiguration { Header header; };
// The next table of the endpoint's sockets (unet/socket_table.h), to be written by its owner; it stays until the IP channel is closed.
struct OpenSockets { Header header; };
// A table of somebody's sockets, to be read: the first behind (endpoint, table) of those that this user may see. The owner is asked to
// bring its first table up to date. Of root and the NI's own user: everybody's; others: their own.
struct ListSockets {
  Header header;        // endpoint: the one of the table before; ~0: none
  uint32_t table;       // and its number
  uint32_t spare;
};

// What passes the wires is copied to memory of the reader and the NI (unet/capture_memory.h) until capture_stop, or until this
// connection or the endpoint ends. Of root and the NI's own user: everything; others: their own endpoints.
struct CaptureStart {
  Header header;        // endpoint: ~0 for all frames, signals among them
  uint32_t channel;     // ~0: all of the endpoint's
  int32_t port;         // -1: all
  uint32_t snap_length; // bytes kept of a frame, at least 14
  uint32_t bytes;       // of the ring, a power of two
};
struct CaptureStop {
  Header header;
  uint32_t capture;     // one's own, or as root and the NI's own user any
};

// ---- replies

enum class ChannelKind : uint32_t { none = 0, local = 1, ni = 2 };

// What a side learns of a channel that is open now.
struct ChannelInfo {
  uint32_t channel;  // the endpoint's small number for it
  ChannelKind kind;
  uint32_t side;        // local: 0 connected, 1 accepted
  uint32_t wire_mtu;    // ni: bytes of message that fit into one frame (0: shared NI without a wire between)
  uint32_t same_user;   // 1: the other process is of this NI and of the same user, as the NI sees them; else 0
  uint32_t shared;      // 1: the target was a claim that several may share: the next who asks for it may be led to another
  uint32_t known;       // 1: no new channel, but the local one that the endpoint has to who claims the target; no descriptors
  LocalOptions local;   // local: the geometry
  NameText peer;        // the peer's endpoint name or "pid 123", for people
};

struct IpAddressInfo {
  ip::IpAddress address;
  uint32_t port;
  uint8_t prefix;
  uint8_t tentative;  // 1: nobody has it yet
  uint16_t spare;
};
struct IpInterfaceInfo {
  uint32_t port;
  uint32_t mtu;  // 0: the interface is gone, or down
  ip::IpAddress gateway4, gateway6;
};
struct IpRouteInfo {
  ip::IpAddress network, gateway;
  uint32_t port;
  uint8_t prefix;
  uint8_t spare[3];
};
static_assert(sizeof(IpAddressInfo) == 24 && sizeof(IpInterfaceInfo) == 40 && sizeof(IpRouteInfo) == 40);

struct Reply {
  Header header;
  int32_t code;     // Errc
  ErrorText error;  // the sentence, if code != 0
  union {
    struct {
      uint32_t version;
      uint32_t client;  // number of this connection
    } hello;                                     // descriptors: ClientPage memory, eventfd that wakes the engine
    struct {
      uint32_t endpoint;  // id for later requests
      uint32_t doorbell;  // bit in the ClientPage
    } create_endpoint;                           // descriptors: segment memory; create_emulated: none, no doorbell
    ChannelInfo channel;                         // connect, accept, open_ip: see below
    struct {
      uint32_t capture;     // number, for capture_stop
      uint32_t bytes;       // of the ring
      uint64_t epoch;       // what to add to a record's time for nanoseconds since 1970
    } capture;                                   // descriptor: capture memory
    struct {
      uint32_t claim;
      uint32_t port;        // the first
      uint32_t plenty;      // IpClaimed::plenty
    } claim_ip;
    struct {
      uint32_t addresses;   // so many IpAddressInfo, and then
      uint32_t interfaces;  // so many IpInterfaceInfo, and then
      uint32_t routes;      // so many IpRouteInfo
    } ip_configuration;                          // descriptor: sealed memory that holds them
    struct {
      uint32_t endpoint;    // ~0: there are no more, and there is no descriptor
      uint32_t table;
      uint32_t sockets;     // that it has room for
      int32_t pid, uid;     // of the owner
      uint64_t asked;       // list_sockets: what the owner writes into `told` when it has done as asked
      NameText program;
    } sockets;                                   // open_sockets, list_sockets: descriptor: memory, for list_sockets to be read alone
    struct {
      uint64_t bytes;
    } region;                                    // expose, peer_region (local channels): descriptor: region memory
  };
};
// A local channel comes with descriptors: channel memory, wake descriptor this side sleeps on, eventfd that wakes the peer.
// get_descriptor: a wake descriptor that becomes readable when the endpoint asked to be woken (SegmentHeader).
// upgrade: answered by the NI that took over, or with an error by the one that stays.
// A wake descriptor is an epoll descriptor around an eventfd that only the waker holds: it is readable when it was woken
// and is cleared by epoll_wait(fd, &event, 1, 0), not by read(). Were the eventfd itself shared, the sleeping side could
// clear its O_NONBLOCK, fill its counter, and so block the waker for ever.
// report: a ReportPart, or a Reply with an error.
// policy_reload: an error if the file is wrong; the old policy stays then.

// A part of a JSON document of what this user may see. It may end within a word, and may be empty.
struct ReportPart {
  Header header;
  uint32_t length;
  uint32_t more;        // 1: ask for the next part
  char bytes[kPacketMax - sizeof(Header) - 2 * sizeof(uint32_t)];
};

// ---- events

struct ConnectRequest {
  Header header;
  uint64_t request;  // names it in Accept or Reject
  int32_t peer_uid;  // -1: on another host; as the NI sees it, in its user namespace
  int32_t peer_pid;
  uint32_t same_user;  // as in ChannelInfo
  NameText peer;     // "pid 123", or the host it comes from
};
struct ChannelOpened {  // a static channel of the configuration
  Header header;
  ChannelInfo channel;
};
enum class CloseReason : uint32_t { closed_by_peer = 1, peer_died = 2, ni_stopped = 3, wire_lost = 4 };
struct ChannelClosed {
  Header header;
  uint32_t channel;  // stays the endpoint's, unused, until it sends close_channel
  CloseReason reason;
};
// What the NI has for IP is no longer as ip_configuration said.
struct IpChanged {
  Header header;
};

static_assert(sizeof(Reply) <= kPacketMax && sizeof(Connect) <= kPacketMax && sizeof(ReportPart) == kPacketMax);
static_assert(std::is_trivially_copyable_v<Reply>);

// Endpoint and host names: 1 to kNameMax characters of [A-Za-z0-9._-/], not beginning with '-' or '/'.
constexpr bool valid_name(std::string_view name) noexcept {
  if (name.empty() || name.size() > kNameMax || name.front() == '-' || name.front() == '/') return false;
  for (const char c : name) {
    const bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
                    c == '-' || c == '/';
    if (!ok) return false;
  }
  return true;
}

// "tcp:PORT:ADDRESS" or "udp:PORT:ADDRESS": no valid name, so it cannot be one's.
constexpr bool names_claim(std::string_view target) noexcept { return target.starts_with("tcp:") || target.starts_with("udp:"); }

}  // namespace unet::control
