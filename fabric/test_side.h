// test_side.h - a process's side of libfabric, with a unetd for all sides; for tests of endpoints.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/info.h"
#include "unet/base/time.h"
#include "unet/test_daemon.h"

namespace unet::fabric {

struct FreeInfo {
  void operator()(fi_info* info) const noexcept { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

// A unetd that the provider finds by the environment.
struct TestNi {
  TestNi() { ::setenv("UNET_NI", daemon.ni(), 1); }
  TestDaemon daemon;
};

// Calls get_info() with hints that `change` makes.
inline int ask(Info& answer, const std::function<void(fi_info&)>& change = [](fi_info&) {}, uint32_t version = FI_VERSION(1, 17)) {
  const Info hints(fi_allocinfo());
  hints->ep_attr->type = FI_EP_RDM;
  change(*hints);
  fi_info* made = nullptr;
  const int result = get_info(version, nullptr, nullptr, 0, hints.get(), &made);
  answer.reset(made);
  return result;
}

struct Side {
  explicit Side(const std::function<void(fi_info&)>& change = [](fi_info&) {}, const fi_cq_attr& queues = {.format = FI_CQ_FORMAT_TAGGED},
                uint64_t bind = FI_TRANSMIT | FI_RECV, const std::function<void(Side&)>& before_enable = [](Side&) {}) {
    must(ask(info, change) == 0, "fi_getinfo");
    must(open_fabric(info->fabric_attr, &fabric, nullptr) == 0, "fi_fabric");
    must(fi_domain(fabric, info.get(), &domain, nullptr) == 0, "fi_domain");
    fi_av_attr vectors{};
    must(fi_av_open(domain, &vectors, &vector, nullptr) == 0, "fi_av_open");
    fi_cq_attr attributes = queues;
    must(fi_cq_open(domain, &attributes, &queue, nullptr) == 0, "fi_cq_open");
    must(fi_endpoint(domain, info.get(), &endpoint, nullptr) == 0, "fi_endpoint");
    must(fi_ep_bind(endpoint, &vector->fid, 0) == 0, "fi_ep_bind");
    must(fi_ep_bind(endpoint, &queue->fid, bind) == 0, "fi_ep_bind");
    before_enable(*this);
    must(fi_enable(endpoint) == 0, "fi_enable");
  }
  ~Side() {
    close_endpoint();
    for (fid* each : {&queue->fid, &vector->fid, &domain->fid, &fabric->fid}) must(fi_close(each) == 0, "fi_close");
  }
  void close_endpoint() {
    if (endpoint != nullptr) must(fi_close(&endpoint->fid) == 0, "fi_close");
    endpoint = nullptr;
  }
  std::string name() const {
    char text[256];
    size_t length = sizeof text;
    must(fi_getname(&endpoint->fid, text, &length) == 0, "fi_getname");
    return {text, length};
  }
  fi_addr_t know(const Side& other) {
    fi_addr_t number = FI_ADDR_NOTAVAIL;
    must(fi_av_insert(vector, other.name().data(), 1, &number, 0, nullptr) == 1, "fi_av_insert");
    return number;
  }

  Info info;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_av* vector = nullptr;
  fid_cq* queue = nullptr;
  fid_ep* endpoint = nullptr;
};

// Two sides that know each other, in one thread: what waits for one polls both.
struct Pair {
  explicit Pair(const std::function<void(fi_info&)>& change = [](fi_info&) {}, const fi_cq_attr& queues = {.format = FI_CQ_FORMAT_TAGGED})
      : a(change, queues), b(change, queues), to_b(a.know(b)), to_a(b.know(a)) {}
  void poll() {
    fi_cq_read(a.queue, nullptr, 0);
    fi_cq_read(b.queue, nullptr, 0);
  }
  // Repeats a call while it returns -FI_EAGAIN.
  template <typename Call>
  void until_done(const Call& call) {
    const Nanoseconds end = monotonic_now() + 60 * kSecond;
    ssize_t result = 0;
    while ((result = call()) == -FI_EAGAIN) {
      must(monotonic_now() < end, "what a test waits for");
      poll();
    }
    must(result >= 0, fi_strerror(static_cast<int>(-result)));
  }
  fi_cq_tagged_entry next(Side& side) {
    fi_cq_tagged_entry entry{};
    until_done([&] { return fi_cq_read(side.queue, &entry, 1); });
    return entry;
  }
  fi_cq_err_entry next_error(Side& side) {
    fi_cq_err_entry entry{};
    fi_cq_tagged_entry none;
    until_done([&]() -> ssize_t {
      const ssize_t read = fi_cq_read(side.queue, &none, 1);
      must(read < 0, "an error, not a completion: that");
      return read == -FI_EAVAIL ? fi_cq_readerr(side.queue, &entry, 0) : -FI_EAGAIN;
    });
    return entry;
  }
  TestNi ni;  // before the sides
  Side a, b;
  fi_addr_t to_b, to_a;
};

}  // namespace unet::fabric
