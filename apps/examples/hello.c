// hello.c - a message from one endpoint to another, and an answer; the first program to read. hello.cc is the same in C++.
//
//   cc -o hello_c hello.c $(pkg-config --cflags --libs unet)
//   unet-run -- ./hello_c                   (unet-run starts a network interface for it; or start unetd, then ./hello_c)
//
// Both endpoints are in this process, to keep it short. In two processes (echo_server.c, echo_client.c) every call is the same.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unet/unet.h>

// A call that fails for a reason outside the program leaves a sentence about it.
static int check(int result, const char *call) {
  if (result < 0) {
    fprintf(stderr, "hello: %s: %s\n", call, unet_error_text());
    exit(1);
  }
  return result;
}

// Sends a text. The data path has few ways to fail and leaves no sentence, only a code.
static void send_text(unet_endpoint *endpoint, int channel, const char *text) {
  int result = unet_send(endpoint, channel, text, strlen(text), 0);
  if (result < 0) {
    fprintf(stderr, "hello: unet_send: %s\n", unet_error_name(result));
    exit(1);
  }
}

// Waits for a message, prints it, and releases its memory.
static int show_message(const char *who, unet_endpoint *endpoint) {
  unet_message message;
  while (!unet_receive(endpoint, &message)) {
    // No message yet: poll for a moment, then sleep until one comes.
    int result = unet_wait(endpoint, UNET_FOREVER, UNET_SPIN_DEFAULT);
    if (result < 0) {
      fprintf(stderr, "hello: unet_wait: %s\n", unet_error_name(result));
      exit(1);
    }
  }
  // Read the message in place: message.data points into memory that this process shares with the sender.
  printf("%s received: %.*s\n", who, (int)message.length, (const char *)message.data);
  int channel = message.channel;
  unet_release(endpoint, &message);
  return channel;
}

int main(void) {
  // 1. Connect to a network interface: the one that UNET_NI names (unet-run sets it), else the unetd of this host.
  unet_context *context;
  check(unet_context_open(NULL, NULL, &context), "unet_context_open");

  // 2. An endpoint is this program's own network interface: a send queue, a receive queue, and memory for messages.
  unet_endpoint *alice, *bob;
  check(unet_endpoint_create(context, NULL, &alice), "unet_endpoint_create");
  check(unet_endpoint_create(context, NULL, &bob), "unet_endpoint_create");

  // 3. Bob binds a name, by which other endpoints find it.
  check(unet_bind(bob, "hello/bob"), "unet_bind");

  // 4. Alice asks for a channel to that name. unet_connect() would wait for Bob's answer. But Bob runs in this same thread, so Alice only
  // starts to connect, and looks for the answer later.
  uint64_t pending;
  check(unet_connect_start(alice, "hello/bob", NULL, &pending), "unet_connect_start");

  // 5. Bob waits for a request and accepts it. To each side the channel is a small number.
  int to_alice = check(unet_accept_next(bob, UNET_FOREVER, NULL), "unet_accept_next");
  int to_bob;
  while ((to_bob = unet_connect_poll(alice, pending)) == UNET_EPENDING) unet_wait(alice, UNET_FOREVER, UNET_SPIN_DEFAULT);
  check(to_bob, "unet_connect_poll");

  // 6. From here on the two talk without the kernel and without the network interface's service. Both are on one host, so the channel is
  // memory that only they share, and a short message is one cache line.
  send_text(alice, to_bob, "Hello, Bob.");
  int from = show_message("Bob", bob);
  send_text(bob, from, "Hello, Alice.");
  show_message("Alice", alice);

  // 7. Closing a channel tells the other side. Ending the program would do all of this as well.
  check(unet_channel_close(alice, to_bob), "unet_channel_close");
  check(unet_channel_close(bob, to_alice), "unet_channel_close");
  unet_endpoint_destroy(bob);
  unet_endpoint_destroy(alice);
  unet_context_close(context);
  return 0;
}
