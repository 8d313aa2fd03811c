// child.h - an external program that is measured (programs/runs.cc): started in a namespace and on a core, its output caught, its processor
// time counted, and ended with every process that it has started.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "unet/base/result.h"
#include "unet/base/time.h"

namespace unet::bench {

// Where a program runs, and on which sockets.
struct ChildPlace {
  std::string network = {};  // a namespace; empty: this process's
  int core = 0;
  std::string wrapper = {};  // unet-sockets; empty: the kernel's sockets
  std::string ni = {};       // what that finds in UNET_NI
};

class Child {
 public:
  struct End {
    std::string said;
    Nanoseconds cpu = 0;  // of it and of its processes that have ended
  };

  // command[0] is looked for in PATH. Its stdin is empty; stdout and stderr go to one place. It dies with this process.
  static Result<Child> start(const std::vector<std::string>& command, const ChildPlace& place);
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  ~Child();

  // Waits until it has printed this text (a server that is ready). An error if it ends, or does not print it in time.
  Status await(const std::string& phrase, Nanoseconds patience = kReadyTime);
  // Waits for its end; any exit status but 0 is an error.
  Result<End> finish(Nanoseconds patience);

  // The process and its descendants.
  std::vector<int> processes() const;

 private:
  static constexpr Nanoseconds kReadyTime = 20 * kSecond;

  Child(pid_t process, int output, std::string name) : process_(process), output_(output), name_(std::move(name)) {}
  std::string said() const;
  Error failure(const std::string& what) const;

  pid_t process_;
  int output_;
  std::string name_;
};

}  // namespace unet::bench
