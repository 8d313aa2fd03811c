// commands.cc - runs commands of the service (endpoints, channels, regions, signals), and reports events.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "ni/engine/engine_state.h"
#include "unet/base/check.h"
#include "unet/base/fence.h"

namespace unet::engine {
namespace {

constexpr uint32_t kCommandsPerPoll = 64;    // bounds the delay of messages
constexpr Nanoseconds kDetachTime = kSecond;  // how long a detached endpoint waits for ports that read its segment

}  // namespace

uint32_t Engine::State::take_all_commands() noexcept {
  uint32_t taken = 0;
  for (const Command* command; taken < kCommandsPerPoll && (command = commands.front()) != nullptr; ++taken) {
    std::visit([this](const auto& each) { run(each); }, *command);
    commands.pop();
  }
  report_events();
  return taken;
}

EndpointState* Engine::State::attached(uint32_t endpoint) noexcept {
  UNET_CHECK(endpoint < kEndpointsMax);
  EndpointState* const state = endpoints[endpoint].load(std::memory_order_relaxed);
  return state != nullptr && state->attached() ? state : nullptr;
}

void Engine::State::run(const AttachClient& command) noexcept {
  doorbells.attach(command.client, command.page);
  gauges.change(NiGauge::clients, 1);
}

void Engine::State::run(const DetachClient& command) noexcept {
  doorbells.detach(command.client);
  gauges.change(NiGauge::clients, -1);
  detached_clients.push_back(command.client);
}

void Engine::State::run(const AttachEndpoint& command) noexcept {
  UNET_CHECK(command.endpoint < kEndpointsMax && command.weight > 0);
  std::atomic<EndpointState*>& place = endpoints[command.endpoint];
  EndpointState* e = place.load(std::memory_order_relaxed);
  if (e == nullptr) {
    e = new EndpointState;
    e->checkpoint = e->receive_checkpoint = checkpoint ? &checkpoint.endpoint(command.endpoint) : &e->own_checkpoint;
    place.store(e, std::memory_order_release);  // for readers of its counters
  }
  UNET_CHECK(e->life == EndpointState::Life::unused);

  const SegmentGeometry& g = command.geometry;
  e->index = command.endpoint;
  e->client = command.client;
  e->doorbell = command.doorbell;
  e->geometry = g;
  e->segment = command.segment;
  e->segment_bytes = g.total;
  e->header = reinterpret_cast<SegmentHeader*>(command.segment);
  e->receive_header = e->header;
  e->receive_data = command.segment + g.receive_data;
  e->buffer_size = g.buffer_size;
  e->send = SlotReader(reinterpret_cast<const Slot*>(command.segment + g.send_queue), g.send_depth, &e->header->send_consumed.value);
  e->receive = SlotWriter(reinterpret_cast<Slot*>(command.segment + g.receive_queue), g.receive_depth,
                          &e->header->receive_consumed.value);
  const auto* free_queue = reinterpret_cast<const FreeSlot*>(command.segment + g.free_queue);
  if (!checkpoint) {
    e->own_held.assign(held_words(g.buffers), 0);
    e->own_checkpoint.begin();
  } else if (command.resume) {
    resume(*e);
  } else {
    checkpoint.begin(command.endpoint, g.buffers);
  }
  uint64_t* const held = checkpoint ? checkpoint.held(command.endpoint) : e->own_held.data();
  e->buffers = BufferPool(free_queue, g.free_depth, g.buffers, held, &e->checkpoint->free_position);
  e->region = {};
  e->wake_descriptor = -1;
  e->deficit = 0;
  e->quantum = int64_t{options.quantum_bytes} * command.weight;
  e->share = &share_of(command.user);
  e->buckets = {};
  e->buckets.set_prices(e->share->endpoint_prices, now);
  e->terms = e->share->terms;
  e->deferred = false;
  e->granted = false;
  e->zero_copy = {};
  e->outgoing.active = false;
  e->registered_ports = 0;
  ++e->incarnation;
  e->life = EndpointState::Life::attached;
  gauges.change(NiGauge::endpoints, 1);
  doorbells.open(command.client, command.doorbell, *e);
  mux.activate(*e);  // the client may have rung before its bell was known
}

Share& Engine::State::share_of(uint32_t user) {
  std::unique_ptr<Share>& share = shares[user];
  if (share == nullptr) share = std::make_unique<Share>();
  return *share;
}

void Engine::State::run(const SetUser& command) noexcept {
  UNET_CHECK(command.weight > 0);
  Share& share = share_of(command.user);
  share.pace = Share::kTimeParts / command.weight;
  if (share.limits == command.limits) return;
  share.set_limits(command.limits, now);
  mux.release_all(share, now);
}

// Restores the state in which the previous engine stopped, at any instruction. The client may have written anything into the segment since.
// Such writes only decide whether the last message of that engine counts as published.
void Engine::State::resume(EndpointState& e) noexcept {
  const SegmentGeometry& g = e.geometry;
  EndpointCheckpoint& k = *e.checkpoint;
  uint64_t* const held = checkpoint.held(e.index);
  const auto* send_queue = reinterpret_cast<const Slot*>(e.segment + g.send_queue);
  e.send = SlotReader(send_queue, g.send_depth, &e.header->send_consumed.value, k.send_position);
  e.send.give_back_now(k.send_position);  // frames on their way to a port are lost, so no port reads the slots

  Slot* const slots = reinterpret_cast<Slot*>(e.segment + g.receive_queue);
  uint32_t position = k.receive_position;
  const uint64_t mark = slots[(position - 1) & (g.receive_depth - 1)].mark.load(std::memory_order_acquire);
  if (static_cast<uint32_t>(mark) != position) {
    --position;  // announced but not published: the slot and its buffers are still ours
    for (uint32_t i = 0; i < std::min(k.delivered_runs, kRunsMax); ++i) {
      for (uint32_t b = k.runs[i].first; b < std::min(uint32_t{k.runs[i].first} + k.runs[i].count, g.buffers); ++b) mark_held(held, b);
    }
  }
  e.receive = SlotWriter::resume(slots, g.receive_depth, &e.header->receive_consumed.value, position);

  // The buffer of the next entry may be held already, while the entry was not passed yet.
  const auto* free_queue = reinterpret_cast<const FreeSlot*>(e.segment + g.free_queue);
  FreeReader next(free_queue, g.free_depth, k.free_position);
  uint32_t buffer = 0;
  if (next.pop(buffer) && buffer < g.buffers && (held[buffer / 64] >> (buffer % 64) & 1) != 0) ++k.free_position;

  e.header->engine_watching.value.store(0, std::memory_order_relaxed);
}

// Activates clients that published before they saw engine_watching = 0, and wakes those that fell asleep after the previous engine had
// published and before it woke them.
void Engine::State::run(const Resumed&) noexcept {
  resuming = false;
  heavy_fence();
  for (uint32_t i = 0; i < kEndpointsMax; ++i) {
    EndpointState* const e = attached(i);
    if (e == nullptr) continue;
    mux.activate(*e);
    delivery.waker().wake_if_announced(*e, e->header->receiver_asleep.value);
    delivery.waker().wake_if_announced(*e, e->header->sender_waiting.value);
  }
}

void Engine::State::run(const DetachEndpoint& command) noexcept {
  EndpointState* const e = attached(command.endpoint);
  if (e == nullptr) return;
  for (uint32_t channel = 0; channel < e->channel_count; ++channel) close_channel(*e, channel);
  delivery.flush();  // no batch refers to it afterwards
  reassembly.forget(*e);
  watch.remove(*e);
  mux.remove(*e);
  doorbells.close(e->client, e->doorbell);
  ++e->incarnation;  // closes hairpin channels to it
  delivery.waker().forget(*e);
  e->life = EndpointState::Life::detaching;
  e->detach_by = now + kDetachTime;
  detaching.push_back(e->index);
}

void Engine::State::run(const SetRegion& command) noexcept {
  if (EndpointState* const e = attached(command.endpoint)) e->region = command.region;
}

void Engine::State::run(const SetWakeDescriptor& command) noexcept {
  EndpointState* const e = attached(command.endpoint);
  if (e == nullptr) return;
  e->wake_descriptor = command.descriptor;
  // The client may have the descriptor already, and sleep on messages that were delivered before this command.
  light_fence();
  delivery.waker().wake_if_announced(*e, e->header->receiver_asleep.value);
  delivery.waker().wake_if_announced(*e, e->header->sender_waiting.value);
}

ChannelState& Engine::State::new_channel(EndpointState& endpoint, uint32_t channel) {
  UNET_CHECK(channel < kChannelsPerEndpointMax);
  if (channel >= endpoint.channel_count) {
    endpoint.channel_memory.resize(std::max<size_t>(channel + 1, endpoint.channel_memory.size() * 2));
    endpoint.channels = endpoint.channel_memory.data();
    endpoint.channel_count = static_cast<uint32_t>(endpoint.channel_memory.size());
  }
  close_channel(endpoint, channel);
  ChannelState& state = endpoint.channels[channel];
  state = ChannelState{};
  return state;
}

void Engine::State::run(const OpenHairpin& command) noexcept {
  EndpointState* const e = attached(command.endpoint);
  EndpointState* const peer = attached(command.peer);
  if (e == nullptr || peer == nullptr) return;
  ChannelState& channel = new_channel(*e, command.channel);
  channel.kind = ChannelKind::hairpin;
  gauges.change(NiGauge::channels, 1);
  channel.peer = peer;
  channel.peer_incarnation = peer->incarnation;
  channel.peer_channel = command.peer_channel;
}

void Engine::State::run(const OpenWire& command) noexcept {
  UNET_CHECK(command.port < ports.size());
  EndpointState* const e = attached(command.endpoint);
  if (e == nullptr) return;
  ChannelState& channel = new_channel(*e, command.channel);
  channel.kind = ChannelKind::wire;
  gauges.change(NiGauge::channels, 1);
  gauges.change(NiGauge::tags, 1);
  channel.port = static_cast<uint8_t>(command.port);
  channel.remote = command.remote;
  channel.local_tag = command.local_tag;
  channel.remote_tag = command.remote_tag;
  // Each message takes a slot before a number, so no engine uses a number twice. The other NI would take the message for a duplicate, or
  // mix two messages.
  channel.next_message = e->send.position();
  tags.open(command.local_tag, {.endpoint = e, .source = source_key(command.remote, command.port), .tag = command.local_tag,
                                .channel = command.channel});
  taps.opened(*e, command.channel, channel);
  register_segment(*e, command.port);
}

// Allows the port to read the segment, if it can.
void Engine::State::register_segment(EndpointState& e, uint32_t port) noexcept {
  if (!ports[port]->external_payload() || (e.registered_ports >> port & 1) != 0) return;
  if (ports[port]->driver().register_memory({e.segment, e.segment_bytes})) e.registered_ports |= uint64_t{1} << port;
}

void Engine::State::run(const CloseChannel& command) noexcept {
  EndpointState* const e = attached(command.endpoint);
  if (e != nullptr && command.channel < e->channel_count) close_channel(*e, command.channel);
}

void Engine::State::run(const OpenRelay& command) noexcept {
  UNET_CHECK(links != nullptr && command.engine < kEnginesMax);
  tags.open(command.local_tag, {.endpoint = nullptr, .source = 0, .tag = command.local_tag, .channel = command.engine});
}

void Engine::State::run(const CloseRelay& command) noexcept { tags.close(command.local_tag); }

void Engine::State::run(const OpenIp& command) noexcept {
  UNET_CHECK(ip != nullptr);
  EndpointState* const e = attached(command.endpoint);
  if (e == nullptr) return;
  new_channel(*e, command.channel).kind = ChannelKind::ip;
  gauges.change(NiGauge::channels, 1);
  e->ip_channel = command.channel;
  if (e->ip_send == nullptr) e->ip_send = std::make_unique<IpSend>();
  for (uint32_t p = 0; p < ports.size(); ++p) {
    if (ip->has(p) && ports[p]->segments_max() != 0) register_segment(*e, p);
  }
}

void Engine::State::run(const ClaimIp& command) noexcept {
  EndpointState* const e = attached(command.endpoint);
  if (e != nullptr && e->ip_channel != kNone) ip->bindings().add(command.number, *e, command.claim, command.user);
}

void Engine::State::run(const ReleaseIp& command) noexcept { ip->bindings().remove(command.number); }

void Engine::State::run(const SetClaim& command) noexcept { ip->bindings().set(command.number, command.accepts_new_flows); }

void Engine::State::run(const SetFlowOwner& command) noexcept { ip->bindings().set_owner(command.number, command.flow); }

void Engine::State::run(const ResumeFlows& command) noexcept {
  const EndpointState* const e = attached(command.endpoint);
  for (uint32_t i = 0; e != nullptr && i < std::min(command.count, ResumeFlows::kMax); ++i) ip->resume_flow(*e, command.flows[i]);
}

void Engine::State::run(const ExpectOrphans& command) noexcept {
  if (const EndpointState* const e = attached(command.endpoint)) ip->expect_orphans(*e, command.number);
}

void Engine::State::run(const AddOrphan& command) noexcept { ip->add_orphan(command.orphan, now); }

void Engine::State::run(const OrphansAdded& command) noexcept { ip->orphans_added(command.number); }

void Engine::State::run(const ResumeLease& command) noexcept { ip->resume_lease(command.port, command.lease, now); }

void Engine::State::run(const ResumeHost& command) noexcept { ip->resume_host(command.port, command.checkpoint, now); }

void Engine::State::close_channel(EndpointState& endpoint, uint32_t channel) noexcept {
  ChannelState& state = endpoint.channels[channel];
  if (state.kind == ChannelKind::closed) return;
  gauges.change(NiGauge::channels, -1);
  if (state.kind == ChannelKind::ip) {
    ip->bindings().remove_all(endpoint);
    endpoint.ip_channel = kNone;
  }
  if (state.kind != ChannelKind::hairpin) {
    if (endpoint.outgoing.active && endpoint.outgoing.channel == channel) {
      endpoint.outgoing.active = false;  // the next peer of this number must not get the rest of a message
      endpoint.count(EndpointCounter::unknown_channel);
    }
  }
  if (state.kind == ChannelKind::wire) {
    reassembly.forget(endpoint, channel);
    taps.closed(endpoint, channel, state);
    tags.close(state.local_tag);
    gauges.change(NiGauge::tags, -1);
  }
  state.kind = ChannelKind::closed;
}

void Engine::State::run(const StartCapture& command) noexcept {
  const EndpointState* const e = command.endpoint == kNone ? nullptr : attached(command.endpoint);
  if (command.endpoint != kNone && e == nullptr) return;
  taps.start(command, e);
  update_port_captures();
}

void Engine::State::run(const StopCapture& command) noexcept {
  taps.stop(command.capture);
  update_port_captures();
  stopped_captures.push_back(command.capture);
}

void Engine::State::update_port_captures() noexcept {
  for (uint32_t p = 0; p < ports.size(); ++p) ports[p]->set_taps(taps.wants_port(p) ? &taps : nullptr, p);
}

void Engine::State::run(const SendSignal& command) noexcept {
  UNET_CHECK(command.port < ports.size() && command.length <= kSignalMax);
  Port& port = *ports[command.port];
  TransmitFrame* const frame = command.length <= port.fragment_size(FrameFlags::kMessage) ? port.signal_frame(now) : nullptr;
  if (frame == nullptr) return counters.add(NiCounter::transmit_overflow);
  std::memcpy(frame->data + kFrameOverhead, command.bytes.data(), command.length);
  frame->length = emit_frame(frame->data, {.to = command.to, .from = port.address(), .tag = kSignallingTag, .total = command.length},
                             command.length);
  port.stage();
  port.flush(now);
}

// Puts Detached events, as many as the mailbox takes; the next poll retries the others.
void Engine::State::report_events() noexcept {
  bool put = false;
  std::erase_if(detaching, [&](uint32_t index) {
    EndpointState& e = *endpoints[index].load(std::memory_order_relaxed);
    if (e.zero_copy.pending() != 0 && now < e.detach_by) return false;
    if (e.wakes.load(std::memory_order_acquire) != 0) return false;
    // Before the event, after which the memory may be unmapped.
    for (uint32_t p = 0; p < ports.size(); ++p) {
      if ((e.registered_ports >> p & 1) == 0) continue;
      ports[p]->drop_staged({e.segment, e.segment_bytes});
      ports[p]->driver().forget_memory({e.segment, e.segment_bytes});
    }
    e.registered_ports = 0;
    if (!events.push(EndpointDetached{index})) return false;
    e.life = EndpointState::Life::unused;
    std::vector<ChannelState>().swap(e.channel_memory);  // frees its memory
    e.channels = nullptr;
    e.channel_count = 0;
    gauges.change(NiGauge::endpoints, -1);
    put = true;
    return true;
  });
  std::erase_if(detached_clients, [&](uint32_t client) {
    const bool done = events.push(ClientDetached{client});
    put = put || done;
    return done;
  });
  std::erase_if(stopped_captures, [&](uint32_t capture) {
    const bool done = events.push(CaptureStopped{capture});
    put = put || done;
    return done;
  });
  if (put) wake_service();
}

void Engine::State::wake_service() noexcept {
  if (service_wake < 0) return;
  const uint64_t one = 1;
  static_cast<void>(!::write(service_wake, &one, sizeof one));
}

}  // namespace unet::engine
