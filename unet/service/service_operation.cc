// service_operation.cc - what the operator asks of a running NI: root, and the user whose NI it is.
#include <spdlog/spdlog.h>

#include "unet/service/service.h"

namespace unet::service {

bool Service::operates(ClientRecord& client, const control::Header& header) {
  if (client.who.uid == 0 || client.who.uid == options_.own_user) return true;
  fail_request(client, header,
               {Errc::not_permitted, "only root and user " + std::to_string(options_.own_user) +
                                         ", whose network interface this is, may do that; you are user " +
                                         std::to_string(client.who.uid)});
  return false;
}

void Service::handle(ClientRecord& client, const control::PolicyReload& packet) {
  if (!operates(client, packet.header)) return;
  if (Status status = reload_policy(); !status) return fail_request(client, packet.header, status.error());
  ok(client, packet.header);
}

Status Service::reload_policy() {
  if (options_.policy_file.empty()) {
    return fail(Errc::invalid_argument, "this network interface has no policy file to read again: start it with one (unetd --policy FILE)");
  }
  Result<Policy> policy = Policy::load(options_.policy_file, options_.own_user);
  if (!policy) return fail(policy.error().code, "the policy stays as it was: " + policy.error().text);
  options_.policy = std::move(*policy);
  // Whoever has more than is allowed now keeps it, and gets no more.
  for (auto& [index, client] : clients_) client->rights = options_.policy.rights(client->who);
  spdlog::info("policy read again from {}", options_.policy_file);
  return {};
}

}  // namespace unet::service
