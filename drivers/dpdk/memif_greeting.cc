// memif_greeting.cc - replaces a connection's descriptor by another socket while DPDK greets the client.
#include "drivers/dpdk/memif_greeting.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

#include "drivers/dpdk/memif_descriptors.h"

namespace unet::drivers {

namespace {

constexpr size_t kLongest = 256;  // maximum bytes of a greeting; version 2.0 has 128

// The server's name in a log line about an accepted connection (cut to what an address holds); empty for other lines.
std::string_view server_in(std::string_view line) noexcept {
  constexpr std::string_view kBefore = "memif_listener_handler(): ", kAfter = ": Connection request accepted.";
  const size_t end = line.rfind(kAfter);
  if (!line.starts_with(kBefore) || end == line.npos || end < kBefore.size()) return {};
  return line.substr(kBefore.size(), end - kBefore.size());
}

bool is_of(std::string_view server, int descriptor) {
  const SocketName name(descriptor);
  if (name.size == 0 || name.address.sun_family != AF_UNIX) return false;
  const std::string_view own(name.address.sun_path, strnlen(name.address.sun_path, sizeof(name.address.sun_path)));
  return !own.empty() && own == server;
}

bool listens(int descriptor) noexcept {
  int value = 0;
  socklen_t size = sizeof value;
  return getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &value, &size) != 0 || value != 0;
}

}  // namespace

void MemifGreeting::on_log(std::string_view line) {
  deliver();
  if (const std::string_view server = server_in(line); !server.empty()) divert(server);
}

// Diverts the sockets that this server has accepted since the last call: usually one. Others that carry the name are restored unchanged.
void MemifGreeting::divert(std::string_view server) {
  std::vector<uint64_t> accepted;
  std::vector<int> fresh;
  const bool seen = for_descriptors([&](int descriptor, std::string_view name) {
    struct stat file{};
    if (!name.starts_with("socket:") || !is_of(server, descriptor) || listens(descriptor) || fstat(descriptor, &file) != 0) return;
    if (std::find(accepted_.begin(), accepted_.end(), file.st_ino) == accepted_.end()) fresh.push_back(descriptor);
    accepted.push_back(file.st_ino);
  });
  if (seen) accepted_ = std::move(accepted);
  for (const int descriptor : fresh) divert_one(descriptor);
}

void MemifGreeting::divert_one(int descriptor) {
  std::array<int, 2> pair;
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) != 0) return;
  const int client = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (client >= 0 && dup2(pair[0], descriptor) == descriptor) {
    diverted_.push_back({.number = descriptor, .client = client, .greeting = pair[1]});
  } else {
    close(pair[1]);
    if (client >= 0) close(client);
  }
  close(pair[0]);
}

void MemifGreeting::deliver() noexcept {
  for (const Diverted& each : diverted_) {
    std::array<std::byte, kLongest> text;
    const ssize_t length = recv(each.greeting, text.data(), text.size(), MSG_DONTWAIT);
    dup2(each.client, each.number);
    if (length > 0) send(each.client, text.data(), static_cast<size_t>(length), MSG_DONTWAIT | MSG_NOSIGNAL);
    close(each.client);
    close(each.greeting);
  }
  diverted_.clear();
}

}  // namespace unet::drivers
