// interface_claim.cc - a packet socket that receives no frame, as the only member of its fanout group.
#include "drivers/interface_claim.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace unet::drivers {
namespace {

constexpr uint16_t kOtherType = 0x88B6;  // a local experimental Ethernet type, not U-Net's: its frames arrive and end here
constexpr uint32_t kGroups = 0x754E;     // keeps the numbers of our groups away from the small ones that people choose

// The argument of PACKET_FANOUT in linux/if_packet.h. Its last member exists since 5.12.
struct FanoutArguments {
  uint16_t id, type_flags;
  uint32_t max_num_members;
};

}  // namespace

Result<InterfaceClaim> InterfaceClaim::take(const std::string& port, const std::string& interface) {
  const unsigned index = if_nametoindex(interface.c_str());
  if (index == 0) return none(errno);
  InterfaceClaim claim(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  if (claim.socket_ < 0) return none(errno);
  sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog filter{.len = 1, .filter = &nothing};
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(kOtherType);
  address.sll_ifindex = static_cast<int>(index);
  if (::setsockopt(claim.socket_, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) != 0 ||
      ::bind(claim.socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return none(errno);
  }
  const FanoutArguments group{.id = static_cast<uint16_t>(index ^ kGroups), .type_flags = PACKET_FANOUT_HASH, .max_num_members = 1};
  if (::setsockopt(claim.socket_, SOL_PACKET, PACKET_FANOUT, &group, sizeof group) == 0) return claim;
  if (errno != ENOSPC) return none(errno);
  return fail(Errc::already_exists, port + ": another network interface of U-Net, or another port of this one, has " + interface +
                                        ": stop it, or give each an interface of its own, for example a VLAN (`ip link add link " +
                                        interface + " name " + interface + ".5 type vlan id 5`). The wrappers vlan: and udp: do not "
                                        "tell them apart: each would get a copy of all that arrives for the other");
}

// EINVAL comes from kernels before 5.12, which know no limit of a group's members, and from any kernel if another program has a group of
// that number.
InterfaceClaim InterfaceClaim::none(int error) {
  InterfaceClaim claim;
  const char* const why = error == EINVAL ? "; before Linux 5.12, or another program has this packet group)" : ")";
  claim.remark_ = std::string(" unclaimed (") + std::strerror(error) + why;
  return claim;
}

InterfaceClaim::~InterfaceClaim() {
  if (socket_ >= 0) ::close(socket_);
}

}  // namespace unet::drivers
