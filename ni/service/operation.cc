// operation.cc - requests of the operator, and what a takeover needs of them.
#include "ni/service/operation.h"

#include <string>

#include "ni/service/journal_records.h"
#include "ni/service/log.h"
#include "ni/service/names.h"
#include "ni/service/toml_reader.h"

namespace unet::service {

bool Operation::operates(ClientRecord& client, const control::Header& header) {
  if (is_operator(client.who)) return true;
  clients_.fail_request(client, header,
               {Errc::not_permitted, "only root and user " + std::to_string(options_.own_user) +
                                         ", whose network interface this is, may do that; you are user " +
                                         std::to_string(client.who.uid)});
  return false;
}

void Operation::handle(ClientRecord& client, const control::PolicyReload& packet) {
  if (!operates(client, packet.header)) return;
  if (Status status = reload_policy(); !status) return clients_.fail_request(client, packet.header, status.error());
  clients_.ok(client, packet.header);
}

Status Operation::reload_policy() {
  if (options_.policy_file.empty()) {
    return fail(Errc::invalid_argument, "this network interface has no policy file to read again: start it with one (unetd --policy FILE)");
  }
  Result<Policy> policy = Policy::load(options_.policy_file, options_.own_user);
  if (!policy) return fail(policy.error().code, "the policy stays as it was: " + policy.error().text);
  if (persistence_.active()) {
    const Result<Descriptor> text = create_text("unet-policy", policy->text());
    if (!text) return fail(text.error().code, "the policy stays as it was: " + text.error().text);
    persistence_.put(JournalKind::policy, 0, 0, PolicyValue{}, {text->get()});
  }
  options_.policy = std::move(*policy);
  // A client with more than is allowed now keeps it, and gets no more. How fast it may send changes at once.
  for (auto& [index, client] : clients_.all()) {
    client->rights = options_.policy.rights(client->who);
    if (!client->endpoints.empty()) engines_.tell_terms(*client);
  }
  log::info("policy read again from {}", options_.policy_file);
  return {};
}

// The policy of the network interface before this one counts, whatever the file says now. A user that it names may be gone: then the
// default policy counts, and what exists stays.
Status Operation::resume_policy(const JournalItem& item) {
  PolicyValue value{};
  if (!item.read(value) || item.descriptors.size() != 1) return fail(Errc::protocol, "the journal's policy is none");
  if (!options_.inherit_policy) return {};
  const Result<std::string> text = read_text(item.descriptors[0].get(), "the policy in force");
  if (!text) return tl::unexpected(text.error());
  Result<Policy> policy = Policy::parse(*text, options_.policy_file, options_.own_user);
  if (!policy) log::error("the policy in force cannot be kept, and the default one counts: {}", policy.error().text);
  options_.policy = policy ? std::move(*policy) : Policy(options_.own_user);
  return {};
}

void Operation::handle(ClientRecord& client, const control::Drain& packet) {
  if (!operates(client, packet.header)) return;
  if (packet.on > 1) {
    return clients_.fail_request(client, packet.header,
                        {Errc::invalid_argument, "drain: " + std::to_string(packet.on) + " is neither 1 (on) nor 0 (off)"});
  }
  drain(packet.on == 1);
  clients_.ok(client, packet.header);
}

void Operation::drain(bool on) {
  if (on != draining_) log::info("{}", on ? "draining: no new endpoints, names and channels" : "no longer draining");
  draining_ = on;
  persistence_.changed(JournalKind::ni_state, 0);
}

void Operation::handle(ClientRecord& client, const control::Upgrade& packet) {
  if (!operates(client, packet.header)) return;
  Status status;
  if (!persistence_.active()) {
    status = fail(Errc::unavailable,
                  "this network interface has no supervisor, which would hold what a new one goes on with: start unetd with --takeover");
  } else if (upgrade_) {
    status = fail(Errc::unavailable, "another upgrade is under way");
  }
  if (!status) return clients_.fail_request(client, packet.header, status.error());
  upgrade_ = {client.index, packet.header.cookie};
  persistence_.put(JournalKind::upgrade, client.index, packet.header.cookie, UpgradeValue{});
  persistence_.journal().order(JournalOp::upgrade, packet.program.view());
}

void Operation::end_upgrade(const Status& outcome) {
  if (!upgrade_) return;
  const auto [index, cookie] = *upgrade_;
  upgrade_.reset();
  persistence_.erase(JournalKind::upgrade, index, cookie);
  ClientRecord* const client = clients_.at(index);
  const control::Header header{.op = control::Op::upgrade, .endpoint = 0, .cookie = cookie};
  if (client == nullptr || client->dropped) return;
  if (outcome) clients_.ok(*client, header);
  else clients_.fail_request(*client, header, outcome.error());
}

Status Operation::takes_more() const {
  if (!draining_) return {};
  return fail(Errc::unavailable, "the network interface of host " + in_quotes(options_.host) +
                                     " is being drained: it takes no new endpoints, names and channels until its operator ends that");
}

void Operation::forget_upgrade_of(const ClientRecord& client) {
  if (!upgrade_ || upgrade_->first != client.index) return;
  persistence_.erase(JournalKind::upgrade, client.index, upgrade_->second);
  upgrade_.reset();
}

bool Operation::resume_upgrade(uint32_t client, uint64_t cookie) {
  if (upgrade_) return false;
  upgrade_ = {client, cookie};
  return true;
}

Status Operation::prepare_policy() {
  Result<Descriptor> text = create_text("unet-policy", options_.policy.text());
  if (!text) return tl::unexpected(text.error());
  policy_text_ = std::move(*text);
  return {};
}

void Operation::save_policy() {
  persistence_.put(JournalKind::policy, 0, 0, PolicyValue{}, {policy_text_.get()});
  policy_text_.reset();
}

}  // namespace unet::service
