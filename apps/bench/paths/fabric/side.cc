// side.cc - the objects of an endpoint, in the order in which libfabric wants them.
#include "apps/bench/paths/fabric/side.h"

#include <cstring>
#include <memory>

#include "apps/bench/workloads/put.h"

namespace unet::bench {

namespace {

constexpr uint32_t kVersion = FI_VERSION(1, 17);
constexpr uint64_t kRequestedKey = 1;

template <typename Object>
void close_object(Object*& object) {
  if (object != nullptr) fi_close(&object->fid);
  object = nullptr;
}

}  // namespace

Status FabricSide::check(int result, const char* call) const {
  if (result >= 0) return {};
  return fail(Errc::unavailable, std::string(call) + ": " + text_of(-result));
}

Status FabricSide::open(const std::string& provider, const std::string& node, FabricCard& own, const FabricCard& other,
                        const StopFlag& stop) {
  auto library = load_fabric_library();
  if (!library) return tl::unexpected(library.error());
  library_ = *library;
  Status opened = open_endpoint(provider, node);
  if (opened) opened = write_card(own);
  if (!opened) return opened;
  const Nanoseconds patience = monotonic_now() + kConnectTime;
  const auto is_there = [&] { return other.is_written.load(std::memory_order_acquire) != 0; };
  if (!yield_until(stop, [&] { return is_there() || monotonic_now() > patience; }) || !is_there()) {
    return fail(Errc::timed_out, "the other side has no endpoint");
  }
  peer_key_ = other.key;
  peer_base_ = other.base;
  return fi_av_insert(vector_, other.name, 1, &peer_, 0, nullptr) == 1 ? Status{} : fail(Errc::unavailable, "fi_av_insert fails");
}

Status FabricSide::open_endpoint(const std::string& provider, const std::string& node) {
  const std::unique_ptr<fi_info, void (*)(fi_info*)> hints(library_.dupinfo(nullptr), library_.freeinfo);
  if (hints == nullptr) return fail(Errc::unavailable, "fi_dupinfo fails");
  hints->caps = FI_TAGGED | FI_RMA | FI_ATOMIC;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->control_progress = hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints->fabric_attr->prov_name = strdup(provider.c_str());
  const char* const own = node.empty() ? nullptr : node.c_str();
  Status done = check(library_.getinfo(kVersion, own, nullptr, node.empty() ? 0 : FI_SOURCE, hints.get(), &info_), "fi_getinfo");
  if (done) done = check(library_.fabric(info_->fabric_attr, &fabric_, nullptr), "fi_fabric");
  if (done) done = check(fi_domain(fabric_, info_, &domain_, nullptr), "fi_domain");
  fi_av_attr vectors{};
  if (done) done = check(fi_av_open(domain_, &vectors, &vector_, nullptr), "fi_av_open");
  fi_cq_attr queues{};
  queues.format = FI_CQ_FORMAT_CONTEXT;
  if (done) done = check(fi_cq_open(domain_, &queues, &queue_, nullptr), "fi_cq_open");
  if (done) done = check(fi_endpoint(domain_, info_, &endpoint_, nullptr), "fi_endpoint");
  if (done) done = check(fi_ep_bind(endpoint_, &vector_->fid, 0), "fi_ep_bind");
  if (done) done = check(fi_ep_bind(endpoint_, &queue_->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
  if (done) done = check(fi_enable(endpoint_), "fi_enable");
  return done;
}

Status FabricSide::write_card(FabricCard& card) {
  region_ = MessageBuffers(kRegionBytes);
  auto done = check(fi_mr_reg(domain_, region_.out.data(), kRegionBytes, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, kRequestedKey, 0,
                              &registration_, nullptr),
                    "fi_mr_reg");
  card.name_size = sizeof card.name;
  if (done) done = check(fi_getname(&endpoint_->fid, card.name, &card.name_size), "fi_getname");
  if (!done) return done;
  card.key = fi_mr_key(registration_);
  const bool by_address = (info_->domain_attr->mr_mode & (FI_MR_VIRT_ADDR | FI_MR_BASIC)) != 0;
  card.base = by_address ? reinterpret_cast<uintptr_t>(region_.out.data()) : 0;
  card.is_written.store(1, std::memory_order_release);
  return {};
}

void FabricSide::close() {
  close_object(endpoint_);
  close_object(registration_);
  close_object(queue_);
  close_object(vector_);
  close_object(domain_);
  close_object(fabric_);
  if (info_ != nullptr) library_.freeinfo(info_);
  info_ = nullptr;
}

}  // namespace unet::bench
