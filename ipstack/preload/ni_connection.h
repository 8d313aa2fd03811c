// ni_connection.h - the process's connection to the network interface, and the addresses that it knows of it; part of the runtime.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "ipstack/sockets/endpoint_stack.h"
#include "unet/base/result.h"

namespace unet::preload {

class NiConnection {
 public:
  struct Opened {
    std::unique_ptr<sockets::EndpointStack> stack;
    int endpoint;  // the descriptor of its endpoint
  };

  explicit NiConnection(const std::string& name) : name_(name) {}
  bool is_embedded() const noexcept { return name_.starts_with("embedded:"); }

  // Opens a stack, and waits until the interface may use its addresses, as a program may be started together with the interface.
  Result<Opened> open(const Clock& clock);
  // Connects now, so that open() succeeds later without the right to connect. Does nothing if there is no interface.
  void reserve();
  void forget_reserve() noexcept { reserve_.reset(); }
  bool is_lost() const noexcept { return context_ && !context_->alive(); }
  void close() noexcept { context_.reset(); }

  // The addresses are remembered while the interface is away. Null: there was none yet.
  const IpConfiguration* known() const noexcept { return known_ ? &*known_ : nullptr; }
  void remember(const IpConfiguration& configuration) { known_ = configuration; }

 private:
  Result<Opened> try_open(const Clock& clock);

  const std::string name_;
  std::optional<Context> context_;
  std::optional<Context> reserve_;
  std::optional<IpConfiguration> known_;
};

}  // namespace unet::preload
