// rpc_c.c - a program in C that calls every function of unet/rpc.h, over the NI that UNET_NI names; exit status 0 on success.
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unet/rpc.h>

#include "tests/system/require.h"

enum { NOTHING, ADD, ECHO, FAIL, REFUSE, LATER, LATE_FAILURE, SILENT, RULES, THREAD, TIME };
enum { BIG = 300000 };

static unet_context *context;
static unet_rpc_server *server;
static unet_rpc_client *client;
static pthread_t thread;
static atomic_int stop, runs, hold, admits = 1;
static unet_rpc_later *waiting[4];
static unsigned waits;

// ---- procedures

static void nothing(unet_rpc_request *request, void *counter) {
  size_t length = 1;
  unet_rpc_arguments(request, &length);
  REQUIRE(length == 0 || length == BIG);
  atomic_fetch_add((atomic_int *)counter, 1);
  REQUIRE(unet_rpc_answer(request, NULL, 0) == 0);
}

static void add(unet_rpc_request *request, void *unused) {
  (void)unused;
  size_t length;
  const int32_t *two = unet_rpc_arguments(request, &length);
  REQUIRE((uintptr_t)two % 8 == 0);
  if (length != 8) {
    REQUIRE(unet_rpc_refuse(request) == 0);
    return;
  }
  int32_t sum = two[0] + two[1];
  REQUIRE(unet_rpc_answer(request, &sum, sizeof sum) == 0);
}

static void echo(unet_rpc_request *request, void *unused) {
  (void)unused;
  size_t length;
  const void *bytes = unet_rpc_arguments(request, &length);
  REQUIRE(unet_rpc_answer(request, bytes, length) == 0);
}

static void fail(unet_rpc_request *request, void *unused) {
  (void)unused;
  REQUIRE(unet_rpc_fail(request, 4711) == 0);
}

static void refuse(unet_rpc_request *request, void *unused) {
  (void)unused;
  REQUIRE(unet_rpc_refuse(request) == 0);
}

static void later(unet_rpc_request *request, void *unused) {
  (void)unused;
  REQUIRE(waits < 4);
  waiting[waits] = unet_rpc_defer(request);
  REQUIRE(waiting[waits] != NULL);
  ++waits;
}

static void late_failure(unet_rpc_request *request, void *unused) {
  (void)unused;
  unet_rpc_later *deferred = unet_rpc_defer(request);
  REQUIRE(!unet_rpc_later_cancelled(deferred));
  unet_rpc_later_fail(deferred, 12);
}

static void silent(unet_rpc_request *request, void *unused) {
  (void)request;
  (void)unused;
}

static void rules(unet_rpc_request *request, void *unused) {
  (void)unused;
  const uint64_t caller = unet_rpc_caller(request);
  REQUIRE(unet_rpc_answer(request, &caller, sizeof caller) == 0);
  REQUIRE(unet_rpc_answer(request, NULL, 0) == UNET_EINVALID && unet_rpc_fail(request, 1) == UNET_EINVALID);
  REQUIRE(unet_rpc_refuse(request) == UNET_EINVALID && unet_rpc_defer(request) == NULL);
}

static void in_thread(unet_rpc_request *request, void *unused) {
  (void)unused;
  REQUIRE(!pthread_equal(pthread_self(), thread));
  REQUIRE(unet_rpc_defer(request) == NULL);
  echo(request, NULL);
}

static void time_left(unet_rpc_request *request, void *unused) {
  (void)unused;
  const int64_t left = unet_rpc_time_left(request);
  REQUIRE(unet_rpc_answer(request, &left, sizeof left) == 0);
}

// ---- the server, in a thread of its own

static int admit(const unet_rpc_importer *importer, void *context_of_it) {
  REQUIRE(context_of_it == &admits && importer->size == sizeof *importer);
  REQUIRE(importer->caller != 0 && importer->version == 7);
  REQUIRE(strcmp(importer->interface, "test") == 0 && strcmp(importer->name, "") == 0);
  return atomic_load(&admits);
}

static void *serve(void *unused) {
  while (!atomic_load(&stop)) {
    const int outcome = unet_rpc_server_wait(server, 1000000);
    REQUIRE(outcome == UNET_READY || outcome == UNET_TIMED_OUT || outcome == UNET_EINTERRUPTED);
    unet_rpc_server_poll(server);
    while (waits != 0 && !atomic_load(&hold)) unet_rpc_later_answer(waiting[--waits], "later", 5);
  }
  return unused;
}

static void start(void) {
  atomic_store(&stop, 0);
  REQUIRE(pthread_create(&thread, NULL, serve, NULL) == 0);
}

static void end(void) {
  atomic_store(&stop, 1);
  REQUIRE(pthread_join(thread, NULL) == 0);
}

static void create_server(void) {
  unet_rpc_server_options options;
  memset(&options, 0, sizeof options);
  REQUIRE(unet_rpc_server_create(context, "rpc_c", &options, &server) == UNET_EINVALID);  // no size
  options.size = sizeof options;
  options.admit = admit;
  options.admit_context = &admits;
  options.threads = 1;
  options.late_max = 100;
  options.endpoint.size = sizeof options.endpoint;
  options.endpoint.buffers = 2048;
  REQUIRE(unet_rpc_server_create(context, NULL, &options, &server) == UNET_EINVALID);
  REQUIRE(unet_rpc_server_create(context, "no name", &options, &server) == UNET_EINVALID && server == NULL);
  options.threads = 0;
  REQUIRE(unet_rpc_server_create(context, "rpc_c", &options, &server) == 0);
  REQUIRE(unet_rpc_provide(server, "test", 7, NOTHING, nothing, NULL, UNET_RPC_IN_THREAD) == UNET_EINVALID);
  unet_rpc_server_destroy(server);
  options.threads = 1;
  REQUIRE(unet_rpc_server_create(context, "rpc_c", &options, &server) == 0);
  static const struct {
    unsigned number, flags;
    unet_rpc_procedure procedure;
  } all[] = {{NOTHING, 0, nothing}, {ADD, 0, add},       {ECHO, 0, echo},     {FAIL, 0, fail},
             {REFUSE, 0, refuse},   {LATER, 0, later},   {LATE_FAILURE, 0, late_failure}, {SILENT, 0, silent},
             {RULES, 0, rules},     {TIME, 0, time_left}, {THREAD, UNET_RPC_IN_THREAD, in_thread}};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    REQUIRE(unet_rpc_provide(server, "test", 7, all[i].number, all[i].procedure, &runs, all[i].flags) == 0);
  }
  REQUIRE(unet_rpc_provide(server, "test", 7, 65536, nothing, NULL, 0) == UNET_EINVALID);
  REQUIRE(unet_rpc_provide(server, "test", 7, 1, NULL, NULL, 0) == UNET_EINVALID);
  REQUIRE(unet_rpc_provide(server, NULL, 7, 1, nothing, NULL, 0) == UNET_EINVALID);
  REQUIRE(unet_rpc_provide(server, "test", 7, 1, nothing, NULL, 2) == UNET_EINVALID);
}

static void create_client(void) {
  unet_rpc_client_options options;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.result_max = 2 * BIG;
  options.connect.size = sizeof options.connect;
  options.connect.wait_ns = 1000000;
  REQUIRE(unet_rpc_client_create(NULL, &options, &client) == UNET_EINVALID);
  REQUIRE(unet_rpc_client_create(context, &options, &client) == 0);
}

static unet_rpc_binding *import(void) {
  unet_rpc_binding *binding = NULL;
  REQUIRE(unet_rpc_import(client, "rpc_c", "test", 7, UNET_FOREVER, &binding) == 0 && binding != NULL);
  return binding;
}

// ---- calls

static int call(unet_rpc_binding *binding, unsigned procedure) { return unet_rpc_call(binding, procedure, NULL, 0, NULL, 0, NULL); }

static void check_calls(void) {
  unet_rpc_binding *binding = import();
  REQUIRE(call(binding, NOTHING) == UNET_RPC_OK && atomic_load(&runs) == 1);
  const int32_t two[2] = {40, 2};
  int32_t sum = 0;
  size_t length = 0;
  REQUIRE(unet_rpc_call(binding, ADD, two, sizeof two, &sum, sizeof sum, &length) == UNET_RPC_OK && sum == 42 && length == sizeof sum);
  REQUIRE(unet_rpc_call(binding, ADD, two, 4, &sum, sizeof sum, NULL) == UNET_RPC_BAD_ARGUMENTS);
  REQUIRE(unet_rpc_call(binding, ADD, two, sizeof two, &sum, 3, &length) == UNET_RPC_BAD_RESULT && length == 4);
  REQUIRE(call(binding, FAIL) == UNET_RPC_FAILED && unet_rpc_call_failure(binding) == 4711);
  REQUIRE(call(binding, SILENT) == UNET_RPC_FAILED && unet_rpc_call_failure(binding) == 0);
  REQUIRE(call(binding, LATE_FAILURE) == UNET_RPC_FAILED && unet_rpc_call_failure(binding) == 12);
  REQUIRE(call(binding, REFUSE) == UNET_RPC_BAD_ARGUMENTS);
  REQUIRE(call(binding, 99) == UNET_RPC_NO_PROCEDURE);
  REQUIRE(call(binding, 65536) == UNET_EINVALID);
  uint64_t caller = 0;
  REQUIRE(unet_rpc_call(binding, RULES, NULL, 0, &caller, sizeof caller, NULL) == UNET_RPC_OK && caller != 0);
  char text[8] = "";
  REQUIRE(unet_rpc_call(binding, LATER, NULL, 0, text, sizeof text, &length) == UNET_RPC_OK && length == 5 && strcmp(text, "later") == 0);
  REQUIRE(unet_rpc_call(binding, THREAD, "thread", 6, text, sizeof text, &length) == UNET_RPC_OK && memcmp(text, "thread", 6) == 0);
  unet_rpc_release(binding);
  unet_rpc_release(NULL);
}

static void check_sizes(void) {
  unet_rpc_binding *binding = import();
  unsigned char *bytes = malloc(BIG), *back = malloc(BIG);
  for (size_t i = 0; i < BIG; ++i) bytes[i] = (unsigned char)(i * 7);
  static const size_t sizes[] = {0, 1, 27, 28, 29, 32, 33, 200, 16384, 16385, BIG};
  unet_rpc_pending *pending;
  REQUIRE(unet_rpc_pending_create(NULL) == UNET_EINVALID);
  REQUIRE(unet_rpc_pending_create(&pending) == 0 && unet_rpc_is_done(pending));
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    const size_t size = sizes[i];
    size_t length = 1;
    memset(back, 0, BIG);
    REQUIRE(unet_rpc_call(binding, ECHO, bytes, size, back, BIG, &length) == UNET_RPC_OK);
    REQUIRE(length == size && memcmp(bytes, back, size) == 0);
    // The same in up to ten parts.
    unet_rpc_part parts[10];
    const size_t count = i % 10 + 1;
    for (size_t part = 0; part < count; ++part) {
      const size_t from = size * part / count, to = size * (part + 1) / count;
      parts[part].data = bytes + from;
      parts[part].length = to - from;
    }
    REQUIRE(unet_rpc_start(binding, pending, ECHO, parts, count) == 0);
    REQUIRE(unet_rpc_join(pending) == UNET_RPC_OK && unet_rpc_status(pending) == UNET_RPC_OK);
    const void *result = unet_rpc_result(pending, &length);
    REQUIRE(length == size && (size == 0 || memcmp(bytes, result, size) == 0));
  }
  REQUIRE(unet_rpc_start(binding, pending, 65536, NULL, 0) == UNET_EINVALID);
  unet_rpc_pending_destroy(pending);
  unet_rpc_pending_destroy(NULL);
  const int before = atomic_load(&runs);
  REQUIRE(unet_rpc_tell(binding, NOTHING, NULL, 0) == 0 && unet_rpc_tell(binding, NOTHING, bytes, BIG) == 0);
  REQUIRE(unet_rpc_tell(binding, 65536, NULL, 0) == UNET_EINVALID);
  UNTIL(atomic_load(&runs) == before + 2, unet_rpc_poll(client));
  free(bytes);
  free(back);
  unet_rpc_release(binding);
}

static void count_end(unet_rpc_pending *call_of_it, void *count) {
  REQUIRE(unet_rpc_status(call_of_it) == UNET_RPC_OK);
  ++*(unsigned *)count;
}

static void check_pending(void) {
  unet_rpc_binding *binding = import();
  unet_rpc_pending *all[4];
  unsigned ended = 0;
  atomic_store(&hold, 1);
  for (int i = 0; i < 4; ++i) {
    REQUIRE(unet_rpc_pending_create(&all[i]) == 0);
    unet_rpc_on_end(all[i], count_end, &ended);
    REQUIRE(unet_rpc_start(binding, all[i], LATER, NULL, 0) == 0);
  }
  REQUIRE(call(binding, NOTHING) == UNET_RPC_OK);  // overtakes those
  for (int i = 0; i < 4; ++i) REQUIRE(!unet_rpc_is_done(all[i]));
  unet_rpc_on_end(all[3], NULL, NULL);
  unet_rpc_cancel(all[3]);
  REQUIRE(unet_rpc_is_done(all[3]) && unet_rpc_status(all[3]) == UNET_RPC_ABANDONED);
  REQUIRE(call(binding, NOTHING) == UNET_RPC_OK);
  end();
  REQUIRE(waits == 4 && unet_rpc_later_cancelled(waiting[3]) && !unet_rpc_later_cancelled(waiting[0]));
  atomic_store(&hold, 0);
  start();
  UNTIL(ended == 3, REQUIRE(unet_rpc_wait(client, 1000000) != UNET_EDISCONNECTED));
  for (int i = 0; i < 4; ++i) {
    REQUIRE(unet_rpc_failure(all[i]) == 0);
    unet_rpc_pending_destroy(all[i]);
  }
  unet_rpc_release(binding);
}

// Runs a call by poll(2), as an event loop would.
static void check_event_loop(void) {
  unet_rpc_binding *binding = import();
  unet_rpc_pending *one;
  int descriptor = -1;
  int64_t limit = 0;
  REQUIRE(unet_rpc_pending_create(&one) == 0);
  REQUIRE(unet_rpc_start(binding, one, NOTHING, NULL, 0) == 0);
  while (!unet_rpc_is_done(one)) {
    const int armed = unet_rpc_arm(client, &descriptor, &limit);
    REQUIRE(armed == 0 || armed == 1);
    if (armed == 1) {
      struct pollfd ready = {.fd = descriptor, .events = POLLIN, .revents = 0};
      REQUIRE(poll(&ready, 1, limit < 0 ? -1 : (int)(limit / 1000000) + 1) >= 0);
    }
    unet_rpc_poll(client);
  }
  REQUIRE(unet_rpc_status(one) == UNET_RPC_OK);
  unet_rpc_pending_destroy(one);
  end();
  while (unet_rpc_server_arm(server, &descriptor, &limit) == 0) unet_rpc_server_poll(server);
  REQUIRE(descriptor >= 0 && limit > 0);  // its threads wake no descriptor
  start();
  unet_rpc_release(binding);
}

static void check_deadlines(void) {
  unet_rpc_binding *binding = import();
  int64_t left = 0;
  REQUIRE(unet_rpc_call(binding, TIME, NULL, 0, &left, sizeof left, NULL) == UNET_RPC_OK && left == UNET_FOREVER);
  unet_rpc_set_timeout(binding, 50000000000);
  REQUIRE(unet_rpc_call(binding, TIME, NULL, 0, &left, sizeof left, NULL) == UNET_RPC_OK && left > 0 && left <= 50000000000);
  atomic_store(&hold, 1);
  unet_rpc_set_timeout(binding, 20000000);
  REQUIRE(call(binding, LATER) == UNET_RPC_TIMED_OUT);
  atomic_store(&hold, 0);
  unet_rpc_set_timeout(binding, UNET_FOREVER);
  REQUIRE(call(binding, NOTHING) == UNET_RPC_OK);
  unet_rpc_release(binding);
}

static void check_refusals(void) {
  unet_rpc_binding *binding = (unet_rpc_binding *)&client;
  REQUIRE(unet_rpc_import(client, "rpc_c", "test", 8, UNET_FOREVER, &binding) == UNET_ENOTFOUND && binding == NULL);
  REQUIRE(strstr(unet_error_text(), "test") != NULL);
  REQUIRE(unet_rpc_import(client, "rpc_c_is_not_there", "test", 7, UNET_FOREVER, &binding) == UNET_ENOTFOUND);
  for (int there = 0; there < 2; ++there) {
    int result = UNET_EPENDING;
    REQUIRE(unet_rpc_import_start(client, there ? "rpc_c" : "rpc_c_is_not_there", "test", 7, &binding) == 0);
    UNTIL(result != UNET_EPENDING, (unet_rpc_poll(client), result = unet_rpc_import_poll(binding, UNET_FOREVER)));
    REQUIRE(result == (there ? 0 : UNET_ENOTFOUND));
    unet_rpc_release(binding);
  }
  REQUIRE(unet_rpc_import(client, NULL, "test", 7, UNET_FOREVER, &binding) == UNET_EINVALID);
  REQUIRE(unet_rpc_import(client, "rpc_c", NULL, 7, UNET_FOREVER, &binding) == UNET_EINVALID);
  atomic_store(&admits, 0);
  REQUIRE(unet_rpc_import(client, "rpc_c", "test", 7, UNET_FOREVER, &binding) == UNET_EPERMISSION);
  atomic_store(&admits, 1);
  binding = import();
  uint64_t caller = 0;
  REQUIRE(unet_rpc_call(binding, RULES, NULL, 0, &caller, sizeof caller, NULL) == UNET_RPC_OK);
  end();
  REQUIRE(unet_rpc_revoke(server, "test", 8) == 0 && unet_rpc_revoke(server, "test", 7) == 1);
  start();
  REQUIRE(call(binding, NOTHING) == UNET_RPC_REVOKED);
  unet_rpc_release(binding);
  binding = import();
  end();
  REQUIRE(unet_rpc_revoke_caller(server, caller) == 1);
  start();
  REQUIRE(call(binding, NOTHING) == UNET_RPC_REVOKED);
  unet_rpc_release(binding);
}

// The end of a server ends its calls. A response of a server that has ended is dropped.
static void check_end(void) {
  unet_rpc_binding *binding = import();
  unet_rpc_pending *pending;
  REQUIRE(unet_rpc_pending_create(&pending) == 0);
  atomic_store(&hold, 1);
  REQUIRE(unet_rpc_start(binding, pending, LATER, NULL, 0) == 0);
  REQUIRE(call(binding, NOTHING) == UNET_RPC_OK);
  end();
  unet_rpc_server_destroy(server);
  unet_rpc_server_destroy(NULL);
  REQUIRE(unet_rpc_join(pending) == UNET_RPC_LOST);
  REQUIRE(waits == 1 && unet_rpc_later_cancelled(waiting[0]));
  unet_rpc_later_answer(waiting[0], NULL, 0);
  unet_rpc_pending_destroy(pending);
  UNTIL(call(binding, NOTHING) == UNET_RPC_UNAVAILABLE, (void)0);
  unet_rpc_client_destroy(client);  // also releases the binding
  unet_rpc_client_destroy(NULL);
}

int main(void) {
  REQUIRE(strcmp(unet_rpc_status_name(UNET_RPC_TIMED_OUT), "timed_out") == 0 && strcmp(unet_rpc_status_name(-1), "unknown") == 0);
  REQUIRE(strcmp(unet_rpc_status_name(321), "unknown") == 0 && strcmp(unet_rpc_status_name(200), "unknown") == 0);
  REQUIRE(unet_rpc_may_have_run(UNET_RPC_OK) && unet_rpc_may_have_run(UNET_RPC_LOST) && !unet_rpc_may_have_run(UNET_RPC_REVOKED));
  REQUIRE(unet_context_open(NULL, NULL, &context) == 0);
  create_server();
  create_client();
  start();
  check_calls();
  check_sizes();
  check_pending();
  check_event_loop();
  check_deadlines();
  check_refusals();
  check_end();
  unet_context_close(context);
  return 0;
}
