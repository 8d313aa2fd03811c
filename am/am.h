// am.h - Active Messages for C programs: the stable binary interface of libunet_am, one entry per function; C99 and later, and C++.
//
//   unet_context *context;                                  #include <am/am.h>
//   unet_am_bundle *bundle;                                 cc program.c $(pkg-config --cflags --libs unet-am)
//   unet_am_endpoint *endpoint;
//   unet_open(NULL, NULL, &context);
//   unet_am_create_bundle(0, &bundle);
//   unet_am_create_endpoint(context, bundle, NULL, &endpoint);
//   unet_am_set_handler(endpoint, 1, on_answer, NULL);      void on_answer(unet_am_token *token, void *context)
//   unet_am_map(endpoint, 0, "server", UNET_AM_ANY_TAG, NULL);
//   uint32_t argument = 42;
//   unet_am_request_short(endpoint, 0, 7, &argument, 1);    runs handler 7 there, with 42
//   while (!answered) unet_am_wait(bundle, UNET_FOREVER, UNET_SPIN_DEFAULT);
//
// A message is short (up to UNET_AM_ARGUMENTS_MAX arguments of 32 bits), medium (and a payload that is valid during the handler) or
// long (and a payload that is deposited in the receiver's segment before the handler runs). A request's handler may reply, once, to
// who sent it; a reply's handler sends nothing. Handlers neither request nor poll, by no endpoint of their bundle, and throw nothing: an
// exception that leaves one ends the program. docs/ACTIVE_MESSAGES.md is the guide.
//
// Errors: functions under "set-up" return 0 or a negative UNET_E... and leave a sentence in unet_error_text() (unet.h). Functions under
// "messages" return 0 if the message is on its way, or one of UNET_AM_E...; they leave no sentence.
//
// Threads: a bundle, with all that came from it, belongs to one thread at a time; one made with UNET_AM_SHARED to any number: each call
// then holds the bundle, handlers run while it is held, and may call what handlers may. A call that waits lets other threads use it.
// An endpoint is destroyed or moved when the calls that wait by it have returned. Tokens belong to the handler's thread.
//
// Pointers must not be NULL unless the entry allows it. Times are nanoseconds, lengths bytes. Stability and structures with a member
// `size` are as in unet.h.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "unet/unet.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct unet_am_bundle unet_am_bundle;      // endpoints that are polled and waited for together
typedef struct unet_am_endpoint unet_am_endpoint;
typedef struct unet_am_token unet_am_token;        // the message whose handler runs; valid until that returns

enum {
  UNET_AM_ARGUMENTS_MAX = 16,       // of 32 bits
  UNET_AM_HANDLERS_MAX = 256,
  UNET_AM_TRANSLATIONS_MAX = 65536,
  UNET_AM_CREDITS = 64,             // requests under way to one peer
  UNET_AM_MEDIUM_MAX = 16384,       // bytes of a medium payload
  UNET_AM_LONG_REPLY_MAX = 16384    // bytes of a long reply
};
#define UNET_AM_LONG_MAX ((uint64_t)1 << 32)  // bytes of a long request or a get

#define UNET_AM_NO_TAG ((uint64_t)0)   // an endpoint with it takes no request
#define UNET_AM_ANY_TAG ((uint64_t)1)  // an endpoint with it takes all
#define UNET_AM_NO_INDEX ((uint32_t)-1)

enum {
  UNET_AM_ENOTSENT = -201,   // only calls that do not wait: no credit or room now
  UNET_AM_ERETURNED = -202,  // it cannot be delivered: the error handler has been called
  UNET_AM_EBADCALL = -203    // against the rules: too many arguments, too much payload, no such handler index, a second reply, a reply from
                             // a reply's handler, a request from a handler. Nothing was sent
};

// Why a message was not handled.
enum {
  UNET_AM_BAD_ARGUMENTS = 1,       // not as many as the handler takes
  UNET_AM_BAD_ENTRY = 2,           // no such index in the translation table
  UNET_AM_BAD_TAG = 3,             // the receiver has another tag
  UNET_AM_BAD_HANDLER = 4,         // no handler has that index
  UNET_AM_BAD_SEGMENT_OFFSET = 5,  // beyond the receiver's segment, or it has none
  UNET_AM_BAD_LENGTH = 6,          // the transfer passes the segment's end
  UNET_AM_BAD_ENDPOINT = 7,        // no such endpoint
  UNET_AM_CONGESTION = 8,          // the receiver has no room
  UNET_AM_UNREACHABLE = 9,         // the peer closed, died or restarted, or the wire is lost: it may or may not have been handled
  UNET_AM_REPLY_REJECTED = 10      // a reply that could not be delivered
};

// One word for a status above ("bad_tag"), or for an UNET_AM_E... ("returned"), a static string; "unknown" for other numbers.
const char *unet_am_name_of(int code);

// ---- set-up: bundles and endpoints

enum { UNET_AM_SHARED = 1 };  // flag of unet_am_create_bundle(): several threads use it

// Returns 0 or: UNET_EINVALID (an unknown flag), UNET_ESYSTEM, UNET_ENOMEMORY. The caller owns *bundle: unet_am_destroy_bundle(), which
// destroys its endpoints, too; NULL is allowed. From a handler of one of them it ends the program.
int unet_am_create_bundle(unsigned flags, unet_am_bundle **bundle);
void unet_am_destroy_bundle(unet_am_bundle *bundle);

// Whether somebody who asks for a channel is let in: not 0 says yes. `from` is as unet_next_request() gives it; static channels have id 0.
// It is called as a handler is.
typedef int (*unet_am_admit)(const unet_request *from, void *context);

// What an endpoint is made of. 0 stands for the default. Grows.
typedef struct unet_am_options {
  size_t size;
  unet_endpoint_options endpoint;  // its member size may be 0: then all of it is the default
  unet_am_admit admit;             // NULL: everybody is let in
  void *admit_context;
  int32_t same_user_only;          // 1: only processes of the same user at this network interface, as that sees them, are let in and can
                                   // be mapped (else UNET_EPERMISSION), and `admit` is asked of no others
  int32_t reserved;
} unet_am_options;

// Creates an endpoint in `bundle`; `options` may be NULL. The bundle owns it: unet_am_destroy_endpoint() (NULL is allowed) ends it before
// that. Errors: as unet_create_endpoint(); UNET_EINVALID in a handler of the bundle.
int unet_am_create_endpoint(unet_context *context, unet_am_bundle *bundle, const unet_am_options *options, unet_am_endpoint **endpoint);
// Tells each peer what was handled, then closes all channels. What was sent over wires and not acknowledged is lost with it:
// unet_am_flush() before. From a handler of its bundle it ends the program.
void unet_am_destroy_endpoint(unet_am_endpoint *endpoint);

// Moves it to another bundle, while no other thread uses it. Returns 0 or UNET_EINVALID (a NULL; in a handler of one of the bundles).
int unet_am_move_endpoint(unet_am_endpoint *endpoint, unet_am_bundle *to);

// The name under which others map this endpoint. Errors: as unet_bind().
int unet_am_bind(unet_am_endpoint *endpoint, const char *name);

// The endpoint's number at its network interface.
uint32_t unet_am_endpoint_id(const unet_am_endpoint *endpoint);

// What the program keeps beside the endpoint; NULL at first. Not looked at.
void unet_am_attach(unet_am_endpoint *endpoint, void *attachment);
void *unet_am_attachment(const unet_am_endpoint *endpoint);

// ---- set-up: translations, tags, handlers, segment

// Translation `index` leads to `target` ("name" or "name@host"), whose tag is `tag`. unet_am_map() waits for the channel and runs handlers
// meanwhile; unet_am_start_map() does not: the first request waits, and comes back if there is no channel (UNET_AM_BAD_ENDPOINT: nobody
// has that name, or it refuses). `options` may be NULL. Returns 0 or: UNET_EINVALID (index, from a handler), UNET_EEXISTS (it is in use),
// and errors of unet_connect().
int unet_am_map(unet_am_endpoint *endpoint, uint32_t index, const char *target, uint64_t tag, const unet_connect_options *options);
int unet_am_start_map(unet_am_endpoint *endpoint, uint32_t index, const char *target, uint64_t tag, const unet_connect_options *options);
// Runs the handlers of what has arrived, and of gets whose bytes are there. Then what the peer has not said it has handled comes back
// (UNET_AM_UNREACHABLE): it may have been, or may still be. Returns 0 or UNET_ENOTFOUND, UNET_EINVALID (from a handler).
int unet_am_unmap(unet_am_endpoint *endpoint, uint32_t index);
// 1 if the translation is in use, else 0; unet_am_is_local(): its channel is a local one.
int unet_am_in_use(unet_am_endpoint *endpoint, uint32_t index);
int unet_am_is_local(unet_am_endpoint *endpoint, uint32_t index);

// Requests are delivered if their tag is this one; UNET_AM_ANY_TAG (the default): all; UNET_AM_NO_TAG: none.
void unet_am_set_tag(unet_am_endpoint *endpoint, uint64_t tag);
uint64_t unet_am_tag(unet_am_endpoint *endpoint);

typedef void (*unet_am_handler)(unet_am_token *token, void *context);

// `handler` NULL: none, messages for it come back. unet_am_set_handler_counted() takes only messages with `arguments` arguments, others
// come back (UNET_AM_BAD_ARGUMENTS). Return 0 or UNET_EINVALID (index, count).
int unet_am_set_handler(unet_am_endpoint *endpoint, unsigned index, unet_am_handler handler, void *context);
int unet_am_set_handler_counted(unet_am_endpoint *endpoint, unsigned index, unsigned arguments, unet_am_handler handler, void *context);

enum {  // kinds of messages
  UNET_AM_SHORT_REQUEST = 1,
  UNET_AM_MEDIUM_REQUEST = 2,
  UNET_AM_LONG_REQUEST = 3,
  UNET_AM_GET = 5,
  UNET_AM_SHORT_REPLY = 6,
  UNET_AM_MEDIUM_REPLY = 7,
  UNET_AM_LONG_REPLY = 8     // also what a get ends with
};

// A message of ours that came back, or could not be sent. With UNET_AM_REPLY_REJECTED: a reply to us that cannot be delivered here. Grows.
typedef struct unet_am_returned {
  size_t size;
  int32_t status;             // why: UNET_AM_BAD_ARGUMENTS ...
  int32_t kind;               // UNET_AM_SHORT_REQUEST ...; a reply's own, if it is one
  uint32_t handler;           // that it was for
  uint32_t index;             // of the translation; UNET_AM_NO_INDEX if the peer does not say which message it was
  const uint32_t *arguments;  // valid during the call
  uint32_t count;
  uint32_t reserved;
} unet_am_returned;
typedef void (*unet_am_error_handler)(unet_am_endpoint *endpoint, const unet_am_returned *returned, void *context);

// What runs for messages that come back; NULL (the default): they are only counted.
void unet_am_set_error_handler(unet_am_endpoint *endpoint, unet_am_error_handler handler, void *context);

// The segment into which peers' long messages go and from which they get. unet_am_expose(): `length` bytes of new, zeroed memory, the
// endpoint's, which local peers write and read without its doing; once. unet_am_set_segment(): memory of the caller's, which stays so;
// each byte is then copied once more; it replaces the one before. Errors: as unet_expose(); UNET_EEXISTS (one is exposed).
int unet_am_expose(unet_am_endpoint *endpoint, uint64_t length, void **memory);
int unet_am_set_segment(unet_am_endpoint *endpoint, void *memory, uint64_t length);
// NULL if there is none; *length is set.
void *unet_am_segment(unet_am_endpoint *endpoint, uint64_t *length);

// ---- messages: requests. They wait for a credit, and run handlers meanwhile. `arguments` may be NULL if count is 0, payload if length is.

int unet_am_request_short(unet_am_endpoint *endpoint, uint32_t to, unsigned handler, const uint32_t *arguments, unsigned count);
int unet_am_request_medium(unet_am_endpoint *endpoint, uint32_t to, unsigned handler, const void *payload, size_t length,
                           const uint32_t *arguments, unsigned count);
// To `offset` of the peer's segment; the handler runs when all bytes are there. `payload` is the caller's again at return.
int unet_am_request_long(unet_am_endpoint *endpoint, uint32_t to, unsigned handler, uint64_t offset, const void *payload, size_t length,
                         const uint32_t *arguments, unsigned count);

// The same without waiting: UNET_AM_ENOTSENT if it would have to. Otherwise `payload` is the caller's again when `done` (which may be
// NULL) runs: once, from any call that polls, or from this one. Other requests may overtake it.
typedef void (*unet_am_done)(unet_am_endpoint *endpoint, void *context);
int unet_am_request_long_async(unet_am_endpoint *endpoint, uint32_t to, unsigned handler, uint64_t offset, const void *payload,
                               size_t length, const uint32_t *arguments, unsigned count, unet_am_done done, void *context);

// Copies `length` bytes from `offset` of the peer's segment to `memory`, which must stay until then; then runs `handler` here.
int unet_am_get(unet_am_endpoint *endpoint, uint32_t from, unsigned handler, uint64_t offset, void *memory, size_t length,
                const uint32_t *arguments, unsigned count);

// A medium request without a copy: unet_am_reserve() sets *room to `length` bytes, 1 to UNET_AM_MEDIUM_MAX, in which to compose it, and
// waits for them; unet_am_commit() sends the first `length` of them with `count` arguments, as many as were reserved. In between nothing
// else is sent or polled: a shared bundle stays held. Committing 0 bytes gives it up (UNET_AM_EBADCALL), and so does moving or destroying
// the endpoint.
int unet_am_reserve(unet_am_endpoint *endpoint, uint32_t to, size_t length, unsigned count, void **room);
int unet_am_commit(unet_am_endpoint *endpoint, unsigned handler, size_t length, const uint32_t *arguments, unsigned count);

// 1 if a request to it would be sent without waiting.
int unet_am_has_credit(unet_am_endpoint *endpoint, uint32_t to);

// ---- messages: what a handler does with its token

// The arguments, valid while the handler runs; *count, unless NULL, is set.
const uint32_t *unet_am_arguments(const unet_am_token *token, unsigned *count);
// Medium: where the message lies; on a local channel the peer can still write it, so a program that does not trust its peer copies what it
// checks. Long: in the segment. Get: where it was to go. Short: NULL. *length, unless NULL, is set.
void *unet_am_payload(const unet_am_token *token, size_t *length);
// Long: where in the segment the payload lies.
uint64_t unet_am_offset(const unet_am_token *token);
// UNET_AM_SHORT_REQUEST ...
int unet_am_kind(const unet_am_token *token);
int unet_am_is_request(const unet_am_token *token);
// 1 for a request to which no reply has been sent.
int unet_am_can_reply(const unet_am_token *token);
// That of the message.
uint64_t unet_am_message_tag(const unet_am_token *token);
// A number for whom it came from, unique among the peers of this endpoint in its life.
uint64_t unet_am_source(const unet_am_token *token);
// The name to map whom it came from by; "" if it has none. Writes at most `length` bytes with the 0 at the end; returns how many
// characters the name has.
size_t unet_am_source_name(const unet_am_token *token, char *name, size_t length);
// A reply's: the translation by which it was asked for; a request's: UNET_AM_NO_INDEX.
uint32_t unet_am_index(const unet_am_token *token);
unet_am_endpoint *unet_am_token_endpoint(const unet_am_token *token);

// A request's handler replies at most once, and never waits: 0, UNET_AM_ERETURNED (the requester is gone) or UNET_AM_EBADCALL.
int unet_am_reply_short(unet_am_token *token, unsigned handler, const uint32_t *arguments, unsigned count);
int unet_am_reply_medium(unet_am_token *token, unsigned handler, const void *payload, size_t length, const uint32_t *arguments,
                         unsigned count);
// At most UNET_AM_LONG_REPLY_MAX bytes, to `offset` of the requester's segment.
int unet_am_reply_long(unet_am_token *token, unsigned handler, uint64_t offset, const void *payload, size_t length,
                       const uint32_t *arguments, unsigned count);

// ---- progress

// Runs the handlers of what has arrived at the bundle's endpoints; returns how many messages arrived. In a handler: does nothing.
unsigned unet_am_poll(unet_am_bundle *bundle);

// Waits until something has arrived at one of them, at most `timeout_ns`, and runs handlers; polls for `spin_ns` before it sleeps. Returns
// UNET_READY (perhaps only an acknowledgement came), UNET_TIMED_OUT, UNET_EINTERRUPTED or UNET_EDISCONNECTED. UNET_AM_SHARED: a thread
// looks, waits and looks again; what other threads' handlers have done since its last wait ends this one at once, and so does its first.
int unet_am_wait(unet_am_bundle *bundle, int64_t timeout_ns, int64_t spin_ns);

// Polls until all that was sent has arrived (wires: is acknowledged), at most `timeout_ns`. Returns 0 or UNET_ETIMEDOUT.
int unet_am_flush(unet_am_endpoint *endpoint, int64_t timeout_ns);

// Sets *value to the endpoint's counter `name`: "requests", "handled", "returned", ... Returns 0 or UNET_ENOTFOUND.
// unet_am_counter_name(): the name of number `index`, counted from 0, a static string; NULL after the last.
int unet_am_counter(unet_am_endpoint *endpoint, const char *name, uint64_t *value);
const char *unet_am_counter_name(size_t index);

#ifdef __cplusplus
}
#endif
