// service_options.h - what the maker of a Service tells it, and what a Service counts; used by Service, its parts and Ni.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ni/engine/ip_options.h"
#include "ni/service/policy.h"
#include "ni/service/signalling.h"
#include "unet/base/time.h"
#include "unet/wire/ethernet.h"
#include "unet/wire/frame.h"

namespace unet::service {

// A channel of the configuration: both NIs are configured alike, and nothing is signalled.
struct StaticChannel {
  std::string endpoint;  // the name an endpoint must bind to get it
  Tag local_tag{}, remote_tag{};
  MacAddress peer{};
  uint32_t port = 0;
};

struct ServiceOptions {
  Policy policy{0};
  std::string policy_file;   // where it came from; empty: it is the default, or its maker's
  bool inherit_policy = false;  // taking over, the policy in force stays, and not `policy` comes
  uid_t own_user = 0;
  std::string host;
  uint64_t seed = 0;         // of tags and ports; 0: from the kernel
  uint64_t incarnation = 0;  // 0: from the clock
  Nanoseconds lost_after = 3 * kSecond;
  std::vector<StaticPeer> peers;
  std::vector<StaticChannel> channels;
  std::vector<engine::IpInterfaceOptions> ip;  // of the first engine; Ni says what its engine has
};

struct ServiceCounters {
  uint64_t connections = 0, refused_connections = 0, protocol_errors = 0, slow_clients = 0, requests = 0, failed_requests = 0;
  uint64_t dropped_signals = 0;  // that the engine did not take
};

}  // namespace unet::service
