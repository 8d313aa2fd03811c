// sockets.h - sockets of ipstack as a path, wherever the network interfaces are.
#pragma once

#include <memory>

#include "apps/bench/paths/paths.h"
#include "apps/bench/paths/sockets/place.h"
#include "apps/bench/paths/unet/wire_port.h"

namespace unet::bench {

// The applications' use of a message's bytes. as_it_is: they write and check the number of the message only (messages.h). made, in_place:
// they make and check every byte, in buffers of their own or in place (zero_copy_link.h).
enum class Payload : uint8_t { as_it_is, made, in_place };

struct UnetSocketsOptions {
  bool near = false;         // by a local channel, if there can be one
  bool yields = false;       // an engine of another process wants a core, too
  uint16_t first_port = 0;   // paths that share a place have 64 ports each
  Nanoseconds quiet = 0;     // UdpLink::quiet
  Payload payload = Payload::as_it_is;
};

std::unique_ptr<Path> make_unet_sockets(PathInfo info, std::shared_ptr<SocketsPlace> place, const UnetSocketsOptions& options);

// TCP and UDP between two embedded network interfaces on a wire of this kind; no other path shares that wire. `bare`: the
// path of bare frames on such a wire, without "-segments".
void add_socket_wire(Paths& paths, WireKind kind, const std::string& name, const std::string& setting,
                     const std::string& bare);

}  // namespace unet::bench
