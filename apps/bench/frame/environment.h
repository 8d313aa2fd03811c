// environment.h - resources that paths share while they are prepared: the cores and, on demand, two namespaces or a unetd.
#pragma once

#include <optional>

#include "apps/bench/machine/cores.h"
#include "apps/bench/machine/daemon.h"
#include "apps/bench/machine/impaired_wire.h"
#include "apps/bench/machine/netns.h"

namespace unet::bench {

class Environment {
 public:
  explicit Environment(CorePair cores) : cores_(cores) {}

  const CorePair& cores() const { return cores_; }

  // The namespaces are made at the first call, and removed with the Environment. Call from prepare() only;
  // in set_up() use namespaces_if_made().
  Result<NamespacePair*> namespaces() {
    if (!namespaces_ && !refusal_) {
      auto made = NamespacePair::create();
      if (made) namespaces_.emplace(std::move(*made));
      else refusal_ = made.error();
    }
    if (refusal_) return tl::unexpected(*refusal_);
    return &*namespaces_;
  }
  NamespacePair* namespaces_if_made() { return namespaces_ ? &*namespaces_ : nullptr; }

  // unetd, its engine on core B; started at the first call, ended with the Environment.
  Result<Daemon*> daemon() { return start_once(daemon_, cores_.b); }
  // A second unetd that serves all users, likewise.
  Result<Daemon*> daemon_for_all() { return start_once(daemon_for_all_, cores_.b, Daemon::Clients::of_all_users); }
  // A unetd that may be killed and upgraded, likewise.
  Result<Daemon*> daemon_for_takeovers() {
    return start_once(daemon_for_takeovers_, cores_.b, Daemon::Clients::own, Daemon::Takeover::yes);
  }
  // A unetd for paths that use both cores: its engine is on a third core. Without a third core it is daemon().
  Result<Daemon*> daemon_on_spare_core() {
    const auto third = third_core(cores_);
    return third ? start_once(daemon_on_spare_core_, *third) : daemon();
  }

  // A unetd with IP, for sockets; its engine is on a third core, or on core B.
  Result<Daemon*> daemon_with_ip() {
    const auto third = third_core(cores_);
    return start_once(daemon_with_ip_, [&] { return Daemon::start_with_ip(third ? *third : cores_.b); });
  }

  // The cable that loses and delays frames; all paths share it.
  Result<ImpairedWire*> impaired_wire() {
    if (impaired_wire_) return &*impaired_wire_;
    auto pair = namespaces();
    if (!pair) return tl::unexpected(pair.error());
    auto wire = ImpairedWire::create(**pair);
    if (!wire) return tl::unexpected(wire.error());
    impaired_wire_.emplace(std::move(*wire));
    return &*impaired_wire_;
  }

  // The cable of the kernel's sockets, which all share: one with offloads, one without.
  Result<Veth> kernel_veth(bool offloads = true) {
    std::optional<Veth>& cable = offloads ? kernel_veth_ : kernel_veth_single_;
    if (cable) return *cable;
    auto pair = namespaces();
    if (!pair) return tl::unexpected(pair.error());
    auto veth = (*pair)->add_veth({.offloads = offloads});
    if (veth) cable = *veth;
    return veth;
  }

 private:
  struct DaemonOnce {
    std::optional<Daemon> daemon;
    std::optional<Error> refusal;
  };
  static Result<Daemon*> start_once(DaemonOnce& once, int core, Daemon::Clients clients = Daemon::Clients::own,
                                    Daemon::Takeover takeover = Daemon::Takeover::no) {
    return start_once(once, [&] { return Daemon::start(core, clients, takeover); });
  }
  template <typename Start>
  static Result<Daemon*> start_once(DaemonOnce& once, Start start) {
    if (!once.daemon && !once.refusal) {
      auto started = start();
      if (started) once.daemon.emplace(std::move(*started));
      else once.refusal = started.error();
    }
    if (once.refusal) return tl::unexpected(*once.refusal);
    return &*once.daemon;
  }

  CorePair cores_;
  std::optional<NamespacePair> namespaces_;
  std::optional<Error> refusal_;
  std::optional<Veth> kernel_veth_, kernel_veth_single_;
  std::optional<ImpairedWire> impaired_wire_;
  DaemonOnce daemon_, daemon_on_spare_core_, daemon_with_ip_, daemon_for_all_, daemon_for_takeovers_;
};

}  // namespace unet::bench
