// am_hello.c - Active Messages: a request that runs a handler elsewhere, its reply, and a message that is returned. am_hello.cc: in C++.
//
//   cc -o am_hello_c am_hello.c $(pkg-config --cflags --libs unet-am)
//   unet-run -- ./am_hello_c                (unet-run starts a network interface for it; or start unetd, then ./am_hello_c)
//
// Both endpoints are in this process, and in one bundle, to keep it short. In two processes every call is the same.
#include <am/am.h>
#include <stdio.h>
#include <stdlib.h>

// Indices of Bob's handler table and of Alice's.
enum { MULTIPLY = 1, NO_SUCH_HANDLER = 2 };
enum { PRODUCT = 1 };

// A set-up call that fails leaves a sentence.
static void check(int result, const char *call) {
  if (result >= 0) return;
  fprintf(stderr, "am_hello: %s: %s\n", call, unet_error_text());
  exit(1);
}

// Runs at Bob. The token is the message, and the right to reply to it.
static void multiply(unet_am_token *token, void *context) {
  (void)context;
  char name[64];
  unet_am_source_name(token, name, sizeof name);
  const uint32_t *arguments = unet_am_arguments(token, NULL);
  printf("Bob handles a request from %s: %u * %u\n", name, arguments[0], arguments[1]);
  uint32_t product = arguments[0] * arguments[1];
  unet_am_reply_short(token, PRODUCT, &product, 1);
}

// Runs at Alice.
static void take_product(unet_am_token *token, void *done) {
  printf("Alice handles a reply: %u\n", unet_am_arguments(token, NULL)[0]);
  *(int *)done = 1;
}

// Runs at Alice for an undeliverable message.
static void came_back(unet_am_endpoint *endpoint, const unet_am_returned *returned, void *done) {
  (void)endpoint;
  printf("came back: %s\n", unet_am_name_of(returned->status));
  *(int *)done = 1;
}

int main(void) {
  // 1. Open a network interface, and make a bundle: the endpoints that one poll serves.
  unet_context *context;
  unet_am_bundle *bundle;
  check(unet_context_open(NULL, NULL, &context), "unet_context_open");
  check(unet_am_bundle_create(0, &bundle), "unet_am_bundle_create");

  // 2. Make two endpoints with names. A handler that is set with a number of arguments gets exactly that many.
  unet_am_endpoint *alice, *bob;
  int answered = 0, returned = 0;
  check(unet_am_endpoint_create(context, bundle, NULL, &alice), "unet_am_endpoint_create");
  check(unet_am_endpoint_create(context, bundle, NULL, &bob), "unet_am_endpoint_create");
  check(unet_am_bind(alice, "hello/alice"), "unet_am_bind");
  check(unet_am_bind(bob, "hello/bob"), "unet_am_bind");
  check(unet_am_set_handler_counted(bob, MULTIPLY, 2, multiply, NULL), "unet_am_set_handler_counted");
  check(unet_am_set_handler_counted(alice, PRODUCT, 1, take_product, &answered), "unet_am_set_handler_counted");
  unet_am_set_error_handler(alice, came_back, &returned);

  // 3. Map Alice's translation 0 to Bob.
  check(unet_am_map(alice, 0, "hello/bob", UNET_AM_ANY_TAG, NULL), "unet_am_map");

  // 4. Send a request and wait: handlers run meanwhile.
  const uint32_t factors[2] = {6, 7};
  unet_am_request_short(alice, 0, MULTIPLY, factors, 2);
  while (!answered) unet_am_wait(bundle, UNET_FOREVER, UNET_SPIN_DEFAULT);

  // 5. Bob has no such handler: the message is returned.
  unet_am_request_short(alice, 0, NO_SUCH_HANDLER, NULL, 0);
  while (!returned) unet_am_wait(bundle, UNET_FOREVER, UNET_SPIN_DEFAULT);

  unet_am_bundle_destroy(bundle);  // also destroys its endpoints
  unet_context_close(context);
  return 0;
}
