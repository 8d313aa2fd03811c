// fabric.h - the object of fi_fabric(): opens domains and event queues, and prepares sleeps.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

namespace unet::fabric {

// fi_provider::fabric.
int open_fabric(fi_fabric_attr* attributes, fid_fabric** fabric, void* context);

class Fabric : public fid_fabric {
 public:
  explicit Fabric(void* context) noexcept;
};

}  // namespace unet::fabric
