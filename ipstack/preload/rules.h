// rules.h - the user's rules about which sockets the stack or the kernel serves ($UNET_SOCKETS_RULES); used by socket_routing.cc and
// unet-sockets.
//
//   RULES = RULE { ";" RULE }
//   RULE  = ("ours" | "kernel") ["tcp" | "udp"] ADDRESS["/" PREFIX] [" " PORT["-" PORT]] | ("ours" | "kernel") ["tcp" | "udp"] "*" [...]
//
//   kernel tcp * 22; ours 10.0.0.0/24; kernel *
//
// The first rule that matches counts. For connect() and sends it is compared with the remote address, for bind() with the local one.
// Without a match, loopback is the kernel's, and addresses that the network interface has or reaches are the stack's.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ipstack/sockets/address.h"
#include "unet/base/result.h"

namespace unet::preload {

// Which stack serves a socket. `dual`: the kernel's and the library's, as at a wildcard address. A rule names one of the first two.
enum class Backend : uint8_t { user, kernel, dual };

class Rules {
 public:
  // Errors: invalid_argument; the text names the rule that cannot be read.
  static Result<Rules> parse(std::string_view text);

  // The backend by the first rule that matches; none: no rule does.
  std::optional<Backend> find(uint8_t protocol, const sockets::Address& address) const noexcept;

 private:
  struct Rule {
    Backend backend = Backend::kernel;
    uint8_t protocol = 0;  // 0: both
    bool any = true;       // any address
    ip::IpAddress address{};
    uint32_t prefix = 0;
    uint16_t first = 0, last = 0xFFFF;
  };
  static Result<Rule> parse_rule(std::string_view text);

  std::vector<Rule> rules_;
};

}  // namespace unet::preload
