// socket.h - the state of a socket in the stack; private to ipstack/sockets.
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
  std::unique_ptr<tcp::Connection> connection{};  // none for a stream to a local peer, which saves most of its memory
};

struct ListenerPart {
  uint32_t backlog = 0;
  uint32_t embryos = 0;            // connections with a handshake under way
  uint32_t fast_open_max = 0;      // TCP_FASTOPEN: most connections open before the end of their handshake; 0: off
  uint32_t early = 0;              // connections open before the end of their handshake
  std::deque<uint32_t> ready{};    // the accept queue: socket numbers
  uint32_t next = ~uint32_t{0};    // next listener at the port
  uint32_t turns = 0;              // of the port's first listener: number of local connections distributed in turn
};

// Destination and options of a datagram.
struct SendRoute {
  bool dont_fragment = false;
  Address to{};
  ip::IpAddress from{};
  uint16_t segment = 0;            // payload of each segment, if the datagram is to be segmented; 0: it is not
  HeaderOptions header_options{};
};

// A datagram that several calls with MSG_MORE or UDP_CORK build. It has the destination and options of the first call.
struct Gathered {
  SendRoute route{};
  std::vector<std::byte> bytes{};
  bool due = false;                // complete, but waits for room to be sent
};

// IP_MTU_DISCOVER and IPV6_MTU_DISCOVER, with Linux's numbers. They say where a datagram that exceeds the path MTU is fragmented. dont:
// here and at routers; want: here; must: nowhere. probe and interface use the link's MTU alone; interface and omit let routers fragment.
enum class PathDiscovery : uint8_t { dont, want, must, probe, interface, omit };

struct DatagramPart {
  DatagramQueue queue{};
  uint32_t receive_max = 256 * 1024;  // most bytes that wait to be read
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

  bool of_group = false;           // bound to a multicast address: it gets only that group's datagrams at its port,
  bool has_port = false;           // and has claimed the port for sending, too
  ip::IpAddress group_source{};    // IP_MULTICAST_IF
  // The cached route of a connected socket to a local peer, valid until route_until and for one route generation.
  uint32_t route_peer = ~uint32_t{0};     // the local peer
  uint64_t route_generation = 0;        // as DatagramSockets::generation(), or it is another one by now
  Nanoseconds route_until = 0;
  std::vector<ip::IpAddress> groups{};  // multicast groups that it has joined
  std::unique_ptr<Gathered> gathered{};
  uint32_t lost = 0;               // datagrams dropped for lack of room
  uint32_t next = ~uint32_t{0};    // next datagram socket at the port
};

constexpr uint16_t kAnySegment = 0xFFFF;

// The stage in a socket's life. A stream that a peer has opened goes from embryo to queued to owned.
enum class Stage : uint8_t {
  owned,    // the application's
  embryo,   // its handshake with a listener is under way
  queued,   // it is in its listener's accept queue
  closing,  // closed by the application or its listener; it exists until TCP has ended
};

// One record, because its size limits the number of sockets: flags of all parts share a few bytes. Parts that only some sockets have are
// allocated.
struct Socket {
  Type type : 1 = Type::stream;
  Stage stage : 2 = Stage::owned;
  bool ipv6 : 1 = false;           // AF_INET6, which also takes IPv4 addresses unless only_ipv6
  bool only_ipv6 : 1 = false;
  bool bound : 1 = false;          // has the port local.port, which it releases at its end
  bool named : 1 = false;          // bind() was called, with any address
  bool reuse : 1 = false;          // SO_REUSEADDR
  bool found : 1 = false;          // in the flow table, by `hash`
  bool due : 1 = false;            // in the list of sockets that may have data to send
  bool shut_read : 1 = false, shut_write : 1 = false;
  bool connected : 1 = false;      // a datagram socket with a peer
  bool connecting : 1 = false;     // connect() was called, and no later call has reported its result
  bool failed : 1 = false;         // its connection's error is in `error`
  bool early : 1 = false;          // counted in ListenerPart::early of its listener
  bool fast_open_connect : 1 = false;  // TCP_FASTOPEN_CONNECT
  bool fast_open_asked : 1 = false;  // its SYN has or requests a fast open cookie, and is not answered yet
  bool deferred : 1 = false;       // TCP_FASTOPEN_CONNECT: it connects with its first data
  bool reuse_port : 1 = false;     // SO_REUSEPORT
  bool shares : 1 = false;         // its port is shared: each of this process's sockets at the port gets some flows
  bool passes : 1 = false;         // takes no new flows while other members of the share do
  bool draining : 1 = false;       // a listener after Stack::end_new_flows()
  bool peeks_behind : 1 = false;   // SO_PEEK_OFF is set; ReadPositions has the offset
  bool held : 1 = false;           // TcpOutput::held_ has it
  bool zero_copy : 1 = false;      // SO_ZEROCOPY
  bool has_errors : 1 = false;     // ErrorQueues has some
  bool urgent : 1 = false;         // it has an urgent byte; ReadPositions has its place
  bool urgent_inline : 1 = false;  // SO_OOBINLINE
  bool urgent_news : 1 = false;    // the next Change reports urgent data
  bool came : 1 = false;           // the next Change reports that data arrived
  bool changed : 1 = false;        // in the list of changes that the application has not taken yet
  uint8_t hop_limit = 0;           // 0: the host's default
  uint8_t traffic_class = 0;
  uint8_t shown = 0xFF;            // the state last written to its place in SocketTables (told_at)
  uint8_t moves = 0;               // times that this connect() has changed its local port
  uint16_t max_segment = kAnySegment;  // TCP_MAXSEG
  // The MSS for a path with room for `payload` bytes in a packet; at least 88, Linux's minimum.
  uint16_t mss(uint32_t payload) const noexcept {
    return static_cast<uint16_t>(std::max<uint32_t>(std::min<uint32_t>(payload, max_segment), 88));
  }
  uint16_t fast_open_max = 0;      // TCP_FASTOPEN, before listen()
  uint16_t keep_idle = 7200;       // seconds until the first keep-alive, if they are on
  Address local{}, remote{};
  uint16_t told = 0;               // events that the application was last told of
  uint32_t refused_by = ~uint32_t{0};  // if it is due for lack of room: the local peer that has none; ~0: the network interface
  uint32_t refused_bytes = 0;
  int error = 0;                   // SO_ERROR: the error that no call has reported yet
  uint32_t hash = 0;
  uint32_t listener = ~uint32_t{0};  // listener of an embryo or queued socket
  uint32_t told_at = ~uint32_t{0};  // place in SocketTables; ~0: none
  uint32_t linger = ~uint32_t{0};  // SO_LINGER, seconds; ~0: off
  TcpPart tcp{};
  std::unique_ptr<ListenerPart> listening{};
  std::unique_ptr<DatagramPart> datagram{};
  std::unique_ptr<LocalStream> local_stream{};

  bool is_owned() const noexcept { return stage == Stage::owned; }
  bool is_closing() const noexcept { return stage == Stage::closing; }
  // Whether a socket of this family can use that address.
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
  // Received bytes of a stream that are not read yet.
  uint32_t unread() const noexcept {
    if (local_stream != nullptr) return local_stream->unread;
    return has_connection() ? tcp.connection->readable() : 0;
  }
  HeaderOptions header_options() const noexcept { return {hop_limit != 0 ? hop_limit : kHopLimit, traffic_class}; }
};
static_assert(sizeof(Socket) == 120);

}  // namespace unet::sockets
