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

// Opens the wire; null for "none" and for an empty specification: an NI without a wire. An error is one line that says what was wrong and
// what is allowed. `with_ip`: the NI has IP on it, and needs frames of all Ethernet types.
Result<std::unique_ptr<Driver>> make_driver(std::string_view specification, bool with_ip = false);

// Starts slow work that does not need the wires to be free. make_driver() reports any error.
void prepare_drivers(const std::vector<std::string>& specifications);

// False: a start-up that happens once per process has failed, so later calls of make_driver() would fail too.
bool can_open_later();

// The syntax of specifications, for --help and man pages.
std::string driver_help();

}  // namespace unet::apps
