// pingpong.c - a message to another process and back.
//
//   cc -o pingpong pingpong.c $(pkg-config --cflags --libs unet)
//   unet-run -n 2 -- ./pingpong
//   UNET_RANK=0 ./pingpong   on one host, and   UNET_RANK=1 ./pingpong pong@HOST   on another
#include <stdio.h>
#include <stdlib.h>
#include <unet/unet.h>

static unet_message receive(unet_endpoint *endpoint) {
  unet_message message;
  while (!unet_receive(endpoint, &message)) unet_wait(endpoint, UNET_FOREVER, UNET_SPIN_DEFAULT);
  return message;  // it lies in memory shared with the sender, until unet_release()
}

int main(int argc, char **argv) {
  const char *rank = getenv("UNET_RANK");
  unet_connect_options patient = {.size = sizeof patient, .wait_ns = 10000000000};  // until the other process has its name
  unet_context *context;
  unet_endpoint *endpoint;
  int channel;
  if (unet_context_open(NULL, NULL, &context) < 0 || unet_endpoint_create(context, NULL, &endpoint) < 0) goto failed;
  if (rank == NULL || *rank == '0') {
    if (unet_bind(endpoint, "pong") < 0 || (channel = unet_accept_next(endpoint, UNET_FOREVER, NULL)) < 0) goto failed;
    unet_message message = receive(endpoint);
    unet_send(endpoint, channel, message.data, message.length, 0);
    unet_release(endpoint, &message);
  } else {
    if ((channel = unet_connect(endpoint, argc > 1 ? argv[1] : "pong", &patient)) < 0) goto failed;
    unet_send(endpoint, channel, "ping", 4, 0);
    unet_message message = receive(endpoint);
    printf("%.*s came back\n", (int)message.length, (const char *)message.data);
    unet_release(endpoint, &message);
  }
  unet_endpoint_destroy(endpoint);  // what was sent leaves first
  unet_context_close(context);
  return 0;
failed:
  fprintf(stderr, "pingpong: %s\n", unet_error_text());
  return 1;
}
