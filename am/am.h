// am.h - Active Messages for C programs: the stable binary interface of libunet_am, one entry per function; C99 and later, and C++.
//
//   unet_context *context;                                  #include <am/am.h>
//   unet_am_bundle *bundle;                                 cc program.c $(pkg-config --cflags --libs unet-am)
//   unet_am_endpoint *endpoint;
//   unet_context_open(NULL, NULL, &context);
//   unet_am_bundle_create(0, &bundle);
//   unet_am_endpoint_create(context, bundle, NULL, &endpoint);
//   unet_am_set_handler(endpoint, 1, on_answer, NULL);      void on_answer(unet_am_token *token, void *context)
//   unet_am_map(endpoint, 0, "server", UNET_AM_ANY_TAG, NULL);
//   uint32_t argument = 42;
//   unet_am_request_short(endpoint, 0, 7, &argument, 1);    runs handler 7 there, with 42
//   while (!answered) unet_am_wait(bundle, UNET_FOREVER, UNET_SPIN_DEFAULT);
//
// A message is short, medium or long. A short message carries up to UNET_AM_ARGUMENTS_MAX arguments of 32 bits. A medium message adds a
// payload that is valid while the handler runs. A long message adds a payload that lies in the receiver's segment before the handler runs.
// A request's handler may reply to the requester, once. A reply's handler sends nothing. A handler neither requests nor polls through any
// endpoint of its bundle. A handler throws nothing: an exception that leaves it ends the program. docs/ACTIVE_MESSAGES.md is the guide.
//
// Errors: functions under "set-up" return 0 or a negative UNET_E... and leave a sentence in unet_error_text() (unet.h). Functions under
// "messages" return 0 if the message was sent, or one of UNET_AM_E...; they leave no sentence.
//
// Threads: a bundle, and everything made from it, belongs to one thread at a time. Any number of threads may use a bundle made with
// UNET_AM_SHARED: each call locks the bundle, and handlers run under the lock. A call that waits releases the lock meanwhile. Destroy or
// move an endpoint only after every call that waits on it has returned. A token belongs to the thread that runs the handler.
//
// Pointers must not be NULL unless the entry allows it. Times are nanoseconds, lengths bytes. unet.h states the rules for ABI stability and
// for structures with a member `size`.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "unet/unet.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct unet_am_bundle unet_am_bundle;      // endpoints that are polled and waited for together
typedef struct unet_am_endpoint unet_am_endpoint;
typedef struct unet_am_token unet_am_token;        // the message of a running handler; valid until the handler returns

enum {
  UNET_AM_ARGUMENTS_MAX = 16,       // arguments of 32 bits
  UNET_AM_HANDLERS_MAX = 256,
  UNET_AM_TRANSLATIONS_MAX = 65536,
  UNET_AM_CREDITS = 64,             // outstanding requests to one peer
  UNET_AM_MEDIUM_MAX = 16384,       // bytes of a medium payload
  UNET_AM_LONG_REPLY_MAX = 16384    // bytes of a long reply
};
#define UNET_AM_LONG_MAX ((uint64_t)1 << 32)  // bytes of a long request or a get

#define UNET_AM_NO_TAG ((uint64_t)0)   // an endpoint with this tag accepts no request
#define UNET_AM_ANY_TAG ((uint64_t)1)  // an endpoint with this tag accepts every request
#define UNET_AM_NO_INDEX ((uint32_t)-1)

enum {
  UNET_AM_ENOTSENT = -201,   // only from calls that do not wait: no credit or no room now
  UNET_AM_ERETURNED = -202,  // undeliverable: the error handler has been called
  UNET_AM_EBADCALL = -203    // against the rules, nothing was sent: too many arguments, too long a payload, no such handler index, a second
                             // reply, a reply from a reply's handler, a request from a handler
};

// Why a message was not handled.
enum {
  UNET_AM_BAD_ARGUMENTS = 1,       // the message has another number of arguments than the handler takes
  UNET_AM_BAD_ENTRY = 2,           // no such index in the translation table
  UNET_AM_BAD_TAG = 3,             // the receiver has another tag
  UNET_AM_BAD_HANDLER = 4,         // no handler has that index
  UNET_AM_BAD_SEGMENT_OFFSET = 5,  // the offset lies beyond the receiver's segment, or there is no segment
  UNET_AM_BAD_LENGTH = 6,          // the transfer passes the segment's end
  UNET_AM_BAD_ENDPOINT = 7,        // no such endpoint
  UNET_AM_CONGESTION = 8,          // the receiver has no room
  UNET_AM_UNREACHABLE = 9,         // the peer closed, died or restarted, or the wire is lost: the message may have been handled
  UNET_AM_REPLY_REJECTED = 10      // a reply that could not be delivered
};

// Returns one word for a status above ("bad_tag") or for an UNET_AM_E... ("returned"), "unknown" for other numbers. The string is static.
const char *unet_am_name_of(int code);

// ---- set-up: bundles and endpoints

enum { UNET_AM_SHARED = 1 };  // flag of unet_am_bundle_create(): several threads use it

// Creates a bundle. The caller owns *bundle and frees it with unet_am_bundle_destroy(), which also destroys its endpoints; NULL is allowed.
// Errors: UNET_EINVALID (an unknown flag), UNET_ESYSTEM, UNET_ENOMEMORY. A handler that destroys its own bundle ends the program.
int unet_am_bundle_create(unsigned flags, unet_am_bundle **bundle);
void unet_am_bundle_destroy(unet_am_bundle *bundle);

// Decides whether a process that asks for a channel becomes a peer: not 0 accepts it. `from` has the contents that unet_next_request()
// gives; a static channel has id 0. The function may do what a handler may do.
typedef int (*unet_am_admit)(const unet_request *from, void *context);

// Options of an endpoint; 0 selects each default. The structure grows in later versions.
typedef struct unet_am_options {
  size_t size;
  unet_endpoint_options endpoint;  // if its member `size` is 0, all of it is the default
  unet_am_admit admit;             // NULL: every process is accepted
  void *admit_context;
  int32_t same_user_only;          // 1: only processes of the same user at this network interface, as it sees them, are accepted and can be
                                   // mapped (else UNET_EPERMISSION); `admit` is asked only about those
  int32_t reserved;
} unet_am_options;

// Creates an endpoint in `bundle`; `options` may be NULL. The bundle owns the endpoint; unet_am_endpoint_destroy() (NULL is allowed) ends
// it earlier. Errors: as unet_endpoint_create(); UNET_EINVALID in a handler of the bundle.
int unet_am_endpoint_create(unet_context *context, unet_am_bundle *bundle, const unet_am_options *options, unet_am_endpoint **endpoint);
// Tells each peer which requests were handled, then closes all channels. Packets on wires that are not acknowledged may be lost: call
// unet_am_flush() first. A handler that destroys an endpoint of its bundle ends the program.
void unet_am_endpoint_destroy(unet_am_endpoint *endpoint);

// Moves the endpoint to another bundle. No other thread may use the endpoint meanwhile. Returns 0 or UNET_EINVALID (a NULL; a call from a
// handler of either bundle).
int unet_am_move_endpoint(unet_am_endpoint *endpoint, unet_am_bundle *to);

// Binds the name under which other endpoints map this one. Errors: as unet_bind().
int unet_am_bind(unet_am_endpoint *endpoint, const char *name);

// Returns the endpoint's number at its network interface.
uint32_t unet_am_endpoint_id(const unet_am_endpoint *endpoint);

// Stores a pointer of the program's with the endpoint; NULL at first. The library never reads what it points to.
void unet_am_attach(unet_am_endpoint *endpoint, void *attachment);
void *unet_am_attachment(const unet_am_endpoint *endpoint);

// ---- set-up: translations, tags, handlers, segment

// Makes translation `index` lead to `target` ("name" or "name@host") with tag `tag`. unet_am_map() waits for the channel and runs handlers
// meanwhile. unet_am_start_map() does not wait: the first request waits. If there is no channel, that request is returned to the error
// handler (UNET_AM_BAD_ENDPOINT: no endpoint has that name, or it refuses). `options` may be NULL. Returns 0 or UNET_EINVALID (index, or a
// call from a handler), UNET_EEXISTS (the index is in use), or an error of unet_connect().
int unet_am_map(unet_am_endpoint *endpoint, uint32_t index, const char *target, uint64_t tag, const unet_connect_options *options);
int unet_am_start_map(unet_am_endpoint *endpoint, uint32_t index, const char *target, uint64_t tag, const unet_connect_options *options);
// Returns 0 when a translation of unet_am_start_map() has its channel, and UNET_EPENDING until then: call unet_am_poll() or unet_am_wait()
// in between. Otherwise the index is free again, and the result is the error of unet_am_map(). UNET_ENOTFOUND: the index is not in use.
// UNET_EINVALID: a call from a handler, which cannot free the index.
int unet_am_poll_map(unet_am_endpoint *endpoint, uint32_t index);
// Runs the handlers of messages that have arrived and of gets that are complete, then frees the index. Requests that the peer has not
// acknowledged as handled are returned (UNET_AM_UNREACHABLE); the peer may still handle them. Returns 0 or UNET_ENOTFOUND, UNET_EINVALID (a
// call from a handler).
int unet_am_unmap(unet_am_endpoint *endpoint, uint32_t index);
// unet_am_in_use() returns 1 if the translation is in use, unet_am_is_local() returns 1 if its channel is local; otherwise both return 0.
int unet_am_in_use(unet_am_endpoint *endpoint, uint32_t index);
int unet_am_is_local(unet_am_endpoint *endpoint, uint32_t index);

// Sets the tag that a request must have to be delivered here. UNET_AM_ANY_TAG (the default) delivers all, UNET_AM_NO_TAG none.
void unet_am_set_tag(unet_am_endpoint *endpoint, uint64_t tag);
uint64_t unet_am_tag(unet_am_endpoint *endpoint);

typedef void (*unet_am_handler)(unet_am_token *token, void *context);

// Sets the handler of `index`. With `handler` NULL, messages for the index are returned to their senders. unet_am_set_handler_counted()
// accepts only messages with `arguments` arguments and returns others (UNET_AM_BAD_ARGUMENTS). Returns 0 or UNET_EINVALID (index, count).
int unet_am_set_handler(unet_am_endpoint *endpoint, unsigned index, unet_am_handler handler, void *context);
int unet_am_set_handler_counted(unet_am_endpoint *endpoint, unsigned index, unsigned arguments, unet_am_handler handler, void *context);

enum {  // kinds of messages
  UNET_AM_SHORT_REQUEST = 1,
  UNET_AM_MEDIUM_REQUEST = 2,
  UNET_AM_LONG_REQUEST = 3,
  UNET_AM_GET = 5,
  UNET_AM_SHORT_REPLY = 6,
  UNET_AM_MEDIUM_REPLY = 7,
  UNET_AM_LONG_REPLY = 8     // also the result of a get
};

// Describes a message of ours that was returned or could not be sent, or (UNET_AM_REPLY_REJECTED) a reply to us that is undeliverable here.
// The structure grows in later versions.
typedef struct unet_am_returned {
  size_t size;
  int32_t status;             // the reason: UNET_AM_BAD_ARGUMENTS ...
  int32_t kind;               // UNET_AM_SHORT_REQUEST ...; for a reply its own kind
  uint32_t handler;           // the handler index that the message names
  uint32_t index;             // the translation; UNET_AM_NO_INDEX if the peer does not say which message it was
  const uint32_t *arguments;  // valid during the call
  uint32_t count;
  uint32_t reserved;
  void *memory;               // The destination of a returned get; the program may reuse it now. NULL for other messages.
} unet_am_returned;
typedef void (*unet_am_error_handler)(unet_am_endpoint *endpoint, const unet_am_returned *returned, void *context);

// Sets the function that runs for each returned message. With NULL (the default) returned messages are only counted.
void unet_am_set_error_handler(unet_am_endpoint *endpoint, unet_am_error_handler handler, void *context);

// The segment is the memory that peers' long messages write and that their gets read. unet_am_expose() makes `length` bytes of zeroed
// memory that the endpoint owns; local peers read and write it directly. Call it once. unet_am_set_segment() uses memory that the caller
// owns and replaces an earlier one; each byte is then copied once more. Errors: as unet_expose(); UNET_EEXISTS (a segment is exposed).
int unet_am_expose(unet_am_endpoint *endpoint, uint64_t length, void **memory);
int unet_am_set_segment(unet_am_endpoint *endpoint, void *memory, uint64_t length);
// Returns the segment and sets *length; NULL if there is none.
void *unet_am_segment(unet_am_endpoint *endpoint, uint64_t *length);

// ---- messages: requests. A request waits for a credit and runs handlers meanwhile. `arguments` may be NULL if `count` is 0, `payload` may
// be NULL if `length` is 0.

int unet_am_request_short(unet_am_endpoint *endpoint, uint32_t to, unsigned handler, const uint32_t *arguments, unsigned count);
int unet_am_request_medium(unet_am_endpoint *endpoint, uint32_t to, unsigned handler, const void *payload, size_t length,
                           const uint32_t *arguments, unsigned count);
// Writes the payload at `offset` of the peer's segment; the handler runs when all bytes are there. The caller may reuse `payload` at
// return.
int unet_am_request_long(unet_am_endpoint *endpoint, uint32_t to, unsigned handler, uint64_t offset, const void *payload, size_t length,
                         const uint32_t *arguments, unsigned count);

// Sends a long request without waiting; returns UNET_AM_ENOTSENT if it would have to wait. If it returns 0, leave `payload` unchanged until
// `done` runs. `done` (may be NULL) runs once, from this call or from a later call that polls. Other requests may overtake this one.
typedef void (*unet_am_done)(unet_am_endpoint *endpoint, void *context);
int unet_am_request_long_async(unet_am_endpoint *endpoint, uint32_t to, unsigned handler, uint64_t offset, const void *payload,
                               size_t length, const uint32_t *arguments, unsigned count, unet_am_done done, void *context);

// Copies `length` bytes from `offset` of the peer's segment to `memory`, then runs `handler` here. `memory` must stay valid until then.
int unet_am_get(unet_am_endpoint *endpoint, uint32_t from, unsigned handler, uint64_t offset, void *memory, size_t length,
                const uint32_t *arguments, unsigned count);

// Compose a medium request in place, without a copy. unet_am_reserve() waits for room and sets *room to `length` bytes, 1 to
// UNET_AM_MEDIUM_MAX. unet_am_commit() sends the first `length` bytes with `count` arguments, as many as were reserved. Send and poll
// nothing in between: a shared bundle stays locked. Committing 0 bytes drops the reservation (UNET_AM_EBADCALL); so does moving or
// destroying the endpoint.
int unet_am_reserve(unet_am_endpoint *endpoint, uint32_t to, size_t length, unsigned count, void **room);
int unet_am_commit(unet_am_endpoint *endpoint, unsigned handler, size_t length, const uint32_t *arguments, unsigned count);

// Returns 1 if a request to this translation would be sent without waiting.
int unet_am_has_credit(unet_am_endpoint *endpoint, uint32_t to);

// ---- messages: functions of a handler's token

// Returns the arguments, valid while the handler runs; sets *count unless it is NULL.
const uint32_t *unet_am_arguments(const unet_am_token *token, unsigned *count);
// Returns the payload and sets *length unless it is NULL. Medium: the bytes as they arrived. A local peer can still change those, so a
// program that does not trust its peer copies them before it checks them. Long: the bytes in the segment. Get: the destination. Short:
// NULL.
void *unet_am_payload(const unet_am_token *token, size_t *length);
// Long: the payload's offset in the segment.
uint64_t unet_am_offset(const unet_am_token *token);
// Returns the kind of the message: UNET_AM_SHORT_REQUEST ...
int unet_am_kind(const unet_am_token *token);
int unet_am_is_request(const unet_am_token *token);
// Returns 1 for a request that has no reply yet.
int unet_am_can_reply(const unet_am_token *token);
// Returns the tag of the message.
uint64_t unet_am_message_tag(const unet_am_token *token);
// Returns a number for the sender, unique among all peers that this endpoint ever has.
uint64_t unet_am_source(const unet_am_token *token);
// Copies the name by which this endpoint can map the sender, "" if the sender has none. Writes at most `length` bytes, including the final
// 0; returns the length of the whole name without it.
size_t unet_am_source_name(const unet_am_token *token, char *name, size_t length);
// For a reply: the translation of its request. For a request: UNET_AM_NO_INDEX.
uint32_t unet_am_index(const unet_am_token *token);
unet_am_endpoint *unet_am_token_endpoint(const unet_am_token *token);

// Replies to the request; only a request's handler may call these, once. A reply never waits. Returns 0, UNET_AM_ERETURNED (the requester
// is gone) or UNET_AM_EBADCALL.
int unet_am_reply_short(unet_am_token *token, unsigned handler, const uint32_t *arguments, unsigned count);
int unet_am_reply_medium(unet_am_token *token, unsigned handler, const void *payload, size_t length, const uint32_t *arguments,
                         unsigned count);
// Writes at most UNET_AM_LONG_REPLY_MAX bytes at `offset` of the requester's segment.
int unet_am_reply_long(unet_am_token *token, unsigned handler, uint64_t offset, const void *payload, size_t length,
                       const uint32_t *arguments, unsigned count);

// ---- progress

// Runs the handlers of messages that have arrived at the bundle's endpoints; returns the number of those messages. Does nothing in a
// handler.
unsigned unet_am_poll(unet_am_bundle *bundle);

// Waits up to `timeout_ns` until something arrives at an endpoint of the bundle, and runs handlers; polls for `spin_ns` before it sleeps.
// Returns UNET_READY (perhaps only an acknowledgement came), UNET_TIMED_OUT, UNET_EINTERRUPTED or UNET_EDISCONNECTED. With UNET_AM_SHARED a
// thread checks its condition, waits, and checks again. The wait returns at once if another thread's handlers ran since this thread's last
// wait, and so does a thread's first wait.
int unet_am_wait(unet_am_bundle *bundle, int64_t timeout_ns, int64_t spin_ns);

// Polls up to `timeout_ns` until everything sent has arrived (on wires: is acknowledged). Returns 0 or UNET_ETIMEDOUT.
int unet_am_flush(unet_am_endpoint *endpoint, int64_t timeout_ns);

// unet_am_counter() sets *value to the counter `name` ("requests", "handled", "returned", ...); returns 0 or UNET_ENOTFOUND.
// unet_am_counter_name() returns the name of counter `index`, from 0, as a static string; NULL after the last.
int unet_am_counter(unet_am_endpoint *endpoint, const char *name, uint64_t *value);
const char *unet_am_counter_name(size_t index);

// ---- old names: removed from this header after release 0.1

int unet_am_create_bundle(unsigned flags, unet_am_bundle **bundle) UNET_DEPRECATED("unet_am_bundle_create");
void unet_am_destroy_bundle(unet_am_bundle *bundle) UNET_DEPRECATED("unet_am_bundle_destroy");
int unet_am_create_endpoint(unet_context *context, unet_am_bundle *bundle, const unet_am_options *options, unet_am_endpoint **endpoint)
    UNET_DEPRECATED("unet_am_endpoint_create");
void unet_am_destroy_endpoint(unet_am_endpoint *endpoint) UNET_DEPRECATED("unet_am_endpoint_destroy");

#ifdef __cplusplus
}
#endif
