// am_c.c - a program in C that calls every function of am.h, over the NI that UNET_NI names; exit status 0 on success.
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "am/am.h"
#include "tests/system/require.h"

enum { ECHO = 1, ANSWER = 2, DEPOSIT = 3, RULES = 4, COUNTED = 5, WHO = 6, LONG_ANSWER = 7 };
enum { SEGMENT = 300000 };

struct heard {
  unsigned calls, count;
  uint32_t arguments[UNET_AM_ARGUMENTS_MAX];
  size_t length;
  unsigned char payload[UNET_AM_MEDIUM_MAX];
  const void *where;
  uint64_t offset, tag;
  uint32_t index;
  int kind;
  char name[130];
};

static struct heard heard, seen;
static unet_am_returned back;
static uint32_t back_arguments[UNET_AM_ARGUMENTS_MAX];
static unsigned backs, dones;

static void note(struct heard *to, unet_am_token *token) {
  const uint32_t *arguments = unet_am_arguments(token, &to->count);
  memcpy(to->arguments, arguments, to->count * sizeof *arguments);
  to->where = unet_am_payload(token, &to->length);
  if (to->length <= sizeof to->payload && to->length != 0) memcpy(to->payload, to->where, to->length);
  to->offset = unet_am_offset(token);
  to->tag = unet_am_message_tag(token);
  to->index = unet_am_index(token);
  to->kind = unet_am_kind(token);
  REQUIRE(unet_am_source_name(token, to->name, sizeof to->name) == strlen(to->name));
  ++to->calls;
}

static void echo(unet_am_token *token, void *context) {
  note(context, token);
  unsigned count;
  size_t length;
  const uint32_t *arguments = unet_am_arguments(token, &count);
  const void *payload = unet_am_payload(token, &length);
  REQUIRE(unet_am_is_request(token) && unet_am_can_reply(token));
  REQUIRE((length == 0 ? unet_am_reply_short(token, ANSWER, arguments, count)
                       : unet_am_reply_medium(token, ANSWER, payload, length, arguments, count)) == 0);
  REQUIRE(!unet_am_can_reply(token));
}

static void hear(unet_am_token *token, void *context) {
  REQUIRE(!unet_am_is_request(token) && unet_am_reply_short(token, ECHO, NULL, 0) == UNET_AM_EBADCALL);
  note(context, token);
}

static void take(unet_am_token *token, void *context) { note(context, token); }

static void rules(unet_am_token *token, void *context) {
  unet_am_endpoint *self = unet_am_token_endpoint(token);
  REQUIRE(self == context);
  REQUIRE(unet_am_reply_short(token, 256, NULL, 0) == UNET_AM_EBADCALL);
  REQUIRE(unet_am_reply_short(token, ANSWER, NULL, 17) == UNET_AM_EBADCALL);
  REQUIRE(unet_am_reply_short(token, ANSWER, NULL, 0) == 0);
  REQUIRE(unet_am_reply_short(token, ANSWER, NULL, 0) == UNET_AM_EBADCALL);
  REQUIRE(unet_am_request_short(self, 0, ECHO, NULL, 0) == UNET_AM_EBADCALL);
  REQUIRE(unet_am_map(self, 9, "b", UNET_AM_ANY_TAG, NULL) == UNET_EINVALID);
}

static void long_answer(unet_am_token *token, void *context) {
  (void)context;
  static const char text[] = "a long reply";
  REQUIRE(unet_am_reply_long(token, ANSWER, 7, text, sizeof text, NULL, 0) == 0);
}

static void on_return(unet_am_endpoint *endpoint, const unet_am_returned *returned, void *context) {
  REQUIRE(endpoint == *(unet_am_endpoint **)context && returned->size == sizeof *returned);
  back = *returned;
  if (returned->count != 0) memcpy(back_arguments, returned->arguments, returned->count * sizeof *returned->arguments);
  ++backs;
}

static void on_done(unet_am_endpoint *endpoint, void *context) {
  REQUIRE(endpoint == *(unet_am_endpoint **)context);
  ++dones;
}

static int nobody(const unet_request *from, void *context) {
  ++*(int *)context;
  return from->peer_pid != getpid();
}

static unet_context *context;
static unet_am_bundle *bundle;
static unet_am_endpoint *a, *b;
static unsigned char memory[SEGMENT], mine[SEGMENT], pattern[SEGMENT];

#define ANSWERED(what)                       \
  do {                                       \
    unsigned before_ = heard.calls;          \
    REQUIRE((what) == 0);                    \
    UNTIL(heard.calls != before_, unet_am_poll(bundle)); \
  } while (0)

#define RETURNED(what, why, of_kind, of_handler)                                            \
  do {                                                                                      \
    unsigned before_ = backs;                                                               \
    (void)(what);                                                                           \
    UNTIL(backs != before_, unet_am_poll(bundle));                                          \
    REQUIRE(back.status == (why) && back.kind == (of_kind) && back.handler == (of_handler)); \
  } while (0)

static void set_up(void) {
  REQUIRE(unet_am_bundle_create(2, &bundle) == UNET_EINVALID && strstr(unet_error_text(), "UNET_AM_SHARED") != NULL);
  REQUIRE(unet_am_bundle_create(0, NULL) == UNET_EINVALID);
  REQUIRE(unet_am_bundle_create(0, &bundle) == 0);
  unet_am_options options;
  memset(&options, 0, sizeof options);
  REQUIRE(unet_am_endpoint_create(context, bundle, &options, &a) == UNET_EINVALID && strstr(unet_error_text(), "size") != NULL);
  options.size = sizeof options;
  options.endpoint.size = sizeof options.endpoint;
  options.endpoint.emulated = 1;
  REQUIRE(unet_am_endpoint_create(context, bundle, &options, &a) == UNET_EINVALID);
  options.endpoint.emulated = 0;
  options.endpoint.send_depth = 512;
  REQUIRE(unet_am_endpoint_create(context, bundle, &options, &a) == 0);
  REQUIRE(unet_am_endpoint_create(context, bundle, NULL, &b) == 0);
  REQUIRE(unet_am_endpoint_id(a) != unet_am_endpoint_id(b));
  REQUIRE(unet_am_attachment(a) == NULL);
  unet_am_attach(a, &heard);
  REQUIRE(unet_am_attachment(a) == &heard);
  REQUIRE(unet_am_bind(a, "am_c/a") == 0 && unet_am_bind(b, "am_c/b") == 0);
  REQUIRE(unet_am_bind(a, "no name") == UNET_EINVALID);
  REQUIRE(unet_am_set_handler(b, 256, echo, NULL) == UNET_EINVALID);
  REQUIRE(unet_am_set_handler_counted(b, COUNTED, 17, echo, NULL) == UNET_EINVALID);
  REQUIRE(unet_am_set_handler(b, ECHO, echo, &seen) == 0 && unet_am_set_handler(a, ANSWER, hear, &heard) == 0);
  REQUIRE(unet_am_set_handler(b, DEPOSIT, take, &seen) == 0 && unet_am_set_handler(b, RULES, rules, b) == 0);
  REQUIRE(unet_am_set_handler_counted(b, COUNTED, 2, take, &seen) == 0 && unet_am_set_handler(b, LONG_ANSWER, long_answer, NULL) == 0);
  unet_am_set_error_handler(a, on_return, &a);
  REQUIRE(unet_am_map(a, UNET_AM_TRANSLATIONS_MAX, "am_c/b", UNET_AM_ANY_TAG, NULL) == UNET_EINVALID);
  REQUIRE(unet_am_map(a, 0, "am_c/nobody", UNET_AM_ANY_TAG, NULL) == UNET_ENOTFOUND);
  REQUIRE(!unet_am_in_use(a, 0));
  REQUIRE(unet_am_map(a, 0, "am_c/b", UNET_AM_ANY_TAG, NULL) == 0);
  REQUIRE(unet_am_map(a, 0, "am_c/b", UNET_AM_ANY_TAG, NULL) == UNET_EEXISTS);
  REQUIRE(unet_am_in_use(a, 0) && unet_am_is_local(a, 0) && unet_am_has_credit(a, 0) && !unet_am_has_credit(a, 1));
  for (size_t i = 0; i < SEGMENT; ++i) pattern[i] = (unsigned char)(i * 7 + (i >> 8));
}

static void short_and_medium(void) {
  uint32_t words[UNET_AM_ARGUMENTS_MAX + 1];
  for (uint32_t i = 0; i <= UNET_AM_ARGUMENTS_MAX; ++i) words[i] = 0xA0B0C000 + i;
  for (unsigned count = 0; count <= UNET_AM_ARGUMENTS_MAX; ++count) {
    ANSWERED(unet_am_request_short(a, 0, ECHO, words, count));
    REQUIRE(heard.count == count && memcmp(heard.arguments, words, count * sizeof *words) == 0 && heard.length == 0);
    REQUIRE(seen.kind == UNET_AM_SHORT_REQUEST && heard.kind == UNET_AM_SHORT_REPLY);
    ANSWERED(unet_am_request_medium(a, 0, ECHO, pattern, 1000 * count + 1, words, count));
    REQUIRE(heard.count == count && heard.length == 1000 * count + 1 && memcmp(heard.payload, pattern, heard.length) == 0);
    REQUIRE(seen.kind == UNET_AM_MEDIUM_REQUEST && heard.kind == UNET_AM_MEDIUM_REPLY);
  }
  REQUIRE(strcmp(seen.name, "am_c/a") == 0 && seen.index == UNET_AM_NO_INDEX && seen.tag == UNET_AM_ANY_TAG);
  REQUIRE(strcmp(heard.name, "am_c/b") == 0 && heard.index == 0);
  REQUIRE(unet_am_request_short(a, 0, ECHO, words, 17) == UNET_AM_EBADCALL);
  REQUIRE(unet_am_request_short(a, 0, 256 + ECHO, words, 0) == UNET_AM_EBADCALL);
  REQUIRE(unet_am_request_medium(a, 0, ECHO, pattern, UNET_AM_MEDIUM_MAX + 1, NULL, 0) == UNET_AM_EBADCALL);
  ANSWERED(unet_am_request_short(a, 0, RULES, NULL, 0));

  void *room = NULL;
  REQUIRE(unet_am_reserve(a, 0, 0, 0, &room) == UNET_AM_EBADCALL && unet_am_commit(a, ECHO, 1, NULL, 0) == UNET_AM_EBADCALL);
  RETURNED(unet_am_reserve(a, 5, 10, 0, &room), UNET_AM_BAD_ENTRY, UNET_AM_MEDIUM_REQUEST, 0);
  REQUIRE(unet_am_reserve(a, 0, 5000, 1, &room) == 0);
  memcpy(room, pattern, 4000);
  ANSWERED(unet_am_commit(a, ECHO, 4000, words, 1));
  REQUIRE(heard.length == 4000 && memcmp(heard.payload, pattern, 4000) == 0 && heard.arguments[0] == words[0]);
  REQUIRE(unet_am_reserve(a, 0, 100, 0, &room) == 0 && unet_am_commit(a, ECHO, 0, NULL, 0) == UNET_AM_EBADCALL);
}

static void long_and_get(void) {
  uint64_t length = 1;
  REQUIRE(unet_am_segment(b, &length) == NULL && length == 0);
  REQUIRE(unet_am_set_segment(b, memory, SEGMENT) == 0);
  REQUIRE(unet_am_segment(b, &length) == memory && length == SEGMENT);
  unsigned before = seen.calls;
  REQUIRE(unet_am_request_long(a, 0, DEPOSIT, 13, pattern, SEGMENT - 13, NULL, 0) == 0);
  UNTIL(seen.calls != before, unet_am_poll(bundle));
  REQUIRE(seen.kind == UNET_AM_LONG_REQUEST && seen.where == memory + 13 && seen.offset == 13 && seen.length == SEGMENT - 13);
  REQUIRE(memcmp(memory + 13, pattern, SEGMENT - 13) == 0);
  ANSWERED(unet_am_get(a, 0, ANSWER, 14, mine, SEGMENT - 14, NULL, 0));
  REQUIRE(heard.kind == UNET_AM_LONG_REPLY && heard.where == mine && heard.length == SEGMENT - 14);
  REQUIRE(memcmp(mine, pattern + 1, SEGMENT - 14) == 0);

  REQUIRE(unet_am_set_segment(a, mine, SEGMENT) == 0);
  ANSWERED(unet_am_request_short(a, 0, LONG_ANSWER, NULL, 0));
  REQUIRE(heard.where == mine + 7 && strcmp((const char *)mine + 7, "a long reply") == 0);

  memset(memory, 0, SEGMENT);
  before = seen.calls;
  unsigned sent = 0;
  int outcome;
  while ((outcome = unet_am_request_long_async(a, 0, DEPOSIT, 0, pattern, SEGMENT, NULL, 0, on_done, &a)) == 0) REQUIRE(++sent < 1000);
  REQUIRE(outcome == UNET_AM_ENOTSENT && sent > 0 && dones < sent);
  UNTIL(dones == sent && seen.calls == before + sent, unet_am_poll(bundle));
  REQUIRE(unet_am_flush(a, HANG_SECONDS * INT64_C(1000000000)) == 0);
  REQUIRE(memcmp(memory, pattern, SEGMENT) == 0);

  void *exposed = NULL;
  REQUIRE(unet_am_expose(b, 4096, &exposed) == UNET_EEXISTS);
  REQUIRE(unet_am_set_segment(b, NULL, 0) == 0 && unet_am_expose(b, 4096, &exposed) == 0 && exposed != NULL);
  REQUIRE(unet_am_set_segment(b, memory, SEGMENT) == UNET_EEXISTS);
}

static void what_comes_back(void) {
  const uint32_t words[2] = {5, 6};
  RETURNED(unet_am_request_short(a, 7, ECHO, words, 2), UNET_AM_BAD_ENTRY, UNET_AM_SHORT_REQUEST, ECHO);
  REQUIRE(back.index == 7 && back.count == 2 && back_arguments[1] == 6);
  RETURNED(unet_am_request_short(a, 0, 99, words, 2), UNET_AM_BAD_HANDLER, UNET_AM_SHORT_REQUEST, 99);
  REQUIRE(back.index == 0 && back.memory == NULL);
  RETURNED(unet_am_request_short(a, 0, COUNTED, words, 1), UNET_AM_BAD_ARGUMENTS, UNET_AM_SHORT_REQUEST, COUNTED);
  RETURNED(unet_am_request_long(a, 0, DEPOSIT, 1 << 20, words, 1, NULL, 0), UNET_AM_BAD_SEGMENT_OFFSET, UNET_AM_LONG_REQUEST, DEPOSIT);
  RETURNED(unet_am_get(a, 0, ANSWER, 4000, mine, 97, NULL, 0), UNET_AM_BAD_LENGTH, UNET_AM_GET, ANSWER);
  RETURNED(unet_am_get(a, 0, 99, 0, mine, 97, NULL, 0), UNET_AM_REPLY_REJECTED, UNET_AM_GET, 99);
  REQUIRE(back.memory == mine);
  unet_am_set_tag(b, 77);
  REQUIRE(unet_am_tag(b) == 77);
  RETURNED(unet_am_request_medium(a, 0, ECHO, words, 8, NULL, 0), UNET_AM_BAD_TAG, UNET_AM_MEDIUM_REQUEST, ECHO);
  REQUIRE(unet_am_unmap(a, 0) == 0 && unet_am_unmap(a, 0) == UNET_ENOTFOUND);
  REQUIRE(unet_am_start_map(a, 0, "am_c/b", 77, NULL) == 0 && unet_am_in_use(a, 0));
  ANSWERED(unet_am_request_short(a, 0, ECHO, words, 2));
  REQUIRE(seen.tag == 77);
  REQUIRE(unet_am_start_map(a, 1, "am_c/nobody", 1, NULL) == 0);
  RETURNED(unet_am_request_short(a, 1, ECHO, NULL, 0), UNET_AM_BAD_ENDPOINT, UNET_AM_SHORT_REQUEST, ECHO);
  REQUIRE(unet_am_poll_map(a, 0) == 0 && unet_am_unmap(a, 1) == 0 && unet_am_poll_map(a, 1) == UNET_ENOTFOUND);
  REQUIRE(unet_am_start_map(a, 1, "am_c/nobody", 1, NULL) == 0);
  int mapped = UNET_EPENDING;
  UNTIL(mapped != UNET_EPENDING, (unet_am_poll(bundle), mapped = unet_am_poll_map(a, 1)));
  REQUIRE(mapped == UNET_ENOTFOUND && !unet_am_in_use(a, 1));
  REQUIRE(unet_am_start_map(a, 1, "am_c/b", 77, NULL) == 0);
  UNTIL(mapped == 0, (unet_am_poll(bundle), mapped = unet_am_poll_map(a, 1)));
  REQUIRE(unet_am_unmap(a, 1) == 0);
  REQUIRE(strcmp(unet_am_name_of(back.status), "bad_endpoint") == 0 && strcmp(unet_am_name_of(UNET_AM_EBADCALL), "bad_call") == 0);
  REQUIRE(strcmp(unet_am_name_of(0), "unknown") == 0 && strcmp(unet_am_name_of(11), "unknown") == 0);
  uint64_t value = 0;
  REQUIRE(unet_am_counter(a, "returned", &value) == 0 && value == backs);
  REQUIRE(unet_am_counter(a, "no_such", &value) == UNET_ENOTFOUND);
  unsigned names = 0;
  for (const char *name; (name = unet_am_counter_name(names)) != NULL; ++names) REQUIRE(unet_am_counter(a, name, &value) == 0);
  REQUIRE(names > 10);
}

static void moving_and_letting_in(void) {
  unet_am_bundle *other;
  REQUIRE(unet_am_bundle_create(UNET_AM_SHARED, &other) == 0);
  REQUIRE(unet_am_move_endpoint(b, other) == 0 && unet_am_move_endpoint(b, NULL) == UNET_EINVALID);
  const uint32_t word = 1;
  unsigned before = heard.calls;
  REQUIRE(unet_am_request_short(a, 0, ECHO, &word, 1) == 0);
  UNTIL(heard.calls != before, (unet_am_poll(other), unet_am_poll(bundle)));
  int asked = 0;
  unet_am_options options = {.size = sizeof options, .admit = nobody, .admit_context = &asked};
  unet_am_endpoint *choosy;
  REQUIRE(unet_am_endpoint_create(context, bundle, &options, &choosy) == 0 && unet_am_bind(choosy, "am_c/choosy") == 0);
  REQUIRE(unet_am_map(a, 2, "am_c/choosy", 1, NULL) == UNET_EREFUSED && asked == 1);
  unet_am_endpoint_destroy(choosy);
  unet_am_endpoint_destroy(NULL);
  REQUIRE(unet_am_wait(other, 1000000, 0) >= 0);
  unet_am_bundle_destroy(other);  // destroys b too
  UNTIL(backs != 0 && unet_am_request_short(a, 0, ECHO, &word, 1) == UNET_AM_ERETURNED, unet_am_poll(bundle));
  REQUIRE(back.status == UNET_AM_UNREACHABLE);
}

// ---- several threads

enum { THREADS = 3, EACH = 300 };
static unsigned answered[THREADS];  // written by handlers, under the bundle's lock
static unet_am_endpoint *shared;
static unet_am_bundle *shared_bundle;

static void answer_thread(unet_am_token *token, void *context) {
  unet_am_reply_short(token, ANSWER, unet_am_arguments(token, NULL), 1);
  (void)context;
}
static void hear_thread(unet_am_token *token, void *context) {
  (void)context;
  __atomic_fetch_add(&answered[*unet_am_arguments(token, NULL)], 1, __ATOMIC_RELAXED);
}

static void *client(void *argument) {
  const uint32_t self = (uint32_t)(size_t)argument;
  for (unsigned i = 1; i <= EACH; ++i) {
    void *room;
    if (i % 2 == 0) {
      REQUIRE(unet_am_request_short(shared, 0, ECHO, &self, 1) == 0);
    } else {
      REQUIRE(unet_am_reserve(shared, 0, 64, 1, &room) == 0);
      memset(room, 1, 64);
      REQUIRE(unet_am_commit(shared, ECHO, 64, &self, 1) == 0);
    }
    const int64_t spin = i % 3 == 0 ? 0 : UNET_SPIN_DEFAULT;
    UNTIL(__atomic_load_n(&answered[self], __ATOMIC_RELAXED) >= i, unet_am_wait(shared_bundle, 1000000000, spin));
  }
  return NULL;
}

static void threads(void) {
  unet_am_endpoint *server;
  REQUIRE(unet_am_bundle_create(UNET_AM_SHARED, &shared_bundle) == 0);
  REQUIRE(unet_am_endpoint_create(context, shared_bundle, NULL, &shared) == 0);
  REQUIRE(unet_am_endpoint_create(context, shared_bundle, NULL, &server) == 0);
  REQUIRE(unet_am_bind(server, "am_c/server") == 0 && unet_am_set_handler(server, ECHO, answer_thread, NULL) == 0);
  REQUIRE(unet_am_set_handler(shared, ANSWER, hear_thread, NULL) == 0);
  REQUIRE(unet_am_map(shared, 0, "am_c/server", 1, NULL) == 0);
  pthread_t all[THREADS];
  for (size_t i = 0; i < THREADS; ++i) REQUIRE(pthread_create(&all[i], NULL, client, (void *)i) == 0);
  for (size_t i = 0; i < THREADS; ++i) REQUIRE(pthread_join(all[i], NULL) == 0);
  for (size_t i = 0; i < THREADS; ++i) REQUIRE(answered[i] == EACH);
  unet_am_bundle_destroy(shared_bundle);
}

// ---- destroying an endpoint with a reservation unlocks its bundle

static int polled;

static void *poll_once(void *all) {
  unet_am_poll(all);
  __atomic_store_n(&polled, 1, __ATOMIC_RELEASE);
  return NULL;
}

static void require_free(unet_am_bundle *all) {
  pthread_t other;
  __atomic_store_n(&polled, 0, __ATOMIC_RELAXED);
  REQUIRE(pthread_create(&other, NULL, poll_once, all) == 0);
  UNTIL(__atomic_load_n(&polled, __ATOMIC_ACQUIRE) == 1, sched_yield());
  REQUIRE(pthread_join(other, NULL) == 0);
}

static void going_while_reserved(void) {
  unet_am_bundle *all, *elsewhere;
  unet_am_endpoint *server, *client;
  void *room;
  REQUIRE(unet_am_bundle_create(UNET_AM_SHARED, &all) == 0 && unet_am_bundle_create(UNET_AM_SHARED, &elsewhere) == 0);
  REQUIRE(unet_am_endpoint_create(context, all, NULL, &server) == 0 && unet_am_endpoint_create(context, all, NULL, &client) == 0);
  REQUIRE(unet_am_bind(server, "am_c/reserved") == 0 && unet_am_map(client, 0, "am_c/reserved", 1, NULL) == 0);
  REQUIRE(unet_am_reserve(client, 0, 10, 0, &room) == 0 && unet_am_move_endpoint(client, elsewhere) == 0);
  require_free(all);
  require_free(elsewhere);
  REQUIRE(unet_am_commit(client, ECHO, 10, NULL, 0) == UNET_AM_EBADCALL);
  REQUIRE(unet_am_reserve(client, 0, 10, 0, &room) == 0);
  unet_am_endpoint_destroy(client);
  require_free(elsewhere);
  unet_am_bundle_destroy(all);
  unet_am_bundle_destroy(elsewhere);
}

// ---- destroying an endpoint returns its payloads by calls, which may make an endpoint in its bundle

struct heir {
  unet_am_bundle *all, *other;
  unet_am_endpoint *made;
  unsigned calls, first;
  int ends;
};

static void make_heir(unet_am_endpoint *endpoint, void *context_of) {
  struct heir *heir = context_of;
  if (heir->calls++ != heir->first) return;
  unet_am_endpoint_destroy(endpoint);  // already in progress
  REQUIRE(unet_am_move_endpoint(endpoint, heir->other) == UNET_EINVALID);
  REQUIRE(unet_am_endpoint_create(context, heir->all, NULL, &heir->made) == 0);
}

static void destroy_heir(unet_am_endpoint *endpoint, void *context_of) {
  struct heir *heir = context_of;
  (void)endpoint;
  if (!heir->ends) return;
  unet_am_endpoint_destroy(heir->made);
  heir->made = NULL;
}

static void going_with_payloads(void) {
  unet_am_bundle *all, *elsewhere;
  unet_am_endpoint *server, *client;
  struct heir heir;
  memset(&heir, 0, sizeof heir);
  REQUIRE(unet_am_bundle_create(0, &all) == 0 && unet_am_bundle_create(0, &elsewhere) == 0);
  REQUIRE(unet_am_endpoint_create(context, all, NULL, &server) == 0 && unet_am_endpoint_create(context, all, NULL, &client) == 0);
  REQUIRE(unet_am_bind(server, "am_c/payloads") == 0 && unet_am_map(client, 0, "am_c/payloads", UNET_AM_ANY_TAG, NULL) == 0);
  REQUIRE(unet_am_set_segment(server, memory, SEGMENT) == 0 && unet_am_move_endpoint(client, elsewhere) == 0);
  heir.all = elsewhere;
  heir.other = all;
  heir.first = ~0u;
  unsigned sent = 0;
  while (unet_am_request_long_async(client, 0, DEPOSIT, 0, pattern, SEGMENT, NULL, 0, make_heir, &heir) == 0) ++sent;
  heir.first = heir.calls;
  REQUIRE(heir.first < sent);
  unet_am_endpoint_destroy(client);
  REQUIRE(heir.calls == sent && heir.made != NULL && unet_am_bind(heir.made, "am_c/heir") == 0);
  // Now destroy the whole bundle: the call destroys the endpoint that would be next.
  REQUIRE(unet_am_endpoint_create(context, all, NULL, &client) == 0 && unet_am_map(client, 0, "am_c/payloads", UNET_AM_ANY_TAG, NULL) == 0);
  REQUIRE(unet_am_move_endpoint(client, elsewhere) == 0);
  while (unet_am_request_long_async(client, 0, DEPOSIT, 0, pattern, SEGMENT, NULL, 0, destroy_heir, &heir) == 0) ++sent;
  heir.ends = 1;
  unet_am_bundle_destroy(elsewhere);
  REQUIRE(heir.made == NULL);
  unet_am_bundle_destroy(all);
}

int main(void) {
  REQUIRE(unet_context_open(NULL, NULL, &context) == 0);
  set_up();
  short_and_medium();
  long_and_get();
  what_comes_back();
  moving_and_letting_in();
  unet_am_bundle_destroy(bundle);
  unet_am_bundle_destroy(NULL);
  threads();
  going_while_reserved();
  going_with_payloads();
  unet_context_close(context);
  puts("all well");
  return 0;
}
