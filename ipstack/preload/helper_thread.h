// helper_thread.h - the library's own thread; started by the runtime with the stack.
//
// It polls while no call of the program does (poller.h), binds sockets again when the network interface is back, and carries bytes for
// other processes. In an orphan process it is the only thread.
#pragma once

namespace unet::preload {

// The thread's body. Returns when the process has another helper, or is an orphan that is no longer needed.
void* run_helper(void* none);

}  // namespace unet::preload
