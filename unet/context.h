// context.h - an application's connection to a network interface; where endpoints come from; part of the public C++ API.
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
  //   ""               what $UNET_NI says, else the default control socket of this host (unetd)
  //   "unix:PATH"      the unetd that listens at PATH
  //   "embedded:SPEC"  an NI inside this process that owns the wire SPEC ("embedded:dpdk:net_memif0,role=client")
  // `program` is shown to operators; empty: the program's own name. `first_descriptor`: numbers below it are left to the program, as far as
  // the process may have others.
  // Errors: unavailable (no NI there; the text says how to start one), not_permitted, invalid_argument.
  static Result<Context> open(std::string_view ni = {}, std::string_view program = {}, int first_descriptor = 0);

  // Over an NI that this process has opened itself: `handle` is what the table's open() returned (or an equal of it), and is
  // closed with the last user of the context. For programs that also use the wire in other ways.
  static Result<Context> attach(const unet_embedded_table& table, void* handle, Descriptor control, std::string_view program = {});

  // Creates an endpoint. Errors: invalid_argument (options), quota_exceeded, not_permitted, disconnected.
  // An endpoint may outlive its context; it is used by one thread at a time.
  Result<std::unique_ptr<Endpoint>> create_endpoint(const EndpointOptions& options = {});

  // A JSON document of what this user may see: endpoints, channels, names, counters, ports.
  Result<std::string> report();

  // False once the NI is gone: looks at the control socket. Local channels go on working without it, but nobody tells any longer
  // that a peer closed one or died.
  bool alive() const noexcept;

 private:
  explicit Context(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
  std::shared_ptr<Connection> connection_;
};

}  // namespace unet
