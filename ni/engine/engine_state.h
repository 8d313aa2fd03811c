// engine_state.h - the parts of an Engine and what they share; private to ni/engine.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <unordered_map>
#include <vector>

#include "ni/engine/delivery.h"
#include "ni/engine/demux.h"
#include "ni/engine/doorbells.h"
#include "ni/engine/endpoint_state.h"
#include "ni/engine/engine.h"
#include "ni/engine/frame_tap.h"
#include "ni/engine/ip_datapath.h"
#include "ni/engine/link.h"
#include "ni/engine/mux.h"
#include "ni/engine/ni_counters.h"
#include "ni/engine/port.h"
#include "ni/engine/reassembly.h"
#include "ni/engine/tag_table.h"
#include "ni/engine/watch.h"
#include "unet/base/sleep_pace.h"

namespace unet::engine {

// It has a member for each part, and a function for each command.
struct Engine::State {
  State(const EngineOptions& options, std::vector<std::unique_ptr<Driver>> drivers, CommandMailbox& commands, EventMailbox& events,
        int service_wake, Links* links, EngineCheckpoint checkpoint_memory);
  ~State();

  // ---- poll(), step by step
  uint32_t take_commands() noexcept {
    return commands.empty() && !unreported() ? 0 : take_all_commands();
  }
  [[gnu::noinline, gnu::cold]] bool arrived_too_early(const Port& port, std::span<const ReceivedFrame> burst) noexcept;
  uint32_t receive(Nanoseconds now) noexcept;
  uint32_t send(Nanoseconds now) noexcept;
  uint32_t scan_doorbells(Nanoseconds now) noexcept;
  uint32_t scan_watched() noexcept;
  void run_timers(Nanoseconds now) noexcept;

  // ---- commands.cc
  uint32_t take_all_commands() noexcept;
  void run(const std::monostate&) noexcept {}
  void run(const AttachClient& command) noexcept;
  void run(const DetachClient& command) noexcept;
  void run(const AttachEndpoint& command) noexcept;
  void run(const DetachEndpoint& command) noexcept;
  void run(const SetRegion& command) noexcept;
  void run(const SetWakeDescriptor& command) noexcept;
  void run(const OpenHairpin& command) noexcept;
  void run(const OpenWire& command) noexcept;
  void run(const CloseChannel& command) noexcept;
  void run(const OpenRelay& command) noexcept;
  void run(const CloseRelay& command) noexcept;
  void run(const OpenIp& command) noexcept;
  void run(const ClaimIp& command) noexcept;
  void run(const ReleaseIp& command) noexcept;
  void run(const SetClaim& command) noexcept;
  void run(const SetFlowOwner& command) noexcept;
  void run(const ResumeFlows& command) noexcept;
  void run(const ExpectOrphans& command) noexcept;
  void run(const AddOrphan& command) noexcept;
  void run(const OrphansAdded& command) noexcept;
  void run(const ResumeLease& command) noexcept;
  void run(const ResumeHost& command) noexcept;
  void run(const SendSignal& command) noexcept;
  void run(const SetUser& command) noexcept;
  void run(const StartCapture& command) noexcept;
  void run(const StopCapture& command) noexcept;
  void run(const Resumed& command) noexcept;
  void resume(EndpointState& endpoint) noexcept;

  Share& share_of(uint32_t user);
  EndpointState* attached(uint32_t endpoint) noexcept;
  ChannelState& new_channel(EndpointState& endpoint, uint32_t channel);
  void close_channel(EndpointState& endpoint, uint32_t channel) noexcept;
  void register_segment(EndpointState& endpoint, uint32_t port) noexcept;
  void update_port_captures() noexcept;
  void report_events() noexcept;
  bool unreported() const noexcept { return !detaching.empty() || !detached_clients.empty() || !stopped_captures.empty(); }
  void wake_service() noexcept;

  EngineOptions options;
  EngineCheckpoint checkpoint;
  bool resuming;  // until Resumed: no message moves before all is attached
  CommandMailbox& commands;
  EventMailbox& events;
  int service_wake;
  Links* const links;  // to other engines; nullptr: a single engine
  Nanoseconds now = 0;  // time of the poll under way
  uint32_t short_pulls = 0;  // consecutive short pulls, see Engine::pull()

  NiCounters counters;
  NiGauges gauges;
  TagTable tags;
  FrameTaps taps;
  std::vector<std::unique_ptr<Port>> ports;
  std::array<ReceivedFrame, kBurst> frames;  // of the burst under way
  Reassembly reassembly;
  Delivery delivery;
  Demux demux;
  Doorbells doorbells;
  Watch watch;
  SleepPace sleep_pace;
  Mux mux;
  std::unique_ptr<IpDatapath> ip;  // nullptr: the NI has no IP
  std::atomic<uint64_t> scans{0};  // see Engine::scans()

  std::unordered_map<uint32_t, std::unique_ptr<Share>> shares;  // by user

  // By number. Other threads read counters through these, so a state stays once created.
  std::unique_ptr<std::atomic<EndpointState*>[]> endpoints;
  std::vector<uint32_t> detaching;         // endpoints with a Detached event to come
  std::vector<uint32_t> detached_clients;  // likewise
  std::vector<uint32_t> stopped_captures;  // likewise
};

}  // namespace unet::engine
