// privileges.cc - changes groups, group and user, in this order, and then checks that there is no way back.
#include "apps/unetd/privileges.h"

#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <system_error>

#include "ni/service/names.h"

namespace unet::unetd {
namespace {

std::string words(int error) { return std::error_code(error, std::system_category()).message(); }

Status only_root(const Account& account) {
  return fail(Errc::not_permitted, "becoming user " + service::in_quotes(account.name) +
                                       ": only root can; start unetd as root, or as that user without --user");
}

bool switch_to(const Account& account) {
  return initgroups(account.name.c_str(), account.group) == 0 && setresgid(account.group, account.group, account.group) == 0 &&
         setresuid(account.user, account.user, account.user) == 0;
}

// Leaves the calling thread only this capability, if it has it now.
Status keep_immutable_alone() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capget, &header, sets) != 0) return fail_errno("capget", errno);
  constexpr uint32_t kKept = 1u << CAP_LINUX_IMMUTABLE;
  const uint32_t kept = sets[0].permitted & kKept;
  sets[0] = {.effective = kept, .permitted = kept, .inheritable = 0};
  sets[1] = {};
  if (syscall(SYS_capset, &header, sets) != 0) return fail_errno("capset", errno);
  return {};
}

enum class Access { enough, no_directory, no_policy, not_root };

// A child process becomes the user and checks.
Access ask_as(const Account& account, const std::string& directory, const std::string& policy_file) {
  const pid_t child = fork();
  if (child == 0) {
    Access access = Access::enough;
    if (geteuid() != account.user && !switch_to(account)) access = Access::not_root;
    else if (::access(directory.c_str(), W_OK | X_OK) != 0) access = Access::no_directory;
    else if (!policy_file.empty() && ::access(policy_file.c_str(), R_OK) != 0) access = Access::no_policy;
    _exit(static_cast<int>(access));
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return Access::not_root;
  return static_cast<Access>(WEXITSTATUS(status));
}

bool is_number(const std::string& text) { return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos; }

}  // namespace

Result<Account> find_account(const std::string& name) {
  const passwd* entry = getpwnam(name.c_str());
  if (entry == nullptr && is_number(name) && name.size() < 10) entry = getpwuid(static_cast<uid_t>(std::stoul(name)));
  if (entry == nullptr) {
    return fail(Errc::not_found, "there is no user " + service::in_quotes(name) +
                                     " on this machine: make one (useradd --system --no-create-home NAME), or name another");
  }
  return Account{.name = entry->pw_name, .user = entry->pw_uid, .group = entry->pw_gid};
}

std::optional<SocketFile> socket_file_at(const std::string& path) {
  struct stat at {};
  if (lstat(path.c_str(), &at) != 0 || !S_ISSOCK(at.st_mode)) return std::nullopt;
  return SocketFile{.device = at.st_dev, .inode = at.st_ino};
}

void remove_socket(const std::optional<Account>& account, const std::string& path, const SocketFile& file) {
  const auto remove = [&] {
    if (socket_file_at(path) == file) unlink(path.c_str());
  };
  if (!account || account->user == geteuid()) return remove();
  const pid_t child = fork();
  if (child == 0) {
    if (switch_to(*account)) remove();
    _exit(0);
  }
  if (child > 0) waitpid(child, nullptr, 0);
}

Status forbid_new_privileges() {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno("prctl(PR_SET_NO_NEW_PRIVS)", errno);
  return {};
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  rlim_t most = 0;
  if (std::ifstream file("/proc/sys/fs/nr_open"); file >> most && most > limit.rlim_max) {
    const rlimit more{.rlim_cur = most, .rlim_max = most};
    if (setrlimit(RLIMIT_NOFILE, &more) == 0) return;  // root may
  }
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// The C library changes the user of every thread of the process, the drivers' included. The kernel clears a thread's capabilities when its
// three user ids leave 0. The calling thread keeps them at that moment, and then drops all but one.
Status become(const Account& account) {
  const std::string what = "becoming user " + service::in_quotes(account.name);
  if (geteuid() != 0) {
    if (geteuid() == account.user) return {};
    return only_root(account);
  }
  if (account.user != 0 && prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0) return fail_errno("prctl(PR_SET_KEEPCAPS)", errno);
  if (!switch_to(account)) return fail(Errc::not_permitted, what + ": " + words(errno));
  if (account.user != 0) {
    if (Status status = keep_immutable_alone(); !status) return status;
  }
  if (account.user != 0 && (setresuid(0, 0, 0) == 0 || geteuid() != account.user || getegid() != account.group)) {
    return fail(Errc::not_permitted, what + ": the kernel lets it become root again");
  }
#if defined(UNET_SANITIZED)
  prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);  // the leak sanitizer traces its own process at exit
#endif
  return {};
}

Status check_access(const Account& account, const std::string& socket, const std::string& policy_file) {
  const size_t slash = socket.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : socket.substr(0, slash + 1);
  switch (ask_as(account, directory, policy_file)) {
    case Access::enough:
      return {};
    case Access::no_directory:
      return fail(Errc::not_permitted, "user " + service::in_quotes(account.name) + " cannot remove the control socket from " + directory +
                                           " at the end: give it the directory (chown " + account.name + " " + directory +
                                           "), or choose a path in a directory of its own with --socket");
    case Access::no_policy:
      return fail(Errc::not_permitted, "user " + service::in_quotes(account.name) + " cannot read the policy file " + policy_file +
                                           ", which it has to when it is reloaded: chgrp or chmod it");
    case Access::not_root:
      break;
  }
  return only_root(account);
}

}  // namespace unet::unetd
