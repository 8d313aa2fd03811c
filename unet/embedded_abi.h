// embedded_abi.h - a table of functions by which libunet uses a network interface inside its own process. It is found by dlsym in
// libunet_embedded.so, so that libunet itself links neither the engine nor any driver.
//
// The table's functions never throw. One thread at a time may use a handle. The NI makes progress only inside poll() and wait(). A request
// on the control descriptor is answered during one of the following calls, soonest by wait().
//
// The specification of open() is a driver specification for make_driver() (empty: an NI without a wire), followed by options separated by
// ';':
//
//   dpdk:net_memif0,role=client,socket=/tmp/m.sock;host=alpha;peer=beta=02:00:00:00:00:02
//
//   host=NAME          name by which other hosts find this NI (default: the machine's host name)
//   port=SPEC          one more wire
//   ip=PORT=ADDRESS/PREFIX[,...][,gateway=ADDRESS][,route=NETWORK/PREFIX@GATEWAY...][,slaac]   IP with these addresses on that wire, for
//                      the endpoints of this process
//   peer=HOST=MAC[@PORT]   a host that need not be searched on the wire
//   lost_after=MS      other hosts drop this NI after this silence: raise it for an application that computes for longer
//                      without a poll (default 30000)
//   config=FILE        a configuration file as for unetd; the options above have precedence
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct unet_embedded_table {
  uint32_t version;  // UNET_EMBEDDED_VERSION

  // Opens the NI. The caller owns *control_fd, the client's end of a control socket (control.h). On failure it returns NULL and writes a
  // terminated error text to `error`.
  void* (*open)(const char* spec, int* control_fd, char* error, size_t error_size);

  // Runs one turn of the engine, and sometimes of the service. Returns the number of messages and frames handled (0: idle).
  uint32_t (*poll)(void* handle);

  // The halves of poll(), so that neither waits for the other. The first, pull(), takes arrived frames; if there are none, or if it is
  // time, it runs a whole turn. The second, push(), puts queued messages on the wire.
  uint32_t (*pull)(void* handle);
  void (*push)(void* handle);

  // Sends `length` bytes of `data` on a channel of the caller's endpoint, bypassing the queue. With `more`, a further send, push() or
  // pull() must follow at once and puts it on the wire. Returns 1, or 0 if this message must go by the queue: it needs several frames, the
  // channel uses no wire, the wire is busy, or messages are queued before it. On the IP channel this works for packets shorter than 1 KiB
  // of the flow that was sent last.
  int (*send)(void* handle, uint32_t endpoint, uint32_t channel, const void* data, uint32_t length, int more);

  // Runs one turn of engine and service. If both were idle, sleeps until there is work, timeout_ns have passed (-1: no limit), or the
  // watched descriptor is readable. Returns 1 if it did work, 0 if not, -1 if a signal ended the sleep. It may return early.
  int (*wait)(void* handle, int64_t timeout_ns);

  // For the application's own epoll. arm() runs a turn like wait(). It returns 1 if the caller may now sleep on descriptor() (when
  // readable: call poll() or arm() again), and 0 if there is work left: poll first. After 1, the next poll(), wait() or arm() disarms.
  int (*arm)(void* handle);
  int (*descriptor)(void* handle);

  // While `watched`, a descriptor of the caller's, is readable, wait() returns and descriptor() is readable, too. There is one at a time;
  // -1 for none. The caller must unwatch it before closing it. Returns 0, or -1 if it cannot be watched.
  int (*watch)(void* handle, int watched);

  // Closes the NI. The caller still owns the descriptor from open().
  void (*close)(void* handle);
};

enum { UNET_EMBEDDED_VERSION = 3 };

// The only exported symbol. It never fails.
const struct unet_embedded_table* unet_embedded_entry(void);

#ifdef __cplusplus
}
#endif
