// poll_set.h - the object of fi_poll_open(): completion queues and counters that a program polls together; used by Domain.
#pragma once

#include <rdma/fi_domain.h>

namespace unet::fabric {

// fi_ops_domain::poll_open.
int open_poll_set(fid_domain* domain, fi_poll_attr* attributes, fid_poll** set);

}  // namespace unet::fabric
