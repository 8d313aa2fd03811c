// ni_process.h - a test's own unetd, which may be stopped or killed, and its resources; for system tests of the C++ API.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "unet/context.h"
#include "unet/test_process.h"

namespace unet {

constexpr Nanoseconds kHang = kHangSeconds * kSecond;  // an event that takes longer is lost

// The seed of a test's rounds. It is printed; UNET_SEED repeats a failed run.
uint32_t first_seed();

// The number of repetitions: `times` as many in a soak.
uint32_t rounds(uint32_t normal, uint32_t times);

// A counter of the endpoint; throws if there is none of that name, which ends the test.
uint64_t counter(const Endpoint& endpoint, std::string_view name);

// Options of the endpoints under test. With $UNET_TEST_EMULATED they are emulated: such tests run twice.
EndpointOptions test_options();

// Open descriptors of a process, counted by kind. Sockets have their own name or their listener's.
using Descriptors = std::map<std::string, size_t>;
std::ostream& print(std::ostream& out, const Descriptors& descriptors);

// Resources that an NI has given to its clients. Equal before and after: all were returned.
struct Holdings {
  size_t clients = 0, endpoints = 0, channels = 0, requests = 0, names = 0;
  Descriptors descriptors;  // of its process
  size_t mappings = 0;      // shared mappings of its process
  // By the names of engine, service and users' accounts; without the state that signalling keeps after a channel's end.
  std::map<std::string, uint64_t> held;
  bool operator==(const Holdings&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Holdings& holdings);

// The unetd that $UNETD names, on a socket in a directory of its own; killed with this object. $UNET_TEST_ENGINES sets the number of
// engines, unless the test does: such tests run twice.
class NiProcess {
 public:
  // Limits for all processes of a user together, so that a leak soon shows.
  static constexpr size_t kEndpoints = 48, kChannels = 96;

  // `more`: further options. `quotas`: lines of the policy instead of the default limits.
  explicit NiProcess(std::vector<std::string> more = {}, const std::string& quotas = {});
  ~NiProcess();
  NiProcess(const NiProcess&) = delete;
  NiProcess& operator=(const NiProcess&) = delete;

  const std::string& directory() const { return directory_; }  // the test may put sockets there, too
  std::string ni() const { return "unix:" + directory_ + "/socket"; }
  pid_t pid() const { return pid_; }

  void start();  // again, after kill()
  void kill();
  // Sends SIGTERM. Returns the exit status, or -1 after death by a signal.
  int stop();
  // Kills it, and starts it with other options.
  void restart(std::vector<std::string> more) {
    kill();
    more_ = std::move(more);
    start();
  }
  // With a supervisor: the living NIs that it has started.
  std::vector<pid_t> served_by() const;
  // Its warnings and errors.
  std::string log() const;

  // The resources as `context`, a client, sees them, and as the kernel lists them for its process.
  Holdings holdings(Context& context) const;
  // Returns holdings() once nothing changes any more: the NI closes some descriptors after its answer.
  Holdings rest(Context& context) const;
  // Frames that the first port's pool has given out: to the port, the wire and the engine, which keeps some in stock.
  static constexpr uint64_t kFramesKept = 128;
  // A busy engine answers with older figures, or at first with none. Asks until there are at most `wanted`; returns the last answer.
  uint64_t frames_out(Context& context, uint64_t wanted = ~uint64_t{0}) const;
  // Waits until it holds exactly `wanted`; returns what it held last.
  Holdings settle(Context& context, const Holdings& wanted) const;

 private:
  int wait();
  std::vector<std::string> more_;
  std::string directory_;
  pid_t pid_ = -1;
};

// Descriptors and shared mappings of a process.
Descriptors open_descriptors(pid_t process);
size_t shared_mappings(pid_t process);
// Bytes of a process's private memory, and whether they have grown by more than normal variation. Under sanitizers, which keep freed
// memory, has_grown() is false.
uint64_t private_memory(pid_t process);
bool has_grown(uint64_t before, uint64_t after);

}  // namespace unet
