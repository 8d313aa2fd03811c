// drivers.h - a wire from its specification; the one place that names concrete drivers. Used by every program that is or
// holds a network interface.
//
// A specification is a wire, with any number of wrappers to its left:
//
//   faulty:loss=1%,seed=7 / dpdk:net_af_xdp0,iface=veth0,mtu=1500
//
// driver_help() lists the wires, the wrappers and their options.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ni/driver.h"
#include "unet/base/result.h"

namespace unet::apps {

// Opens the wire; null for "none" and for an empty specification: a network interface without a wire. An error is one
// line that says what was wrong and what is allowed. `with_ip`: the NI has IP on it, and wants frames of
// all Ethernet types.
Result<std::unique_ptr<Driver>> make_driver(std::string_view specification, bool with_ip = false);

// Begins what takes long in opening them and can be done while others have them open; whatever is wrong is told by make_driver().
void prepare_drivers(const std::vector<std::string>& specifications);

// False: something that is started once per process has failed, so that what make_driver() refuses now it refuses for good.
bool can_open_later();

// What a specification may say, for --help and man pages.
std::string driver_help();

}  // namespace unet::apps
