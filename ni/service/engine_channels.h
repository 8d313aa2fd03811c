// engine_channels.h - what the engines know of channels: hairpins, wires, relays, and the tags of this NI; used by Channels and its parts.
#pragma once

#include <cstdint>

#include "ni/service/endpoint_engines.h"
#include "ni/service/endpoints.h"
#include "ni/service/engine_commands.h"
#include "ni/service/ports.h"
#include "ni/service/records.h"
#include "ni/service/signalling.h"
#include "ni/service/tags.h"

namespace unet::service {

class EngineChannels {
 public:
  // `seed`: of tags; 0: from the kernel.
  EngineChannels(uint64_t seed, EngineCommands& commands, const Ports& ports, Endpoints& endpoints, EndpointEngines& engines)
      : commands_(commands), ports_(ports), endpoints_(endpoints), engines_(engines), tags_(seed) {}

  TagTable& tags() noexcept { return tags_; }
  const TagTable& tags() const noexcept { return tags_; }
  static Error no_tags();

  // Both ends of a channel on this NI. Between two engines it is one over their link, with tags as over a wire. Errors: quota_exceeded.
  Status open_hairpin(EndpointRecord& connector, ChannelRecord& connecting, EndpointRecord& acceptor, ChannelRecord& accepting);
  // One end, after a takeover.
  void resume_hairpin(const EndpointRecord& endpoint, const ChannelRecord& channel);
  void open_wire(EndpointRecord& endpoint, ChannelRecord& channel, Tag remote_tag, const WireAddress& remote);
  void close(EndpointRecord& endpoint, ChannelRecord& channel);

 private:
  EngineCommands& commands_;
  const Ports& ports_;
  Endpoints& endpoints_;
  EndpointEngines& engines_;
  TagTable tags_;
};

}  // namespace unet::service
