// listener.h - the socket at which a shared NI is found: made, guarded against a second NI, removed; used by the service.
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
  // The socket that another NI listened on at `path` until it left it to us. Does not block from here on, whatever it did. Errors:
  // invalid_argument (another path), protocol (it does not listen, or is no SOCK_SEQPACKET), system.
  static Result<Listener> inherit(const std::string& path, Descriptor socket);
  Listener(Listener&&) noexcept = default;
  Listener& operator=(Listener&&) = delete;
  ~Listener();  // removes the socket, if it is still ours

  // The next connection; nothing if there is none. Never blocks. A connection that cannot be had for want of descriptors
  // is closed, so that the caller's epoll does not spin on it.
  std::optional<Descriptor> accept() noexcept;

  // The socket stays where it is: another NI goes on with it.
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

// The process at the other end of a connected socket, as the kernel says. `unknown` is what unknown_user() says.
Result<Credentials> peer_credentials(int socket, std::optional<uid_t> unknown);
// The user by which the kernel names all users that our user namespace does not know. None: it knows them all.
std::optional<uid_t> unknown_user();

}  // namespace unet::service
