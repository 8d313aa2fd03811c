// external_frame.h - bookkeeping of a payload that a port reads in place, in the private area of its mbuf; used by dpdk_port.
#pragma once

#include <rte_mbuf.h>

#include "drivers/dpdk/dpdk_port.h"

namespace unet::drivers {

struct DpdkPort::ExternalFrame {
  rte_mbuf_ext_shared_info shared;  // DPDK counts references here and calls back at zero
  DpdkPort* port;
  TransmitCompletion* completion;  // null: no completion is due (the frame was taken back)
};

}  // namespace unet::drivers
