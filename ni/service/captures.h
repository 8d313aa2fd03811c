// captures.h - captures of a running NI: their number, memory, engines and end; used by Service and its parts. CaptureRequests says which
// client may have which.
//
// The NI touches no file: frames go to memory that the reader maps, too. A full disk, a slow reader or a hostile one costs frames of that
// capture and nothing else.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "ni/service/charges.h"
#include "ni/service/engine_commands.h"
#include "ni/service/memory.h"
#include "ni/service/persistence.h"
#include "unet/control.h"

namespace unet::service {

// A capture that runs, or that some engine still writes after its stop.
struct CaptureRecord {
  uint32_t capture = 0;
  uint32_t client = 0;            // index of the connection that started it, while `stopping` is false
  uint64_t owner = 0;             // owner_of()
  bool of_operator = false;
  uid_t user = 0;
  pid_t pid = 0;
  int32_t port = -1;              // -1: all
  std::optional<uint32_t> endpoint, channel;
  uint32_t snap_length = 0;
  uint32_t bytes = 0;
  uint64_t memory = 0;            // bytes charged to the user
  bool stopping = false;
  uint32_t engines = 0;           // bit e: engine e writes it
  std::unique_ptr<engine::CaptureWriter> writer;
  SharedMemory shared;
};

class Captures {
 public:
  static constexpr uint32_t kAny = ~uint32_t{0};  // endpoint or channel of a CaptureStart: all

  Captures(EngineCommands& commands, Charges& charges, Persistence& persistence) noexcept
      : commands_(commands), charges_(charges), persistence_(persistence) {}

  // Takes a number and memory for a capture; `owner`: the capture's owner; `of_operator`: the operator asked for it. Errors:
  // quota_exceeded, unavailable, out_of_memory.
  Result<CaptureRecord*> create(const ClientRecord& client, uint64_t owner, bool of_operator, const control::CaptureStart& packet,
                                Nanoseconds now);
  // Starts writing by the engines with a bit in `engines`. 0: the capture's endpoint has no engine yet.
  void start(CaptureRecord& capture, uint32_t engines);
  void on_endpoint_assigned(uint32_t endpoint, uint32_t engine);

  CaptureRecord* find(uint32_t number);  // nullptr: no running capture has the number
  void stop(CaptureRecord& capture);
  void stop_of_client(uint32_t client);
  // Call before the engine forgets the endpoint, as another one may then get its number.
  void stop_of_endpoint(uint32_t endpoint);
  void on_stopped(uint32_t engine, uint32_t number);
  // Ends captures that were stopped before any engine knew them.
  void end_unserved();
  bool has_unserved() const noexcept { return !unserved_.empty(); }

  // A takeover ends the previous NI's captures: marks the capture as ended for its reader. False: the record is no capture.
  bool end_inherited(JournalItem& item);

  const std::map<uint32_t, CaptureRecord>& all() const noexcept { return captures_; }

 private:
  Status has_room(const ClientRecord& client, bool of_operator, Nanoseconds now);
  void forget(uint32_t number);

  EngineCommands& commands_;
  Charges& charges_;
  Persistence& persistence_;
  std::map<uint32_t, CaptureRecord> captures_;
  std::vector<uint32_t> unserved_;
  Nanoseconds next_ = 0;  // earliest time of the next start by an ordinary user
};

}  // namespace unet::service
