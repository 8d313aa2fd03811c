// control.h - messages on the control socket between libunet and the service; each is one SOCK_SEQPACKET packet.
//
// The client sends requests. The service answers each with one Reply of the same cookie, and sends events in between. Some answers take as
// long as a peer on another host. Descriptors travel with SCM_RIGHTS, in the order stated here. Integers are in host order, because both
// ends are on one host. Texts are not terminated; they have a length field. Each packet has exactly the size of its type. Otherwise it is a
// protocol error, and the service closes the connection.
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

// Increase this when a packet, a request or the layout of shared memory changes. Three parts never change, so that incompatible releases
// can report the mismatch: Header, Hello up to `version`, and Reply up to `error`.
constexpr uint32_t kVersion = 14;
constexpr size_t kPacketMax = 1024;  // maximum bytes of a packet, both ways

// A short text in a packet. view() shortens a length beyond the array.
template <size_t N>
struct Text {
  uint16_t length = 0;
  char bytes[N] = {};

  std::string_view view() const noexcept { return {bytes, length <= N ? length : N}; }
  void set(std::string_view text) noexcept {
    length = static_cast<uint16_t>(text.size() < N ? text.size() : N);
    if (length != 0) std::memcpy(bytes, text.data(), length);  // memcpy() from a null pointer is undefined
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
  policy_reload = 14,  // for root and the NI's own user only
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
  // events (the cookie is 0 or an increasing number; a number that is not larger than the last marks a repeated event)
  connect_request = 100,
  channel_opened = 101,
  channel_closed = 102,
  ip_changed = 103,
};

enum class Path : uint32_t {
  automatic = 0,  // a local channel if the peer is on this NI and neither endpoint is emulated, else through the engine
  local = 1,      // a local channel, or an error
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
  NameText program;  // shown in lists
};
struct CreateEndpoint {
  Header header;
  EndpointOptions options;
};
// An endpoint without queues (docs/ARCHITECTURE.md, "Emulated endpoints"). Its channels are channels of a real endpoint that its owner has
// created before, and have that endpoint's numbers. All other requests treat it like a real one.
struct CreateEmulated {
  Header header;       // endpoint: the real endpoint that carries it
};
struct DestroyEndpoint { Header header; };
struct Bind {
  Header header;
  NameText name;
};
struct Unbind { Header header; };
struct Connect {
  Header header;
  TargetText target;  // "name", "name@host", or the holder of a claim: "tcp:PORT:ADDRESS" or "udp:PORT:ADDRESS"
  Path path;
  uint32_t timeout_ms;
  LocalOptions local;  // options of a local channel
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
  uint64_t bytes;  // each endpoint has at most one region
};
struct PeerRegion {
  Header header;
  uint32_t channel;
};
struct GetDescriptor { Header header; };
struct Report {
  Header header;
  uint32_t part;   // 0: start a new report; else the number of parts received so far
  uint32_t spare;
};
struct PolicyReload { Header header; };
struct Drain {
  Header header;
  uint32_t on;  // 1: refuse new endpoints, names and channels from now on; 0: allow them again
};
struct Upgrade {
  Header header;
  Text<255> program;  // path of the unetd that takes over; empty: the program that was started
};

// IP (unet/ip.h). The IP channel ends with close_channel or with the endpoint, and its claims end with it.
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
  uint32_t accepts_new_flows;  // AcceptsNewFlows
};
// Assigns a TCP connection of another member of the claim's share to this member.
struct OwnIpFlow {
  Header header;
  uint32_t claim;
  uint16_t local_port, remote_port;
  ip::IpAddress local, remote;
};
struct GetIpConfiguration { Header header; };
// The endpoint's next socket table (unet/socket_table.h), for its owner to write. It exists until the IP channel is closed.
struct OpenSockets { Header header; };
// Reads a socket table: the first one after (endpoint, table) that this user may see. The owner is asked to update its first table. Root
// and the NI's own user may see all tables, other users their own.
struct ListSockets {
  Header header;        // endpoint: that of the previous table; ~0: none
  uint32_t table;       // number of the previous table
  uint32_t spare;
};

// Copies frames of the wires into memory of the reader and the NI (unet/capture_memory.h). It ends with capture_stop, this connection or
// the endpoint. Root and the NI's own user may capture everything, other users their own endpoints.
struct CaptureStart {
  Header header;        // endpoint: ~0 for all frames, including signals
  uint32_t channel;     // ~0: all channels of the endpoint
  int32_t port;         // -1: all ports
  uint32_t snap_length; // bytes stored of a frame, at least 14
  uint32_t bytes;       // size of the ring, a power of two
};
struct CaptureStop {
  Header header;
  uint32_t capture;     // the caller's own capture; for root and the NI's own user any capture
};

// ---- replies

enum class ChannelKind : uint32_t { none = 0, local = 1, ni = 2 };

// A side's description of an open channel.
struct ChannelInfo {
  uint32_t channel;  // the endpoint's number for the channel
  ChannelKind kind;
  uint32_t side;        // local: 0 for the connecting side, 1 for the accepting side
  uint32_t wire_mtu;    // ni: bytes of a message that fit into one frame (0: no wire in between)
  uint32_t same_user;   // 1: the peer process is on this NI and of the same user, as the NI sees it; else 0
  int32_t peer_pid;     // of a peer process of the same user; -1: none
  uint32_t shared;      // 1: the target is a shared claim: a later connect may reach another member, so do not cache the channel
  uint32_t known;       // 1: not a new channel, but the endpoint's existing local channel to the holder of the claim; no descriptors
  LocalOptions local;   // local: the geometry
  NameText peer;        // for people: the peer's endpoint name or "pid 123"
};

struct IpAddressInfo {
  ip::IpAddress address;
  uint32_t port;
  uint8_t prefix;
  uint8_t tentative;  // 1: not usable yet, because duplicate address detection has not finished
  uint16_t spare;
};
struct IpInterfaceInfo {
  uint32_t port;
  uint32_t mtu;  // 0: the interface is gone or down
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
  ErrorText error;  // the error text, if code != 0
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
      uint32_t capture;     // number for capture_stop
      uint32_t bytes;       // size of the ring
      uint64_t epoch;       // a record's time plus this is nanoseconds since 1970
    } capture;                                   // descriptor: capture memory
    struct {
      uint32_t claim;
      uint32_t port;        // the first port
      uint32_t plenty;      // IpClaimed::plenty
    } claim_ip;
    struct {
      uint32_t addresses;   // number of IpAddressInfo, followed by
      uint32_t interfaces;  // number of IpInterfaceInfo, followed by
      uint32_t routes;      // number of IpRouteInfo
    } ip_configuration;                          // descriptor: sealed memory that holds them
    struct {
      uint32_t endpoint;    // ~0: there are no more tables, and no descriptor
      uint32_t table;
      uint32_t sockets;     // capacity of the table
      int32_t pid, uid;     // process and user of the owner
      uint64_t asked;       // list_sockets: the owner writes this number into `told` when the table is up to date
      NameText program;
    } sockets;                                   // open_sockets, list_sockets: descriptor: memory; read-only for list_sockets
    struct {
      uint64_t bytes;
    } region;                                    // expose, peer_region (local channels): descriptor: region memory
  };
};
// - A local channel: the descriptors of the channel memory, this side's wake descriptor, and the eventfd that wakes the peer.
// - get_descriptor: a wake descriptor, which becomes readable after the endpoint has asked to be woken (SegmentHeader).
// - policy_reload: an error if the file is wrong; then the old policy stays.
// - report: a ReportPart, or a Reply with an error.
// - upgrade: the reply of the NI that took over, or an error from the NI that stays.
//
// A wake descriptor is an epoll descriptor around an eventfd that only the waker has. Clear it with epoll_wait(fd, &event, 1, 0), not with
// read(). With the eventfd itself, the sleeping side could clear its O_NONBLOCK and fill its counter, and so block the waker for ever.

// A part of a JSON document about everything that this user may see. It may end within a word, and may be empty.
struct ReportPart {
  Header header;
  uint32_t length;
  uint32_t more;        // 1: ask for the next part
  char bytes[kPacketMax - sizeof(Header) - 2 * sizeof(uint32_t)];
};

// ---- events

struct ConnectRequest {
  Header header;
  uint64_t request;  // identifies the request in Accept and Reject
  int32_t peer_uid;  // as the NI sees it, in its user namespace; -1: on another host
  int32_t peer_pid;
  uint32_t same_user;  // as in ChannelInfo
  NameText peer;     // "pid 123", or the host of the peer
};
struct ChannelOpened {  // a static channel of the configuration
  Header header;
  ChannelInfo channel;
};
enum class CloseReason : uint32_t { closed_by_peer = 1, peer_died = 2, ni_stopped = 3, wire_lost = 4 };
struct ChannelClosed {
  Header header;
  uint32_t channel;  // the endpoint's number stays reserved until it sends close_channel
  CloseReason reason;
};
// The NI's IP configuration has changed since ip_configuration.
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

// "tcp:PORT:ADDRESS" or "udp:PORT:ADDRESS". Neither is a valid name, so no endpoint can have it as a name.
constexpr bool names_claim(std::string_view target) noexcept { return target.starts_with("tcp:") || target.starts_with("udp:"); }

}  // namespace unet::control
