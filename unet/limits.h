// limits.h - a maximum for everything, in one place; used by every layer. Changing a value changes no format.
#pragma once

#include <cstddef>
#include <cstdint>

#include "unet/wire/limits.h"

namespace unet {

// Messages (kMessageMax stands in unet/wire/limits.h)
constexpr uint32_t kInlineMax = 48;              // bytes that travel inside a descriptor
constexpr uint32_t kHeadedMax = 40;              // of these, beside data that travels in lines of its own
constexpr uint32_t kFragmentsMax = 6;            // pieces of the segment one send descriptor gathers
constexpr uint32_t kKeptMax = kFragmentsMax - 1; // of which the first is what was reserved
constexpr uint32_t kRunsMax = 12;                // runs of buffers one received message may be scattered over

// Endpoints
constexpr uint32_t kEndpointsMax = 16 * 1024;            // per NI
constexpr uint32_t kEndpointsPerClientMax = 16 * 1024;   // per control connection
constexpr uint32_t kChannelsPerEndpointMax = 4096;
constexpr uint32_t kEndpointWeightMax = 100;             // against other endpoints of the same user
constexpr uint32_t kEmulatedMax = 64 * 1024;             // emulated endpoints per NI; their ids follow those of the real ones
constexpr uint32_t kQueueDepthMin = 4;                   // slots; depths are powers of two
constexpr uint32_t kQueueDepthMax = 32 * 1024;
constexpr uint32_t kBufferSizeMin = 256;                 // bytes of one receive buffer
constexpr uint32_t kBufferSizeMax = 64 * 1024;
constexpr uint32_t kBuffersMax = 64 * 1024;              // receive buffers of one endpoint (a run names them with 16 bits)
constexpr uint64_t kSegmentMax = uint64_t{1} << 30;      // bytes of one communication segment
constexpr uint64_t kRegionMax = uint64_t{1} << 32;       // bytes of one exposed region
constexpr uint64_t kLocalDataMax = uint64_t{1} << 30;    // bytes of one direction of a local channel

// NI
constexpr uint32_t kClientsMax = 4096;           // control connections
constexpr uint32_t kChannelsMax = 64 * 1024;     // wire and shared channels of one NI: the tag's index has 16 bits
constexpr uint32_t kPortsMax = 16;
constexpr uint32_t kEnginesMax = 8;              // threads that move messages, per NI
constexpr uint32_t kBurst = 32;                  // frames or descriptors handled at a time
constexpr uint32_t kReassembliesMax = 1024;      // messages being reassembled, per NI
constexpr uint32_t kReassembliesPerEndpointMax = 64;

// IP
constexpr uint32_t kIpMessageMax = 65583;                // bytes of one message on an IP channel: any packet, and what is said of it
constexpr uint32_t kIpClaimsMax = 16 * 1024;             // per NI
constexpr uint32_t kIpPortsPerClaimMax = 1024;
constexpr uint32_t kIpClaimsPerPortMax = 64;             // claims of one protocol that have a port in common, those of groups apart;
constexpr uint32_t kIpClaimsPerPortOfUserMax = 32;       // a share counts as one,
constexpr uint32_t kIpShareMax = 256;                    // and has so many members
constexpr uint32_t kIpPortsClaimedMax = 256 * 1024;      // of all claims together
constexpr uint32_t kIpOwnedFlowsMax = 256 * 1024;        // connections of ports that several share, of which is known whose they are,
constexpr uint32_t kIpOpeningsOfUserMax = 16 * 1024;     // and of these with a half-done handshake, of one user
constexpr uint32_t kIpSegmentsMax = 512;                 // packets that one message is cut into
constexpr uint32_t kIpAddressesMax = 16;                 // of one port
constexpr uint32_t kIpRoutesMax = 64;                    // likewise, but for the gateways
constexpr uint32_t kIpGroupsMax = 32;                    // that an NI is in because endpoints claim them
constexpr uint32_t kIpRemainsMax = 128 * 1024;           // connections of processes that are gone, until their peers know

// Names
constexpr size_t kNameMax = 63;                  // characters of an endpoint's name or a host's name
constexpr size_t kSocketPathMax = 100;

// Lines a writer and a reader on different cores must not share: x86 fetches pairs, but 64 is what coherence moves.
constexpr size_t kCacheLine = 64;

}  // namespace unet
