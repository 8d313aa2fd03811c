// privileges.h - drops unetd's privileges once its wires are open and its socket is made; used by main() alone.
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

// Identifies a control socket's file.
struct SocketFile {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const SocketFile&) const = default;
};
// Nothing: there is no socket at that path.
std::optional<SocketFile> socket_file_at(const std::string& path);

// By name or number. Errors: not_found.
Result<Account> find_account(const std::string& name);

// From now on no program executed by this process can gain privileges. Call it before any thread exists: later threads inherit it.
Status forbid_new_privileges();

// Raises the limit of open files as far as possible: thousands of clients have sockets and eventfds. Without privileges, the limit also
// bounds the descriptors in flight to clients.
void raise_descriptor_limit();

// Whether that user will be able to remove the control socket at the end, and to read the policy again. Checked before anything is created.
// The error says what to do.
Status check_access(const Account& account, const std::string& socket, const std::string& policy_file);

// Removes the control socket if it is still that file, with the rights of the account if there is one. Not with root's: the directory may
// belong to the account, which could place links there.
void remove_socket(const std::optional<Account>& account, const std::string& path, const SocketFile& file);

// All threads become that user, with its groups, permanently. They lose all capabilities, except that the calling thread and its future
// threads keep CAP_LINUX_IMMUTABLE: with it clients can punch no holes in shared memory (ni/service/memory.h). Errors: not_permitted if we
// are not root.
Status become(const Account& account);

}  // namespace unet::unetd
