// interfaces.h - ioctl() requests about the ports of the network interface (interface_calls.cc); used by descriptor_calls.cc.
#pragma once

#include <sys/ioctl.h>

#include <optional>

namespace unet::preload {

// Requests that list interfaces, or ask for one by its name or number.
constexpr bool is_of_interfaces(unsigned long request) noexcept {
  return request == SIOCGIFCONF || request == SIOCGIFADDR || request == SIOCGIFNETMASK || request == SIOCGIFBRDADDR ||
         request == SIOCGIFFLAGS || request == SIOCGIFINDEX || request == SIOCGIFMTU || request == SIOCGIFMETRIC ||
         request == SIOCGIFHWADDR || request == SIOCGIFNAME;
}
// Answers a request. Nothing: it is about an interface of the kernel.
std::optional<int> ask_interface(int fd, unsigned long request, void* argument);

}  // namespace unet::preload
