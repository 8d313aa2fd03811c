// open_ports.h - opens an NI's wires from their specifications; used by unetd, unet-run and the embedded NI.
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

// One driver for each specification, in order. Errors name the specification. `with_ip`: if bit p is set, port p has IP: its wire delivers
// frames of all Ethernet types.
OpenedPorts open_ports(const std::vector<std::string>& specifications, uint32_t with_ip);

// Calls `open` repeatedly for at most `patience`: the wire's previous owner may have just ended, or its interface may be down or being
// remade. invalid_argument, not_permitted, out_of_memory and disconnected end the attempts at once. Any other error ends them once
// can_open_later() is false. `on_first` gets the error that made it wait.
OpenedPorts open_when_free(const std::function<OpenedPorts()>& open, Nanoseconds patience,
                           const std::function<void(const Error&)>& on_first);

}  // namespace unet::apps
