// ni_process.h - a unetd of a test's own, which may be stopped or killed, and what it holds; for system tests of the C++ API.
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

constexpr Nanoseconds kHang = kHangSeconds * kSecond;  // what must happen and has not by then is lost

// The seed of a test's rounds: printed, and given in UNET_SEED to repeat what failed.
uint32_t first_seed();

// How often a test does something: `times` as often in a soak.
uint32_t rounds(uint32_t normal, uint32_t times);

// Of what the endpoint counts; throws if it counts no such thing, which ends the test.
uint64_t counter(const Endpoint& endpoint, std::string_view name);

// What the endpoints of a test are. With $UNET_TEST_EMULATED they have no queues of their own: such tests are run twice.
EndpointOptions test_options();

// Descriptors that a process has open, by what they are: how many of each. Sockets by the name that they or their listener have.
using Descriptors = std::map<std::string, size_t>;
std::ostream& print(std::ostream& out, const Descriptors& descriptors);

// What a network interface has given to its clients. Equal to what it was before: everything came back.
struct Holdings {
  size_t clients = 0, endpoints = 0, channels = 0, requests = 0, names = 0;
  Descriptors descriptors;  // of its process
  size_t mappings = 0;      // of shared memory in its process
  // By what name its engine, its service and its users' accounts have it. Without what signalling keeps for a while after an end.
  std::map<std::string, uint64_t> held;
  bool operator==(const Holdings&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Holdings& holdings);

// The unetd that $UNETD names, on a socket in a directory of its own. Gone with its owner. With $UNET_TEST_ENGINES it has so many engines,
// unless the test says how many: such tests are run twice.
class NiProcess {
 public:
  // What all of a user's processes together may have, so that what is not given back is missed.
  static constexpr size_t kEndpoints = 48, kChannels = 96;

  // `more`: further options. `quotas`: lines of the policy, for others than these.
  explicit NiProcess(std::vector<std::string> more = {}, const std::string& quotas = {});
  ~NiProcess();
  NiProcess(const NiProcess&) = delete;
  NiProcess& operator=(const NiProcess&) = delete;

  const std::string& directory() const { return directory_; }  // its own, for other sockets, too
  std::string ni() const { return "unix:" + directory_ + "/socket"; }
  pid_t pid() const { return pid_; }

  void start();  // again, after kill()
  void kill();
  // SIGTERM; the exit status, or -1 if a signal ended it.
  int stop();
  // Killed and started with other options.
  void restart(std::vector<std::string> more) {
    kill();
    more_ = std::move(more);
    start();
  }
  // With a supervisor: the network interfaces that it has started and that have not ended.
  std::vector<pid_t> served_by() const;
  // What it logged: warnings and errors.
  std::string log() const;

  // As `context`, a client of it, sees it; and what the kernel says of its process.
  Holdings holdings(Context& context) const;
  // The same when nothing changes any longer: it closes some descriptors only after it has answered.
  Holdings rest(Context& context) const;
  // Frames that its first port's pool has given out: to the port, the wire and the engine, which keeps some for the next messages.
  static constexpr uint64_t kFramesKept = 128;
  // A busy engine answers with those of an earlier time, or at first with none: asks until there are at most `wanted`; the last answer.
  uint64_t frames_out(Context& context, uint64_t wanted = ~uint64_t{0}) const;
  // Waits until it holds exactly `wanted`; what it held last.
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
// Bytes of memory that it does not share with anybody; and whether they have become more than settles by itself. Sanitizers keep what
// is freed, so that nothing can be said of it there.
uint64_t private_memory(pid_t process);
bool has_grown(uint64_t before, uint64_t after);

}  // namespace unet
