// service.h - the NI's set-up side: control connections, endpoints, names, rights, channels; used by Ni, one thread.
//
// A Service knows the engines only by EngineCommands and EngineSide. It never blocks: poll() does what is ready, and the caller sleeps on
// descriptor() until next_timeout(). The worst effect of a client's packet is the end of its connection. When a connection ends, all that
// it had is given back, memory after the engine has let go of it.
//
// Service has the loop, the control socket, the check of each request, and hello. Its parts do the rest, and none of them knows Service:
//   Clients, Endpoints                  tables of connections and endpoints; packets to clients; names
//   EndpointEngines, EngineCommands     which engine serves what; commands to the engines
//   EndpointRequests                    endpoints, names, memory
//   Channels                            channels on this NI (Requests, EngineChannels) and over a wire (WireChannels, Signalling)
//   IpRequests, IpControl               IP of endpoints, tables of sockets
//   CaptureRequests, Captures           captures
//   Operation                           the policy in force, draining, upgrades
//   Takeover, Persistence, Charges      the journal; what users are charged for
// Its members are these parts, and what they share.
//
// A handler of a request, handle(client, packet) of a part, has five steps:
//   1. It finds the objects that the packet names, and checks that they are the client's (endpoints_.own()).
//   2. It checks values and rights, whether the NI takes more (operation_.takes_more()), and the journal's room (persistence_.takes()).
//   3. It charges the user (charges_). A later step that fails gives this back.
//   4. It changes the tables, marks changed records for the journal (persistence_.changed()), and commands the engine (commands_.push()).
//   5. It answers once: clients_.ok(), fail_request(), or send_packet() with descriptors. A connect is answered when its peer has decided.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ni/engine/mailbox.h"
#include "ni/service/capture_requests.h"
#include "ni/service/captures.h"
#include "ni/service/channels.h"
#include "ni/service/charges.h"
#include "ni/service/clients.h"
#include "ni/service/endpoint_engines.h"
#include "ni/service/endpoint_requests.h"
#include "ni/service/endpoints.h"
#include "ni/service/engine_commands.h"
#include "ni/service/engine_side.h"
#include "ni/service/fair_queue.h"
#include "ni/service/ip_control.h"
#include "ni/service/ip_requests.h"
#include "ni/service/journal.h"
#include "ni/service/listener.h"
#include "ni/service/operation.h"
#include "ni/service/persistence.h"
#include "ni/service/policy.h"
#include "ni/service/ports.h"
#include "ni/service/records.h"
#include "ni/service/service_options.h"
#include "ni/service/takeover.h"
#include "unet/base/result.h"
#include "unet/base/time.h"
#include "unet/control.h"
#include "unet/counters.h"

namespace unet::service {

class Service {
 public:
  // Errors: invalid_argument (host name, static channels), system.
  static Result<std::unique_ptr<Service>> create(ServiceOptions options, std::vector<PortInfo> ports, std::vector<EngineLine> lines,
                                                 EngineSide& engine);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  Status listen(const std::string& path, const std::string& group);

  // From now on everything is written down, for an NI that takes over. Before any client is taken. `checkpoint`: the memory of the engine.
  // With what was inherited, goes on where the NI before this one stopped: its socket, clients, endpoints and channels. Errors:
  // protocol (what was inherited makes no sense), invalid_argument (another socket), out_of_memory.
  Status start_journal(std::unique_ptr<Journal> journal, int checkpoint, const std::string& path, const std::string& group,
                       Nanoseconds now);
  bool has_journal() const noexcept { return persistence_.active(); }
  // Clients are served now.
  void tell_ready();

  // The supervisor wants another NI in our place: hand_over() once the engine has stopped, tell_released() when wires are closed.
  bool released() const noexcept { return takeover_.released(); }
  // The supervisor is gone: stop().
  bool supervisor_lost() const noexcept { return persistence_.lost(); }
  void hand_over();
  void tell_released() { takeover_.tell_released(); }

  // Takes a connected SOCK_SEQPACKET socket as a client.
  Status adopt_connection(Descriptor socket);

  // Does everything that is ready: connections, requests, the engine's events, timers. Never blocks. True if anything was.
  bool poll(Nanoseconds now);

  // When poll() must run again although descriptor() is not readable; ~0 if never.
  Nanoseconds next_timeout() const noexcept;

  // Readable when poll() has something to do (not: the engine's events, which come with the caller's own wake).
  int descriptor() const noexcept { return epoll_.get(); }

  // True while commands wait for room in the mailbox: poll() again soon.
  bool backlogged() const noexcept { return commands_.waiting() != 0; }

  // Drops every client and tells other NIs. poll() on until idle(), or give up: the engine may be gone.
  void stop(Nanoseconds now);
  bool idle() const noexcept { return clients_.all().empty() && !backlogged(); }

  const ServiceCounters& counters() const noexcept { return counters_; }
  const Signalling& signalling() const noexcept { return channels_.wires().signalling(); }

  // Reads the policy file again. The new rights count for what is asked for from now on; what exists stays. An error leaves the
  // old policy. By the service's thread.
  Status reload_policy() { return operation_.reload_policy(); }

  // While drained, the NI takes no new endpoints, names and channels; what exists goes on. By the service's thread.
  void drain(bool on) { operation_.drain(on); }

  // The whole JSON document that this process may see (report.cc).
  std::string report(const Credentials& who) const;

 private:
  friend class ReportBuilder;

  Service(ServiceOptions options, std::vector<PortInfo> ports, std::vector<EngineLine> lines, EngineSide& engine);

  // service.cc: connections and the loop
  void on_listener();
  bool process_clients();     // true, as below: there was something to do
  bool on_client(ClientRecord& client, uint32_t epoll_events);  // true: there may be more
  void on_packet(ClientRecord& client, Bytes packet);
  void on_journaled_packet(ClientRecord& client, Bytes packet);
  Status listen_on(Listener listener);
  Status watch(int descriptor, uint64_t key);
  bool on_engine_events();
  void on_engine_event(uint32_t engine, const engine::Event& event);

  // service_requests.cc: what every request passes first, and hello
  void handle(ClientRecord& client, const control::Hello& packet);
  void handle(ClientRecord& client, const control::Report& packet);  // report.cc
  template <typename Packet, typename Part>
  void dispatch(Part& part, ClientRecord& client, Bytes bytes);
  Status greet(ClientRecord& client, const control::Hello& packet);

  // service.cc: the journal
  void commit_poll();
  void on_supervisor();

  // service.cc: the end of a connection
  void finish_drops();
  void on_endpoint_detached(uint32_t id);
  void on_client_detached(uint32_t engine, uint32_t index);
  void forget(ClientRecord& client);

  ServiceOptions options_;
  Ports ports_;
  EngineSide& engine_;
  EngineCommands commands_;
  Persistence persistence_;
  Charges charges_{persistence_};
  Nanoseconds now_ = 0;  // of the poll() under way

  Descriptor epoll_;
  ServiceCounters counters_;
  Clients clients_{epoll_.get(), now_, options_.policy, counters_, charges_, persistence_};
  Captures captures_{commands_, charges_, persistence_};
  Endpoints endpoints_{clients_, persistence_};
  EndpointEngines engines_{commands_, engine_, ports_, clients_, captures_};
  Operation operation_{options_, clients_, engines_, persistence_};
  CaptureRequests capture_requests_{options_, ports_, now_, clients_, endpoints_, engines_, operation_, captures_};
  IpControl ip_{options_.ip, options_.seed == 0 ? 0 : ~options_.seed, commands_, charges_, persistence_};
  Channels channels_{{options_, ports_, now_, counters_, commands_, persistence_, charges_, clients_, endpoints_, engines_, operation_,
                      ip_}};
  EndpointRequests endpoint_requests_{engine_, persistence_, charges_, clients_, endpoints_, engines_, operation_, captures_, channels_};
  IpRequests ip_requests_{options_, ports_, commands_, clients_, endpoints_, engines_, operation_, ip_, channels_};
  Takeover takeover_{{persistence_, commands_, charges_, clients_, endpoints_, engines_, operation_, captures_, channels_,
                      endpoint_requests_, ip_, ip_requests_}};
  std::unique_ptr<Listener> listener_;
  // A poll serves so many requests at least. Then signals, timers and the engine have their turn.
  static constexpr uint32_t kRequestsPerPoll = 16;
  FairQueue fair_queue_;
  uint32_t served_ = 0;  // requests in this poll; a part of a report counts as all of them
  Nanoseconds next_refusal_log_ = 0;
};

}  // namespace unet::service
