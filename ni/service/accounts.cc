// accounts.cc - checks a request against the quotas, then charges it.
#include "ni/service/accounts.h"

#include "unet/base/check.h"

namespace unet::service {
namespace {

Status check(const char* what, uint64_t used, uint64_t wanted, uint64_t allowed) {
  if (wanted == 0 || (used <= allowed && wanted <= allowed - used)) return {};
  return fail(Errc::quota_exceeded, std::string("your quota of ") + what + " is reached: " + std::to_string(used) +
                                        " in use, " + std::to_string(wanted) + " more wanted, " + std::to_string(allowed) +
                                        " allowed by the network interface's policy");
}

}  // namespace

Status Accounts::take(uid_t user, const Rights& rights, const Usage& wanted) {
  Usage& used = usage_[user];
  Status status = check("connections", used.connections, wanted.connections, rights.connections);
  if (status) status = check("endpoints", used.endpoints, wanted.endpoints, rights.endpoints);
  if (status) status = check("channels", used.channels, wanted.channels, rights.channels);
  if (status) status = check("emulated endpoints", used.emulated, wanted.emulated, rights.emulated);
  if (status) status = check("memory (bytes)", used.memory, wanted.memory, rights.memory);
  if (status) status = check("claims of IP ports", used.ip_claims, wanted.ip_claims, rights.ip_claims);
  if (status) status = check("IP ports", used.ip_ports, wanted.ip_ports, rights.ip_ports_at_once);
  if (!status) return status;
  used.connections += wanted.connections;
  used.endpoints += wanted.endpoints;
  used.channels += wanted.channels;
  used.emulated += wanted.emulated;
  used.memory += wanted.memory;
  used.ip_claims += wanted.ip_claims;
  used.ip_ports += wanted.ip_ports;
  return {};
}

void Accounts::resume(uid_t user, const Usage& usage) {
  Usage& used = usage_[user];
  used.connections += usage.connections;
  used.endpoints += usage.endpoints;
  used.emulated += usage.emulated;
  used.channels += usage.channels;
  used.memory += usage.memory;
  used.ip_claims += usage.ip_claims;
  used.ip_ports += usage.ip_ports;
}

void Accounts::give_back(uid_t user, const Usage& usage) {
  Usage& used = usage_[user];
  UNET_CHECK(used.connections >= usage.connections && used.endpoints >= usage.endpoints && used.channels >= usage.channels &&
             used.emulated >= usage.emulated && used.memory >= usage.memory && used.ip_claims >= usage.ip_claims &&
             used.ip_ports >= usage.ip_ports);
  used.connections -= usage.connections;
  used.endpoints -= usage.endpoints;
  used.channels -= usage.channels;
  used.emulated -= usage.emulated;
  used.memory -= usage.memory;
  used.ip_claims -= usage.ip_claims;
  used.ip_ports -= usage.ip_ports;
}

Usage Accounts::of(uid_t user) const {
  const auto at = usage_.find(user);
  return at == usage_.end() ? Usage{} : at->second;
}

}  // namespace unet::service
