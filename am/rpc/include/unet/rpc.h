// rpc.h - calls of other processes' procedures for C programs: the stable binary interface of libunet_rpc; C99 and later, and C++.
//
//   unet_rpc_server *server;                                #include <unet/rpc.h>
//   unet_rpc_server_create(context, "calculator", NULL, &server);
//   unet_rpc_provide(server, "arithmetic", 1, ADD, add, NULL, 0);
//   for (;;) unet_rpc_server_wait(server, UNET_FOREVER);                        void add(unet_rpc_request *request, void *context)
//
//   unet_rpc_client *client;                                cc program.c $(pkg-config --cflags --libs unet-rpc)
//   unet_rpc_binding *binding;
//   unet_rpc_client_create(context, NULL, &client);
//   unet_rpc_import(client, "calculator@host", "arithmetic", 1, UNET_FOREVER, &binding);
//   int32_t two[2] = {1, 2}, sum;
//   int status = unet_rpc_call(binding, ADD, two, sizeof two, &sum, sizeof sum, NULL);
//
// A server exports interfaces, each with a name, a version and numbered procedures. A client imports one and gets a binding, a capability
// that the server can revoke. Arguments and results are bytes. A procedure runs at most once for each call. The call's status says how the
// call ended, and unet_rpc_may_have_run() whether the procedure may have run. docs/RPC.md is the guide. Programs in C++ have typed
// arguments (<am/rpc/client.h>, <am/rpc/server.h>); am/rpc/codec.h describes the bytes of those.
//
// Errors: functions under "set-up" return 0 or a negative UNET_E..., and leave a sentence in unet_error_text() (unet.h). A call's status is
// UNET_RPC_OK, which is 0, or another UNET_RPC_....
//
// Threads: a client or server, and everything made from it, belongs to one thread at a time. A function of the program that the library
// calls throws nothing.
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

typedef struct unet_rpc_client unet_rpc_client;
typedef struct unet_rpc_binding unet_rpc_binding;  // an interface that a client has imported
typedef struct unet_rpc_pending unet_rpc_pending;  // a call that its caller does not wait for
typedef struct unet_rpc_server unet_rpc_server;
typedef struct unet_rpc_request unet_rpc_request;  // a call at its server, while the procedure runs
typedef struct unet_rpc_later unet_rpc_later;      // the right to answer a call after the procedure has returned

enum {  // how a call ended
  UNET_RPC_OK = 0,
  // The procedure has not run.
  UNET_RPC_UNAVAILABLE = 1,    // no server has the name or takes the channel, or the server is gone
  UNET_RPC_NOT_ADMITTED = 2,   // the server does not give this caller a binding
  UNET_RPC_NO_INTERFACE = 3,   // the server exports no interface of this name and version
  UNET_RPC_REVOKED = 4,        // the server does not know the binding: revoked, or of an earlier server
  UNET_RPC_NO_PROCEDURE = 5,   // the interface has no procedure of this number
  UNET_RPC_BAD_ARGUMENTS = 6,  // the procedure does not accept the arguments
  UNET_RPC_TOO_LONG = 7,       // the arguments are longer than the server accepts
  UNET_RPC_OVERLOADED = 8,     // the server has too many calls, bindings or bytes under way
  UNET_RPC_EXPIRED = 9,        // the deadline passed before the procedure began
  UNET_RPC_CANCELLED = 10,     // the caller cancelled before the procedure began
  // The procedure may have run.
  UNET_RPC_LOST = 32,          // the server died, closed, or cannot be reached any more
  UNET_RPC_TIMED_OUT = 33,     // the deadline passed while the call was under way
  UNET_RPC_ABANDONED = 34,     // the caller cancelled while the call was under way
  // The procedure has run.
  UNET_RPC_BAD_RESULT = 64,    // the result is longer than the caller or the server accepts, or malformed
  UNET_RPC_FAILED = 65         // the procedure says so, with a number of its own
};

// Returns 1 if the procedure has run or may have run.
int unet_rpc_may_have_run(int status);
// Returns one word for a status ("timed_out"), a static string; "unknown" for other numbers.
const char *unet_rpc_status_name(int status);

// ---- set-up: clients

// Options of a client; 0 selects each default. The structure grows in later versions.
typedef struct unet_rpc_client_options {
  size_t size;
  unet_endpoint_options endpoint;  // if its member `size` is 0, all of it is the default
  unet_connect_options connect;    // to servers; likewise
  uint64_t result_max;             // bytes of a long result (64 MiB)
  uint64_t results_max;            // bytes of all long results that are coming (256 MiB)
  int64_t spin_ns;                 // time to poll before a wait sleeps; 0: follows the last waits; less than 0: none
  int32_t same_user_only;          // 1: only servers of the same user at this network interface are imported from
  int32_t reserved;
} unet_rpc_client_options;

// Creates a client; `options` may be NULL. Errors: as unet_endpoint_create().
int unet_rpc_client_create(unet_context *context, const unet_rpc_client_options *options, unet_rpc_client **client);
// Releases all bindings, and frees the client; NULL is allowed. A call that is under way then ends the program: destroy calls first.
void unet_rpc_client_destroy(unet_rpc_client *client);

// Imports an interface from the server "NAME" or "NAME@HOST", and waits at most `timeout_ns` for the answer. Bindings to one server share a
// channel. Errors: UNET_ENOTFOUND (no such server or interface), UNET_EPERMISSION, UNET_EQUOTA, UNET_ETIMEDOUT, UNET_EDISCONNECTED, and
// those of unet_connect().
int unet_rpc_import(unet_rpc_client *client, const char *target, const char *interface, uint32_t version, int64_t timeout_ns,
                    unet_rpc_binding **binding);
// The steps of unet_rpc_import(), for a program that does other things meanwhile. unet_rpc_import_poll() returns UNET_EPENDING until it
// returns the result: call unet_rpc_poll() or unet_rpc_wait() in between. `timeout_ns` is the time of the server's answer, from the step
// that asks for it. Unlike unet_rpc_import() they do not wait until the server has its name. After an error the next poll imports again.
// unet_rpc_release() ends the import.
int unet_rpc_import_start(unet_rpc_client *client, const char *target, const char *interface, uint32_t version, unet_rpc_binding **binding);
int unet_rpc_import_poll(unet_rpc_binding *binding, int64_t timeout_ns);
// Ends the binding; NULL is allowed. Calls that are under way go on.
void unet_rpc_release(unet_rpc_binding *binding);

// Sets the time that calls may take which start from now on; UNET_FOREVER: no limit. The server learns it.
void unet_rpc_set_timeout(unet_rpc_binding *binding, int64_t timeout_ns);

// ---- calls

// A part of a call's arguments. The server gets the parts as one piece.
typedef struct unet_rpc_part {
  const void *data;
  size_t length;
} unet_rpc_part;

// Calls a procedure, waits for its end, and copies the result to `result`, which has `room` bytes. Sets *result_length unless it is NULL. A
// result that does not fit is UNET_RPC_BAD_RESULT. Returns the status, or UNET_EINVALID (a procedure above 65535).
int unet_rpc_call(unet_rpc_binding *binding, unsigned procedure, const void *arguments, size_t length, void *result, size_t room,
                  size_t *result_length);
// The number with which the procedure failed, after unet_rpc_call() returned UNET_RPC_FAILED.
uint32_t unet_rpc_call_failure(const unet_rpc_binding *binding);

// Calls a procedure without an answer: the caller does not learn whether it runs. Returns 0 or UNET_EINVALID.
int unet_rpc_tell(unet_rpc_binding *binding, unsigned procedure, const void *arguments, size_t length);

// Makes a call that can be started, again and again. Returns 0 or UNET_ENOMEMORY. unet_rpc_pending_destroy() cancels it first; NULL is
// allowed.
int unet_rpc_pending_create(unet_rpc_pending **call);
void unet_rpc_pending_destroy(unet_rpc_pending *call);

// Starts a call that is not under way. The parts may be reused at return. Waits while too many calls are under way, and until long
// arguments are sent. Returns 0 or UNET_EINVALID. The call may have ended at return.
int unet_rpc_start(unet_rpc_binding *binding, unet_rpc_pending *call, unsigned procedure, const unet_rpc_part *parts, size_t count);
// Returns 0 while the call is under way. It ends in unet_rpc_poll() and in the functions that wait.
int unet_rpc_is_done(const unet_rpc_pending *call);
// Waits until the call has ended; returns its status.
int unet_rpc_join(unet_rpc_pending *call);
int unet_rpc_status(const unet_rpc_pending *call);
// The number with which the procedure failed, for UNET_RPC_FAILED.
uint32_t unet_rpc_failure(const unet_rpc_pending *call);
// Returns the result, for UNET_RPC_OK, and sets *length unless it is NULL. Valid until the call starts again or is destroyed.
const void *unet_rpc_result(const unet_rpc_pending *call, size_t *length);
// Ends a call that is under way with UNET_RPC_ABANDONED, and tells the server. Its answer is dropped.
void unet_rpc_cancel(unet_rpc_pending *call);
// Sets the function that runs when the call ends, now and after later starts; NULL: none. It runs in unet_rpc_poll() and in the functions
// that wait, and may start calls.
typedef void (*unet_rpc_ended)(unet_rpc_pending *call, void *context);
void unet_rpc_on_end(unet_rpc_pending *call, unet_rpc_ended function, void *context);

// Handles what has arrived; returns the number of messages.
unsigned unet_rpc_poll(unet_rpc_client *client);
// Waits until something may have happened, at most `timeout_ns`. Returns UNET_READY, UNET_TIMED_OUT,
// UNET_EINTERRUPTED or UNET_EDISCONNECTED.
int unet_rpc_wait(unet_rpc_client *client, int64_t timeout_ns);

// For an event loop. Returns 0 if there is work already: poll, then arm again. Returns 1 if *descriptor becomes readable when there may be
// work. Poll then, and in any case after *limit_ns (negative: no limit). The client owns the descriptor, and each call may return another
// one; never read from it. Returns UNET_EDISCONNECTED if there is none, since the network interface is gone.
int unet_rpc_arm(unet_rpc_client *client, int *descriptor, int64_t *limit_ns);

// ---- set-up: servers

// A process that asks for a binding. The strings are valid during the question.
typedef struct unet_rpc_importer {
  size_t size;
  uint64_t caller;        // as unet_rpc_caller()
  const char *name;       // under which the process can be reached; "" if it has no name
  const char *interface;
  uint32_t version;
  uint32_t reserved;
} unet_rpc_importer;
typedef int (*unet_rpc_admit)(const unet_rpc_importer *importer, void *context);

// Options of a server; 0 selects each default. The structure grows in later versions.
typedef struct unet_rpc_server_options {
  size_t size;
  unet_endpoint_options endpoint;  // if its member `size` is 0, all of it is the default
  unet_rpc_admit admit;            // returns not 0 to give a binding; NULL: every process gets one
  void *admit_context;
  uint32_t bindings_max;           // of one caller (65536)
  uint32_t late_max;               // calls under way that are answered late, of which one caller gets half (16384)
  uint64_t arguments_max;          // bytes of one call's arguments (64 MiB)
  uint64_t memory_max;             // bytes of long arguments and of answers that wait; one caller gets half (256 MiB)
  int64_t spin_ns;                 // as of a client
  uint32_t threads;                // that run procedures with UNET_RPC_IN_THREAD (0)
  int32_t same_user_only;          // 1: only processes of the same user at this network interface can call
} unet_rpc_server_options;

// Creates a server with a name; `options` may be NULL. Errors: as unet_endpoint_create() and unet_bind().
int unet_rpc_server_create(unet_context *context, const char *name, const unet_rpc_server_options *options, unet_rpc_server **server);
// Ends all calls under way, and frees the server; NULL is allowed. Not from a procedure.
void unet_rpc_server_destroy(unet_rpc_server *server);

typedef void (*unet_rpc_procedure)(unet_rpc_request *request, void *context);

enum { UNET_RPC_IN_THREAD = 1 };  // flag of unet_rpc_provide(): the procedure runs in a thread of the server's, several at a time

// Exports a procedure, numbered 0 to 65535, of an interface. A second one of the same number replaces it. Returns 0 or UNET_EINVALID.
int unet_rpc_provide(unet_rpc_server *server, const char *interface, uint32_t version, unsigned number, unet_rpc_procedure procedure,
                     void *context, unsigned flags);

// Ends the bindings to an interface, or of a caller: their calls end with UNET_RPC_REVOKED. Calls under way go on. Returns their number.
unsigned unet_rpc_revoke(unet_rpc_server *server, const char *interface, uint32_t version);
unsigned unet_rpc_revoke_caller(unet_rpc_server *server, uint64_t caller);

// As unet_rpc_poll() and unet_rpc_wait(): procedures run in these.
unsigned unet_rpc_server_poll(unet_rpc_server *server);
int unet_rpc_server_wait(unet_rpc_server *server, int64_t timeout_ns);

// As unet_rpc_arm().
int unet_rpc_server_arm(unet_rpc_server *server, int *descriptor, int64_t *limit_ns);

// ---- functions of a procedure. A procedure that neither answers nor defers fails with number 0.

// Returns the arguments, aligned to 8 bytes, and sets *length unless it is NULL. Valid while the procedure runs. A caller on this host can
// still change them, so a program that does not trust its callers copies them before it checks them.
const void *unet_rpc_arguments(const unet_rpc_request *request, size_t *length);
// A number for the caller, unique among all callers that this server ever has.
uint64_t unet_rpc_caller(const unet_rpc_request *request);
// The time that is left for the call: UNET_FOREVER if it has no deadline, 0 if that has passed.
int64_t unet_rpc_time_left(const unet_rpc_request *request);

// Answer the call, once: with a result, with UNET_RPC_FAILED and a number, or with UNET_RPC_BAD_ARGUMENTS. Return 0, or UNET_EINVALID if
// the call is answered.
int unet_rpc_answer(unet_rpc_request *request, const void *result, size_t length);
int unet_rpc_fail(unet_rpc_request *request, uint32_t number);
int unet_rpc_refuse(unet_rpc_request *request);

// Takes the right to answer the call later, in the server's thread. Returns NULL if the call is answered, and in a procedure with
// UNET_RPC_IN_THREAD. unet_rpc_later_answer() and unet_rpc_later_fail() answer the call and free `later`, even without the server.
unet_rpc_later *unet_rpc_defer(unet_rpc_request *request);
void unet_rpc_later_answer(unet_rpc_later *later, const void *result, size_t length);
void unet_rpc_later_fail(unet_rpc_later *later, uint32_t number);
// Returns 1 if the caller does not want the answer any more, or is gone.
int unet_rpc_later_cancelled(const unet_rpc_later *later);

#ifdef __cplusplus
}
#endif
