// socket.h - what the stack keeps of a socket; private to ipstack/sockets.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "ipstack/sockets/datagram_queue.h"
#include "ipstack/sockets/local_stream.h"
#include "ipstack/sockets/option_sets.h"
#include "ipstack/tcp/connection.h"

namespace unet::sockets {

enum class Type : uint8_t { stream, datagram };

// A stream's options, which setsockopt() may replace at any time, and the connection that uses them.
struct TcpPart {
  SharedOptions options{};
  std::unique_ptr<tcp::Connection> connection{};  // a stream to a local peer has none, which is most of its memory
};

struct ListenerPart {
  uint32_t backlog = 0;
  uint32_t embryos = 0;            // connections with a handshake under way
  uint32_t fast_open_max = 0;      // TCP_FASTOPEN: how many may be open before their handshakes are over; 0: it is off
  uint32_t early = 0;              // that are
  std::deque<uint32_t> ready{};    // for accept()
  uint32_t next = ~uint32_t{0};    // a further one at the same port
  uint32_t turns = 0;              // of the first: how many local connections have been given out
};

// Where a datagram goes, and how.
struct SendRoute {
  bool dont_fragment = false;
  Address to{};
  ip::IpAddress from{};
  uint16_t segment = 0;            // bytes of each of several; 0: it is one
  HeaderOptions header_options{};
};

// A datagram that calls with MSG_MORE, or under UDP_CORK, put together. The first call's destination and options hold.
struct Gathered {
  SendRoute route{};
  std::vector<std::byte> bytes{};
  bool due = false;                // it is whole, and waits for room
};

// IP_MTU_DISCOVER and IPV6_MTU_DISCOVER, with Linux's numbers: what fragments a datagram that does not fit its path. dont: we and routers;
// want: we; must: none does. probe and interface look at the link's MTU alone; interface and omit let routers fragment.
enum class PathDiscovery : uint8_t { dont, want, must, probe, interface, omit };

struct DatagramPart {
  DatagramQueue queue{};
  uint32_t receive_max = 256 * 1024;  // bytes that may wait
  uint16_t segment = 0;            // UDP_SEGMENT
  bool coalesce = false;           // UDP_GRO
  bool broadcast = false;          // SO_BROADCAST
  bool group_loop = true;          // IP_MULTICAST_LOOP
  uint8_t group_hops = 1;          // IP_MULTICAST_TTL
  bool cork = false;               // UDP_CORK
  bool queues_errors4 = false, queues_errors6 = false;  // IP_RECVERR, IPV6_RECVERR
  PathDiscovery discovery4 = PathDiscovery::want, discovery6 = PathDiscovery::want;

  PathDiscovery discovery(bool ipv4) const noexcept { return ipv4 ? discovery4 : discovery6; }
  bool queues_errors(bool ipv4) const noexcept { return ipv4 ? queues_errors4 : queues_errors6; }

  bool of_group = false;           // bound to a group's address: its port is that group's alone,
  bool has_port = false;           // and besides one to send from
  ip::IpAddress group_source{};    // IP_MULTICAST_IF
  // The remembered route of a connected socket with a local peer: what send_to() found, valid for a time and one route generation.
  uint32_t route_peer = ~uint32_t{0};     // the local peer
  uint64_t route_generation = 0;        // as DatagramSockets::generation(), or it is another one by now
  Nanoseconds route_until = 0;
  std::vector<ip::IpAddress> groups{};  // that it has joined
  std::unique_ptr<Gathered> gathered{};
  uint32_t lost = 0;               // datagrams for which there was no room
  uint32_t next = ~uint32_t{0};    // a further one at the same port
};

constexpr uint16_t kAnySegment = 0xFFFF;

// The stage in a socket's life. A stream that a peer has begun goes from embryo to queued to owned.
enum class Stage : uint8_t {
  owned,    // the application's
  embryo,   // its handshake is under way, for its listener
  queued,   // it waits for its listener's accept()
  closing,  // closed by the application, or its listener: it only lives on to end well
};

struct Socket {
  Type type : 1 = Type::stream;
  Stage stage : 2 = Stage::owned;
  bool ipv6 : 1 = false;           // of that family: also for IPv4 addresses, unless only_ipv6
  bool only_ipv6 : 1 = false;
  bool bound : 1 = false;          // has a port, local.port, which it gives back
  bool named : 1 = false;          // by bind(), whatever address that was
  bool reuse : 1 = false;          // SO_REUSEADDR
  bool found : 1 = false;          // it is in the table of flows, by `hash`
  bool due : 1 = false;            // it is in the list of those that may have something to send
  bool shut_read : 1 = false, shut_write : 1 = false;
  bool connected : 1 = false;      // a datagram socket with a peer
  bool connecting : 1 = false;     // connect() was called, and what became of it has not been told by a further one
  bool failed : 1 = false;         // its connection's error has been put into `error`
  bool early : 1 = false;          // it counts among those of its listener that are open before their handshakes are over
  bool fast_open_connect : 1 = false;  // TCP_FASTOPEN_CONNECT
  bool fast_open_asked : 1 = false;  // its SYN has a cookie or asks for one, and has not been answered
  bool deferred : 1 = false;       // it connects with its first data
  bool reuse_port : 1 = false;     // SO_REUSEPORT
  bool shares : 1 = false;         // its port is of a share: of those of this process that have it, too, each gets some
  bool passes : 1 = false;         // it takes no new flows while others of the share do
  bool draining : 1 = false;       // a listener after Stack::end_new_flows()
  bool peeks_behind : 1 = false;   // SO_PEEK_OFF: ReadPositions has where
  bool held : 1 = false;           // Stack::held_ has it
  bool zero_copy : 1 = false;      // SO_ZEROCOPY
  bool has_errors : 1 = false;     // ErrorQueues has some
  bool urgent : 1 = false;         // ReadPositions has it
  bool urgent_inline : 1 = false;  // SO_OOBINLINE
  bool urgent_news : 1 = false;    // for Change::urgent
  bool came : 1 = false;           // for Change::came
  bool changed : 1 = false;        // it is in the list of those that the application has not asked about since
  uint8_t hop_limit = 0;           // 0: the host's
  uint8_t traffic_class = 0;
  uint8_t shown = 0xFF;            // the state that others were told last, at told_at
  uint8_t moves = 0;               // to other ports, of this connect()
  uint16_t max_segment = kAnySegment;  // TCP_MAXSEG
  // For a path with room for `payload` bytes in a packet; not less than Linux accepts as an MSS.
  uint16_t mss(uint32_t payload) const noexcept {
    return static_cast<uint16_t>(std::max<uint32_t>(std::min<uint32_t>(payload, max_segment), 88));
  }
  uint16_t fast_open_max = 0;      // TCP_FASTOPEN, before listen()
  uint16_t keep_idle = 7200;       // seconds until the first keep-alive, if they are on
  Address local{}, remote{};
  uint16_t told = 0;               // events that were told last
  uint32_t refused_by = ~uint32_t{0};  // while it is due for want of room: which local peer's; ~0: the network interface's
  uint32_t refused_bytes = 0;
  int error = 0;                   // SO_ERROR: what happened and was not told
  uint32_t hash = 0;
  uint32_t listener = ~uint32_t{0};  // of an embryo or a queued socket
  uint32_t told_at = ~uint32_t{0};  // its place in SocketTables; ~0: none
  uint32_t linger = ~uint32_t{0};  // SO_LINGER, seconds; ~0: off
  TcpPart tcp{};
  std::unique_ptr<ListenerPart> listening{};
  std::unique_ptr<DatagramPart> datagram{};
  std::unique_ptr<LocalStream> local_stream{};

  bool is_owned() const noexcept { return stage == Stage::owned; }
  bool is_closing() const noexcept { return stage == Stage::closing; }
  // Whether a socket of this family may have to do with that address.
  bool fits(const Address& to) const noexcept {
    if (to.host.is_unspecified()) return true;
    return to.host.is_ipv4() ? !only_ipv6 : ipv6;
  }
  int take_error() noexcept { return std::exchange(error, 0); }
  // A connection inherits these options from its listener.
  void inherit(const Socket& parent) noexcept {
    tcp.options = parent.tcp.options;
    hop_limit = parent.hop_limit;
    traffic_class = parent.traffic_class;
    max_segment = parent.max_segment;
    keep_idle = parent.keep_idle;
    linger = parent.linger;
    reuse = parent.reuse;
    reuse_port = parent.reuse_port;
    zero_copy = parent.zero_copy;
    urgent_inline = parent.urgent_inline;
    only_ipv6 = parent.only_ipv6;
  }
  bool has_connection() const noexcept { return tcp.connection != nullptr; }
  // Bytes of a stream that have come and were not read.
  uint32_t unread() const noexcept {
    if (local_stream != nullptr) return local_stream->unread;
    return has_connection() ? tcp.connection->readable() : 0;
  }
  HeaderOptions header_options() const noexcept { return {hop_limit != 0 ? hop_limit : kHopLimit, traffic_class}; }
};
static_assert(sizeof(Socket) == 120);

}  // namespace unet::sockets
