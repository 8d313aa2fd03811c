// wire_channels.h - channels over a wire: tags, signalling with other NIs, channels of the configuration; used by Channels.
//
// Signalling says what other NIs want, and Channels does it: it polls the events of signalling(). Signals leave by send_signals().
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ni/service/clients.h"
#include "ni/service/endpoint_engines.h"
#include "ni/service/endpoints.h"
#include "ni/service/engine_channels.h"
#include "ni/service/engine_commands.h"
#include "ni/service/ports.h"
#include "ni/service/records.h"
#include "ni/service/service_options.h"
#include "ni/service/signalling.h"

namespace unet::service {

struct ChannelValue;  // journal_records.h
struct RequestValue;
struct SharedValue;

class WireChannels {
 public:
  struct Found {
    EndpointRecord& endpoint;
    ChannelRecord& channel;
  };

  // `now`: the time of the poll().
  WireChannels(const ServiceOptions& options, const Ports& ports, const Nanoseconds& now, ServiceCounters& counters,
               EngineCommands& commands, EngineChannels& engine_channels, EndpointEngines& engines, const Clients& clients,
               const Endpoints& endpoints);

  Signalling& signalling() noexcept { return signalling_; }
  const Signalling& signalling() const noexcept { return signalling_; }

  // Takes the tags of the configuration's channels for good. Errors: invalid_argument.
  Status reserve_static();
  const std::vector<StaticChannel>& of_configuration() const noexcept { return options_.channels; }
  const StaticChannel* static_channel(Tag local_tag) const;  // nullptr: the configuration has none

  // These make a new channel one over a wire. Errors: quota_exceeded (tags), and as of Signalling.
  Status connect(const EndpointRecord& endpoint, ChannelRecord& channel, std::string_view host, std::string_view name,
                 Nanoseconds timeout);
  Status accept(EndpointRecord& endpoint, ChannelRecord& channel, uint64_t wire_request);
  void open_static(EndpointRecord& endpoint, ChannelRecord& channel, const StaticChannel& fixed);
  // The other NI has accepted. Returns the channel, which is open in the engine.
  Found open_connected(const Connected& event);
  Found take_connect(uint64_t connect);  // that has ended
  std::optional<Found> find(Tag local_tag) const;

  void reject(uint64_t wire_request, const Error& error);
  // The channel ends on this side, before or after it was open.
  void cancel(const ChannelRecord& channel);
  void close(const ChannelRecord& channel, control::CloseReason reason);
  // The tag goes back; a static channel's stays reserved for the next endpoint that binds its name.
  void release(const ChannelRecord& channel);

  void handle_signal(const engine::SignalReceived& signal);
  bool handle_timeout();  // true: there was something to do
  // Call when what the signals say is in the journal: an NI that takes over must know of it.
  void send_signals();
  Nanoseconds next_timeout() const noexcept;
  void stop();

  // A takeover (takeover_wires.cc). The wire's part of a channel or request; resume() opens the channel in the engine. False: it is lost.
  void save(const ChannelRecord& channel, ChannelValue& value) const;
  void save(const RequestRecord& request, RequestValue& value) const;
  void restore(const EndpointRecord& endpoint, ChannelRecord& channel, const ChannelValue& value);
  uint64_t restore_request(const RequestValue& value);  // Signalling's number; 0: the other host repeats it, if it still can
  bool resume(EndpointRecord& endpoint, ChannelRecord& channel);
  // Signals wait until the engine has taken all commands of the takeover: ask_others() in each poll().
  void shuffle_tags() { engine_channels_.tags().shuffle(); }
  void begin_asking() noexcept { others_unasked_ = true; }
  void ask_others();

 private:
  using Place = std::pair<uint32_t, uint32_t>;  // endpoint, channel

  void take_tag(const EndpointRecord& endpoint, ChannelRecord& channel, Tag tag);
  Found at(const Place& place) const;
  SharedValue shared_value(const Shared& shared) const;
  std::optional<Shared> shared_of(const SharedValue& value) const;
  bool is_static(const EndpointRecord& endpoint, const ChannelValue& value) const;
  bool restore_signalling(const EndpointRecord& endpoint, const ChannelRecord& channel, const ChannelValue& value);

  const ServiceOptions& options_;
  const Ports& ports_;
  const Nanoseconds& now_;
  ServiceCounters& counters_;
  EngineCommands& commands_;
  EngineChannels& engine_channels_;
  EndpointEngines& engines_;
  const Clients& clients_;
  const Endpoints& endpoints_;
  Signalling signalling_;
  std::unordered_map<uint64_t, Place> connects_;   // by Signalling's connect
  std::unordered_map<uint32_t, Place> tag_owner_;  // by local tag
  bool others_unasked_ = false;    // we took over, and the engine has not taken all of that yet: our signals wait for it
  Nanoseconds ask_others_by_ = 0;  // 0: some of the commands of the takeover still wait for room
};

}  // namespace unet::service
