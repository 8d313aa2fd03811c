// rpc_ping.c - calls of procedures in another process: a server with two procedures, and its client. rpc_ping.cc: in C++.
//
//   cc -o rpc_ping_c rpc_ping.c $(pkg-config --cflags --libs unet-rpc)
//   unetd &                                 (the network interface of this host; unetd --port ... gives it a wire)
//   ./rpc_ping_c serve &                    and elsewhere: ./rpc_ping_c call, or from another host ./rpc_ping_c call ping@HOST
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unet/rpc.h>

// Arguments and results are bytes. These are those of rpc_ping.cc: a text has its length before it.
enum { GREET = 1, ADD = 2 };
struct text {
  uint32_t length;
  char bytes[60];
};

static atomic_int stop;

static void on_signal(int number) {
  (void)number;
  atomic_store_explicit(&stop, 1, memory_order_relaxed);
}

// A set-up call that fails leaves a sentence.
static void check(int result, const char *call) {
  if (result >= 0) return;
  fprintf(stderr, "rpc_ping: %s: %s\n", call, unet_error_text());
  exit(1);
}

// A call that fails has a status.
static void check_status(int status) {
  if (status == UNET_RPC_OK) return;
  fprintf(stderr, "rpc_ping: %s\n", unet_rpc_status_name(status));
  exit(1);
}

// ---- the server's procedures

static void greet(unet_rpc_request *request, void *context) {
  (void)context;
  size_t length;
  struct text from, greeting;
  memset(&from, 0, sizeof from);
  const void *arguments = unet_rpc_arguments(request, &length);
  memcpy(&from, arguments, length < sizeof from ? length : sizeof from);  // checked below: the caller can change its own bytes
  if (length > sizeof from || length != 4 + (size_t)from.length || from.length > 50) {
    unet_rpc_refuse(request);
    return;
  }
  greeting.length = (uint32_t)snprintf(greeting.bytes, sizeof greeting.bytes, "Hello, %.*s.", (int)from.length, from.bytes);
  unet_rpc_answer(request, &greeting, 4 + greeting.length);
}

static void add(unet_rpc_request *request, void *additions) {
  size_t length;
  const int32_t *numbers = unet_rpc_arguments(request, &length);
  if (length != 2 * sizeof *numbers) {
    unet_rpc_refuse(request);
    return;
  }
  const int32_t sum = numbers[0] + numbers[1];
  unet_rpc_answer(request, &sum, sizeof sum);
  ++*(unsigned long *)additions;
}

static void serve(unet_context *context, const char *name) {
  unet_rpc_server *server;
  unsigned long additions = 0;
  check(unet_rpc_server_create(context, name, NULL, &server), "unet_rpc_server_create");
  check(unet_rpc_provide(server, "ping", 1, GREET, greet, NULL, 0), "unet_rpc_provide");
  check(unet_rpc_provide(server, "ping", 1, ADD, add, &additions, 0), "unet_rpc_provide");
  printf("server '%s' is ready\n", name);
  fflush(stdout);
  // Procedures run here. Wait only a second, because a signal may come just before the wait.
  while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
    if (unet_rpc_server_wait(server, 1000000000) != UNET_EDISCONNECTED) continue;
    fprintf(stderr, "rpc_ping: the network interface is gone\n");
    exit(1);
  }
  printf("%lu additions\n", additions);
  unet_rpc_server_destroy(server);
}

// ---- the client

static void call(unet_context *context, const char *target) {
  unet_rpc_client *client;
  unet_rpc_binding *binding;
  unet_rpc_client_options options;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.connect.size = sizeof options.connect;
  options.connect.wait_ns = 1000000000;  // until the server has its name
  check(unet_rpc_client_create(context, &options, &client), "unet_rpc_client_create");
  check(unet_rpc_import(client, target, "ping", 1, UNET_FOREVER, &binding), "unet_rpc_import");

  const struct text name = {5, "Alice"};
  struct text greeting;
  check_status(unet_rpc_call(binding, GREET, &name, 4 + name.length, &greeting, sizeof greeting, NULL));
  printf("%.*s\n", (int)greeting.length, greeting.bytes);

  // Calls under way at the same time.
  const int32_t numbers[2][2] = {{40, 2}, {1, 1}};
  int32_t sums[2];
  unet_rpc_pending *pending[2];
  for (int i = 0; i < 2; ++i) {
    const unet_rpc_part part = {numbers[i], sizeof numbers[i]};
    check(unet_rpc_pending_create(&pending[i]), "unet_rpc_pending_create");
    check(unet_rpc_start(binding, pending[i], ADD, &part, 1), "unet_rpc_start");
  }
  for (int i = 0; i < 2; ++i) {
    check_status(unet_rpc_join(pending[i]));
    memcpy(&sums[i], unet_rpc_result(pending[i], NULL), sizeof sums[i]);
    unet_rpc_pending_destroy(pending[i]);
  }
  printf("40 + 2 = %d, 1 + 1 = %d\n", (int)sums[0], (int)sums[1]);

  enum { ROUNDS = 10000 };
  struct timespec start, end;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (int32_t i = 0; i < ROUNDS; ++i) {
    const int32_t two[2] = {i, 1};
    check_status(unet_rpc_call(binding, ADD, two, sizeof two, &sums[0], sizeof sums[0], NULL));
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  printf("a call takes %.2f us\n", ((double)(end.tv_sec - start.tv_sec) * 1e6 + (double)(end.tv_nsec - start.tv_nsec) / 1e3) / ROUNDS);
  unet_rpc_client_destroy(client);  // also releases its bindings
}

int main(int argc, char **argv) {
  const char *role = argc > 1 ? argv[1] : "", *name = argc > 2 ? argv[2] : "ping";
  const int serves = strcmp(role, "serve") == 0;
  if (argc > 3 || (!serves && strcmp(role, "call") != 0)) {
    fprintf(stderr, "usage: rpc_ping_c serve [NAME], or rpc_ping_c call [NAME[@HOST]]; NAME is ping if not given\n");
    return 2;
  }
  struct sigaction action;  // without SA_RESTART, so that a signal ends the wait
  memset(&action, 0, sizeof action);
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  unet_context *context;
  check(unet_context_open(NULL, NULL, &context), "unet_context_open");
  if (serves) {
    serve(context, name);
  } else {
    call(context, name);
  }
  unet_context_close(context);
  return 0;
}
