// channels.h - channels of endpoints: asked for, accepted, refused, closed; used by Service and its parts.
//
// A local channel is memory that the two processes get and the NI forgets; a hairpin goes through the engine. Both, and the way to accept
// a request, are in channels.cc. channels_wire.cc has channels over a wire, channels_end.cc the ends, takeover_channels.cc a takeover.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "ni/service/charges.h"
#include "ni/service/clients.h"
#include "ni/service/endpoint_engines.h"
#include "ni/service/endpoints.h"
#include "ni/service/engine_channels.h"
#include "ni/service/engine_commands.h"
#include "ni/service/ip_control.h"
#include "ni/service/operation.h"
#include "ni/service/persistence.h"
#include "ni/service/ports.h"
#include "ni/service/records.h"
#include "ni/service/requests.h"
#include "ni/service/service_options.h"
#include "ni/service/wire_channels.h"

namespace unet::service {

class Channels {
 public:
  // Parts of the service that channels use.
  struct Uses {
    const ServiceOptions& options;
    const Ports& ports;
    const Nanoseconds& now;  // the time of the poll()
    ServiceCounters& counters;
    EngineCommands& commands;
    Persistence& persistence;
    Charges& charges;
    Clients& clients;
    Endpoints& endpoints;
    EndpointEngines& engines;
    const Operation& operation;
    IpControl& ip;
  };
  explicit Channels(const Uses& uses);

  Requests& requests() noexcept { return requests_; }
  const Requests& requests() const noexcept { return requests_; }
  WireChannels& wires() noexcept { return wires_; }
  const WireChannels& wires() const noexcept { return wires_; }
  const TagTable& tags() const noexcept { return engine_channels_.tags(); }

  void handle(ClientRecord& client, const control::Connect& packet);
  void handle(ClientRecord& client, const control::Accept& packet);
  void handle(ClientRecord& client, const control::Reject& packet);
  void handle(ClientRecord& client, const control::CloseChannel& packet);

  // A channel with a number of its own, charged with `memory`. Errors: quota_exceeded.
  Result<ChannelRecord*> create(EndpointRecord& endpoint, uint64_t memory);
  // The channel is open: answers the request `op`. False: the descriptors could not be had.
  bool finish_connect(EndpointRecord& endpoint, ChannelRecord& channel, control::Op op, uint64_t cookie,
                      std::initializer_list<int> descriptors);
  // An open or closed channel. nullptr: the endpoint has none of that number, and the client has got the error.
  ChannelRecord* own(ClientRecord& client, EndpointRecord& endpoint, const control::Header& header, uint32_t number);

  // The configuration's channels of a name: the endpoint that binds the name has them until it gives the name up.
  void open_static(EndpointRecord& endpoint, std::string_view name);
  void close_static(EndpointRecord& endpoint);

  // The other side ended the channel: our client is told, and keeps the number until it closes, too.
  void tell_closed(EndpointRecord& endpoint, ChannelRecord& channel, control::CloseReason reason);
  // The endpoint ends, with the requests that wait for it.
  void end_all(EndpointRecord& endpoint, control::CloseReason reason);

  // In each poll(): requests that were not accepted in time, and what signalling wants. True: there was something to do.
  bool end_late_requests();
  bool run_signalling();
  Nanoseconds next_timeout() const noexcept;

  // A takeover (takeover_channels.cc): records of channels and requests. When all are restored: end_halves() of each endpoint, then
  // resume(), which opens the channels in the engine.
  bool save(const JournalKey& key);  // false: it is gone
  Status restore(JournalItem& item);
  void end_halves(EndpointRecord& endpoint);
  void resume(EndpointRecord& endpoint);

 private:
  // channels.cc
  Status connect_to(ClientRecord& client, EndpointRecord& endpoint, const control::Connect& packet, std::string_view name,
                    uint32_t target, bool shared = false);
  Status connect_here(ClientRecord& client, EndpointRecord& endpoint, const control::Connect& packet, std::string_view name);
  std::shared_ptr<const Mapping> map_local_page(int memory);
  void accept_local(EndpointRecord& endpoint, const RequestRecord& request, const control::Header& header);
  void accept_hairpin(EndpointRecord& endpoint, const RequestRecord& request, const control::Header& header);
  void fail_connect(const RequestRecord& request, const Error& error);
  control::ChannelInfo info_of(const EndpointRecord& endpoint, const ChannelRecord& channel);

  // channels_wire.cc
  Status connect_wire(EndpointRecord& endpoint, const control::Connect& packet, std::string_view name, std::string_view host);
  Status accept_wire(EndpointRecord& endpoint, const RequestRecord& request, const control::Header& header);
  void on_signal_event(const Connected& event);
  void on_signal_event(const ConnectFailed& event);
  void on_signal_event(const Requested& event);
  void on_signal_event(const Withdrawn& event);
  void on_signal_event(const Confirmed& event);
  void on_signal_event(const ChannelLost& event);

  // channels_end.cc
  void end(EndpointRecord& endpoint, uint32_t number, control::CloseReason reason);

  // takeover_channels.cc
  bool save_channel(uint32_t endpoint, uint32_t number);
  bool save_request(uint64_t id);
  Status restore_channel(const JournalItem& item);
  Status restore_request(const JournalItem& item);
  bool asks(const RequestValue& value, uint64_t request);
  bool has_other_half(const EndpointRecord& endpoint, const ChannelRecord& channel);
  void lose_wire(EndpointRecord& endpoint, ChannelRecord& channel);

  const ServiceOptions& options_;
  const Ports& ports_;
  const Nanoseconds& now_;
  Persistence& persistence_;
  Charges& charges_;
  Clients& clients_;
  Endpoints& endpoints_;
  const Operation& operation_;
  IpControl& ip_;
  Requests requests_;
  EngineChannels engine_channels_;
  WireChannels wires_;
  const std::shared_ptr<uint32_t> local_pages_ = std::make_shared<uint32_t>(0);  // how many map_local_page() has mapped
  Nanoseconds next_static_log_ = 0;
};

}  // namespace unet::service
