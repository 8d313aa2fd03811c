// environment.h - what contenders share while they are prepared: the cores and, when somebody asks, two namespaces or a unetd.
#pragma once

#include <optional>

#include "apps/bench/cores.h"
#include "apps/bench/daemon.h"
#include "apps/bench/netns.h"

namespace unet::bench {

class Environment {
 public:
  explicit Environment(CorePair cores) : cores_(cores) {}

  const CorePair& cores() const { return cores_; }

  // The namespaces are made the first time somebody asks, and removed with the Environment. Call from prepare() only;
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

  // unetd, its engine on core B; started the first time somebody asks, ended with the Environment.
  Result<Daemon*> daemon() {
    if (!daemon_ && !daemon_refusal_) {
      auto started = Daemon::start(cores_.b);
      if (started) daemon_.emplace(std::move(*started));
      else daemon_refusal_ = started.error();
    }
    if (daemon_refusal_) return tl::unexpected(*daemon_refusal_);
    return &*daemon_;
  }

  // The kernel's sockets share one cable.
  Result<Veth> kernel_veth() {
    if (kernel_veth_) return *kernel_veth_;
    auto pair = namespaces();
    if (!pair) return tl::unexpected(pair.error());
    auto veth = (*pair)->add_veth({});
    if (veth) kernel_veth_ = *veth;
    return veth;
  }

 private:
  CorePair cores_;
  std::optional<NamespacePair> namespaces_;
  std::optional<Error> refusal_;
  std::optional<Veth> kernel_veth_;
  std::optional<Daemon> daemon_;
  std::optional<Error> daemon_refusal_;
};

}  // namespace unet::bench
