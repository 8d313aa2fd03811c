// echo_client.c - sends messages to an echo server, checks the echoes, and reports their round-trip times. echo_client.cc: in C++.
//
//   cc -o echo_client_c echo_client.c $(pkg-config --cflags --libs unet)
//   ./echo_client_c --size 1000 echo        (echo_server.c says how to start the server)
#include <getopt.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unet/unet.h>

#define SECOND INT64_C(1000000000)
// An echo counts as lost after this time. Less is too short: on a busy machine an echo waits for three other processes to get a core.
#define LOST_AFTER (10 * SECOND)
// The time after the first loss. The wire then loses messages, and a client that waited 10 s for each would seem to hang.
#define LOST_AFTER_FIRST (SECOND / 10)
#define COUNT_MAX 10000000

static const char usage[] =
    "usage: echo_client_c [OPTIONS] NAME[@HOST]\n"
    "\n"
    "Sends messages to the echo server NAME, one at a time, compares every echo with what was sent, and prints the round-trip\n"
    "time. Ends early with Ctrl-C.\n"
    "\n"
    "  -n, --count N       messages (default 10000)\n"
    "  -s, --size BYTES    bytes of each, 0 to 65536 (default 48)\n"
    "  -p, --path PATH     auto: memory of the two processes if the server is on this host, else the wire (default)\n"
    "                      local: memory of the two processes or an error\n"
    "                      ni: through the network interface, even on the same host\n"
    "  -w, --wait SECONDS  wait so long until a server has bound NAME (default 0)\n"
    "  -h, --help\n"
    "\n"
    "Try it:\n"
    "  unetd &\n"
    "  echo_server_c echo &\n"
    "  echo_client_c echo\n"
    "  echo_client_c --size 65536 --path ni echo\n";

struct options {
  const char *target;
  unsigned long count, size, wait;
  int path;
};

struct result {
  uint64_t *times;  // nanoseconds, one per echo that came
  unsigned long right, wrong, lost;
};

static atomic_int stop;

static void on_signal(int number) {
  (void)number;
  atomic_store_explicit(&stop, 1, memory_order_relaxed);
}

static int stopped(void) { return atomic_load_explicit(&stop, memory_order_relaxed); }

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * (uint64_t)SECOND + (uint64_t)time.tv_nsec;
}

static void give_up(const char *call) {
  fprintf(stderr, "echo_client_c: %s: %s\n", call, unet_error_text());
  exit(1);
}

// ---- the command line

static unsigned long parse_number(const char *option, const char *text, unsigned long least, unsigned long most) {
  char *end;
  unsigned long value = strtoul(text, &end, 10);
  if (text[0] < '0' || text[0] > '9' || *end != '\0' || value < least || value > most) {
    fprintf(stderr, "echo_client_c: %s '%s': a number from %lu to %lu is wanted\n", option, text, least, most);
    exit(2);
  }
  return value;
}

static int parse_path(const char *text) {
  if (strcmp(text, "auto") == 0) return UNET_PATH_AUTOMATIC;
  if (strcmp(text, "local") == 0) return UNET_PATH_LOCAL;
  if (strcmp(text, "ni") == 0) return UNET_PATH_NI;
  fprintf(stderr, "echo_client_c: --path '%s': auto, local or ni is wanted\n", text);
  exit(2);
}

static struct options parse_options(int argc, char **argv) {
  static const struct option known[] = {{"count", required_argument, NULL, 'n'}, {"size", required_argument, NULL, 's'},
                                        {"path", required_argument, NULL, 'p'},  {"wait", required_argument, NULL, 'w'},
                                        {"help", no_argument, NULL, 'h'},        {NULL, 0, NULL, 0}};
  struct options options = {.target = NULL, .count = 10000, .size = 48, .wait = 0, .path = UNET_PATH_AUTOMATIC};
  for (int letter; (letter = getopt_long(argc, argv, "n:s:p:w:h", known, NULL)) != -1;) {
    switch (letter) {
      case 'n': options.count = parse_number("--count", optarg, 1, COUNT_MAX); break;
      case 's': options.size = parse_number("--size", optarg, 0, UNET_MESSAGE_MAX); break;
      case 'p': options.path = parse_path(optarg); break;
      case 'w': options.wait = parse_number("--wait", optarg, 0, 3600); break;
      case 'h': fputs(usage, stdout); exit(0);
      default: fprintf(stderr, "echo_client_c --help says what is understood\n"); exit(2);
    }
  }
  if (optind + 1 != argc) {
    fprintf(stderr, "echo_client_c: one NAME is wanted, that of the server; echo_client_c --help says more\n");
    exit(2);
  }
  options.target = argv[optind];
  return options;
}

// ---- one message

static void compose(unsigned char *data, size_t size, unsigned long number) {
  for (size_t i = 0; i < size; ++i) data[i] = (unsigned char)(number * 131 + i * 7 + (i >> 8));
}

// Waits for the next message. Returns 1: it is there; 0: none came within `patience` nanoseconds, so it is lost; -1: no more will come.
static int wait_for_message(unet_endpoint *endpoint, unet_message *message, int64_t patience) {
  int closed = 0;
  const uint64_t deadline = now() + (uint64_t)patience;
  while (!unet_receive(endpoint, message)) {
    if (closed) {
      fprintf(stderr, "echo_client_c: the server closed the channel\n");
      return -1;
    }
    const uint64_t time = now();
    if (time >= deadline) return 0;
    int outcome = unet_wait(endpoint, deadline - time < (uint64_t)SECOND ? (int64_t)(deadline - time) : SECOND, UNET_SPIN_DEFAULT);
    if (outcome == UNET_EDISCONNECTED || stopped()) return -1;
    // Messages that the server sent before it closed the channel are still there: look once more.
    unet_event event = {.size = sizeof event};
    closed = unet_next_event(endpoint, &event) == 1 && event.kind == UNET_EVENT_CLOSED;
  }
  return 1;
}

// Sends one message and waits for its echo. Returns 0 to continue, -1 to stop.
static int one_round_trip(unet_endpoint *endpoint, int channel, const unsigned char *data, size_t size, struct result *result) {
  uint64_t start = now();
  int sent;
  // A single message always finds room on a local channel. A network interface may be busy with other messages.
  while ((sent = unet_send(endpoint, channel, data, size, 0)) == UNET_EFULL && !stopped()) {
    unet_wait_room(endpoint, channel, SECOND, UNET_SPIN_DEFAULT);
  }
  if (sent < 0) {
    if (!stopped()) fprintf(stderr, "echo_client_c: unet_send: %s\n", unet_error_name(sent));
    return -1;
  }
  for (;;) {
    unet_message echo;
    int received = wait_for_message(endpoint, &echo, result->lost == 0 ? LOST_AFTER : LOST_AFTER_FIRST);
    if (received < 0) return -1;
    if (received == 0) {
      if (++result->lost == 1) {
        fprintf(stderr, "echo_client_c: no echo within 10 s: this wire loses messages. From now on, 0.1 s without one is a loss\n");
      }
      if (result->lost % 100 == 0) fprintf(stderr, "echo_client_c: %lu echoes came so far, %lu are lost\n", result->right, result->lost);
      return 0;
    }
    uint64_t end = now();
    int same = echo.length == size && (size == 0 || memcmp(echo.data, data, size) == 0);
    unet_release(endpoint, &echo);
    if (same) {
      result->times[result->right++] = end - start;
      return 0;
    }
    // An echo that counted as lost may still come. Before any loss, these bytes are wrong.
    if (result->lost == 0) {
      ++result->wrong;
      return 0;
    }
  }
}

// ---- the whole run

static int compare(const void *left, const void *right) {
  uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
  return (a > b) - (a < b);
}

static void print(const struct result *result, size_t size, int kind) {
  printf("%lu echoes of %zu bytes over %s: all bytes right; %lu wrong, %lu lost\n", result->right, size,
         kind == UNET_KIND_LOCAL ? "a local channel" : "the network interface", result->wrong, result->lost);
  if (result->right == 0) return;
  qsort(result->times, result->right, sizeof *result->times, compare);
  printf("round trip: p50 %.2f us, p99 %.2f us, least %.2f us\n", (double)result->times[result->right / 2] / 1e3,
         (double)result->times[result->right * 99 / 100] / 1e3, (double)result->times[0] / 1e3);
}

int main(int argc, char **argv) {
  const struct options options = parse_options(argc, argv);
  // Without SA_RESTART, so that a signal ends unet_wait().
  struct sigaction action = {.sa_handler = on_signal};
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);

  unet_context *context;
  unet_endpoint *endpoint;
  if (unet_context_open(NULL, NULL, &context) < 0) give_up("unet_context_open");
  if (unet_endpoint_create(context, NULL, &endpoint) < 0) give_up("unet_endpoint_create");
  const unet_connect_options how = {.size = sizeof how, .path = options.path, .wait_ns = (int64_t)options.wait * SECOND};
  int channel = unet_connect(endpoint, options.target, &how);
  if (channel < 0) give_up("unet_connect");

  struct result result = {.times = calloc(options.count, sizeof *result.times)};
  unsigned char *data = malloc(options.size + 1);
  if (result.times == NULL || data == NULL) {
    fprintf(stderr, "echo_client_c: no memory for %lu results\n", options.count);
    return 1;
  }
  unsigned long number = 0;
  while (number < options.count && !stopped()) {
    compose(data, options.size, number++);
    if (one_round_trip(endpoint, channel, data, options.size, &result) < 0) break;
  }
  print(&result, options.size, unet_channel_kind(endpoint, channel));

  // Success: every echo came, or the user ended the run early.
  int all = result.wrong == 0 && result.lost == 0 && result.right > 0 && (result.right == options.count || stopped());
  free(data);
  free(result.times);
  unet_channel_close(endpoint, channel);
  unet_endpoint_destroy(endpoint);
  unet_context_close(context);
  return all ? 0 : 1;
}
