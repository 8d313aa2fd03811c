// listener.cc - bind under a lock, so that two NIs that start together cannot both believe the path is theirs.
#include "ni/service/listener.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>

#include "ni/service/names.h"
#include "unet/limits.h"

namespace unet::service {
namespace {

constexpr int kBacklog = 128;
constexpr uint64_t kAllUsers = 0xFFFFFFFF;  // length of the uid map of a namespace that has all users
constexpr uid_t kOverflowUser = 65534;      // the kernel's default

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() > kSocketPathMax || path.find('\0') != std::string::npos) {
    return fail(Errc::invalid_argument, "socket path " + in_quotes(path) + " has " + std::to_string(path.size()) +
                                            " characters; 1 to " + std::to_string(kSocketPathMax) + " are allowed");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

// Holds the directory's lock while the path is examined and taken; leaves no lock file behind.
Result<Descriptor> lock_directory(const std::string& path) {
  const std::string directory = directory_of(path);
  Descriptor lock(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock.valid()) {
    return fail(Errc::invalid_argument, "cannot listen at " + in_quotes(path) + ": directory " + directory + ": " +
                                            std::error_code(errno, std::system_category()).message());
  }
  if (flock(lock.get(), LOCK_EX) != 0) return fail_errno("flock(" + directory + ")", errno);
  return lock;
}

// Removes the socket of an NI that is gone.
Status remove_stale(const std::string& path, const sockaddr_un& address) {
  struct stat st {};
  if (lstat(path.c_str(), &st) != 0) return {};
  if (!S_ISSOCK(st.st_mode)) {
    return fail(Errc::already_exists, in_quotes(path) + " exists and is not a socket: remove it or choose another path");
  }
  const Descriptor probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.valid()) return fail_errno("socket", errno);
  const int result = connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  if (result == 0 || errno == EAGAIN || errno == EINPROGRESS) {
    return fail(Errc::already_exists, "a network interface is running at " + in_quotes(path) +
                                          " already: stop it, or choose another path with --socket");
  }
  if (errno != ECONNREFUSED) {
    return fail(Errc::already_exists, "something is at " + in_quotes(path) + " (" +
                                          std::error_code(errno, std::system_category()).message() +
                                          "): remove it, or choose another path with --socket");
  }
  if (unlink(path.c_str()) != 0) return fail_errno("unlink(" + path + ")", errno);
  return {};
}

// Whether the socket listens for SOCK_SEQPACKET connections.
bool is_listening(int socket) {
  int type = 0, listening = 0;
  socklen_t length = sizeof type;
  if (getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_SEQPACKET) return false;
  length = sizeof listening;
  return getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) == 0 && listening != 0;
}

Result<gid_t> find_group(const std::string& group) {
  const struct group* entry = getgrnam(group.c_str());
  if (entry == nullptr) return fail(Errc::invalid_argument, "there is no group " + in_quotes(group) + " on this machine");
  return entry->gr_gid;
}

}  // namespace

Result<Listener> Listener::open(const std::string& path, const std::string& group, uid_t owner) {
  const Result<sockaddr_un> address = address_of(path);
  if (!address) return tl::unexpected(address.error());
  gid_t group_id = static_cast<gid_t>(-1);
  if (!group.empty()) {
    const Result<gid_t> found = find_group(group);
    if (!found) return tl::unexpected(found.error());
    group_id = *found;
  }
  const Result<Descriptor> lock = lock_directory(path);
  if (!lock) return tl::unexpected(lock.error());
  if (Status status = remove_stale(path, *address); !status) return tl::unexpected(status.error());

  Listener listener;
  listener.socket_ = Descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.socket_.valid()) return fail_errno("socket", errno);
  // Linux takes the mode of the new file from the socket's own: it is never open to others, not even for a moment.
  if (fchmod(listener.socket_.get(), 0600) != 0) return fail_errno("fchmod(socket)", errno);
  if (bind(listener.socket_.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0) {
    return fail_errno("bind(" + path + ")", errno);
  }
  struct stat st {};
  if (lstat(path.c_str(), &st) != 0) return fail_errno("lstat(" + path + ")", errno);
  listener.path_ = path;
  listener.device_ = st.st_dev;
  listener.inode_ = st.st_ino;
  // The owner may own the directory and replace the socket meanwhile, so symbolic links are not followed.
  if (!group.empty() && (lchown(path.c_str(), kUnchanged, group_id) != 0 ||
                         fchmodat(AT_FDCWD, path.c_str(), 0660, AT_SYMLINK_NOFOLLOW) != 0)) {
    return fail_errno("giving " + path + " to group " + group, errno);
  }
  if (owner != kUnchanged && lchown(path.c_str(), owner, static_cast<gid_t>(-1)) != 0) {
    return fail_errno("giving " + path + " to user " + std::to_string(owner), errno);
  }
  if (listen(listener.socket_.get(), kBacklog) != 0) return fail_errno("listen(" + path + ")", errno);
  listener.reserve_ = Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  return listener;
}

Result<Listener> Listener::inherit(const std::string& path, Descriptor socket) {
  const Result<sockaddr_un> address = address_of(path);
  if (!address) return tl::unexpected(address.error());
  sockaddr_un bound{};
  socklen_t length = sizeof bound;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) return fail_errno("getsockname", errno);
  if (bound.sun_family != AF_UNIX || path != std::string(bound.sun_path, strnlen(bound.sun_path, sizeof bound.sun_path))) {
    return fail(Errc::invalid_argument, "the network interface before this one did not listen at " + in_quotes(path) +
                                            ": a takeover cannot change the control socket");
  }
  if (!is_listening(socket.get())) return fail(Errc::protocol, "what the network interface before this one had at " + in_quotes(path) +
                                                                   " is no socket that listens");
  const int flags = fcntl(socket.get(), F_GETFL);
  if (flags < 0 || fcntl(socket.get(), F_SETFL, flags | O_NONBLOCK) != 0) return fail_errno("fcntl(O_NONBLOCK)", errno);
  Listener listener;
  struct stat st {};
  if (lstat(path.c_str(), &st) == 0) {
    listener.device_ = st.st_dev;
    listener.inode_ = st.st_ino;
  }
  listener.path_ = path;
  listener.socket_ = std::move(socket);
  listener.reserve_ = Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  return listener;
}

Listener::~Listener() {
  struct stat st {};
  if (!socket_.valid() || path_.empty() || lstat(path_.c_str(), &st) != 0) return;
  if (st.st_dev == device_ && st.st_ino == inode_) unlink(path_.c_str());
}

std::optional<Descriptor> Listener::accept() noexcept {
  Descriptor connection(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (connection.valid()) return connection;
  if (errno == EMFILE || errno == ENFILE) {
    reserve_.reset();
    connection = Descriptor(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    connection.reset();
    reserve_ = Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
  return std::nullopt;
}

std::optional<uid_t> unknown_user() {
  std::ifstream map("/proc/self/uid_map"), number("/proc/sys/kernel/overflowuid");
  uint64_t inside = 1, outside = 1, count = 0;
  map >> inside >> outside >> count;
  if (inside == 0 && outside == 0 && count == kAllUsers) return std::nullopt;
  uid_t overflow = kOverflowUser;
  if (!(number >> overflow)) overflow = kOverflowUser;
  return overflow;
}

Result<Credentials> peer_credentials(int socket, std::optional<uid_t> unknown) {
  ucred kernel{};
  socklen_t length = sizeof kernel;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &kernel, &length) != 0) return fail_errno("getsockopt(SO_PEERCRED)", errno);
  Credentials who{.uid = kernel.uid, .pid = kernel.pid, .groups = {kernel.gid}, .unknown = kernel.uid == unknown};
  std::vector<gid_t> more(64);
  for (int attempt = 0; attempt < 2; ++attempt) {
    length = static_cast<socklen_t>(more.size() * sizeof(gid_t));
    if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, more.data(), &length) == 0) {
      more.resize(length / sizeof(gid_t));
      who.groups.insert(who.groups.end(), more.begin(), more.end());
      return who;
    }
    if (errno != ERANGE) return who;
    more.resize(length / sizeof(gid_t));
  }
  return who;
}

}  // namespace unet::service
