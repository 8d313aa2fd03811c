// xdp_program.h - the XDP program that leads an interface's frames to a port's socket; used by xdp_port.
#pragma once

#include <cstdint>
#include <string>

#include "unet/base/result.h"
#include "unet/mapping.h"
#include "unet/wire/ethernet.h"

namespace unet::drivers {

struct XdpProgramOptions {
  std::string port;        // begins each error's text
  std::string interface;   // interface name, in the caller's network namespace
  MacAddress station{};    // frames to this address, and to groups, go to the socket; the kernel gets the others
  bool all_types = false;  // false: only frames of U-Net's Ethernet type go to the socket
  bool pieces = false;     // frames may be longer than a page (Linux 5.18)
};

// Puts the program on the interface until the returned descriptor is closed, which takes no right. No death of the process leaves the
// program behind. `socket` is an AF_XDP socket bound to the interface's queue `queue`. Errors: those of refuse_xdp().
Result<Descriptor> attach_xdp_program(const XdpProgramOptions& options, int socket, uint32_t queue);

// The error of a failed call of the kernel, which says what to do: not_permitted, already_exists, out_of_memory, unavailable.
tl::unexpected<Error> refuse_xdp(const std::string& port, const std::string& call, int error);

}  // namespace unet::drivers
