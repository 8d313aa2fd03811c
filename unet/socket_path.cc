// socket_path.cc - the default path of the control socket, and checks of its directory.
#include "unet/socket_path.h"

#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "unet/limits.h"

namespace unet {
namespace {

std::string environment(const char* name) {
  const char* value = ::secure_getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// The socket that the environment names; an embedded network interface has none.
std::string socket_in_environment() {
  const std::optional<std::string> path = socket_path_of(environment("UNET_NI"));
  return path && !path->empty() ? *path : environment("UNET_SOCKET");
}

// Returns $XDG_RUNTIME_DIR, or its usual value.
std::string runtime_directory() {
  if (getauxval(AT_SECURE) == 0) return environment("XDG_RUNTIME_DIR");
  const std::string usual = "/run/user/" + std::to_string(geteuid());
  struct stat st {};
  return lstat(usual.c_str(), &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() ? usual : "";
}

std::string temporary_directory() { return "/tmp/unet-" + std::to_string(geteuid()); }

std::string directory_of(std::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return slash == 0 ? "/" : std::string(path.substr(0, slash));
}

Status check_length(std::string_view path) {
  if (path.empty() || path.find('\0') != std::string_view::npos) {
    return fail(Errc::invalid_argument, "the socket path is empty: give the path of a control socket");
  }
  if (path.size() > kSocketPathMax) {
    return fail(Errc::invalid_argument, "socket path '" + std::string(path) + "' has " + std::to_string(path.size()) +
                                            " characters; at most " + std::to_string(kSocketPathMax) + " are allowed");
  }
  return {};
}

// The directory must not be a link, must belong to `owner` or root, and no other user may write to it.
Status check_owner(const std::string& directory, uid_t owner) {
  struct stat st {};
  if (lstat(directory.c_str(), &st) != 0) return fail_errno("lstat(" + directory + ")", errno);
  if (!S_ISDIR(st.st_mode)) return fail(Errc::not_permitted, directory + " is not a directory: remove it");
  if (st.st_uid != owner && st.st_uid != 0) {
    const std::string whose = owner == geteuid() ? "you" : "the user of the daemon";
    return fail(Errc::not_permitted, directory + " belongs to user " + std::to_string(st.st_uid) + ", not to " + whose + " (" +
                                         std::to_string(owner) + "): choose another path with --socket or UNET_NI");
  }
  if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return fail(Errc::not_permitted, "others may write into " + directory + ": run chmod go-w " + directory);
  }
  return {};
}

}  // namespace

std::optional<std::string> socket_path_of(std::string_view ni) {
  constexpr std::string_view kEmbedded = "embedded:", kUnix = "unix:";
  if (ni.starts_with(kEmbedded)) return std::nullopt;
  if (ni.starts_with(kUnix)) ni.remove_prefix(kUnix.size());
  return std::string(ni);
}

std::string default_socket_path() {
  if (std::string path = socket_in_environment(); !path.empty()) return path;
  if (geteuid() == 0) return "/run/unet/unet.sock";
  if (const std::string runtime = runtime_directory(); !runtime.empty()) return runtime + "/unet/unet.sock";
  return temporary_directory() + "/unet.sock";
}

Status make_socket_directory(std::string_view socket_path, uid_t owner) {
  if (Status status = check_length(socket_path); !status) return status;
  if (socket_path != default_socket_path() || !socket_in_environment().empty()) return {};
  const std::string directory = directory_of(socket_path);
  if (mkdir(directory.c_str(), geteuid() == 0 ? 0755 : 0700) != 0 && errno != EEXIST) {
    return fail_errno("mkdir(" + directory + ")", errno);
  }
  if (Status status = check_owner(directory, owner); !status) return status;
  if (owner != geteuid() && lchown(directory.c_str(), owner, static_cast<gid_t>(-1)) != 0) {
    return fail_errno("chown(" + directory + ")", errno);
  }
  return {};
}

Status check_socket_path(std::string_view socket_path) {
  if (Status status = check_length(socket_path); !status) return status;
  const std::string directory = directory_of(socket_path);
  struct stat st {};
  if (directory != temporary_directory() || lstat(directory.c_str(), &st) != 0) return {};
  return check_owner(directory, geteuid());
}

}  // namespace unet
