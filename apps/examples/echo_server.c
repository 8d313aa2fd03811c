// echo_server.c - sends every message back to its sender; serves any number of clients. echo_server.cc: in C++.
//
//   cc -o echo_server_c echo_server.c $(pkg-config --cflags --libs unet)
//   unetd &                                 (the network interface of this host; unetd --port ... gives it a wire)
//   ./echo_server_c echo                    and elsewhere: ./echo_client_c echo, or from another host ./echo_client_c echo@HOST
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unet/unet.h>

#define SECOND INT64_C(1000000000)
#define BATCH 32

static const char usage[] =
    "usage: echo_server_c [NAME]\n"
    "\n"
    "Binds NAME (default: echo) at the network interface that UNET_NI names, else at the unetd of this host, and sends every\n"
    "message that arrives back by the channel it came by. Ends with Ctrl-C.\n"
    "\n"
    "Try it:\n"
    "  unetd &\n"
    "  echo_server_c echo &\n"
    "  echo_client_c --size 1000 echo\n";

static atomic_int stop;

static void on_signal(int number) {
  (void)number;
  atomic_store_explicit(&stop, 1, memory_order_relaxed);
}

static int stopped(void) { return atomic_load_explicit(&stop, memory_order_relaxed); }

static void give_up(const char *call) {
  fprintf(stderr, "echo_server_c: %s: %s\n", call, unet_error_text());
  exit(1);
}

struct served {
  unsigned long long clients, messages, bytes, dropped;
};

// Sends up to BATCH messages back; returns their number.
static unsigned echo_messages(unet_endpoint *endpoint, struct served *served) {
  unet_message messages[BATCH];
  unsigned count = unet_receive_batch(endpoint, messages, BATCH);
  for (unsigned i = 0; i < count; ++i) {
    const unet_message *message = &messages[i];
    // More messages follow at once, except after the last. An embedded network interface then sends them together.
    unsigned more = i + 1 < count ? UNET_MORE : 0;
    if (unet_send(endpoint, message->channel, message->data, message->length, more) == 0) {
      ++served->messages;
      served->bytes += message->length;
    } else {
      // UNET_EFULL: this client does not take its echoes. Waiting for it would make all others wait. UNET_ENOCHANNEL: it has left.
      ++served->dropped;
    }
    unet_release(endpoint, message);
  }
  return count;
}

static void accept_clients(unet_endpoint *endpoint, struct served *served) {
  unet_request request = {.size = sizeof request};
  while (unet_next_request(endpoint, &request) == 1) {
    int channel = unet_accept(endpoint, request.id);
    if (channel < 0) {
      // The client gave up meanwhile, or a limit is reached. Continue to serve the others.
      fprintf(stderr, "echo_server_c: %s was not accepted: %s\n", request.peer, unet_error_text());
      continue;
    }
    ++served->clients;
    printf("channel %d: %s\n", channel, request.peer);
    fflush(stdout);
  }
}

// A client that has left leaves us its channel's number: close the channel to release it.
static void forget_clients(unet_endpoint *endpoint) {
  unet_event event = {.size = sizeof event};
  while (unet_next_event(endpoint, &event) == 1) {
    if (event.kind == UNET_EVENT_CLOSED) unet_channel_close(endpoint, event.channel);
  }
}

int main(int argc, char **argv) {
  if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
    fputs(usage, stdout);
    return 0;
  }
  if (argc > 2 || (argc > 1 && argv[1][0] == '-')) {
    fprintf(stderr, "echo_server_c: '%s' is not understood; echo_server_c --help says what is\n", argv[argc > 2 ? 2 : 1]);
    return 2;
  }
  const char *name = argc > 1 ? argv[1] : "echo";

  // Without SA_RESTART, so that a signal ends unet_wait().
  struct sigaction action = {.sa_handler = on_signal};
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);

  unet_context *context;
  unet_endpoint *endpoint;
  if (unet_context_open(NULL, NULL, &context) < 0) give_up("unet_context_open");
  if (unet_endpoint_create(context, NULL, &endpoint) < 0) give_up("unet_endpoint_create");
  if (unet_bind(endpoint, name) < 0) give_up("unet_bind");
  printf("echo server '%s' is ready\n", name);
  fflush(stdout);

  struct served served = {0};
  int status = 0;
  while (status == 0 && !stopped()) {
    unsigned count = echo_messages(endpoint, &served);
    accept_clients(endpoint, &served);
    forget_clients(endpoint);
    if (count != 0) continue;
    // Wait only a second, because a signal may come just before the wait.
    if (unet_wait(endpoint, SECOND, UNET_SPIN_DEFAULT) == UNET_EDISCONNECTED || !unet_alive(context)) {
      fprintf(stderr, "echo_server_c: the network interface is gone\n");
      status = 1;
    }
  }

  printf("%llu messages, %llu bytes, %llu clients, %llu echoes dropped\n", served.messages, served.bytes, served.clients,
         served.dropped);
  unet_endpoint_destroy(endpoint);
  unet_context_close(context);
  return status;
}
