// memory_region.h - fi_mr_reg() and its relatives.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

namespace unet::fabric {

extern fi_ops_mr memory_registration;

}  // namespace unet::fabric
