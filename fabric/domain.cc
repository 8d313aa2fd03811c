// domain.cc - see domain.h.
#include "fabric/domain.h"

#include "fabric/address_vector.h"
#include "fabric/completion_queue.h"
#include "fabric/counter.h"
#include "fabric/endpoint.h"
#include "fabric/operations_table.h"
#include "fabric/poll_set.h"
#include "fabric/provider.h"

namespace unet::fabric {
namespace {

int close_domain(fid* fid) {
  Domain* const domain = reinterpret_cast<Domain*>(fid);
  if (domain->is_busy()) return -FI_EBUSY;
  delete domain;
  return 0;
}

int query_atomic(fid_domain*, fi_datatype datatype, fi_op operation, fi_atomic_attr* attributes, uint64_t flags) {
  if (flags != 0 && flags != FI_FETCH_ATOMIC && flags != FI_COMPARE_ATOMIC) return -FI_EINVAL;
  const AtomicKind kind = flags == 0 ? AtomicKind::update : flags == FI_FETCH_ATOMIC ? AtomicKind::fetch : AtomicKind::compare;
  attributes->size = atomic_size(kind, operation, datatype);
  if (attributes->size == 0) return -FI_EOPNOTSUPP;
  attributes->count = kAtomicBytes / attributes->size;
  return 0;
}

fi_ops kFidOps = fid_ops(close_domain);
fi_ops_domain kOps = {
    .size = sizeof(fi_ops_domain),
    .av_open = open_address_vector,
    .cq_open = open_completion_queue,
    .endpoint = open_endpoint,
    .scalable_ep = [](fid_domain*, fi_info*, fid_ep**, void*) { return -FI_ENOSYS; },
    .cntr_open = open_counter,
    .poll_open = open_poll_set,
    .stx_ctx = [](fid_domain*, fi_tx_attr*, fid_stx**, void*) { return -FI_ENOSYS; },
    .srx_ctx = [](fid_domain*, fi_rx_attr*, fid_ep**, void*) { return -FI_ENOSYS; },
    .query_atomic = query_atomic,
    .query_collective = [](fid_domain*, fi_collective_op, fi_collective_attr*, uint64_t) { return -FI_EOPNOTSUPP; },
    .endpoint2 = [](fid_domain* domain, fi_info* info, fid_ep** endpoint, uint64_t flags, void* context) {
      return flags == 0 ? open_endpoint(domain, info, endpoint, context) : -FI_EINVAL;
    },
};

}  // namespace

Domain::Domain(NetworkInterface ni, const fi_info& info, void* context)
    : fid_domain{{FI_CLASS_DOMAIN, context, &kFidOps}, &kOps, &memory_registration}, ni_(std::move(ni)),
      lock_(info.domain_attr->threading != FI_THREAD_DOMAIN), regions_(info.domain_attr->mr_mode),
      address_format_(info.addr_format == kStringFormat ? kStringFormat : kBinaryFormat) {
  const Locked held(lock_);
  const fi_domain_attr& of = *info.domain_attr;
  if (of.control_progress == FI_PROGRESS_AUTO || of.data_progress == FI_PROGRESS_AUTO) progress_thread_.start();
}

int open_domain(fid_fabric*, fi_info* info, fid_domain** domain, void* context) {
  if (info->domain_attr == nullptr) return -FI_EINVAL;
  return guarded([&]() -> int {
    auto ni = open_network_interface();
    if (!ni) return failed(FI_LOG_DOMAIN, ni.error());
    *domain = new Domain(std::move(*ni), *info, context);
    return 0;
  });
}

}  // namespace unet::fabric
