// unet.h - U-Net for C programs: the stable binary interface of libunet, one entry per function; C99 and later, and C++.
//
//   unet_context *context;                             #include <unet/unet.h>
//   unet_endpoint *endpoint;                           cc program.c $(pkg-config --cflags --libs unet)
//   if (unet_context_open(NULL, NULL, &context) < 0 || unet_endpoint_create(context, NULL, &endpoint) < 0) goto failed;
//   int channel = unet_connect(endpoint, "echo", NULL);
//   if (channel < 0) goto failed;                      failed: fprintf(stderr, "%s\n", unet_error_text());
//   unet_send(endpoint, channel, "hello", 5, 0);
//   unet_message message;
//   while (!unet_receive(endpoint, &message)) {}
//   fwrite(message.data, 1, message.length, stdout);
//   unet_release(endpoint, &message);
//
// Channels: a message arrives whole or not at all. Over a wire, messages may be lost or overtake each other. Between two endpoints of one
// host none is lost: a full channel refuses the send (UNET_EFULL). A program does not see which path a channel takes.
//
// Errors: a function that returns int returns a negative UNET_E... on failure. Functions under "set-up" also store a text for the user,
// which unet_error_text() returns. Functions under "data path" do not allocate or lock, and store no text.
//
// Threads: any thread may use a context. One thread at a time may use an endpoint and everything that came from it (but see unet_mask()).
// Over an embedded network interface one thread at a time may use all endpoints of a context.
//
// Processes: after fork() contexts and endpoints belong to the parent. A child may destroy them, which the parent does not notice, and must
// open its own. Set-up calls on the parent's objects fail in the child.
//
// Pointers must not be NULL unless the entry allows it. Times are nanoseconds, lengths bytes.
//
// Stability: within soname libunet.so.0 functions, constants and structure members are only added, never changed or removed. Structures
// with a member `size` may grow: set it to sizeof(the structure), and set unused members to 0.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "unet/version.h"

#ifdef __cplusplus
extern "C" {
#endif

// Marks an old name, which warns at compile time and names its successor.
#if defined(__GNUC__)
#define UNET_DEPRECATED(successor) __attribute__((deprecated("call " successor)))
#else
#define UNET_DEPRECATED(successor)
#endif

// A connection to a network interface, and a communication endpoint there.
typedef struct unet_context unet_context;
typedef struct unet_endpoint unet_endpoint;

// ---- errors

enum {
  UNET_EINVALID = -1,        // a malformed option, name or address; the error text says what is allowed
  UNET_EPERMISSION = -2,     // the policy of the network interface does not allow it to this user
  UNET_EQUOTA = -3,          // a limit of the policy or of the implementation is reached
  UNET_ENOTFOUND = -4,       // no such name, host, request, region or channel
  UNET_EEXISTS = -5,         // it exists already: the name is bound, a region exposed, an upcall started
  UNET_EREFUSED = -6,        // the peer did not accept the channel
  UNET_ETIMEDOUT = -7,       // not done within the time allowed
  UNET_EDISCONNECTED = -8,   // the network interface or the peer is gone
  UNET_EUNAVAILABLE = -9,    // no network interface is there, or this machine lacks something
  UNET_ENOMEMORY = -10,      // no memory or descriptors were available
  UNET_EPROTOCOL = -11,      // the other side broke the control protocol
  UNET_ESYSTEM = -12,        // a system call failed; the error text names it
  // Errors of the data path
  UNET_EFULL = -101,         // no room now: receive, or call unet_wait_room(), and send again
  UNET_ETOOLONG = -102,      // more than UNET_MESSAGE_MAX bytes, or more than was reserved
  UNET_ENOCHANNEL = -103,    // no such channel, or one side has closed it
  UNET_EBOUNDS = -104,       // a put outside the peer's exposed region, or the peer exposes none
  UNET_EINTERRUPTED = -105,  // a signal arrived during a wait
  UNET_EPENDING = -106       // unet_connect_poll(): no answer yet
};

// Returns the text of this thread's last failed set-up call: the fault, and what is allowed or what to do. Valid until the thread's next
// set-up call; "" before the first failure. Never NULL.
const char *unet_error_text(void);

// Returns one word for an error code ("not_found"), a static string; "unknown" for other numbers. Any thread may call it.
const char *unet_error_name(int code);

// ---- set-up: contexts

// Options of unet_context_open(). This structure may grow; see "Stability".
typedef struct unet_context_options {
  size_t size;
  const char *program;  // shown to operators; NULL: the program's own name
} unet_context_options;

// Connects to the network interface that `ni` names, and sets *context.
//   NULL or ""       the value of UNET_NI in the environment, else the unetd at this host's default socket
//   "unix:PATH"      the unetd that listens at PATH
//   "embedded:SPEC"  one inside this process that owns the wire SPEC, such as "embedded:dpdk:net_memif0,role=client"
// `options` may be NULL. The caller owns *context, and must call unet_context_close().
// Returns 0 or: UNET_EUNAVAILABLE (none there; the error text says how to start one), UNET_EPERMISSION, UNET_EINVALID.
int unet_context_open(const char *ni, const unet_context_options *options, unet_context **context);

// Closes the context; NULL is allowed. Its endpoints work until they are destroyed.
void unet_context_close(unet_context *context);

// Returns 1 while the network interface exists, 0 once it is gone (costs a system call). Local channels go on working without it, but then
// they do not learn that a peer has closed one or died. A program that needs this must use its own messages.
int unet_alive(const unet_context *context);

// Sets *json to a document about everything that this user may see: endpoints, channels, names, counters, ports. The caller owns it, and
// must call unet_free(). Returns 0 or UNET_EDISCONNECTED, UNET_ETIMEDOUT, UNET_ENOMEMORY.
int unet_report(unet_context *context, char **json);

// Frees the result of unet_report(); NULL is allowed.
void unet_free(void *memory);

// ---- set-up: endpoints

// Sizes of an endpoint's parts. 0 means the default. Depths are rounded up to powers of two. This structure may grow.
typedef struct unet_endpoint_options {
  size_t size;
  uint32_t send_depth;     // descriptors of the send queue (default 256)
  uint32_t receive_depth;  // descriptors of the receive queue (256)
  uint32_t buffers;        // receive buffers (256)
  uint32_t buffer_size;    // bytes of a receive buffer, a multiple of 64 (2048)
  uint32_t send_bytes;     // bytes of the communication segment for outgoing messages (524288)
  uint32_t reserved;       // ignored
  uint64_t emulated;       // 1: without queues of its own, for thousands of endpoints that share one real endpoint of the context; the
                           // members above then bound this one's waiting messages. See docs/ARCHITECTURE.md, "Emulated endpoints"
  uint64_t weight;         // part of its user's share of the network interface, relative to the user's other endpoints: 1 to 100 (1). With
                           // weight 3 it sends three times as much as with weight 1, if both always have messages to send. Ignored for an
                           // emulated one: all of a context together count as one endpoint of weight 1
} unet_endpoint_options;

// Creates an endpoint and sets *endpoint; `options` may be NULL. The caller owns it, and must call unet_endpoint_destroy(). It may outlive
// its context. Returns 0 or: UNET_EINVALID (options out of range), UNET_EQUOTA, UNET_EPERMISSION, UNET_EDISCONNECTED, UNET_ENOMEMORY.
int unet_endpoint_create(unet_context *context, const unet_endpoint_options *options, unet_endpoint **endpoint);

// Stops the upcall, closes all channels like unet_channel_close(), and frees everything; NULL is allowed. Unreleased messages, the exposed
// region and the descriptor become invalid. Do not call this from the endpoint's own upcall.
void unet_endpoint_destroy(unet_endpoint *endpoint);

// Returns the endpoint's number at its network interface, as unetctl shows it.
uint32_t unet_endpoint_id(const unet_endpoint *endpoint);

// Binds `name`, under which others can connect. An endpoint has at most one name: 1 to 63 characters of A-Z a-z 0-9 . _ - /, not beginning
// with - or /. Returns 0 or: UNET_EEXISTS, UNET_EPERMISSION, UNET_EINVALID, UNET_EDISCONNECTED.
int unet_bind(unet_endpoint *endpoint, const char *name);

// Unbinds the name; channels stay open. Returns 0 or UNET_ENOTFOUND (none is bound), UNET_EDISCONNECTED.
int unet_unbind(unet_endpoint *endpoint);

// ---- set-up: channels. A channel is a small number >= 0, meaningful only together with its endpoint.

enum {
  UNET_PATH_AUTOMATIC = 0,  // a local channel if the peer is on this network interface and neither endpoint is emulated, else UNET_PATH_NI
  UNET_PATH_LOCAL = 1,      // a local channel, or an error
  UNET_PATH_NI = 2          // through the network interface, even if the peer is on the same one
};

// Options of unet_connect(). 0 means the default. This structure may grow.
typedef struct unet_connect_options {
  size_t size;
  int32_t path;           // UNET_PATH_...
  uint32_t local_depth;   // of a local channel: descriptors of each direction (256)
  int64_t timeout_ns;     // for the peer's answer (5 s); 1 ms to an hour, negative: an hour
  uint32_t local_bytes;   // of a local channel: data bytes of each direction, at least 262144 (4 MiB)
  uint32_t reserved;      // 0
  int64_t wait_ns;        // unet_connect(): how long to wait until the name is bound (0); negative: an hour. A signal ends the wait
} unet_connect_options;

// Opens a channel to `target` ("name" or "name@host"), and waits until the peer has accepted. `options` may be NULL. Returns the channel
// (>= 0) or: UNET_ENOTFOUND (no such name or host), UNET_EREFUSED, UNET_ETIMEDOUT, UNET_EQUOTA, UNET_EPERMISSION, UNET_EINVALID,
// UNET_EDISCONNECTED, UNET_ENOMEMORY (for example, no descriptors left in this process).
int unet_connect(unet_endpoint *endpoint, const char *target, const unet_connect_options *options);

// The steps of unet_connect(), for a thread that also serves the other side. unet_connect_start() sets *pending and returns 0 or an error.
// Then unet_connect_poll() returns UNET_EPENDING until it returns the result of unet_connect(). Poll until then, or call
// unet_connect_cancel(). After a cancel the peer may still see the request; a channel that results is closed. Both return UNET_EINVALID if
// `pending` is not in progress. unet_wait() returns when an answer may be there.
int unet_connect_start(unet_endpoint *endpoint, const char *target, const unet_connect_options *options, uint64_t *pending);
int unet_connect_poll(unet_endpoint *endpoint, uint64_t pending);
int unet_connect_cancel(unet_endpoint *endpoint, uint64_t pending);

// A request of a peer for a channel to this endpoint. This structure may grow.
typedef struct unet_request {
  size_t size;
  uint64_t id;
  int32_t peer_uid;  // in the user namespace of the network interface: compare users by same_user; -1: on another host
  int32_t peer_pid;
  char peer[64];     // for people: "pid 123", or the host of the peer
  int32_t same_user; // 1: the peer is a process at the same network interface, of the same user; else 0
  int32_t reserved;
} unet_request;

// Takes the oldest request, if there is one. Returns 1 (*request is set), 0 (none), or UNET_EINVALID (request->size).
int unet_next_request(unet_endpoint *endpoint, unet_request *request);

// Answer the request `id`. unet_accept() returns the new channel (>= 0) or: UNET_ENOTFOUND (the requester has given up), UNET_EQUOTA,
// UNET_ETIMEDOUT (no answer of the network interface), UNET_EDISCONNECTED, UNET_ENOMEMORY. unet_reject() returns 0, also if there is no
// such request, or UNET_ETIMEDOUT, UNET_EDISCONNECTED.
int unet_accept(unet_endpoint *endpoint, uint64_t id);
int unet_reject(unet_endpoint *endpoint, uint64_t id);

// Waits for a request, at most `timeout_ns` (UNET_FOREVER: no limit), and accepts it. Fills in *from with the request unless it is NULL.
// Returns the channel (>= 0) or UNET_ETIMEDOUT, UNET_EDISCONNECTED, or an error of unet_accept(). Signals do not end it.
int unet_accept_next(unet_endpoint *endpoint, int64_t timeout_ns, unet_request *from);

// Closes a channel, and tells the peer. Sent messages leave first, unless the network interface takes none for 100 ms. Release the
// channel's messages before: they become invalid. A channel that the peer has closed occupies its number until this call. Returns 0 or
// UNET_ENOTFOUND.
int unet_channel_close(unet_endpoint *endpoint, int channel);

// Returns 1 while messages can be sent, 0 if either side has closed the channel or it was never open. Messages that had arrived can still
// be received.
int unet_is_open(const unet_endpoint *endpoint, int channel);

// Returns the path of a channel: UNET_KIND_LOCAL for memory of the two processes, UNET_KIND_NI for the network interface, UNET_KIND_NONE if
// there is no such channel.
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

// A channel opened or closed without a call of this program. This structure may grow.
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
  UNET_MORE = 1,   // another send follows at once, so an embedded network interface may delay this one
  UNET_NOTIFY = 2  // unet_put() only: the peer receives a UNET_PUT_DONE when all bytes have arrived
};

// Copies `length` bytes and sends them; `data` may be NULL if length is 0. Returns 0 (the message is taken) or: UNET_EFULL,
// UNET_ETOOLONG, UNET_ENOCHANNEL, UNET_EINVALID (an unknown flag).
int unet_send(unet_endpoint *endpoint, int channel, const void *data, size_t length, unsigned flags);

// Sends without a copy. unet_reserve() sets *room to `length` bytes of the endpoint's memory, in which to compose the message. unet_post()
// sends the first `length` bytes of it. There is one reservation at a time: any other send of the endpoint replaces it. The memory is for
// writing, not for reading, and is valid until it is posted or replaced. Errors: those of unet_send().
int unet_reserve(unet_endpoint *endpoint, int channel, size_t length, void **room);
int unet_post(unet_endpoint *endpoint, int channel, size_t length, unsigned flags);

// Writes `length` bytes of `data` at `region_offset` of the region that the peer exposes. A local channel writes straight into the peer's
// memory, up to 16 MiB - 1; others send up to UNET_MESSAGE_MAX. The first put on a local channel maps the region (a round trip to the
// service), unless unet_map_peer_region() has done so. Errors: those of unet_send(), and UNET_EBOUNDS on local channels; on others the peer
// counts such a put as dropped.
int unet_put(unet_endpoint *endpoint, int channel, uint64_t region_offset, const void *data, size_t length, unsigned flags);

// ---- set-up: direct access

// Exposes `bytes` of zeroed memory, into which the peers of all channels may put, and sets *memory; once per endpoint. The endpoint owns
// the memory. Returns 0 or: UNET_EINVALID (0, or more than 4 GiB), UNET_EEXISTS, UNET_EQUOTA, UNET_ENOMEMORY.
int unet_expose(unet_endpoint *endpoint, uint64_t bytes, void **memory);

// Sets *bytes to the size of the region that the peer of a local channel exposes, and maps it for unet_put(). Returns 0 or UNET_ENOTFOUND
// (it exposes none, or the channel is not local).
int unet_map_peer_region(unet_endpoint *endpoint, int channel, uint64_t *bytes);

// ---- data path: receiving

enum {
  UNET_MESSAGE = 0,  // data sent to this endpoint
  UNET_PUT_DONE = 1  // a put with UNET_NOTIFY has arrived at region_offset, with `length` bytes; data is NULL
};

// A received message, in place. On a local channel the peer can still write the bytes: a program that does not trust its peer must copy
// them before it checks them.
typedef struct unet_message {
  const void *data;
  uint32_t length;
  int32_t channel;         // the channel that it came by
  uint8_t kind;            // UNET_MESSAGE, UNET_PUT_DONE; another: data of a protocol of C++ programs
  uint8_t reserved[3];     // for unet_release()
  uint32_t position;       // for unet_release()
  uint64_t region_offset;  // UNET_PUT_DONE only
} unet_message;

// Receives the next message. Returns 1 (*message is set, and valid until its release) or 0 if there is none. An empty poll pauses the core
// for about 40 ns, so a loop around this call is polite.
int unet_receive(unet_endpoint *endpoint, unet_message *message);

// Receives up to `count` messages, and returns how many.
unsigned unet_receive_batch(unet_endpoint *endpoint, unet_message *messages, unsigned count);

// Gives a message's memory back. Every message must be released, in any order; memory returns to senders in order of arrival. Releasing
// twice does nothing.
void unet_release(unet_endpoint *endpoint, const unet_message *message);

// ---- waiting

#define UNET_FOREVER ((int64_t)-1)       // no timeout (any negative value)
#define UNET_SPIN_DEFAULT ((int64_t)-1)  // poll for 20 us before sleeping: about the cost of a sleep and a wake-up

enum {
  UNET_TIMED_OUT = 0,
  UNET_READY = 1,  // unet_receive(), unet_next_request(), unet_next_event() or unet_connect_poll() has something
  UNET_ROOM = 2    // unet_wait_room(): the refused send may succeed now
};

// Waits at most `timeout_ns` until there is something to take; polls for `spin_ns` before it sleeps. Take everything (messages, requests,
// events, answers to connects) before the next wait, or that returns at once. Returns UNET_READY, UNET_TIMED_OUT, UNET_EINTERRUPTED, or
// UNET_EDISCONNECTED: no message can arrive any more.
int unet_wait(unet_endpoint *endpoint, int64_t timeout_ns, int64_t spin_ns);

// Works like unet_wait(), and returns UNET_ROOM as soon as `channel`, which refused a send with UNET_EFULL, has room again.
int unet_wait_room(unet_endpoint *endpoint, int channel, int64_t timeout_ns, int64_t spin_ns);

// A descriptor for poll(2) and epoll. Sleep on it only after unet_arm() returned 1; it becomes readable when there may be something to
// take. The result 0 means that there is something already: take all of it, then arm again. The endpoint owns the descriptor; never read
// from it. unet_descriptor() returns it (>= 0) or UNET_EDISCONNECTED, UNET_ESYSTEM.
int unet_descriptor(unet_endpoint *endpoint);
int unet_arm(unet_endpoint *endpoint);

// Works like unet_arm(). The descriptor also becomes readable when `channel`, which refused a send with UNET_EFULL, has room again. Returns
// 0 if it has room already.
int unet_arm_room(unet_endpoint *endpoint, int channel);

// Starts a thread that calls upcall(endpoint, argument) whenever there is something to take, once per batch. The upcall takes messages,
// requests, events and answers until there are none. All other calls on this endpoint must come from the upcall, or between unet_mask() and
// unet_unmask(). Returns 0 or UNET_EEXISTS, UNET_ESYSTEM, UNET_EDISCONNECTED.
typedef void (*unet_upcall)(unet_endpoint *endpoint, void *argument);
int unet_start_upcall(unet_endpoint *endpoint, unet_upcall upcall, void *argument);

// Ends the thread. No upcall runs after it returns. Do not call it from the upcall or while masked. Does nothing if none was started.
void unet_stop_upcall(unet_endpoint *endpoint);

// Between mask and unmask, on the same thread, no upcall runs. A pair costs about 20 ns. Pairs do not nest.
void unet_mask(unet_endpoint *endpoint);
void unet_unmask(unet_endpoint *endpoint);

// ---- inspection

// Sets *value to the endpoint's counter `name`: "sent_messages", "received_bytes", ... Each kind of drop has a name. The network interface
// publishes its counters a moment after the messages that they count. Returns 0 or UNET_ENOTFOUND.
int unet_counter(const unet_endpoint *endpoint, const char *name, uint64_t *value);

// Returns the name of counter number `index`, counted from 0, a static string; NULL after the last.
const char *unet_counter_name(const unet_endpoint *endpoint, size_t index);

// ---- old names: removed from this header after release 0.1

typedef unet_context_options unet_open_options;
int unet_open(const char *ni, const unet_context_options *options, unet_context **context) UNET_DEPRECATED("unet_context_open");
void unet_close(unet_context *context) UNET_DEPRECATED("unet_context_close");
int unet_create_endpoint(unet_context *context, const unet_endpoint_options *options, unet_endpoint **endpoint)
    UNET_DEPRECATED("unet_endpoint_create");
void unet_destroy_endpoint(unet_endpoint *endpoint) UNET_DEPRECATED("unet_endpoint_destroy");
int unet_close_channel(unet_endpoint *endpoint, int channel) UNET_DEPRECATED("unet_channel_close");

#ifdef __cplusplus
}
#endif
