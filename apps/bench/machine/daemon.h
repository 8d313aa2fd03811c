// daemon.h - the unetd that U-Net's own paths talk to: started for one run, on a socket of its own, and ended with it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "unet/base/result.h"

namespace unet::bench {

// Groups with limits of their own, at a unetd that serves all users.
constexpr uint32_t kLimitedGroup = 61'001, kLimitedGroups = 2;

class Daemon {
 public:
  enum class Clients : uint8_t { own, of_all_users };

  enum class Takeover : uint8_t { no, yes };  // which starts another network interface when one dies (unetd --takeover)

  // Starts unetd with its engine on `core`, and waits until clients may connect. The program is looked for in $UNETD, beside this
  // program, in the build tree, and in PATH. If this process dies, the kernel ends unetd. `mark` distinguishes it from daemons of its kind.
  static Result<Daemon> start(int core, Clients clients = Clients::own, Takeover takeover = Takeover::no, const std::string& mark = "");
  // A unetd with IP at the address kIpAddress, without a wire: its clients have sockets. Without `core` the scheduler chooses one.
  static Result<Daemon> start_with_ip(std::optional<int> core, Clients clients = Clients::own);
  static constexpr const char* kIpAddress = "10.99.0.1";
  // A unetd with IP at this address of a /24 network, on the wire `port` (as for --port), in the caller's namespace. `mark` as above.
  static Result<Daemon> start_on_wire(std::optional<int> core, Clients clients, const std::string& mark, const std::string& port,
                                      const std::string& address);
  // A unetd of another host with one end of a memif. `role`: "server" of a memif in its own directory, or "client" of the one in
  // `server_directory`.
  static Result<Daemon> start_host(int core, const std::string& host, const std::string& role, const std::string& server_directory);
  Daemon(Daemon&& other) noexcept;
  Daemon& operator=(Daemon&&) = delete;
  // Ends it and removes its socket; does nothing in a forked child.
  ~Daemon();

  // The argument of Context::open().
  std::string ni() const { return "unix:" + directory_ + "/unet.sock"; }
  const std::string& directory() const { return directory_; }
  pid_t process() const { return process_; }
  // With Takeover::yes: the process of the network interface that serves now; -1 if there is none.
  pid_t serving() const;

 private:
  explicit Daemon(std::string directory);
  // `more`: options of unetd.
  static Result<Daemon> start_in(const std::string& directory, std::optional<int> core, Clients clients, Takeover takeover,
                                 const std::vector<std::string>& more);
  Status launch(std::optional<int> core, Clients clients, Takeover takeover, const std::vector<std::string>& more);
  std::string directory_;
  pid_t owner_;
  pid_t process_ = 0;
};

}  // namespace unet::bench
