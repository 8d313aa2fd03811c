// privileges.h - what unetd gives up once its wires are open and its socket is made; used by main() alone.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "unet/base/result.h"

namespace unet::unetd {

struct Account {
  std::string name;
  uid_t user = 0;
  gid_t group = 0;
};

// Which file a control socket is.
struct SocketFile {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const SocketFile&) const = default;
};
// Nothing: there is no socket at that path.
std::optional<SocketFile> socket_file_at(const std::string& path);

// By name or number. Errors: not_found.
Result<Account> find_account(const std::string& name);

// From now on nothing that this process executes can gain rights. For threads that exist later: call it before any does.
Status forbid_new_privileges();

// Open files as many as the kernel gives: thousands of clients have sockets and eventfds, and a process without rights may have no
// more descriptors on their way to clients than its limit says.
void raise_descriptor_limit();

// Can that user, once we are it, remove the control socket at the end, and read the policy again? Asked before anything is made. The
// error says what to do.
Status check_access(const Account& account, const std::string& socket, const std::string& policy_file);

// Removes the control socket if it is still that file, with the rights of the account, if there is one, and not with root's: the
// directory may be the account's, with links of its choice in it.
void remove_socket(const std::optional<Account>& account, const std::string& path, const SocketFile& file);

// All threads become that user, with its groups, for good. They have no capability then, but the calling thread and those it makes keep
// CAP_LINUX_IMMUTABLE: clients can punch no holes in shared memory then (ni/service/memory.h). Errors: not_permitted if we are not root.
Status become(const Account& account);

}  // namespace unet::unetd
