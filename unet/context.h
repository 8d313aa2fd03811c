// context.h - an application's connection to a network interface, which creates endpoints; part of the public C++ API.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "unet/base/result.h"
#include "unet/endpoint.h"

namespace unet {

class Connection;

class Context {
 public:
  // Connects to the NI that `ni` names:
  //   ""               the value of $UNET_NI, else the default control socket of this host (unetd)
  //   "unix:PATH"      the unetd that listens at PATH
  //   "embedded:SPEC"  an NI inside this process that owns the wire SPEC ("embedded:dpdk:net_memif0,role=client")
  // `program` is shown to operators; empty: the program's own name. Descriptor numbers below `first_descriptor` are left to the program, as
  // far as the process's limit allows.
  // Errors: unavailable (no NI there; the text says how to start one), not_permitted, invalid_argument.
  static Result<Context> open(std::string_view ni = {}, std::string_view program = {}, int first_descriptor = 0);

  // Uses an NI that this process has opened itself, for programs that also use the wire in other ways. `handle` is the result of the
  // table's open() or an equivalent of it. It is closed with the last user of the context.
  static Result<Context> attach(const unet_embedded_table& table, void* handle, Descriptor control, std::string_view program = {});

  // Creates an endpoint, which may outlive its context. One thread at a time may use an endpoint. Errors: invalid_argument (options),
  // quota_exceeded, not_permitted, disconnected.
  Result<Endpoint> create_endpoint(const EndpointOptions& options = {});

  // Returns a JSON document about everything that this user may see: endpoints, channels, names, counters, ports.
  Result<std::string> report();

  // Processes the control socket, and returns false once the NI is gone. Local channels go on working without it, but then they do not
  // learn that a peer has closed one or died.
  bool alive() const noexcept;

 private:
  explicit Context(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
  std::shared_ptr<Connection> connection_;
};

}  // namespace unet
