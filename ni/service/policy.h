// policy.h - the rights and limits of each user: rules of a TOML file, of which the first match counts; used by the service.
//
//   [[rule]]
//   user = "alice"            # or uid = 1000, group = "users", gid = 100, any = true: exactly one of them
//   connections = 8           # open at a time; a process has one
//   endpoints = 16            # open at a time in all of the user's processes
//   emulated = 4096           # emulated endpoints, likewise
//   channels = 64
//   memory = "256M"           # segments, exposed regions and local channels; K, M, G are powers of 1024
//   names = ["alice/*", "echo"]   # which names the user may bind; * and ? are wildcards
//   ip_ports = ["80", "8000-8099"]  # ports of IP that it may claim; default: 1024 and above
//   ip_claims = 256           # IP claims at a time
//   ip_ports_at_once = 4096   # ports of all these claims together
//   ip_groups = 16            # multicast groups of the user, of the NI's 32
//   weight = 2                # share of the engine and the wires against other users (1 ... 100)
//   messages_per_s = 1000000  # limits of what the user may send through the NI; default: none
//   bytes_per_s = "1G"
//   endpoint_messages_per_s = 100000  # limits of each of its endpoints
//   endpoint_bytes_per_s = "100M"
//   burst_ms = 10             # an idle sender may then send this time's worth at once (1 ... 10000)
//
// A rule that leaves out a right gives its default (Rights). A user that no rule matches gets nothing, but root and the NI's own user get
// everything, unless a rule names them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ni/engine/send_limits.h"
#include "unet/base/result.h"
#include "unet/limits.h"

namespace unet::service {

constexpr uint32_t kConnectionsMost = kClientsMax / 4;  // of one user, by any policy
constexpr uint32_t kConnectionsDefault = 128;
constexpr uint32_t kConnectionsWithoutRights = 4;       // of a user without rights, to receive the refusals
constexpr uint32_t kWeightMax = 100;
constexpr uint32_t kIpPortsUnprivileged = 1024;          // the first one
constexpr size_t kIpPortRangesMax = 64;
constexpr uint64_t kBytesPerSecondLeast = 1024;  // with less, a single message would wait for minutes
constexpr uint64_t kBurstMsMax = 10'000;

// The process at the other end of a control connection, as the kernel says.
struct Credentials {
  uid_t uid = 0;
  pid_t pid = 0;
  std::vector<gid_t> groups;  // the primary one first
  bool unknown = false;       // outside of our user namespace: several users may have this uid here
};

// The ports from `first` to `last`, inclusive.
struct PortRange {
  uint32_t first = 0, last = 0;
};

struct Rights {
  uint32_t connections = kConnectionsDefault;
  uint32_t endpoints = 64;
  uint32_t channels = 1024;
  uint32_t emulated = 4096;             // emulated endpoints; none without a right to a real endpoint, which carries them
  uint64_t memory = uint64_t{1} << 30;  // bytes
  std::vector<std::string> names;       // patterns of names that it may bind
  std::vector<PortRange> ip_ports{{kIpPortsUnprivileged, 65535}};  // none: no IP
  uint32_t ip_claims = 256;
  uint32_t ip_ports_at_once = 4096;
  uint32_t ip_groups = kIpGroupsMax / 2;
  uint32_t weight = 1;
  engine::SendLimits send{};

  static Rights everything();
  static Rights nothing();
  bool none() const noexcept { return endpoints == 0; }
  bool may_bind(std::string_view name) const;
  bool may_claim(uint32_t port, uint32_t ports) const noexcept;  // whether it may claim `ports` ports from `port` on
};

class Policy {
 public:
  // Without rules: the default described above.
  explicit Policy(uid_t own_user) : own_user_(own_user) {}

  // `text` is the content of `file`. Errors: invalid_argument, "FILE:LINE: what is wrong and what is allowed".
  static Result<Policy> parse(std::string_view text, const std::string& file, uid_t own_user);
  static Result<Policy> load(const std::string& file, uid_t own_user);

  Rights rights(const Credentials& who) const;

  // The text that it was parsed from; empty: the default policy.
  const std::string& text() const noexcept { return text_; }

 private:
  struct Rule {
    enum class Whom { user, group, any } whom = Whom::any;
    uint32_t id = 0;
    Rights rights;
  };
  friend class PolicyParser;

  uid_t own_user_;
  std::vector<Rule> rules_;
  std::string text_;
};

// True if `text` matches `pattern`, in which * stands for any characters and ? for one.
bool matches(std::string_view pattern, std::string_view text) noexcept;

}  // namespace unet::service
