// memory.h - a reserve of memory, so that sockets go on in a process that has none left; used by the *_calls.cc and socket_routing.cc.
//
// A call that makes a socket can be refused, but arrivals for existing sockets cannot. They may use the reserve. Without it no new socket
// is made.
#pragma once

namespace unet::preload {

// Whether the reserve is there; makes it again if possible. False: the call fails with ENOMEM. Call it under the lock, as arrivals for
// other threads could use the reserve.
bool has_memory() noexcept;

}  // namespace unet::preload
