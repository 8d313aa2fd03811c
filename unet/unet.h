// unet.h - U-Net for C programs: the stable binary interface of libunet, one entry per function; C99 and later, and C++.
//
//   unet_context *context;                             #include <unet/unet.h>
//   unet_endpoint *endpoint;                           cc program.c $(pkg-config --cflags --libs unet)
//   if (unet_open(NULL, NULL, &context) < 0 || unet_create_endpoint(context, NULL, &endpoint) < 0) goto failed;
//   int channel = unet_connect(endpoint, "echo", NULL);
//   if (channel < 0) goto failed;                      failed: fprintf(stderr, "%s\n", unet_error_text());
//   unet_send(endpoint, channel, "hello", 5, 0);
//   unet_message message;
//   while (!unet_receive(endpoint, &message)) {}
//   fwrite(message.data, 1, message.length, stdout);
//   unet_release(endpoint, &message);
//
// Channels: a message arrives whole or not at all. Where a wire can lose, it may be lost or overtaken; between two endpoints
// of one host nothing is lost: a full channel refuses (UNET_EFULL). A program does not see which path a channel takes.
//
// Errors: a function that returns int returns a negative UNET_E... when it failed. Functions under "set-up" also leave a
// sentence for the user in unet_error_text(). Functions under "data path" neither allocate nor lock nor leave a sentence.
//
// Threads: a context may be used by any thread; an endpoint, with all that came from it, by one thread at a time (but see
// unet_mask()). Over an embedded network interface all endpoints of a context belong to one thread at a time.
//
// Processes: after fork() contexts and endpoints stay the parent's. A child may destroy them, which the parent does not notice,
// and opens its own; set-up calls on the parent's fail there.
//
// Pointers must not be NULL unless the entry allows it. Times are nanoseconds, lengths bytes.
//
// Stability: within soname libunet.so.0 functions, constants and structure members are only added, never changed or removed.
// Structures with a member `size` may grow: set it to sizeof(the structure), set members you do not care about to 0.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "unet/version.h"

#ifdef __cplusplus
extern "C" {
#endif

// A connection to a network interface, and a communication endpoint there.
typedef struct unet_context unet_context;
typedef struct unet_endpoint unet_endpoint;

// ---- errors

enum {
  UNET_EINVALID = -1,        // a malformed option, name or address; the sentence says what is allowed
  UNET_EPERMISSION = -2,     // the policy of the network interface gives this user no right to it
  UNET_EQUOTA = -3,          // a limit of the policy or of the implementation is reached
  UNET_ENOTFOUND = -4,       // no such name, host, request, region or channel
  UNET_EEXISTS = -5,         // there is one already: the name is bound, a region exposed, an upcall started
  UNET_EREFUSED = -6,        // the peer did not accept the channel
  UNET_ETIMEDOUT = -7,       // not within the time allowed
  UNET_EDISCONNECTED = -8,   // the network interface or the peer is gone
  UNET_EUNAVAILABLE = -9,    // nothing serves there, or this machine lacks something
  UNET_ENOMEMORY = -10,      // memory or descriptors could not be had
  UNET_EPROTOCOL = -11,      // the other side broke the control protocol
  UNET_ESYSTEM = -12,        // a system call failed; the sentence names it
  // Of the data path.
  UNET_EFULL = -101,         // no room now: receive, or unet_wait_room(), and send again
  UNET_ETOOLONG = -102,      // more than UNET_MESSAGE_MAX bytes, or than was reserved
  UNET_ENOCHANNEL = -103,    // no such channel, or one side has closed it
  UNET_EBOUNDS = -104,       // a put outside the peer's exposed region, or the peer exposes none
  UNET_EINTERRUPTED = -105,  // a signal came while waiting
  UNET_EPENDING = -106       // unet_connect_poll(): not decided yet
};

// The sentence that goes with this thread's last failed set-up call: what was wrong, and what is allowed or what to do.
// Valid until the thread's next call of a set-up function; "" before the first failure. Never NULL.
const char *unet_error_text(void);

// One word for an error code ("not_found"), a static string; "unknown" for other numbers. Any thread.
const char *unet_error_name(int code);

// ---- set-up: contexts

// Grows; see "Stability".
typedef struct unet_open_options {
  size_t size;
  const char *program;  // shown to operators; NULL: the program's own name
} unet_open_options;

// Connects to the network interface that `ni` names and sets *context.
//   NULL or ""       what the environment's UNET_NI says, else the unetd at this host's default socket
//   "unix:PATH"      the unetd that listens at PATH
//   "embedded:SPEC"  one inside this process that owns the wire SPEC, such as "embedded:dpdk:net_memif0,role=client"
// `options` may be NULL. The caller owns *context: unet_close().
// Returns 0 or: UNET_EUNAVAILABLE (none there; the sentence says how to start one), UNET_EPERMISSION, UNET_EINVALID.
int unet_open(const char *ni, const unet_open_options *options, unet_context **context);

// Gives the context up; NULL is allowed. Its endpoints go on working until they are destroyed.
void unet_close(unet_context *context);

// 1 while the network interface is there, 0 once it is gone (a system call, to see). Local channels go on working without it,
// but nobody tells any longer that a peer closed one or died: a program that must know says so in its own messages.
int unet_alive(const unet_context *context);

// Sets *json to a document of what this user may see: endpoints, channels, names, counters, ports. The caller owns it:
// unet_free(). Returns 0 or UNET_EDISCONNECTED, UNET_ETIMEDOUT, UNET_ENOMEMORY.
int unet_report(unet_context *context, char **json);

// Frees what unet_report() gave; NULL is allowed.
void unet_free(void *memory);

// ---- set-up: endpoints

// What an endpoint is made of. 0 stands for the default. Depths are rounded up to powers of two. Grows.
typedef struct unet_endpoint_options {
  size_t size;
  uint32_t send_depth;     // descriptors of the send queue (default 256)
  uint32_t receive_depth;  // descriptors of the receive queue (256)
  uint32_t buffers;        // receive buffers (256)
  uint32_t buffer_size;    // bytes of a receive buffer, a multiple of 64 (2048)
  uint32_t send_bytes;     // bytes of the communication segment for outgoing messages (524288)
  uint32_t reserved;       // not looked at
  uint64_t emulated;       // 1: without queues of its own, for thousands of endpoints: they share one real endpoint of the context,
                           // and the members above bound what waits for this one. See docs/ARCHITECTURE.md, "Emulated endpoints"
  uint64_t weight;         // part of its user's share of the network interface against that user's other endpoints, 1 to 100 (1): one
                           // of weight 3 sends three times as much as one of weight 1 if both always have something to send. Not
                           // for an emulated one: all of a context have what one endpoint of weight 1 has
} unet_endpoint_options;

// Creates an endpoint and sets *endpoint; `options` may be NULL. The caller owns it: unet_destroy_endpoint(). It may outlive
// its context. Returns 0 or: UNET_EINVALID (options out of range), UNET_EQUOTA, UNET_EPERMISSION, UNET_EDISCONNECTED,
// UNET_ENOMEMORY.
int unet_create_endpoint(unet_context *context, const unet_endpoint_options *options, unet_endpoint **endpoint);

// Stops the upcall, closes all channels as unet_close_channel() does, and gives everything back; NULL is allowed. Messages that
// are not released, the exposed region and the descriptor are gone with it. Not from the endpoint's own upcall.
void unet_destroy_endpoint(unet_endpoint *endpoint);

// The endpoint's number at its network interface, as unetctl shows it.
uint32_t unet_endpoint_id(const unet_endpoint *endpoint);

// Binds `name`, under which others connect; an endpoint has at most one. 1 to 63 characters of A-Z a-z 0-9 . _ - /, not
// beginning with - or /. Returns 0 or: UNET_EEXISTS, UNET_EPERMISSION, UNET_EINVALID, UNET_EDISCONNECTED.
int unet_bind(unet_endpoint *endpoint, const char *name);

// Gives the name back; channels stay. Returns 0 or UNET_ENOTFOUND (none is bound), UNET_EDISCONNECTED.
int unet_unbind(unet_endpoint *endpoint);

// ---- set-up: channels. A channel is a small number >= 0 that means something only together with its endpoint.

enum {
  UNET_PATH_AUTOMATIC = 0,  // a local channel if the peer is on this network interface and neither is emulated, else that or the wire
  UNET_PATH_LOCAL = 1,      // a local channel or an error
  UNET_PATH_NI = 2          // through the network interface, even if the peer is on the same one
};

// How to connect. 0 stands for the default. Grows.
typedef struct unet_connect_options {
  size_t size;
  int32_t path;           // UNET_PATH_...
  uint32_t local_depth;   // if it becomes a local channel: descriptors of each direction (256)
  int64_t timeout_ns;     // for the peer's answer (5 s); 1 ms to an hour, negative: an hour
  uint32_t local_bytes;   // if it becomes a local channel: data bytes of each direction, at least 262144 (4 MiB)
  uint32_t reserved;      // 0
  int64_t wait_ns;        // unet_connect(): how long to wait until the name is bound (0); negative: an hour. A signal ends the wait
} unet_connect_options;

// Opens a channel to `target` ("name", or "name@host") and waits until the peer has accepted. `options` may be NULL.
// Returns the channel (>= 0) or: UNET_ENOTFOUND (no such name or host), UNET_EREFUSED, UNET_ETIMEDOUT, UNET_EQUOTA,
// UNET_EPERMISSION, UNET_EINVALID, UNET_EDISCONNECTED, UNET_ENOMEMORY (this process has no descriptors left, say).
int unet_connect(unet_endpoint *endpoint, const char *target, const unet_connect_options *options);

// The same in two steps, for a thread that also serves the other side. unet_connect_start() sets *pending and returns 0 or an
// error; then unet_connect_poll() returns UNET_EPENDING until it returns what unet_connect() would have. Poll until it does, or
// give it up with unet_connect_cancel(): the peer may see the request all the same, and a channel that comes of it is closed.
// Both return UNET_EINVALID if `pending` is not under way any longer. unet_wait() returns when an answer may be there.
int unet_connect_start(unet_endpoint *endpoint, const char *target, const unet_connect_options *options, uint64_t *pending);
int unet_connect_poll(unet_endpoint *endpoint, uint64_t pending);
int unet_connect_cancel(unet_endpoint *endpoint, uint64_t pending);

// Somebody wants a channel to this endpoint. Grows.
typedef struct unet_request {
  size_t size;
  uint64_t id;
  int32_t peer_uid;  // -1: on another host; in the user namespace of the network interface: compare users by same_user
  int32_t peer_pid;
  char peer[64];     // for people: "pid 123", or the host it comes from
  int32_t same_user; // 1: a process at the same network interface, of the same user; else 0
  int32_t reserved;
} unet_request;

// Takes the oldest request, if there is one. Returns 1 (*request is set), 0 (none), or UNET_EINVALID (request->size).
int unet_next_request(unet_endpoint *endpoint, unet_request *request);

// Answers the request `id`. unet_accept() returns the new channel (>= 0) or: UNET_ENOTFOUND (whoever asked has given up),
// UNET_EQUOTA, UNET_ETIMEDOUT (no answer of the network interface), UNET_EDISCONNECTED, UNET_ENOMEMORY. unet_reject() returns 0,
// also if there is no such request, or UNET_ETIMEDOUT, UNET_EDISCONNECTED.
int unet_accept(unet_endpoint *endpoint, uint64_t id);
int unet_reject(unet_endpoint *endpoint, uint64_t id);

// Waits for a request, at most `timeout_ns` (UNET_FOREVER: no limit), and accepts it; *from, unless NULL, says whose it was.
// Returns the channel (>= 0) or UNET_ETIMEDOUT, UNET_EDISCONNECTED, or an error of unet_accept(). Signals do not end it.
int unet_accept_next(unet_endpoint *endpoint, int64_t timeout_ns, unet_request *from);

// Closes a channel; the peer is told. What was sent leaves before, unless the interface takes nothing for 100 ms. Release its
// messages before: afterwards they are invalid. A channel that the peer has closed keeps its number until this is called. Returns
// 0 or UNET_ENOTFOUND.
int unet_close_channel(unet_endpoint *endpoint, int channel);

// 1 while messages can be sent, 0 once it is closed by either side or was never open. What had arrived can be received still.
int unet_is_open(const unet_endpoint *endpoint, int channel);

// The path that a channel takes: UNET_KIND_LOCAL memory of the two processes, UNET_KIND_NI the network interface,
// UNET_KIND_NONE no such channel.
enum { UNET_KIND_NONE = 0, UNET_KIND_LOCAL = 1, UNET_KIND_NI = 2 };
int unet_channel_kind(const unet_endpoint *endpoint, int channel);

enum { UNET_EVENT_OPENED = 0, UNET_EVENT_CLOSED = 1 };
enum {
  UNET_REASON_NONE = 0,
  UNET_REASON_CLOSED_BY_PEER = 1,
  UNET_REASON_PEER_DIED = 2,
  UNET_REASON_NI_STOPPED = 3,
  UNET_REASON_WIRE_LOST = 4
};

// A channel came or went without a call of this endpoint. Grows.
typedef struct unet_event {
  size_t size;
  int32_t kind;     // UNET_EVENT_...; opened: a static channel of the network interface's configuration
  int32_t channel;
  int32_t reason;   // UNET_REASON_..., if closed
  char peer[64];    // for people, if opened
} unet_event;

// Takes the oldest event, if there is one. Returns 1 (*event is set), 0 (none), or UNET_EINVALID (event->size).
int unet_next_event(unet_endpoint *endpoint, unet_event *event);

// ---- data path: sending

enum { UNET_MESSAGE_MAX = 65536 };  // bytes of one message
enum { UNET_INLINE_MAX = 48 };      // bytes of a message that costs one cache line

// Flags of unet_send(), unet_post() and unet_put().
enum {
  UNET_MORE = 1,   // another send follows at once: an embedded network interface need not put this one on the wire yet
  UNET_NOTIFY = 2  // unet_put() only: the peer receives a UNET_PUT_DONE when all of it is there
};

// Copies `length` bytes and sends them; `data` may be NULL if length is 0. Returns 0 (the message is taken) or: UNET_EFULL,
// UNET_ETOOLONG, UNET_ENOCHANNEL, UNET_EINVALID (an unknown flag).
int unet_send(unet_endpoint *endpoint, int channel, const void *data, size_t length, unsigned flags);

// Sends without a copy: unet_reserve() sets *room to `length` bytes of the endpoint's memory in which to compose the message,
// unet_post() sends the first `length` bytes of it. One reservation at a time: any other send of the endpoint replaces it.
// *room is written, not read; it is valid until it is posted or replaced. Errors as unet_send().
int unet_reserve(unet_endpoint *endpoint, int channel, size_t length, void **room);
int unet_post(unet_endpoint *endpoint, int channel, size_t length, unsigned flags);

// Writes `length` bytes of `data` at `region_offset` of the region that the peer exposes. On a local channel straight into the
// peer's memory, up to 16 MiB - 1; otherwise up to UNET_MESSAGE_MAX. The first put on a local channel maps the region (a round
// trip to the service) unless unet_map_peer_region() has done so. Errors as unet_send(), and UNET_EBOUNDS (local channels;
// elsewhere the peer counts such a put as dropped).
int unet_put(unet_endpoint *endpoint, int channel, uint64_t region_offset, const void *data, size_t length, unsigned flags);

// ---- set-up: direct access

// Exposes `bytes` of zeroed memory that the peers of all channels may put into, and sets *memory; once per endpoint. The memory
// is the endpoint's. Returns 0 or: UNET_EINVALID (0, or more than 4 GiB), UNET_EEXISTS, UNET_EQUOTA, UNET_ENOMEMORY.
int unet_expose(unet_endpoint *endpoint, uint64_t bytes, void **memory);

// Sets *bytes to what the peer of a local channel exposes, and maps it for unet_put(). Returns 0 or UNET_ENOTFOUND (it exposes
// nothing, or the channel is not local).
int unet_map_peer_region(unet_endpoint *endpoint, int channel, uint64_t *bytes);

// ---- data path: receiving

enum {
  UNET_MESSAGE = 0,  // data sent to this endpoint
  UNET_PUT_DONE = 1  // a put with UNET_NOTIFY has arrived: region_offset and length say where; data is NULL
};

// A received message, in place. On a local channel the peer can still write the bytes: a program that does not trust its peer
// copies them before it checks them.
typedef struct unet_message {
  const void *data;
  uint32_t length;
  int32_t channel;         // that it came by
  uint8_t kind;            // UNET_MESSAGE, UNET_PUT_DONE; another: data of a protocol of C++ programs
  uint8_t reserved[3];     // the endpoint's own, for unet_release()
  uint32_t position;       // the endpoint's own, for unet_release()
  uint64_t region_offset;  // UNET_PUT_DONE only
} unet_message;

// The next message, if there is one. Returns 1 (*message is set; it is valid until released) or 0. An empty poll pauses the
// core for some 40 ns, so a loop around it is a polite one.
int unet_receive(unet_endpoint *endpoint, unet_message *message);

// Up to `count` messages at once; returns how many.
unsigned unet_receive_batch(unet_endpoint *endpoint, unet_message *messages, unsigned count);

// Gives a message's memory back. Every message must be released, in any order; memory returns to senders in order of arrival.
// Releasing twice does nothing.
void unet_release(unet_endpoint *endpoint, const unet_message *message);

// ---- waiting

#define UNET_FOREVER ((int64_t)-1)       // a time-out that never comes (any negative one)
#define UNET_SPIN_DEFAULT ((int64_t)-1)  // poll for 20 us before sleeping: about what a sleep and a wake-up cost together

enum {
  UNET_TIMED_OUT = 0,
  UNET_READY = 1,  // unet_receive(), unet_next_request(), unet_next_event() or unet_connect_poll() has something
  UNET_ROOM = 2    // unet_wait_room(): the send that was refused may succeed now
};

// Waits until there is something to take, at most `timeout_ns`; polls for `spin_ns` before it sleeps. A program takes whatever
// there is (messages, requests, events, answers to connects) before it waits again, or the next wait returns at once.
// Returns UNET_READY, UNET_TIMED_OUT, UNET_EINTERRUPTED, or UNET_EDISCONNECTED: nothing can come any longer.
int unet_wait(unet_endpoint *endpoint, int64_t timeout_ns, int64_t spin_ns);

// The same, and returns UNET_ROOM as soon as `channel`, which has refused a send with UNET_EFULL, has room for it again.
int unet_wait_room(unet_endpoint *endpoint, int channel, int64_t timeout_ns, int64_t spin_ns);

// For poll(2) and epoll: a descriptor that becomes readable when there may be something, after unet_arm() returned 1.
// unet_arm() returns 0 if there is something already: take all of it, then arm again. The descriptor is the endpoint's; never
// read it. unet_descriptor() returns it (>= 0) or UNET_EDISCONNECTED, UNET_ESYSTEM.
int unet_descriptor(unet_endpoint *endpoint);
int unet_arm(unet_endpoint *endpoint);

// The same, and the descriptor becomes readable, too, when `channel`, which has refused a send with UNET_EFULL, has room for it
// again; returns 0 if it has room already.
int unet_arm_room(unet_endpoint *endpoint, int channel);

// Starts a thread that calls upcall(endpoint, argument) whenever there is something to take, once per batch: the upcall
// takes messages, requests, events and answers until there are none. Every other call on this endpoint is then made either from the
// upcall or between unet_mask() and unet_unmask(). Returns 0 or UNET_EEXISTS, UNET_ESYSTEM, UNET_EDISCONNECTED.
typedef void (*unet_upcall)(unet_endpoint *endpoint, void *argument);
int unet_start_upcall(unet_endpoint *endpoint, unet_upcall upcall, void *argument);

// Ends the thread; when it returns no upcall runs. Neither from the upcall nor masked. Does nothing if none was started.
void unet_stop_upcall(unet_endpoint *endpoint);

// Between mask and unmask, on the same thread, no upcall runs; a pair costs about 20 ns. They do not nest.
void unet_mask(unet_endpoint *endpoint);
void unet_unmask(unet_endpoint *endpoint);

// ---- looking

// Sets *value to the endpoint's counter `name`: "sent_messages", "received_bytes", ...; every drop has a name. The network
// interface publishes its counters a moment after the messages that they count. Returns 0 or UNET_ENOTFOUND.
int unet_counter(const unet_endpoint *endpoint, const char *name, uint64_t *value);

// The name of the counter number `index`, counted from 0, a static string; NULL after the last.
const char *unet_counter_name(const unet_endpoint *endpoint, size_t index);

#ifdef __cplusplus
}
#endif
