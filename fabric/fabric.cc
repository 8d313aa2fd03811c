// fabric.cc - see fabric.h.
#include "fabric/fabric.h"

#include <cstring>

#include "fabric/completion_queue.h"
#include "fabric/counter.h"
#include "fabric/domain.h"
#include "fabric/event_queue.h"
#include "fabric/operations_table.h"
#include "fabric/provider.h"

namespace unet::fabric {
namespace {

int close_fabric(fid* fid) {
  delete reinterpret_cast<Fabric*>(fid);
  return 0;
}

int try_wait(fid_fabric*, fid** fids, int count) {
  for (int i = 0; i < count; ++i) {
    int ready = -FI_EINVAL;
    switch (fids[i]->fclass) {
      case FI_CLASS_CQ: ready = reinterpret_cast<CompletionQueue*>(fids[i])->try_wait(); break;
      case FI_CLASS_CNTR: ready = reinterpret_cast<Counter*>(fids[i])->try_wait(); break;
      case FI_CLASS_EQ: ready = reinterpret_cast<EventQueue*>(fids[i])->try_wait(); break;
      default: break;
    }
    if (ready != 0) return ready;
  }
  return 0;
}

fi_ops kFidOps = fid_ops(close_fabric);
fi_ops_fabric kOps = {
    .size = sizeof(fi_ops_fabric),
    .domain = open_domain,
    .passive_ep = [](fid_fabric*, fi_info*, fid_pep**, void*) { return -FI_ENOSYS; },
    .eq_open = open_event_queue,
    .wait_open = [](fid_fabric*, fi_wait_attr*, fid_wait**) { return -FI_ENOSYS; },
    .trywait = try_wait,
    .domain2 = [](fid_fabric* fabric, fi_info* info, fid_domain** domain, uint64_t flags, void* context) {
      return flags == 0 ? open_domain(fabric, info, domain, context) : -FI_EINVAL;
    },
};

}  // namespace

Fabric::Fabric(void* context) noexcept : fid_fabric{{FI_CLASS_FABRIC, context, &kFidOps}, &kOps, provider.fi_version} {}

int open_fabric(fi_fabric_attr* attributes, fid_fabric** fabric, void* context) {
  if (attributes->prov_name != nullptr && std::strcmp(attributes->prov_name, kProviderName) != 0) return -FI_EINVAL;
  return guarded([&] {
    *fabric = new Fabric(context);
    return 0;
  });
}

}  // namespace unet::fabric
