// open_ports.h - the wires of a network interface from their specifications; used by unetd, unet-run and the embedded NI.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ni/driver.h"
#include "unet/base/result.h"
#include "unet/base/time.h"

namespace unet::apps {

using OpenedPorts = Result<std::vector<std::unique_ptr<Driver>>>;

// One driver per specification, in order. Errors name the specification. `with_ip`: bit p, port p has IP: its wire brings frames of all
// Ethernet types.
OpenedPorts open_ports(const std::vector<std::string>& specifications, uint32_t with_ip);

// What `open` gives, asked again and again, `patience` long: the one who had a wire has just ended, or its interface is down or made
// anew. Final at once are invalid_argument, not_permitted, out_of_memory and disconnected, and any error once can_open_later() is false.
// `on_first` is told the error for which it waits.
OpenedPorts open_when_free(const std::function<OpenedPorts()>& open, Nanoseconds patience,
                           const std::function<void(const Error&)>& on_first);

}  // namespace unet::apps
