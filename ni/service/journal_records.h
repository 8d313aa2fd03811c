// journal_records.h - the values of a journal's records (journal_link.h has the keys and what descriptors go with them); used by Service.
//
// Written and read by network interfaces alone. Credentials are not among them: the kernel tells them again of each socket.
// Times are of CLOCK_MONOTONIC. A change of any of these raises kJournalFormat.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "unet/control.h"
#include "unet/layout.h"
#include "unet/wire/dhcp.h"
#include "unet/wire/frame.h"

namespace unet::service {

// Values are compared and written as bytes, so every byte is set: no padding, and texts are zero behind their end.
struct NiValue {
  control::Text<kSocketPathMax + 1> socket;
};
struct NiStateValue {
  uint64_t next_request;
  uint64_t incarnation;
  uint64_t ids;             // the first id that signalling has not used
  uint32_t draining;
  uint32_t spare;
};
struct PolicyValue {
  uint32_t spare;
};
struct ClientValue {
  uint32_t spare;
};
struct ClientStateValue {
  uint64_t events;          // number of the last event sent
  uint64_t handled_cookie;  // cookie of the last request that is wholly in the journal
  uint32_t handled_op;      // 0: none
  uint32_t greeted;
  control::NameText program;
};
struct PageValue {
  uint32_t spare;
};
struct SegmentValue {
  EndpointOptions options;
  uint32_t client;
  uint32_t doorbell;
};
struct RegionValue {
  uint64_t memory;  // whole pages
};
struct WakeValue {
  uint32_t spare;
};
constexpr uint32_t kNotEmulated = ~uint32_t{0};
struct EndpointValue {
  uint64_t region_bytes;
  uint64_t detach_cookie;
  uint32_t region_sent;
  uint32_t detaching;
  uint32_t answer_detach;
  uint32_t next_channel;
  uint32_t carrier;         // the endpoint that carries it; kNotEmulated: it has queues of its own
  uint32_t spare;
  control::NameText name;  // empty: not bound
};
// A channel, connect or request that signalling shares with another NI (Shared), and our port's properties, which that NI relies on.
struct SharedValue {
  uint64_t number;
  uint64_t incarnation;
  uint64_t lost_after;
  uint32_t remote_tag;
  uint32_t port;
  uint32_t mtu;             // MTU of our port
  MacAddress mac;
  MacAddress own;           // address of our port
};
struct ChannelValue {
  uint64_t memory;
  uint64_t cookie;
  uint64_t request;
  uint64_t deadline;        // of a connect over a wire
  SharedValue shared;       // of an accepted or open channel over a wire; a static one has only the peer's tag, port and address
  LocalOptions local;
  uint32_t state;  // ChannelRecord::State
  control::ChannelKind kind;
  uint32_t side;
  uint32_t peer_endpoint;
  uint32_t peer_channel;
  uint32_t wire;
  uint32_t fixed;
  uint32_t local_tag;
  uint32_t port;
  uint32_t ip;              // 1: the endpoint's IP channel
  uint32_t shared_claim;    // 1: the connect named a claim that several endpoints share
  control::TargetText peer;
};
struct RequestValue {
  uint64_t deadline;  // ~0: none
  SharedValue shared; // of a request over a wire
  uint32_t target;
  uint32_t wire;
  uint32_t connector;
  uint32_t connector_channel;
  control::Path path;
  control::TargetText from;
};
struct UpgradeValue {
  uint32_t spare;
};
struct IpClaimValue {
  uint8_t local[16], remote[16];
  uint16_t port, ports, remote_port;
  uint8_t protocol;
  uint8_t takes_new;
  uint64_t group, token;
  uint32_t reuses, spare;
};
static_assert(sizeof(IpClaimValue) == 64);
struct IpLeaseValue {
  uint64_t since;           // start of the times below; a time of ~0: for ever
  uint64_t renew_in, rebind_in, end_in;
  uint8_t address[16], server[16], router[16];
  uint8_t name_servers[3][16];
  uint32_t prefix;
  uint32_t mtu;             // 0: not in the server's answer
  uint32_t name_server_count;
  uint32_t has_router;
  MacAddress station;       // the port's address
  uint8_t spare[2];
};
static_assert(sizeof(IpLeaseValue) == 152 && ip::kNameServersMax == 3);
struct IpHostValue {         // ip::HostCheckpoint; times are seconds from `since` on, ~0: for ever
  struct Address {
    uint8_t address[16];
    uint32_t valid_s, preferred_s;
    uint32_t prefix;
    uint32_t of_router;
  };
  struct Prefix {
    uint8_t prefix[16];
    uint32_t valid_s;
    uint32_t bits;
  };
  uint64_t since;
  Address addresses[16];
  Prefix prefixes[16];
  uint8_t router[16];
  uint32_t router_s;
  uint32_t address_count, prefix_count;
  uint32_t mtu6, hop_limit6;
  MacAddress station;       // the port's address
  uint8_t spare[6];
};
static_assert(sizeof(IpHostValue) == 8 + 16 * 32 + 16 * 24 + 16 + 32);
struct SocketTableValue {
  uint32_t spare;
};
struct OrphansValue {
  uint64_t since;           // end of the engine
  uint32_t connections;
  uint32_t spare;
};
struct HeldMemoryValue {
  uint64_t memory;
  uint32_t user;
  uint32_t endpoints;       // endpoints charged with it, 0 or 1
};
struct CaptureValue {
  uint32_t spare;
};

}  // namespace unet::service
