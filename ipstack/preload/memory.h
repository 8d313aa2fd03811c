// memory.h - what a process that has no more memory is told, and what it has goes on; used by the *_calls.cc and socket_routing.cc.
//
// A call that wants a socket can be refused, but arrivals for existing sockets cannot. Some memory is reserved for them, and while it is
// used up no new socket is made.
#pragma once

namespace unet::preload {

// False: ENOMEM. Asked under the lock: what comes for other threads would use it up between.
bool has_memory() noexcept;

}  // namespace unet::preload
