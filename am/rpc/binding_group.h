// binding_group.h - one interface at several servers, and the choice of one for each call; part of the public API of calls.
//
//   const std::array<std::string_view, 2> targets{"kv@a", "kv@b"};
//   auto group = rpc::BindingGroup::import(*client, targets, kStore);
//   group->call(kGet, "key");
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "am/rpc/client.h"

namespace unet::rpc {

enum class Balance : uint8_t {
  round_robin,
  least_under_way,  // the server with the fewest calls of this client
};

class BindingGroup {
 public:
  // Waits at most 100 ms for each server. Those that are not there are tried again later. Errors: not_found (none is there).
  static Result<BindingGroup> import(Client& client, std::span<const std::string_view> targets, const Interface& interface,
                                     Balance balance = Balance::round_robin);
  // Imports from all servers of one name, "NAME" or "NAME@HOST": those with ServerOptions::replica. Also finds those that start later.
  // While none is there, a call waits up to 0.8 s.
  static Result<BindingGroup> of_replicas(Client& client, std::string_view name, const Interface& interface,
                                          Balance balance = Balance::round_robin);

  // Chooses the server of the next call; nullptr: none is there. Imports again from servers that have ended, at growing intervals. Waits
  // only if no server is there, and at most 100 ms for each.
  Binding* choose();
  // Calls a procedure and waits for its end. If it has certainly not run, because its server is gone or has no room, another is asked.
  template <typename R, typename... A>
  Reply<R> call(const Procedure<R(A...)>& procedure, const std::type_identity_t<std::remove_cvref_t<A>>&... arguments) {
    Call<R> call;
    for (size_t tries = 0; tries < members_.size(); ++tries) {
      Binding* const binding = choose();
      if (binding == nullptr) break;
      binding->start(call, procedure, arguments...);
      if (!call.done()) client_->wait_for(call);
      if (call.status() != CallStatus::unavailable && call.status() != CallStatus::overloaded) break;
    }
    return Reply<R>(call);
  }
  size_t size() const noexcept { return members_.size(); }

 private:
  struct Member {
    Binding binding;
    Nanoseconds retry_at = 0;  // while the server is not there
    Nanoseconds pause = 0;     // between two attempts
    std::unique_ptr<Import> import{};  // under way
  };
  BindingGroup(Client& client, Balance balance) noexcept : client_(&client), balance_(balance) {}
  static bool find_again(Member& member, bool may_wait);

  Client* client_;
  Balance balance_;
  std::vector<Member> members_;
  size_t next_ = 0, looked_at_ = 0;
};

}  // namespace unet::rpc
