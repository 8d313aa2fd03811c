// listener.h - the socket at which clients find a shared NI: made, guarded against a second NI, removed; used by the service.
#pragma once

#include <optional>
#include <string>

#include "ni/service/policy.h"
#include "unet/base/result.h"
#include "unet/mapping.h"

namespace unet::service {

class Listener {
 public:
  static constexpr uid_t kUnchanged = static_cast<uid_t>(-1);

  // Listens at `path` with mode 0600, or 0660 and group `group` if that is not empty; never writable by the world. The socket is
  // given to `owner`, which can remove it. A socket left by an NI that died is replaced. Errors: already_exists (a living NI has
  // it), invalid_argument, system.
  static Result<Listener> open(const std::string& path, const std::string& group, uid_t owner = kUnchanged);
  // Takes over the listening socket of the previous NI at `path`, and makes it non-blocking. Errors: invalid_argument (another path),
  // protocol (it does not listen, or is no SOCK_SEQPACKET), system.
  static Result<Listener> inherit(const std::string& path, Descriptor socket);
  Listener(Listener&&) noexcept = default;
  Listener& operator=(Listener&&) = delete;
  ~Listener();  // removes the socket, if it is still ours

  // Accepts the next connection; nothing if there is none. Never blocks. Without a free descriptor it closes the connection, so that the
  // caller's epoll does not spin.
  std::optional<Descriptor> accept() noexcept;

  // Leaves the socket at its path, for the next NI.
  void keep_path() noexcept { path_.clear(); }

  int descriptor() const noexcept { return socket_.get(); }
  const std::string& path() const noexcept { return path_; }

 private:
  Listener() = default;

  Descriptor socket_;
  Descriptor reserve_;  // given up to accept and close a connection when descriptors have run out
  std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// The process at the other end of a connected socket, from the kernel. `unknown`: the result of unknown_user().
Result<Credentials> peer_credentials(int socket, std::optional<uid_t> unknown);
// The user id that stands for all users outside of our user namespace. None: the namespace has all users.
std::optional<uid_t> unknown_user();

}  // namespace unet::service
