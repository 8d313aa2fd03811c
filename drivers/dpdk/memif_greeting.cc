// memif_greeting.cc - replaces a connection's descriptor by another socket while DPDK greets the client.
#include "drivers/dpdk/memif_greeting.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

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

// Whether a server of that name has accepted this connection: it carries the server's name.
bool is_accepted(std::string_view server, int descriptor) noexcept {
  sockaddr_un name{};
  socklen_t name_size = sizeof name;
  int listens = 0;
  socklen_t size = sizeof listens;
  return getsockname(descriptor, reinterpret_cast<sockaddr*>(&name), &name_size) == 0 && name.sun_family == AF_UNIX &&
         std::string_view(name.sun_path, strnlen(name.sun_path, sizeof name.sun_path)) == server &&
         getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens == 0;
}

}  // namespace

void MemifGreeting::on_log(std::string_view line) {
  deliver();
  const std::string_view server = server_in(line);
  if (server.empty()) return;
  std::vector<int> accepted;
  std::error_code error;
  for (std::filesystem::directory_iterator each("/proc/self/fd", error), end; !error && each != end; each.increment(error)) {
    const int descriptor = std::atoi(each->path().filename().c_str());
    if (is_accepted(server, descriptor)) accepted.push_back(descriptor);
  }
  for (const int descriptor : accepted) divert(descriptor);
}

void MemifGreeting::divert(int descriptor) {
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
