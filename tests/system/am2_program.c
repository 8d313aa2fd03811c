// am2_program.c - a program written to AM-2: a server and a client process that exchange endpoint names through pipes. Prints a line on
// success.
#include <am.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/system/require.h"

enum { SUM = 1, ECHO = 2, DEPOSIT = 3, LONG_ANSWER = 4, RULES = 5, CALL_BACK = 6, STOP = 7, ANSWER = 8, BUFFER = 9 };
enum { UNDELIVERABLE = 10, NOBODY = 200 };
enum { SEGMENT = 60000 };
#define TAG ((tag_t)0x1122334455667788)

static char segment[SEGMENT];
static ep_t self;
static en_t own_name, server_name;

// ---- server

static int stopped, called_back;
static en_t client_name;

static void sum_0(void *token) { REQUIRE(AM_Reply1(token, ANSWER, 0) == AM_OK); }

static void sum(void *token, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10, int a11, int a12,
                int a13, int a14, int a15) {
  REQUIRE(AM_Reply1(token, ANSWER, a0 + a1 + a2 + a3 + a4 + a5 + a6 + a7 + a8 + a9 + a10 + a11 + a12 + a13 + a14 + a15) == AM_OK);
}

static void echo(void *token, void *buffer, int bytes, int a0, int a1) {
  REQUIRE(AM_ReplyI2(token, BUFFER, buffer, bytes, a1, a0) == AM_OK);
}

static void deposit(void *token, void *buffer, int bytes, int offset) {
  REQUIRE(buffer == segment + offset);
  int total = 0;
  for (int i = 0; i < bytes; ++i) total += ((unsigned char *)buffer)[i];
  REQUIRE(AM_Reply1(token, ANSWER, total) == AM_OK);
}

static void long_answer(void *token, int offset, int bytes) {
  REQUIRE(AM_ReplyXfer0(token, (uintptr_t)offset, BUFFER, segment, bytes) == AM_OK);
}

static void rules(void *token) {
  REQUIRE(AM_Request0(self, 0, STOP) == AM_ERR_RESOURCE);
  REQUIRE(AM_Reply0(token, 256) == AM_ERR_BAD_ARG && AM_ReplyI0(token, ANSWER, NULL, 1) == AM_ERR_BAD_ARG);
  REQUIRE(AM_Reply1(token, ANSWER, 5) == AM_OK && AM_Reply1(token, ANSWER, 5) == AM_ERR_RESOURCE);
  ep_t endpoint = NULL;
  tag_t tag = AM_NONE;
  REQUIRE(AM_GetDestEndpoint(token, &endpoint) == AM_OK && endpoint == self);
  REQUIRE(AM_GetMsgTag(token, &tag) == AM_OK && tag == TAG);
}

// Replies to a missing handler, and beyond the requester's segment.
static void undeliverable(void *token, int which) {
  if (which == AM_REPLY_M) REQUIRE(AM_Reply1(token, NOBODY, 5) == AM_OK);
  if (which == AM_REPLY_IM) REQUIRE(AM_ReplyI0(token, NOBODY, segment, 10) == AM_OK);
  if (which == AM_REPLY_XFER_M) REQUIRE(AM_ReplyXfer0(token, SEGMENT - 9, BUFFER, segment, 10) == AM_OK);
}

static void call_back(void *token) {
  REQUIRE(AM_GetSourceEndpoint(token, &client_name) == AM_OK);
  called_back = 1;
}
static void stop(void *token) { (void)token, stopped = 1; }

static void no_returns(int status, op_t opcode, void *block) {
  (void)block;
  fprintf(stderr, "came back: status %d, opcode %d\n", status, opcode);
  exit(1);
}

static void serve(int from_client, int to_client) {
  eb_t bundle;
  int mask = -1;
  REQUIRE(AM_Init() == AM_OK && AM_AllocateBundle(AM_SEQ, &bundle) == AM_OK);
  REQUIRE(AM_AllocateEndpoint(bundle, &self, &own_name) == AM_OK);
  REQUIRE(AM_SetTag(self, TAG) == AM_OK && AM_SetSeg(self, segment, SEGMENT) == AM_OK);
  REQUIRE(AM_SetHandler(self, 0, no_returns) == AM_OK && AM_SetHandler(self, SUM, sum) == AM_OK);
  REQUIRE(AM_SetHandler(self, 20, sum_0) == AM_OK);
  REQUIRE(AM_SetHandler(self, ECHO, echo) == AM_OK && AM_SetHandler(self, DEPOSIT, deposit) == AM_OK);
  REQUIRE(AM_SetHandler(self, LONG_ANSWER, long_answer) == AM_OK && AM_SetHandler(self, RULES, rules) == AM_OK);
  REQUIRE(AM_SetHandler(self, CALL_BACK, call_back) == AM_OK && AM_SetHandler(self, STOP, stop) == AM_OK);
  REQUIRE(AM_SetHandler(self, UNDELIVERABLE, undeliverable) == AM_OK);
  REQUIRE(write(to_client, &own_name, sizeof own_name) == (ssize_t)sizeof own_name);
  // A client that maps the endpoint before the server polls must not wait.
  char ready;
  REQUIRE(read(from_client, &ready, 1) == 1);
  REQUIRE(AM_GetEventMask(bundle, &mask) == AM_OK && mask == AM_NOEVENTS && AM_WaitSema(bundle) == AM_ERR_RESOURCE);
  REQUIRE(AM_SetEventMask(bundle, AM_NOTEMPTY) == AM_OK && AM_SetEventMask(bundle, 5) == AM_ERR_BAD_ARG);
  while (!stopped) {
    REQUIRE(AM_WaitSema(bundle) == AM_OK && AM_Poll(bundle) == AM_OK);
    if (called_back) {
      called_back = 0;
      int index = -1;
      REQUIRE(AM_MapAny(self, &index, client_name, 99) == AM_OK && index == 0);
      REQUIRE(AM_Request1(self, index, ANSWER, 4711) == AM_OK);
    }
  }
  REQUIRE(AM_FreeEndpoint(self) == AM_OK && AM_FreeBundle(bundle) == AM_OK && AM_Terminate() == AM_OK);
}

// ---- client

static int answers, answer, status, returns;
static op_t opcode;
static unet_am2_argblock block;
static char buffer[20000];
static void *buffer_at;
static int buffer_bytes, words[2];
static en_t answered_by;
static tag_t answer_tag;

static void on_answer(void *token, int value) {
  REQUIRE(AM_GetSourceEndpoint(token, &answered_by) == AM_OK && AM_GetMsgTag(token, &answer_tag) == AM_OK);
  answer = value;
  ++answers;
}
static void ignore(void *token, int value) { (void)token, (void)value; }
static void on_buffer(void *token, void *at, int bytes, int a0, int a1) {
  (void)token;
  memcpy(buffer, at, (size_t)bytes);
  buffer_at = at;
  buffer_bytes = bytes;
  words[0] = a0;
  words[1] = a1;
  ++answers;
}
static void on_return(int why, op_t what, void *argblock) {
  status = why;
  opcode = what;
  block = *(unet_am2_argblock *)argblock;
  ++returns;
  REQUIRE(AM_Request0(self, 0, SUM) == AM_ERR_RESOURCE);
}

static eb_t bundle;

#define ANSWERED(call)                                    \
  do {                                                    \
    int before_ = answers;                                \
    REQUIRE((call) == AM_OK);                             \
    UNTIL(answers == before_ + 1, AM_Poll(bundle));       \
  } while (0)
#define RETURNED(call, why, what)                         \
  do {                                                    \
    int before_ = returns;                                \
    REQUIRE((call) == AM_OK);                             \
    UNTIL(returns == before_ + 1, AM_Poll(bundle));       \
    REQUIRE(status == (why) && opcode == (what));         \
  } while (0)

static void set_up(int to_server) {
  REQUIRE(AM_Poll(NULL) == AM_ERR_NOT_INIT && AM_AllocateBundle(AM_SEQ, &bundle) == AM_ERR_NOT_INIT && AM_Terminate() == AM_ERR_NOT_INIT);
  REQUIRE(AM_Request0(NULL, 0, SUM) == AM_ERR_NOT_INIT);
  REQUIRE(AM_Init() == AM_OK && AM_Init() == AM_OK);
  REQUIRE(AM_AllocateBundle(7, &bundle) == AM_ERR_BAD_ARG && AM_AllocateBundle(AM_SEQ, &bundle) == AM_OK);
  REQUIRE(AM_AllocateEndpoint(NULL, &self, &own_name) == AM_ERR_BAD_ARG && AM_AllocateEndpoint(bundle, &self, &own_name) == AM_OK);
  tag_t tag = AM_ALL;
  REQUIRE(AM_GetTag(self, &tag) == AM_OK && tag == AM_NONE && AM_SetTag(self, 99) == AM_OK);
  REQUIRE(AM_SetHandler(self, 0, on_return) == AM_OK && AM_SetHandler(self, ANSWER, on_answer) == AM_OK);
  REQUIRE(AM_SetHandler(self, 256, on_answer) == AM_ERR_BAD_ARG && AM_SetHandler(self, 10, NULL) == AM_ERR_BAD_ARG);
  handler_t any = -1;
  REQUIRE(AM_SetHandlerAny(self, &any, on_buffer) == AM_OK && any == 1 && AM_SetHandler(self, BUFFER, on_buffer) == AM_OK);
  int number = 0;
  REQUIRE(AM_GetNumHandlers(self, &number) == AM_OK && number == AM_MaxNumHandlers() && number >= 256);
  REQUIRE(AM_SetNumHandlers(self, 1000) == AM_ERR_RESOURCE && AM_SetNumHandlers(self, 256) == AM_OK);
  REQUIRE(AM_GetNumTranslations(self, &number) == AM_OK && number == 256 && AM_SetNumTranslations(self, 300) == AM_OK);
  REQUIRE(AM_MaxNumTranslations(&number) == AM_OK && AM_SetNumTranslations(self, number + 1) == AM_ERR_RESOURCE);
  REQUIRE(AM_MaxShort() >= 8 && AM_MaxMedium() >= 512 && AM_MaxLong() >= 8192);

  REQUIRE(AM_GetTranslationInuse(self, 3) == AM_ERR_RESOURCE && AM_GetTranslationInuse(self, 300) == AM_ERR_BAD_ARG);
  REQUIRE(AM_Map(self, 300, server_name, TAG) == AM_ERR_BAD_ARG && AM_Map(self, 3, server_name, TAG) == AM_OK);
  REQUIRE(AM_Map(self, 3, server_name, TAG) == AM_ERR_RESOURCE && AM_GetTranslationInuse(self, 3) == AM_OK);
  en_t name;
  REQUIRE(AM_GetTranslationName(self, 3, &name) == AM_OK && strcmp(name.text, server_name.text) == 0);
  REQUIRE(AM_GetTranslationTag(self, 3, &tag) == AM_OK && tag == TAG && AM_GetTranslationTag(self, 4, &tag) == AM_ERR_RESOURCE);
  REQUIRE(AM_SetNumTranslations(self, 3) == AM_ERR_RESOURCE && AM_SetNumTranslations(self, 4) == AM_OK);
  REQUIRE(AM_SetNumTranslations(self, 256) == AM_OK);
  REQUIRE(AM_SetExpectedResources(self, 0, 1) == AM_ERR_BAD_ARG && AM_SetExpectedResources(self, 2, 10) == AM_OK);
  REQUIRE(AM_SetExpectedResources(self, 2, 10) == AM_ERR_RESOURCE);
  // The server has not polled before this byte arrives.
  REQUIRE(write(to_server, "", 1) == 1);
}

static void messages(void) {
  ANSWERED(AM_Request16(self, 3, SUM, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, -16));
  REQUIRE(answer == 104 && answer_tag == TAG && strcmp(answered_by.text, server_name.text) == 0);
  ANSWERED(AM_Request0(self, 3, 20));
  REQUIRE(answer == 0);
  static char data[20000];
  for (int i = 0; i < (int)sizeof data; ++i) data[i] = (char)(i * 3);
  for (int bytes = 0; bytes <= AM_MaxMedium(); bytes = bytes * 4 + 1) {
    ANSWERED(AM_RequestI2(self, 3, ECHO, data, bytes, bytes, -7));
    REQUIRE(buffer_bytes == bytes && memcmp(buffer, data, (size_t)bytes) == 0 && words[0] == -7 && words[1] == bytes);
  }
  int total = 0;
  for (int i = 0; i < 10000; ++i) total += (unsigned char)data[i];
  ANSWERED(AM_RequestXfer1(self, 3, 1234, DEPOSIT, data, 10000, 1234));
  REQUIRE(answer == total);
  int result, before = answers, sent = 0;
  for (; sent < 200 && (result = AM_RequestXferAsync1(self, 3, 1234, DEPOSIT, data, 10000, 1234)) == AM_OK; ++sent) {
  }
  REQUIRE(sent > 0 && (result == AM_OK || result == AM_ERR_NOT_SENT));
  UNTIL(answers == before + sent, AM_Poll(bundle));

  REQUIRE(AM_GetXfer0(self, 3, 1234, BUFFER, 0, 1) == AM_ERR_BAD_ARG);  // no segment yet
  uintptr_t most = 0, bytes = 0;
  void *address = NULL;
  REQUIRE(AM_MaxSegLength(&most) == AM_OK && most >= SEGMENT && AM_SetSeg(self, segment, SEGMENT) == AM_OK);
  REQUIRE(AM_GetSeg(self, &address, &bytes) == AM_OK && address == segment && bytes == SEGMENT);
  memset(segment, 0, SEGMENT);
  ANSWERED(AM_GetXfer2(self, 3, 1234, BUFFER, 50, 9999, 8, 9));
  REQUIRE(buffer_at == segment + 50 && buffer_bytes == 9999 && memcmp(segment + 50, data, 9999) == 0 && segment[50 + 9999] == 0);
  REQUIRE(words[0] == 8 && words[1] == 9);
  ANSWERED(AM_Request2(self, 3, LONG_ANSWER, 20000, 5000));
  REQUIRE(buffer_at == segment + 20000 && buffer_bytes == 5000);
  ANSWERED(AM_Request0(self, 3, RULES));
  ANSWERED(AM_Request0(self, 3, CALL_BACK));
  REQUIRE(answer == 4711 && answer_tag == 99 && strcmp(answered_by.text, server_name.text) == 0);
}

static void what_comes_back(void) {
  RETURNED(AM_Request2(self, 4, SUM, 8, 9), EBADENTRY, AM_REQUEST_M);
  REQUIRE(block.endpoint == self && block.index == 4 && block.handler == SUM && block.count == 2 && block.arguments[1] == 9);
  RETURNED(AM_Request1(self, 3, NOBODY, 5), EBADHANDLER, AM_REQUEST_M);
  REQUIRE(block.index == 3 && block.handler == NOBODY && block.count == 1 && block.arguments[0] == 5);
  REQUIRE(AM_Map(self, 5, server_name, TAG + 1) == AM_OK);
  RETURNED(AM_RequestI0(self, 5, ECHO, segment, 10), EBADTAG, AM_REQUEST_IM);
  REQUIRE(AM_UnMap(self, 5) == AM_OK && AM_UnMap(self, 5) == AM_ERR_RESOURCE && AM_Map(self, 5, server_name, AM_ALL) == AM_OK);
  RETURNED(AM_Request0(self, 5, SUM), EBADTAG, AM_REQUEST_M);
  RETURNED(AM_RequestXfer0(self, 3, SEGMENT + 1, DEPOSIT, segment, 0), EBADSEGOFF, AM_REQUEST_XFER_M);
  RETURNED(AM_RequestXfer0(self, 3, SEGMENT - 9, DEPOSIT, segment, 10), EBADLENGTH, AM_REQUEST_XFER_M);
  RETURNED(AM_GetXfer0(self, 3, SEGMENT - 9, BUFFER, 0, 10), EBADLENGTH, AM_GET_XFER_M);
  RETURNED(AM_Request1(self, 3, UNDELIVERABLE, AM_REPLY_M), EREPLYREJECTED, AM_REPLY_M);
  REQUIRE(block.index == 3 && block.handler == NOBODY && block.count == 1 && block.arguments[0] == 5);
  RETURNED(AM_Request1(self, 3, UNDELIVERABLE, AM_REPLY_IM), EREPLYREJECTED, AM_REPLY_IM);
  RETURNED(AM_Request1(self, 3, UNDELIVERABLE, AM_REPLY_XFER_M), EREPLYREJECTED, AM_REPLY_XFER_M);
  en_t nobody;
  memset(&nobody, 0, sizeof nobody);
  strcpy(nobody.text, "am2/nobody");
  REQUIRE(AM_Map(self, 6, nobody, TAG) == AM_OK);
  RETURNED(AM_Request0(self, 6, SUM), EBADENDPOINT, AM_REQUEST_M);
  strcpy(nobody.text, "no name");
  REQUIRE(AM_Map(self, 7, nobody, TAG) == AM_ERR_BAD_ARG && AM_GetTranslationInuse(self, 7) == AM_ERR_RESOURCE);
  REQUIRE(AM_Request0(self, -1, SUM) == AM_ERR_BAD_ARG && AM_Request0(self, 256, SUM) == AM_ERR_BAD_ARG);
  REQUIRE(AM_Request0(self, 3, 256) == AM_ERR_BAD_ARG && AM_Request0(self, 3, -1) == AM_ERR_BAD_ARG);
  // Without an error handler, requests that return when their translation is removed are dropped.
  ep_t other;
  REQUIRE(AM_AllocateEndpoint(bundle, &other, &nobody) == AM_OK && AM_Map(other, 0, server_name, TAG) == AM_OK);
  REQUIRE(AM_SetHandler(other, ANSWER, ignore) == AM_OK);  // some may be answered before
  for (int i = 0; i < 10; ++i) REQUIRE(AM_Request0(other, 0, 20) == AM_OK);
  REQUIRE(AM_UnMap(other, 0) == AM_OK && AM_FreeEndpoint(other) == AM_OK);
  REQUIRE(AM_RequestI0(self, 3, ECHO, segment, AM_MaxMedium() + 1) == AM_ERR_BAD_ARG);
  REQUIRE(AM_RequestI0(self, 3, ECHO, segment, -1) == AM_ERR_BAD_ARG && AM_RequestI0(self, 3, ECHO, NULL, 1) == AM_ERR_BAD_ARG);
  REQUIRE(AM_RequestXfer0(self, 3, 0, DEPOSIT, segment, AM_MaxLong() + 1) == AM_ERR_BAD_ARG);
}

// ---- a bundle of several threads

enum { THREADS = 3, EACH = 200 };
static int heard[THREADS];
static eb_t shared;
static ep_t left, right;

static void answer_right(void *token, int thread) { REQUIRE(AM_Reply1(token, ANSWER, thread) == AM_OK); }
static void hear_left(void *token, int thread) {
  (void)token;
  __atomic_fetch_add(&heard[thread], 1, __ATOMIC_RELAXED);
}
static void *run_thread(void *argument) {
  const int thread = (int)(long)argument;
  for (int i = 1; i <= EACH; ++i) {
    REQUIRE(AM_Request1(left, 0, SUM, thread) == AM_OK);
    UNTIL(__atomic_load_n(&heard[thread], __ATOMIC_RELAXED) >= i, REQUIRE(AM_Poll(shared) == AM_OK));
  }
  return NULL;
}

static void threads(void) {
  eb_t other;
  en_t left_name, right_name;
  REQUIRE(AM_AllocateBundle(AM_PAR, &shared) == AM_OK && AM_AllocateBundle(AM_SEQ, &other) == AM_OK);
  REQUIRE(AM_AllocateEndpoint(shared, &left, &left_name) == AM_OK && AM_AllocateEndpoint(other, &right, &right_name) == AM_OK);
  REQUIRE(strcmp(left_name.text, right_name.text) != 0);
  REQUIRE(AM_SetTag(right, 5) == AM_OK && AM_SetHandler(right, SUM, answer_right) == AM_OK);
  REQUIRE(AM_SetHandler(left, ANSWER, hear_left) == AM_OK);
  REQUIRE(AM_Map(left, 0, right_name, 5) == AM_OK);
  REQUIRE(AM_MoveEndpoint(right, shared, other) == AM_ERR_BAD_ARG && AM_MoveEndpoint(right, other, shared) == AM_OK);
  pthread_t all[THREADS];
  for (long i = 0; i < THREADS; ++i) REQUIRE(pthread_create(&all[i], NULL, run_thread, (void *)i) == 0);
  for (int i = 0; i < THREADS; ++i) REQUIRE(pthread_join(all[i], NULL) == 0);
  for (int i = 0; i < THREADS; ++i) REQUIRE(heard[i] == EACH);
}

// ---- two bundles of one thread, which is alone in its process

static int taken;

static void take(void *token) { (void)token, ++taken; }

static void one_thread(void) {
  enum { MANY = 1000 };  // more than the credits
  eb_t asking, asked;
  ep_t from, to;
  en_t from_name, to_name;
  REQUIRE(AM_AllocateBundle(AM_SEQ, &asking) == AM_OK && AM_AllocateEndpoint(asking, &from, &from_name) == AM_OK);
  REQUIRE(AM_AllocateBundle(AM_SEQ, &asked) == AM_OK && AM_AllocateEndpoint(asked, &to, &to_name) == AM_OK);
  REQUIRE(AM_SetTag(to, AM_ALL) == AM_OK && AM_SetHandler(to, STOP, take) == AM_OK && AM_Map(from, 0, to_name, AM_ALL) == AM_OK);
  alarm(HANG_SECONDS);  // a call that waits for itself would hang
  for (int i = 0; i < MANY; ++i) REQUIRE(AM_Request0(from, 0, STOP) == AM_OK);
  alarm(0);
  UNTIL(taken == MANY, AM_Poll(asked));
  REQUIRE(AM_FreeBundle(asking) == AM_OK && AM_FreeBundle(asked) == AM_OK);
}

// ---- handlers that run while something is freed

static int looked;

static void look(void *token, void *at, int bytes) {
  (void)token, (void)at, (void)bytes;
  REQUIRE(AM_Init() == AM_OK);  // uses state that all bundles share, as every create and free does
  ++looked;
}

static void freeing(void) {
  eb_t pair;
  ep_t source, sink;
  en_t source_name, sink_name;
  REQUIRE(AM_AllocateBundle(AM_PAR, &pair) == AM_OK);
  REQUIRE(AM_AllocateEndpoint(pair, &source, &source_name) == AM_OK && AM_AllocateEndpoint(pair, &sink, &sink_name) == AM_OK);
  REQUIRE(AM_SetTag(sink, TAG) == AM_OK && AM_SetSeg(sink, segment, SEGMENT) == AM_OK && AM_SetHandler(sink, DEPOSIT, look) == AM_OK);
  REQUIRE(AM_SetHandler(source, 0, on_return) == AM_OK && AM_Map(source, 0, sink_name, TAG) == AM_OK);
  REQUIRE(AM_RequestXfer0(source, 0, 0, DEPOSIT, segment, 1) == AM_OK);
  UNTIL(looked == 1, AM_Poll(pair));
  int sent = 1;
  while (AM_RequestXferAsync0(source, 0, 0, DEPOSIT, segment, AM_MaxLong()) == AM_OK) REQUIRE(++sent < 10000);
  REQUIRE(looked < sent);
  alarm(HANG_SECONDS);  // a call that waits for itself would hang
  REQUIRE(AM_FreeEndpoint(source) == AM_OK);
  alarm(0);
  REQUIRE(looked > 1 && AM_FreeEndpoint(NULL) == AM_ERR_BAD_ARG && AM_FreeBundle(pair) == AM_OK);
}

int main(void) {
  int to_server[2], to_client[2], ended = -1;
  REQUIRE(pipe(to_server) == 0 && pipe(to_client) == 0);
  const pid_t server = fork();
  REQUIRE(server >= 0);
  if (server == 0) {
    serve(to_server[0], to_client[1]);
    return 0;
  }
  REQUIRE(read(to_client[0], &server_name, sizeof server_name) == (ssize_t)sizeof server_name);
  set_up(to_server[1]);
  messages();
  what_comes_back();
  REQUIRE(AM_Request0(self, 3, STOP) == AM_OK);
  REQUIRE(waitpid(server, &ended, 0) == server && WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
  RETURNED(AM_Request0(self, 3, STOP), EUNREACHABLE, AM_REQUEST_M);
  one_thread();
  threads();
  freeing();
  REQUIRE(AM_Terminate() == AM_OK && AM_Poll(bundle) == AM_ERR_NOT_INIT);
  puts("all well");
  return 0;
}
