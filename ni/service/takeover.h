// takeover.h - what a service writes down for the NI after it, and how it goes on where the NI before it stopped; used by Service.
//
// Persistence has the keys of objects that changed. commit() writes their records, as the objects are then, when a request or a poll() is
// over. Packets to clients wait for that and are written, too, so the next NI sends again what may not have left. Clients know a packet by
// its cookie.
//
// Parts save and restore their own records: takeover_clients.cc, takeover_endpoints.cc, takeover_channels.cc, takeover_wires.cc and
// takeover_ip.cc. This class knows the part of each record, and the order: a record comes after those that it refers to (JournalKind).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ni/service/captures.h"
#include "ni/service/channels.h"
#include "ni/service/charges.h"
#include "ni/service/clients.h"
#include "ni/service/endpoint_engines.h"
#include "ni/service/endpoint_requests.h"
#include "ni/service/endpoints.h"
#include "ni/service/engine_commands.h"
#include "ni/service/ip_control.h"
#include "ni/service/ip_requests.h"
#include "ni/service/journal.h"
#include "ni/service/listener.h"
#include "ni/service/operation.h"
#include "ni/service/persistence.h"

namespace unet::service {

class Takeover {
 public:
  // The parts with records.
  struct Parts {
    Persistence& persistence;
    EngineCommands& commands;
    Charges& charges;
    Clients& clients;
    Endpoints& endpoints;
    EndpointEngines& engines;
    Operation& operation;
    Captures& captures;
    Channels& channels;
    EndpointRequests& endpoint_requests;
    IpControl& ip;
    IpRequests& ip_requests;
  };
  explicit Takeover(const Parts& parts) noexcept : parts_(parts) {}
  Takeover(const Takeover&) = delete;
  Takeover& operator=(const Takeover&) = delete;
  ~Takeover();

  // `path`: of the control socket; empty: there is none.
  void start(std::unique_ptr<Journal> journal, const std::string& path);
  // Goes on with what the NI before this one had. Returns its control socket; none: there is no NI before this one, or no path. Errors:
  // protocol (it makes no sense), invalid_argument (another socket), out_of_memory.
  Result<std::optional<Listener>> restore();
  // The first NI's socket, or none, and the engine's memory.
  void save_socket(int checkpoint, const Listener* listener);

  // Everything that changed is written, and counts from here on; then what waits for that leaves. Clients that end by it are only noted:
  // callers may go on with theirs.
  void commit();
  // Clients are served. That counts together with the policy by which they are.
  void tell_ready();
  void tell_released();

  void take_orders();  // of the supervisor
  bool resumes() const noexcept { return resumes_; }
  bool released() const noexcept { return released_; }  // the supervisor wants another NI in our place
  // Another NI could go on with what the supervisor has: the control socket stays for it.
  bool resumable() const noexcept { return resumable_; }

 private:
  void save(const JournalKey& key);
  void save_state();
  Status restore(JournalItem& item);
  Status restore_socket(JournalItem& item);
  Status restore_state(const JournalItem& item);
  Status restore_page(JournalItem& item);
  Status restore_upgrade(const JournalItem& item);
  void resume();

  const Parts parts_;
  std::string path_;
  std::optional<Listener> listener_;  // inherited, until restore() returns
  bool resumes_ = false;
  bool released_ = false;
  bool resumable_ = false;
};

}  // namespace unet::service
