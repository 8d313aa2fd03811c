// embedded_abi.h - how libunet reaches a network interface inside its own process: one table of functions, found by dlsym
// in libunet_embedded.so, so that libunet itself links neither the engine nor any driver.
//
// The table's functions never throw. A handle is used by one thread at a time. The NI makes progress only inside poll() and
// wait(): a request on the control descriptor is answered during one of the following calls, wait() being the prompt one.
//
// Specification of open(): a driver specification as make_driver() takes it (empty: an NI without a wire), then options
// separated by ';':
//
//   dpdk:net_memif0,role=client,socket=/tmp/m.sock;host=alpha;peer=beta=02:00:00:00:00:02
//
//   host=NAME          name by which other hosts find this NI (default: the machine's host name)
//   port=SPEC          one more wire
//   ip=PORT=ADDRESS/PREFIX[,...][,gateway=ADDRESS][,route=NETWORK/PREFIX@GATEWAY...][,slaac]   that wire has IP with these addresses, for
//                      the endpoints of this process
//   peer=HOST=MAC[@PORT]   a host that need not be searched on the wire
//   lost_after=MS      others give this NI up when it was silent for so long: an application that computes for longer
//                      without a poll says so here (default 30000)
//   config=FILE        a configuration file as unetd takes it; the options above come on top of it
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct unet_embedded_table {
  uint32_t version;  // UNET_EMBEDDED_VERSION

  // Opens the NI. *control_fd becomes the client's end of a control socket (control.h), owned by the caller. On failure
  // returns NULL and writes a terminated sentence to `error`.
  void* (*open)(const char* spec, int* control_fd, char* error, size_t error_size);

  // One turn of the engine, now and then of the service. Returns the number of messages and frames handled (0: idle).
  uint32_t (*poll)(void* handle);

  // The halves of poll(), so that neither waits for the other. pull(): what has arrived; all of a turn if nothing has, or
  // if it is time for it. push(): what the endpoints have queued goes on the wire.
  uint32_t (*pull)(void* handle);
  void (*push)(void* handle);

  // Sends `length` bytes of `data` on a channel of the caller's endpoint without a queue between; `more`: the next send,
  // push() or pull() that follows at once puts it on the wire. Returns 1, or 0 if this message has to go by the queue: it needs
  // several frames, the channel leads to no wire, the wire is busy, or something is queued before it. On the IP channel packets go so
  // that are shorter than 1 KiB and go on with the flow that was sent last.
  int (*send)(void* handle, uint32_t endpoint, uint32_t channel, const void* data, uint32_t length, int more);

  // One turn of engine and service; if neither had anything to do, sleeps until there is something, until timeout_ns have
  // passed (-1: no limit) or until the watched descriptor is readable. Returns 1 if anything was done, 0 if
  // not, -1 if a signal ended the sleep.
  // May return early.
  int (*wait)(void* handle, int64_t timeout_ns);

  // For the application's own epoll: arm() turns once like wait() and returns 1 if the caller may now sleep on
  // descriptor() (readable: call poll() or arm() again), 0 if there is work left: poll first. After arm() returned 1,
  // poll(), wait() and arm() all disarm by themselves.
  int (*arm)(void* handle);
  int (*descriptor)(void* handle);

  // While `watched` (a descriptor of the caller's) is readable, wait() returns and descriptor() is readable too. One
  // at a time, -1 for none. The caller unwatches before it closes the descriptor. Returns 0, or -1 if it cannot be watched.
  int (*watch)(void* handle, int watched);

  // Closes everything; the descriptor from open() stays the caller's.
  void (*close)(void* handle);
};

enum { UNET_EMBEDDED_VERSION = 3 };

// The one exported symbol; never fails.
const struct unet_embedded_table* unet_embedded_entry(void);

#ifdef __cplusplus
}
#endif
