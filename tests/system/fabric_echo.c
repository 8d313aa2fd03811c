// fabric_echo.c - two processes of libfabric without MPI: a message comes back, and memory is written and read; for container.py.
//
// Usage: fabric_echo serve NAME | fabric_echo call unet://HOST/NAME
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MUST(call) must((long)(call), #call)

enum { BYTES = 1 << 20, REMOTE = 1 << 16, KEY = 7, NAMES = 256, FROM_CALLER = 1, DATA = 2, BACK = 3 };

static struct fid_ep *endpoint;
static struct fid_cq *queue;
static struct fid_av *addresses;
static char remote[REMOTE];

static long must(long result, const char *what) {
  if (result >= 0) return result;
  fprintf(stderr, "fabric_echo: %s: %s\n", what, fi_strerror((int)-result));
  exit(1);
}

static void open_endpoint(const char *name) {
  struct fi_info *hints = fi_allocinfo(), *info;
  struct fi_cq_attr queue_attributes = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC};
  struct fi_av_attr address_attributes = {.type = FI_AV_TABLE};
  struct fid_fabric *fabric;
  struct fid_domain *domain;
  struct fid_mr *region;
  hints->caps = FI_TAGGED | FI_RMA;
  hints->addr_format = FI_ADDR_STR;
  hints->ep_attr->type = FI_EP_RDM;
  hints->fabric_attr->prov_name = strdup("unet");
  MUST(fi_getinfo(FI_VERSION(1, 17), NULL, name, name != NULL ? FI_SOURCE : 0, hints, &info));
  MUST(fi_fabric(info->fabric_attr, &fabric, NULL));
  MUST(fi_domain(fabric, info, &domain, NULL));
  MUST(fi_endpoint(domain, info, &endpoint, NULL));
  MUST(fi_cq_open(domain, &queue_attributes, &queue, NULL));
  MUST(fi_av_open(domain, &address_attributes, &addresses, NULL));
  MUST(fi_ep_bind(endpoint, &queue->fid, FI_TRANSMIT | FI_RECV));
  MUST(fi_ep_bind(endpoint, &addresses->fid, 0));
  MUST(fi_enable(endpoint));
  MUST(fi_mr_reg(domain, remote, REMOTE, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &region, NULL));
  fi_freeinfo(info);
  fi_freeinfo(hints);
}

// Starts an operation, which may have to wait for room, and waits for its end. Returns its length.
static size_t done(ssize_t (*start)(void *), void *arguments) {
  struct fi_cq_tagged_entry ended;
  ssize_t result;
  while ((result = start(arguments)) == -FI_EAGAIN) fi_cq_read(queue, NULL, 0);
  must(result, "the start of an operation");
  while ((result = fi_cq_sread(queue, &ended, 1, NULL, 1000)) == -FI_EAGAIN) {
  }
  if (result == -FI_EAVAIL) {
    struct fi_cq_err_entry error = {0};
    fi_cq_readerr(queue, &error, 0);
    result = -error.err;
  }
  must(result, "an operation");
  return ended.len;
}

struct Arguments {
  fi_addr_t peer;
  uint64_t tag;
  void *data;
  size_t bytes;
};
static ssize_t start_send(void *p) {
  const struct Arguments *a = p;
  return fi_tsend(endpoint, a->data, a->bytes, NULL, a->peer, a->tag, NULL);
}
static ssize_t start_receive(void *p) {
  const struct Arguments *a = p;
  return fi_trecv(endpoint, a->data, a->bytes, NULL, FI_ADDR_UNSPEC, a->tag, 0, NULL);
}
static ssize_t start_write(void *p) {
  const struct Arguments *a = p;
  return fi_write(endpoint, a->data, a->bytes, NULL, a->peer, 0, KEY, NULL);
}
static ssize_t start_read(void *p) {
  const struct Arguments *a = p;
  return fi_read(endpoint, a->data, a->bytes, NULL, a->peer, 0, KEY, NULL);
}
static size_t transfer(ssize_t (*start)(void *), fi_addr_t peer, uint64_t tag, void *data, size_t bytes) {
  struct Arguments arguments = {peer, tag, data, bytes};
  return done(start, &arguments);
}

static void serve(void) {
  char *data = malloc(BYTES), caller[NAMES];
  for (;;) {
    fi_addr_t peer;
    transfer(start_receive, FI_ADDR_UNSPEC, FROM_CALLER, caller, NAMES);
    if (fi_av_insert(addresses, caller, 1, &peer, 0, NULL) != 1) must(-FI_EINVAL, caller);
    const size_t bytes = transfer(start_receive, FI_ADDR_UNSPEC, DATA, data, BYTES);
    transfer(start_send, peer, BACK, data, bytes);
  }
}

static void call(const char *server) {
  char *data = malloc(BYTES), *back = malloc(BYTES), own[NAMES];
  size_t length = NAMES;
  fi_addr_t peer;
  for (size_t i = 0; i < BYTES; ++i) data[i] = (char)(i * 7 % 251);
  MUST(fi_getname(&endpoint->fid, own, &length));
  if (fi_av_insert(addresses, server, 1, &peer, 0, NULL) != 1) must(-FI_EINVAL, server);
  transfer(start_send, peer, FROM_CALLER, own, length);
  transfer(start_send, peer, DATA, data, BYTES);
  const size_t returned = transfer(start_receive, FI_ADDR_UNSPEC, BACK, back, BYTES);
  if (returned != BYTES || memcmp(data, back, BYTES) != 0) must(-FI_EIO, "the message that came back");
  transfer(start_write, peer, 0, data, REMOTE);
  memset(back, 0, REMOTE);
  transfer(start_read, peer, 0, back, REMOTE);
  if (memcmp(data, back, REMOTE) != 0) must(-FI_EIO, "the memory that was written and read");
  printf("%d bytes came back, %d were written and read\n", BYTES, REMOTE);
}

int main(int argc, char **argv) {
  const int serves = argc == 3 && strcmp(argv[1], "serve") == 0;
  if (!serves && (argc != 3 || strcmp(argv[1], "call") != 0)) {
    fprintf(stderr, "usage: fabric_echo serve NAME | fabric_echo call unet://HOST/NAME\n");
    return 2;
  }
  alarm(60);
  open_endpoint(serves ? argv[2] : NULL);
  if (serves) serve();
  call(argv[2]);
  return 0;
}
