// info_test.cc - fi_getinfo(): hints that are met, and hints that are not.
#include <catch2/catch.hpp>

#include "fabric/address.h"
#include "fabric/test_side.h"

using namespace unet;
using namespace unet::fabric;

TEST_CASE("hints are met, or refused with -FI_ENODATA") {
  TestNi ni;
  Info answer;
  struct Row {
    const char* what;
    bool met;
    void (*change)(fi_info& hints);
  };
  constexpr Row kRows[] = {
      {"none", true, [](fi_info&) {}},
      {"tagged messages of Open MPI", true, [](fi_info& h) {
         h.caps = FI_TAGGED | FI_LOCAL_COMM | FI_REMOTE_COMM | FI_DIRECTED_RECV;
         h.tx_attr->msg_order = h.rx_attr->msg_order = FI_ORDER_SAS;
         h.domain_attr->cq_data_size = 4;
         h.domain_attr->resource_mgmt = FI_RM_ENABLED;
       }},
      {"a kind of endpoint", false, [](fi_info& h) { h.ep_attr->type = FI_EP_MSG; }},
      {"datagrams", true, [](fi_info& h) { h.ep_attr->type = FI_EP_DGRAM; }},
      {"datagrams with tags", false, [](fi_info& h) {
         h.ep_attr->type = FI_EP_DGRAM;
         h.caps = FI_TAGGED;
       }},
      {"fences", true, [](fi_info& h) { h.caps = FI_RMA | FI_FENCE; }},
      {"multicast", false, [](fi_info& h) { h.caps = FI_MULTICAST; }},
      {"an order of completions", false, [](fi_info& h) { h.rx_attr->comp_order = FI_ORDER_STRICT; }},
      {"an order of messages", false, [](fi_info& h) { h.tx_attr->msg_order = FI_ORDER_STRICT; }},
      {"the largest inject", true, [](fi_info& h) { h.tx_attr->inject_size = kEagerMax; }},
      {"a larger inject", false, [](fi_info& h) { h.tx_attr->inject_size = kEagerMax + 1; }},
      {"the largest message", true, [](fi_info& h) { h.ep_attr->max_msg_size = kMessageMax; }},
      {"a larger message", false, [](fi_info& h) { h.ep_attr->max_msg_size = kMessageMax + 1; }},
      {"progress by itself", true, [](fi_info& h) { h.domain_attr->data_progress = FI_PROGRESS_AUTO; }},
      {"several contexts", false, [](fi_info& h) { h.ep_attr->tx_ctx_cnt = 2; }},
      {"too many queues", false, [](fi_info& h) { h.domain_attr->cq_cnt = 1 << 20; }},
      {"socket addresses", false, [](fi_info& h) { h.addr_format = FI_SOCKADDR_IN; }},
      {"string addresses", true, [](fi_info& h) { h.addr_format = FI_ADDR_STR; }},
      {"no such domain", false, [](fi_info& h) { h.domain_attr->name = ::strdup("nowhere"); }},
  };
  for (const Row& row : kRows) {
    INFO(row.what);
    REQUIRE(ask(answer, row.change) == (row.met ? 0 : -FI_ENODATA));
  }
}

TEST_CASE("libfabric's own layers find nothing below them, unless the user asks for it") {
  TestNi ni;
  const Info hints(fi_allocinfo());
  hints->ep_attr->type = FI_EP_DGRAM;
  constexpr uint64_t kByUtility = uint64_t{1} << 59;
  fi_info* made = nullptr;
  REQUIRE(get_info(FI_VERSION(1, 17), nullptr, nullptr, kByUtility, hints.get(), &made) == -FI_ENODATA);
  ::setenv("UNET_RXD", "1", 1);
  REQUIRE(get_info(FI_VERSION(1, 17), nullptr, nullptr, kByUtility, hints.get(), &made) == 0);
  ::unsetenv("UNET_RXD");
  const Info answer(made);
  REQUIRE(answer->ep_attr->type == FI_EP_DGRAM);
  REQUIRE(answer->ep_attr->max_msg_size == kEagerMax);
}

TEST_CASE("an answer has the capabilities of the hints, or all") {
  TestNi ni;
  Info answer;
  REQUIRE(ask(answer) == 0);
  REQUIRE((answer->caps & (FI_MSG | FI_TAGGED | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SEND | FI_RECV)) ==
          (FI_MSG | FI_TAGGED | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SEND | FI_RECV));
  REQUIRE(answer->mode == 0);
  REQUIRE(ask(answer, [](fi_info& h) { h.caps = FI_TAGGED; }) == 0);
  REQUIRE((answer->caps & (FI_MSG | FI_TAGGED | FI_SEND | FI_RECV | FI_DIRECTED_RECV)) == (FI_TAGGED | FI_SEND | FI_RECV));
  REQUIRE(ask(answer, [](fi_info&) {}, FI_VERSION(1, 4)) == 0);
  REQUIRE(answer->domain_attr->mr_mode == FI_MR_SCALABLE);
}

TEST_CASE("node and service name an endpoint") {
  TestNi ni;
  fi_info* made = nullptr;
  REQUIRE(get_info(FI_VERSION(1, 17), "unet://alpha/fi-1", nullptr, 0, nullptr, &made) == 0);
  Info answer(made);
  REQUIRE(parse_binary(static_cast<const char*>(answer->dest_addr)) == Address{"fi-1", "alpha"});
  REQUIRE(answer->dest_addrlen == kBinaryBytes);
  REQUIRE(get_info(FI_VERSION(1, 17), nullptr, "here", FI_SOURCE, nullptr, &made) == 0);
  answer.reset(made);
  REQUIRE(parse_binary(static_cast<const char*>(answer->src_addr))->name == "here");
  REQUIRE(get_info(FI_VERSION(1, 17), "elsewhere", "here", FI_SOURCE, nullptr, &made) == -FI_ENODATA);
  REQUIRE(get_info(FI_VERSION(1, 17), "10.0.0.1", nullptr, 0, nullptr, &made) == -FI_ENODATA);
}

TEST_CASE("an endpoint has the name that was asked for, in both formats") {
  TestNi ni;
  Side side([](fi_info& h) {
    h.addr_format = FI_ADDR_STR;
    char host[256] = {};
    ::gethostname(host, sizeof host - 1);
    const std::string name = "unet://" + std::string(host) + "/job-1";
    h.src_addr = ::strdup(name.c_str());
    h.src_addrlen = name.size() + 1;
  });
  const std::string name = side.name();
  REQUIRE(name.find("/job-1") != std::string::npos);
  char small[4];
  size_t length = sizeof small;
  REQUIRE(fi_getname(&side.endpoint->fid, small, &length) == -FI_ETOOSMALL);
  REQUIRE(length == name.size());
}

TEST_CASE("without a network interface nothing is offered") {
  ::setenv("UNET_NI", "unix:/tmp/no-such-socket", 1);
  Info answer;
  REQUIRE(ask(answer) == -FI_ENODATA);
}

TEST_CASE("an endpoint needs an address vector and a queue, and a domain outlives its objects") {
  TestNi ni;
  Side side;
  fid_ep* other = nullptr;
  REQUIRE(fi_endpoint(side.domain, side.info.get(), &other, nullptr) == 0);
  REQUIRE(fi_enable(other) == -FI_ENOAV);
  REQUIRE(fi_send(other, "x", 1, nullptr, 0, nullptr) == -FI_EINVAL);
  REQUIRE(fi_ep_bind(other, &side.vector->fid, 0) == 0);
  REQUIRE(fi_enable(other) == -FI_ENOCQ);
  REQUIRE(fi_close(&other->fid) == 0);
  REQUIRE(fi_close(&side.domain->fid) == -FI_EBUSY);
  REQUIRE(fi_close(&side.queue->fid) == -FI_EBUSY);
  fid_mr* region = nullptr;
  REQUIRE(fi_mr_reg(side.domain, &region, sizeof region, FI_SEND | FI_RECV, 0, 1, 0, &region, nullptr) == 0);
  REQUIRE(fi_close(&region->fid) == 0);
  const std::string large(kEagerMax + 1, 'x');
  REQUIRE(fi_inject(side.endpoint, large.data(), large.size(), 0) == -FI_EINVAL);
}

TEST_CASE("an object that another one uses cannot be closed") {
  TestNi ni;
  fid_cntr* counter = nullptr;
  Side side([](fi_info&) {}, {.format = FI_CQ_FORMAT_TAGGED}, FI_TRANSMIT | FI_RECV, [&](Side& of) {
    fi_cntr_attr attributes{};
    REQUIRE(fi_cntr_open(of.domain, &attributes, &counter, nullptr) == 0);
  });
  REQUIRE(fi_close(&side.vector->fid) == -FI_EBUSY);
  char memory[8];
  fid_mr* region = nullptr;
  REQUIRE(fi_mr_reg(side.domain, memory, sizeof memory, FI_REMOTE_WRITE, 0, 1, 0, &region, nullptr) == 0);
  REQUIRE(fi_mr_bind(region, &counter->fid, FI_REMOTE_WRITE) == 0);
  REQUIRE(fi_close(&counter->fid) == -FI_EBUSY);
  REQUIRE(fi_close(&region->fid) == 0);
  REQUIRE(fi_close(&counter->fid) == 0);
  fid_eq* events = nullptr;
  fid_av* vector = nullptr;
  fi_eq_attr queue{};
  fi_av_attr vectors{};
  REQUIRE(fi_eq_open(side.fabric, &queue, &events, nullptr) == 0);
  REQUIRE(fi_av_open(side.domain, &vectors, &vector, nullptr) == 0);
  REQUIRE(fi_av_bind(vector, &events->fid, 0) == 0);
  REQUIRE(fi_close(&events->fid) == -FI_EBUSY);
  REQUIRE(fi_close(&vector->fid) == 0);
  REQUIRE(fi_close(&events->fid) == 0);
}
