// limits.h - the maximum of every resource; used by every layer. Changing a value changes no format.
#pragma once

#include <cstddef>
#include <cstdint>

#include "unet/wire/limits.h"

namespace unet {

// Messages (kMessageMax stands in unet/wire/limits.h)
constexpr uint32_t kInlineMax = 48;              // bytes of a message inside a descriptor
constexpr uint32_t kHeadedMax = 40;              // bytes of a head inside a descriptor, beside data in its own lines
constexpr uint32_t kFragmentsMax = 6;            // pieces of the segment that one send descriptor gathers
constexpr uint32_t kKeptMax = kFragmentsMax - 1; // pieces from keep() per message; the reservation is one more
constexpr uint32_t kRunsMax = 12;                // runs of buffers that hold one received message

// Endpoints
constexpr uint32_t kEndpointsMax = 16 * 1024;            // per NI
constexpr uint32_t kEndpointsPerClientMax = 16 * 1024;   // per control connection
constexpr uint32_t kChannelsPerEndpointMax = 4096;
constexpr uint32_t kEndpointWeightMax = 100;             // relative to other endpoints of the same user
constexpr uint32_t kEmulatedMax = 64 * 1024;             // emulated endpoints per NI; their ids follow those of the real ones
constexpr uint32_t kQueueDepthMin = 4;                   // slots; depths are powers of two
constexpr uint32_t kQueueDepthMax = 32 * 1024;
constexpr uint32_t kBufferSizeMin = 256;                 // bytes of one receive buffer
constexpr uint32_t kBufferSizeMax = 64 * 1024;
constexpr uint32_t kBuffersMax = 64 * 1024;              // receive buffers of one endpoint (a run has 16-bit numbers)
constexpr uint64_t kSegmentMax = uint64_t{1} << 30;      // bytes of one communication segment
constexpr uint64_t kRegionMax = uint64_t{1} << 32;       // bytes of one exposed region
constexpr uint64_t kLocalDataMax = uint64_t{1} << 30;    // bytes of one direction of a local channel

// NI
constexpr uint32_t kClientsMax = 4096;           // control connections
constexpr uint32_t kChannelsMax = 64 * 1024;     // wire and shared channels of one NI: the tag has a 16-bit index
constexpr uint32_t kPortsMax = 16;
constexpr uint32_t kEnginesMax = 8;              // threads that move messages, per NI
constexpr uint32_t kBurst = 32;                  // frames or descriptors handled at a time
constexpr uint32_t kReassembliesMax = 1024;      // messages being reassembled, per NI
constexpr uint32_t kReassembliesPerEndpointMax = 64;

// IP
constexpr uint32_t kIpMessageMax = 65583;                // bytes of one message on an IP channel: the largest packet and its header
constexpr uint32_t kIpClaimsMax = 16 * 1024;             // per NI
constexpr uint32_t kIpPortsPerClaimMax = 1024;
constexpr uint32_t kIpClaimsPerPortMax = 64;             // claims of one protocol and port; a share counts as one; multicast is separate
constexpr uint32_t kIpClaimsPerPortOfUserMax = 32;       // the same, for one user
constexpr uint32_t kIpShareMax = 256;                    // members of a share
constexpr uint32_t kIpPortsClaimedMax = 256 * 1024;      // of all claims together
constexpr uint32_t kIpOwnedFlowsMax = 256 * 1024;        // connections of shared ports with a known owner
constexpr uint32_t kIpOpeningsOfUserMax = 16 * 1024;     // of these, connections with a half-done handshake, per user
constexpr uint32_t kIpSegmentsMax = 512;                 // packets that one message is cut into
constexpr uint32_t kIpAddressesMax = 16;                 // per port
constexpr uint32_t kIpRoutesMax = 64;                    // per port, besides the gateways
constexpr uint32_t kIpGroupsMax = 32;                    // multicast groups that an NI is in because endpoints claim them
constexpr uint32_t kOrphanConnectionsMax = 128 * 1024;           // connections of ended processes, until their peers know of the end

// Names
constexpr size_t kNameMax = 63;                  // characters of an endpoint's name or a host's name
constexpr size_t kSocketPathMax = 100;

// Lines that a writer and a reader on different cores must not share. x86 prefetches pairs of lines, but coherence moves single ones.
constexpr size_t kCacheLine = 64;

}  // namespace unet
