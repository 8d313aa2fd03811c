// passing.cc - replaces our sockets in a sent message, and makes sockets of the replacements in a received one.
#include "ipstack/preload/shared/passing.h"

#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "ipstack/preload/calls.h"
#include "ipstack/preload/description.h"
#include "ipstack/preload/identity.h"
#include "ipstack/preload/shared/adoption.h"
#include "ipstack/preload/shared/socket_proxies.h"

namespace unet::preload {
namespace {

constexpr size_t kControlMax = 64 * 1024;  // more than the kernel takes
constexpr size_t kDescriptionMax = 256;
constexpr const char* kFile = "unet-socket";
constexpr std::string_view kLink = "/memfd:unet-socket (deleted)";
constexpr std::string_view kPairName{"\0unet,", 6}, kChannelName{"\0unet-link,", 11};

// Visits each descriptor in the message's control data. The kernel reports errors in it.
template <typename Visit>
void each_descriptor(const msghdr& message, Visit visit) {
  if (message.msg_control == nullptr) return;
  const auto* const end = static_cast<const std::byte*>(message.msg_control) + message.msg_controllen;
  auto& whole = const_cast<msghdr&>(message);
  for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr; each = CMSG_NXTHDR(&whole, each)) {
    const auto room = static_cast<size_t>(end - reinterpret_cast<const std::byte*>(each));
    if (each->cmsg_len < CMSG_LEN(0) || each->cmsg_len > room) return;
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) visit(CMSG_DATA(each) + i * sizeof(int));
  }
}

int descriptor_at(const unsigned char* place) noexcept {
  int fd;
  std::memcpy(&fd, place, sizeof fd);
  return fd;
}

// The name of the passed end has the connection's addresses; the number makes it unique. The end is of use without a name, too.
void give_name(int end, std::string_view kind, const std::string& words) {
  uint32_t number;
  if (::getrandom(&number, sizeof number, 0) != sizeof number) return;
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", number);
  const std::string name = std::string(kind) + digits + "," + words;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() > sizeof address.sun_path) return;
  std::memcpy(address.sun_path, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  static_cast<void>(real().bind(end, reinterpret_cast<const sockaddr*>(&address), length));
}

}  // namespace

// ---- sending

bool passes_sockets(const msghdr& message) noexcept {
  if (message.msg_controllen == 0 || message.msg_controllen > kControlMax || Lock::inside()) return false;
  bool found = false;
  each_descriptor(message, [&](const unsigned char* place) { found = found || file_of(descriptor_at(place)) != nullptr; });
  return found;
}

StandIns::StandIns(const msghdr& message) : message_(message) {
  const auto* const control = static_cast<const std::byte*>(message.msg_control);
  control_.assign(control, control + message.msg_controllen);
  message_.msg_control = control_.data();
  const Runtime::Guard guard;
  each_descriptor(message_, [&](unsigned char* place) {
    const int instead = error_ == 0 ? pass(descriptor_at(place)) : -1;
    if (instead >= 0) {
      passed_.push_back(instead);
      std::memcpy(place, &instead, sizeof instead);
    }
  });
}

StandIns::~StandIns() {
  const Runtime::Guard guard;
  for (const int each : passed_) real().close(each);
  for (const Shared& each : shared_) {
    if (each.end >= 0) real().close(each.end);
    --each.file->holds;
    Runtime::get().let_go(*each.file);
  }
}

// Returns the descriptor to pass instead. -1: the descriptor itself is passed, as it is not a socket of ours or is undecided; or error_ is
// set.
int StandIns::pass(int fd) {
  if (!verify(fd)) return -1;
  Table& table = Runtime::get().table();
  File* file = table.file(fd);
  if (file == nullptr) return -1;
  // A connection of another process becomes a pair here, which is passed as it is.
  if (file->inherited && file->inherited->connected) static_cast<void>(Adoption::adopt(*file, false));
  if (!file->in_stack() && (!file->inherited || file->inherited->connected)) return -1;
  const int instead = is_connection(*file)                   ? pass_connection(*file)
                      : file->is_joined() && file->in_stack() ? pass_joined(*file)
                                                             : pass_description(*file);
  error_ = std::min(instead, 0);
  return instead;
}

int StandIns::pass_connection(File& file) {
  int ends[2];
  if (const int wrong = Kernel::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends); wrong < 0) return wrong;
  ends[0] = out_of_the_way(ends[0]);
  if (file.nonblocking) real().fcntl(ends[1], F_SETFL, O_RDWR | O_NONBLOCK);
  give_name(ends[1], kPairName, describe_names({file.domain, names_of(file)}));
  ++file.holds;
  shared_.push_back({&file, ends[0]});
  return ends[1];
}

int StandIns::pass_joined(File& file) {
  int ends[2];
  if (!make_channel(ends)) return result_of(-1);
  const std::string text = describe(file) + "@" + std::to_string(file.socket);
  give_name(ends[1], kChannelName, "");
  ++file.holds;
  shared_.push_back({&file, ends[0]});
  if (send_on(ends[0], text.data(), text.size())) return ends[1];
  real().close(ends[1]);
  return -ENOBUFS;
}

int StandIns::pass_description(const File& file) {
  const int memory = Kernel::memfd_create(kFile, MFD_CLOEXEC);
  if (memory < 0) return memory;
  const std::string text = describe(file);
  if (real().write(memory, text.data(), text.size()) == static_cast<ssize_t>(text.size())) return memory;
  real().close(memory);
  return -ENOBUFS;
}

// Shares the sockets only once the message was sent: after an error, the closed ends would look like a dead process.
void StandIns::sent() {
  const Runtime::Guard guard;
  for (Shared& each : shared_) {
    if (!each.file->in_stack()) continue;
    if (each.file->is_joined()) Runtime::get().proxies().share(*each.file, std::exchange(each.end, -1));
    else Runtime::get().proxies().proxy(*each.file, std::exchange(each.end, -1));
  }
}

ssize_t pass_sockets(int fd, const msghdr& message, int flags) {
  StandIns all(message);
  if (all.error() < 0) return all.error();
  const ssize_t result = Kernel::sendmsg(fd, &all.message(), flags);
  if (result >= 0) all.sent();
  return result;
}

// ---- receiving

namespace {

// Takes the end of a pair as a connection with these names. They are believed, as the passer could have proxied the connection anyway.
void take_connection(int fd, std::string_view words) {
  const auto names = read_names(words);
  if (!names) return;
  const Runtime::Guard guard;
  auto* const file = new File(names->domain, SOCK_STREAM);
  file->pair = names->pair;
  file->bound = true;
  file->nonblocking = (real().fcntl(fd, F_GETFL) & O_NONBLOCK) != 0;
  Runtime::get().table().put(fd, *file);
}

// Puts a kernel socket, our socket's shadow, in the place of the description.
void put_in_place(std::unique_ptr<File> file, int fd) {
  file->kernel = false;
  const int shadow = real().socket(file->domain, file->type | SOCK_CLOEXEC | (file->nonblocking ? SOCK_NONBLOCK : 0), 0);
  if (shadow < 0) return;
  const int flags = real().fcntl(fd, F_GETFD);
  const bool placed = real().dup3(shadow, fd, (flags & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0) == fd;
  real().close(shadow);
  if (placed) Runtime::get().table().put(fd, *file.release());
}

// Reads the socket's description, and its number at its owner. A peek leaves both for the receive that follows, and makes a socket without
// a channel.
void take_joined(int fd, bool peeks) {
  if (!is_socket(fd, AF_UNIX, SOCK_SEQPACKET)) return;
  const Runtime::Guard guard;
  char text[kDescriptionMax];
  int none = -1;
  const ssize_t length = peeks ? real().recv(fd, text, sizeof text, MSG_PEEK | MSG_DONTWAIT) : receive_on(fd, text, sizeof text, none);
  if (none >= 0) real().close(none);
  const std::string_view words(text, static_cast<size_t>(std::max<ssize_t>(length, 0)));
  const size_t at = std::min(words.find('@'), words.size());
  auto file = read_description(words.substr(0, at));
  int socket = -1;
  std::from_chars(words.data() + std::min(at + 1, words.size()), words.data() + words.size(), socket);
  if (file == nullptr) return;
  if (peeks) return put_in_place(std::move(file), fd);
  const int end = real().fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (end < 0) return;
  auto channel = Runtime::get().parents().add(out_of_the_way(end));
  if (channel != nullptr) file->origins.push_back({std::move(channel), socket});
  put_in_place(std::move(file), fd);
}

void take_socket(int fd, bool peeks) {
  sockaddr_un address{};
  socklen_t length = sizeof address;
  if (real().getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0 || address.sun_family != AF_UNIX) return;
  constexpr size_t kAt = offsetof(sockaddr_un, sun_path);
  if (length <= kAt) return;
  std::string_view name(address.sun_path, std::min<size_t>(length - kAt, sizeof address.sun_path));
  if (name.starts_with(kChannelName)) take_joined(fd, peeks);
  if (!name.starts_with(kPairName)) return;
  name.remove_prefix(kPairName.size());
  name.remove_prefix(std::min(name.find(',') + 1, name.size()));
  take_connection(fd, name);
}

bool is_description(int fd) noexcept {
  char path[40], link[64];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  const ssize_t length = ::readlink(path, link, sizeof link);
  return length > 0 && std::string_view(link, static_cast<size_t>(length)) == kLink;
}

void take_described(int fd) {
  char text[kDescriptionMax];
  const ssize_t length = ::pread(fd, text, sizeof text, 0);
  auto file = read_description({text, static_cast<size_t>(std::max<ssize_t>(length, 0))});
  const Runtime::Guard guard;
  if (file != nullptr) put_in_place(std::move(file), fd);
}

}  // namespace

void take_sockets(const msghdr& message, bool peeks) {
  if (message.msg_controllen == 0 || Lock::inside()) return;
  const ErrnoStays stays;
  each_descriptor(message, [&](const unsigned char* place) {
    const int fd = descriptor_at(place);
    struct stat is {};
    if (::fstat(fresh(fd), &is) != 0) return;
    if (S_ISSOCK(is.st_mode)) take_socket(fd, peeks);
    else if (S_ISREG(is.st_mode) && is.st_nlink == 0 && is_description(fd)) take_described(fd);
  });
}

}  // namespace unet::preload
