// sockets_peer.cc - an application with ipstack's sockets on the NI $UNET_NI; for sockets_linux.py, sockets_shared.py and
// sockets_fast_open.py.
//
// Usage: sockets_peer echo PORT [GROUP]                      echoes streams and datagrams, both versions, until standard input closes;
//                                                            shares the port with processes of this group
//        sockets_peer itself ADDRESS PORT GROUP CONNECTIONS  calls its own port, which it shares with the group
//        sockets_peer call ADDRESS PORT BYTES CONNECTIONS    all at once; each sends BYTES and awaits the echo
//        sockets_peer datagrams ADDRESS PORT BYTES COUNT     one after the other; awaits each echo
//        sockets_peer member GROUP PORT COUNT                prints `ready`, and receives COUNT datagrams of the group
//        sockets_peer shout GROUP PORT COUNT                 sends them, `1`, `2` ...
//        sockets_peer leave ADDRESS PORT CONNECTIONS         sends, waits for ACKs, closes, prints `left`, and exits
//        sockets_peer fast ADDRESS PORT BYTES COUNT          streams, one after the other, with data in the SYN if there is a cookie
//        sockets_peer segments ADDRESS PORT BYTES SEGMENT COUNT     BYTES in one send as datagrams of SEGMENT (UDP_SEGMENT)
//        sockets_peer asks ADDRESS PORT                      checks details of a stream against Linux's behaviour
//        sockets_peer hold ADDRESS PORT CONNECTIONS          keeps them open, prints `open`, until standard input closes
//
// `echo` prints `ready`, the others `done` or an error. At the end each prints how many streams used local channels.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "ipstack/sockets/calls.h"

using namespace unet;
using namespace unet::sockets;

namespace {

struct Name {
  sockaddr_storage bytes{};
  socklen_t length = 0;
  int family = AF_INET;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
};

Name name_of(const char* host, const char* port) {
  Name name;
  sockaddr_in four{.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(std::atoi(port))), .sin_addr = {}, .sin_zero = {}};
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  name.family = AF_INET6;
  six.sin6_port = four.sin_port;
  if (::inet_pton(AF_INET, host, &four.sin_addr) == 1) {
    name.family = AF_INET;
    std::memcpy(&name.bytes, &four, name.length = sizeof four);
  } else if (::inet_pton(AF_INET6, host, &six.sin6_addr) == 1) {
    std::memcpy(&name.bytes, &six, name.length = sizeof six);
  } else {
    std::fprintf(stderr, "sockets_peer: %s is no address\n", host);
    std::exit(2);
  }
  return name;
}

std::byte pattern(uint64_t place) { return static_cast<std::byte>(place * 31 + place / 251 + place / 65521); }

int wrong(const char* what) {
  std::printf("%s: %s\n", what, std::strerror(errno));
  return 1;
}

bool input_ended() {
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  return ::poll(&input, 1, 0) != 0;
}

// One end of a stream that echoes.
struct Echo {
  std::vector<std::byte> held{};
  size_t sent = 0;
  bool ended = false;
};

bool name_it(Sockets& sockets, int s, const Name& to, uint64_t group) {
  const auto port = ntohs(reinterpret_cast<const sockaddr_in6*>(to.get())->sin6_port);
  if (group == 0) return sockets.bind(s, to.get(), to.length) == 0;
  errno = -sockets.stack().bind_shared(s, {{}, port}, group);
  return errno == 0;
}

int echo(Sockets& sockets, const char* port, uint64_t group) {
  const int listener = sockets.socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0);
  const int datagrams = sockets.socket(AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK, 0);
  const Name any = name_of("::", port);
  const int early = 16;
  if (sockets.setsockopt(listener, IPPROTO_TCP, TCP_FASTOPEN, &early, sizeof early) != 0) return wrong("TCP_FASTOPEN");
  if (!name_it(sockets, listener, any, group) || sockets.listen(listener, 1024) != 0) return wrong("listen");
  if (!name_it(sockets, datagrams, any, group)) return wrong("bind");
  std::printf("ready\n");
  std::fflush(stdout);
  std::map<int, Echo> streams;
  std::vector<std::byte> room(65536);
  while (!input_ended()) {
    std::vector<pollfd> wanted{{.fd = listener, .events = POLLIN, .revents = 0}, {.fd = datagrams, .events = POLLIN, .revents = 0}};
    for (const auto& [s, stream] : streams) {
      wanted.push_back({.fd = s, .events = static_cast<short>(stream.held.empty() ? POLLIN : POLLOUT), .revents = 0});
    }
    if (sockets.poll(wanted.data(), wanted.size(), 50) < 0) return wrong("poll");
    for (int s; (s = sockets.accept(listener, nullptr, nullptr, SOCK_NONBLOCK)) >= 0;) streams[s] = {};
    sockaddr_storage from;
    while (true) {
      socklen_t length = sizeof from;
      const ssize_t bytes = sockets.recvfrom(datagrams, room.data(), room.size(), 0, reinterpret_cast<sockaddr*>(&from), &length);
      if (bytes < 0) break;
      static_cast<void>(sockets.sendto(datagrams, room.data(), static_cast<size_t>(bytes), 0, reinterpret_cast<sockaddr*>(&from), length));
    }
    for (const pollfd& each : wanted) {
      const auto at = streams.find(each.fd);
      if (at == streams.end() || each.revents == 0) continue;
      Echo& stream = at->second;
      bool over = false;
      while (!over) {
        if (stream.sent == stream.held.size()) {
          stream.held.resize(65536);
          const ssize_t bytes = sockets.recv(each.fd, stream.held.data(), stream.held.size(), 0);
          stream.held.resize(bytes > 0 ? static_cast<size_t>(bytes) : 0);
          stream.sent = 0;
          over = bytes == 0 || (bytes < 0 && errno != EAGAIN);
          if (bytes <= 0) break;
        }
        const ssize_t bytes = sockets.send(each.fd, stream.held.data() + stream.sent, stream.held.size() - stream.sent, 0);
        if (bytes < 0) {
          over = errno != EAGAIN;
          break;
        }
        stream.sent += static_cast<size_t>(bytes);
        if (stream.sent == stream.held.size()) stream.held.clear(), stream.sent = 0;
      }
      if (!over) continue;
      sockets.close(each.fd);
      streams.erase(at);
    }
  }
  return 0;
}

// Calls its own port; the connections reach it, or other members of the group.
int itself(Sockets& sockets, const Name& to, const char* port, uint64_t group, size_t count) {
  const int listener = sockets.socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0);
  if (!name_it(sockets, listener, name_of("::", port), group) || sockets.listen(listener, 1024) != 0) return wrong("listen");
  std::vector<pollfd> calls;
  for (size_t i = 0; i < count; ++i) {
    calls.push_back({.fd = sockets.socket(to.family, SOCK_STREAM | SOCK_NONBLOCK, 0), .events = POLLOUT, .revents = 0});
    if (sockets.connect(calls.back().fd, to.get(), to.length) != 0 && errno != EINPROGRESS) return wrong("connect");
  }
  size_t own = 0, open = 0;
  while (open < count) {
    if (sockets.poll(calls.data(), calls.size(), 30'000) <= 0) return wrong("nothing moves");
    for (pollfd& each : calls) {
      if (each.revents == 0) continue;
      if (sockets.connect(each.fd, to.get(), to.length) != 0 && errno != EISCONN) return wrong("stream");
      each.events = 0;
      ++open;
    }
    std::erase_if(calls, [](const pollfd& each) { return each.events == 0; });
  }
  while (sockets.accept(listener, nullptr, nullptr, SOCK_NONBLOCK) >= 0) ++own;
  std::printf("own %zu\n", own);
  return 0;
}

struct Call {
  uint64_t written = 0, read = 0;
  bool shut = false, over = false;
};

int call(Sockets& sockets, const Name& to, uint64_t bytes, size_t count) {
  std::map<int, Call> calls;
  for (size_t i = 0; i < count; ++i) {
    const int s = sockets.socket(to.family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (sockets.connect(s, to.get(), to.length) != 0 && errno != EINPROGRESS) return wrong("connect");
    calls[s] = {};
  }
  size_t over = 0;
  std::vector<std::byte> data(65536);
  while (over < count) {
    std::vector<pollfd> wanted;
    for (const auto& [s, each] : calls) {
      if (!each.over) wanted.push_back({.fd = s, .events = static_cast<short>(POLLIN | (each.shut ? 0 : POLLOUT)), .revents = 0});
    }
    if (sockets.poll(wanted.data(), wanted.size(), 30'000) <= 0) return wrong("nothing moves");
    for (const pollfd& each : wanted) {
      Call& it = calls[each.fd];
      if ((each.revents & POLLERR) != 0) {
        int error = 0;
        socklen_t length = sizeof error;
        sockets.getsockopt(each.fd, SOL_SOCKET, SO_ERROR, &error, &length);
        errno = error;
        return wrong("stream");
      }
      while ((each.revents & POLLOUT) != 0 && it.written < bytes) {
        const size_t part = std::min<uint64_t>(data.size(), bytes - it.written);
        for (size_t i = 0; i < part; ++i) data[i] = pattern(it.written + i);
        const ssize_t sent = sockets.send(each.fd, data.data(), part, 0);
        if (sent < 0 && errno != EAGAIN) return wrong("send");
        if (sent <= 0) break;
        it.written += static_cast<uint64_t>(sent);
      }
      if ((each.revents & POLLOUT) != 0 && it.written == bytes && !it.shut) {
        it.shut = true;
        if (sockets.shutdown(each.fd, SHUT_WR) != 0) return wrong("shutdown");
      }
      while (true) {
        const ssize_t got = sockets.recv(each.fd, data.data(), data.size(), 0);
        if (got < 0 && errno != EAGAIN) return wrong("recv");
        if (got < 0) break;
        for (ssize_t i = 0; i < got; ++i) {
          if (data[static_cast<size_t>(i)] != pattern(it.read + static_cast<uint64_t>(i))) return wrong("other bytes");
        }
        it.read += static_cast<uint64_t>(got);
        if (got != 0) continue;
        if (it.read != bytes) return wrong("it ended early");
        it.over = true;
        ++over;
        sockets.close(each.fd);
        break;
      }
    }
  }
  std::printf("done\n");
  return 0;
}

int datagrams(Sockets& sockets, const Name& to, size_t bytes, size_t count) {
  const int s = sockets.socket(to.family, SOCK_DGRAM, 0);
  if (sockets.connect(s, to.get(), to.length) != 0) return wrong("connect");
  const timeval second{.tv_sec = 1, .tv_usec = 0};
  sockets.setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
  std::vector<std::byte> data(bytes), back(65536);
  size_t lost = 0;
  for (size_t i = 0; i < count;) {
    for (size_t at = 0; at < bytes; ++at) data[at] = pattern(i + at);
    if (sockets.send(s, data.data(), data.size(), 0) != static_cast<ssize_t>(bytes)) return wrong("send");
    const ssize_t got = sockets.recv(s, back.data(), back.size(), 0);
    if (got < 0 && errno == EAGAIN && ++lost < 5) continue;  // lost, perhaps during address resolution
    if (got != static_cast<ssize_t>(bytes)) return wrong("recv");
    if (bytes != 0 && std::memcmp(back.data(), data.data(), bytes) != 0) return wrong("other bytes");
    ++i;
  }
  std::printf("done\n");
  return 0;
}

int member(Sockets& sockets, const Name& group, int count) {
  const int s = sockets.socket(group.family, SOCK_DGRAM, 0);
  if (sockets.bind(s, group.get(), group.length) != 0) return wrong("bind");
  group_req wanted{};
  wanted.gr_group = group.bytes;
  const int level = group.family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6;
  if (sockets.setsockopt(s, level, MCAST_JOIN_GROUP, &wanted, sizeof wanted) != 0) return wrong("join");
  std::printf("ready\n");
  std::fflush(stdout);
  const timeval patience{.tv_sec = 60, .tv_usec = 0};
  sockets.setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  int last = 0;
  while (last < count) {
    std::array<char, 16> text{};
    if (sockets.recv(s, text.data(), text.size() - 1, 0) < 0) return wrong("recv");
    if (std::atoi(text.data()) != ++last) return std::printf("heard %s, not %d\n", text.data(), last), 1;
  }
  std::printf("done\n");
  return 0;
}

int shout(Sockets& sockets, const Name& group, int count) {
  const int s = sockets.socket(group.family, SOCK_DGRAM, 0);
  for (int i = 1; i <= count; ++i) {
    const std::string text = std::to_string(i);
    if (sockets.sendto(s, text.data(), text.size(), 0, group.get(), group.length) < 0) return wrong("send");
  }
  std::printf("done\n");
  return 0;
}

// Exits right after its last close(), as if killed: no destructor runs.
int leave(Sockets& sockets, const Name& to, size_t count) {
  std::vector<std::byte> data(10'000);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i % 251);
  std::vector<int> streams;
  for (size_t i = 0; i < count; ++i) {
    streams.push_back(sockets.socket(to.family, SOCK_STREAM, 0));
    if (sockets.connect(streams.back(), to.get(), to.length) != 0) return wrong("connect");
    if (sockets.send(streams.back(), data.data(), data.size(), 0) != static_cast<ssize_t>(data.size())) return wrong("send");
  }
  for (const int s : streams) {
    for (tcp_info info{};; sockets.poll(nullptr, 0, 1)) {
      socklen_t length = sizeof info;
      if (sockets.getsockopt(s, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return wrong("getsockopt");
      if (info.tcpi_unacked == 0) break;
    }
  }
  for (const int s : streams) sockets.close(s);
  std::printf("left\n");
  std::fflush(stdout);
  std::_Exit(0);
}

int fast(Sockets& sockets, const Name& to, size_t bytes, size_t count) {
  std::vector<std::byte> data(bytes), back(bytes);
  for (size_t at = 0; at < bytes; ++at) data[at] = pattern(at);
  for (size_t i = 0; i < count; ++i) {
    const int s = sockets.socket(to.family, SOCK_STREAM, 0);
    if (i % 2 == 0) {
      if (sockets.sendto(s, data.data(), bytes, MSG_FASTOPEN, to.get(), to.length) != static_cast<ssize_t>(bytes)) return wrong("sendto");
    } else {
      const int on = 1;
      if (sockets.setsockopt(s, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &on, sizeof on) != 0) return wrong("TCP_FASTOPEN_CONNECT");
      if (sockets.connect(s, to.get(), to.length) != 0) return wrong("connect");
      if (sockets.send(s, data.data(), bytes, 0) != static_cast<ssize_t>(bytes)) return wrong("send");
    }
    if (sockets.recv(s, back.data(), bytes, MSG_WAITALL) != static_cast<ssize_t>(bytes) || back != data) return wrong("recv");
    sockets.close(s);
  }
  std::printf("done\n");
  std::fflush(stdout);
  return 0;
}

int segments(Sockets& sockets, const Name& to, size_t bytes, size_t segment, size_t count) {
  const int s = sockets.socket(to.family, SOCK_DGRAM, 0);
  if (sockets.connect(s, to.get(), to.length) != 0) return wrong("connect");
  const timeval second{.tv_sec = 1, .tv_usec = 0};
  const int size = static_cast<int>(segment);
  sockets.setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
  if (sockets.setsockopt(s, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size) != 0) return wrong("UDP_SEGMENT");
  std::vector<std::byte> data(bytes), back(65536);
  for (size_t at = 0; at < bytes; ++at) data[at] = pattern(at);
  for (size_t done = 0, lost = 0; done < count;) {
    if (sockets.send(s, data.data(), data.size(), 0) != static_cast<ssize_t>(bytes)) return wrong("send");
    size_t at = 0;
    while (at < bytes) {
      const ssize_t got = sockets.recv(s, back.data(), back.size(), 0);
      if (got < 0 && errno == EAGAIN && ++lost < 10) break;  // lost, perhaps during address resolution: all of it again
      if (got != static_cast<ssize_t>(std::min(segment, bytes - at))) return wrong("recv");
      if (std::memcmp(back.data(), data.data() + at, static_cast<size_t>(got)) != 0) return wrong("other bytes");
      at += static_cast<size_t>(got);
    }
    done += at == bytes;
  }
  std::printf("done\n");
  return 0;
}

int asks(Sockets& sockets, const Name& to) {
  const auto option = [&](int s, int name) {
    int value = -1;
    socklen_t length = sizeof value;
    return sockets.getsockopt(s, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
  };
  const auto fails = [](ssize_t result, int why) { return result == -1 && errno == why; };
  const int s = sockets.socket(to.family, SOCK_STREAM, 0), udp = sockets.socket(to.family, SOCK_DGRAM, 0);
  if (option(s, SO_DOMAIN) != to.family || option(s, SO_PROTOCOL) != IPPROTO_TCP) return wrong("SO_DOMAIN, SO_PROTOCOL");
  if (option(udp, SO_DOMAIN) != to.family || option(udp, SO_PROTOCOL) != IPPROTO_UDP) return wrong("of datagrams");
  if (sockets.connect(s, to.get(), to.length) != 0) return wrong("connect");
  pollfd each{.fd = s, .events = POLLWRNORM, .revents = 0};
  if (sockets.poll(&each, 1, 0) != 1 || each.revents != POLLWRNORM) return wrong("POLLWRNORM");
  char byte = 'x';
  if (sockets.send(s, &byte, 1, MSG_OOB) != 1 || !fails(sockets.recv(s, &byte, 1, MSG_OOB), EINVAL)) return wrong("MSG_OOB");
  // Before anything is sent: the destination may answer.
  if (!fails(sockets.recv(udp, &byte, 1, MSG_OOB | MSG_DONTWAIT), EAGAIN)) return wrong("MSG_OOB, which Linux does not look at there");
  const bool refused = to.family == AF_INET;  // as on Linux
  const ssize_t sent = sockets.sendto(udp, &byte, 1, MSG_OOB, to.get(), to.length);
  if (refused ? !fails(sent, EOPNOTSUPP) : sent != 1) return wrong("MSG_OOB of datagrams");
  if (!fails(sockets.send(99, &byte, 1, MSG_OOB), EBADF)) return wrong("MSG_OOB of nothing");
  if (sockets.send(s, &byte, 1, 0) != 1) return wrong("send");
  each.events = POLLRDNORM;
  if (sockets.poll(&each, 1, 30'000) != 1 || each.revents != POLLRDNORM) return wrong("POLLRDNORM");
  sockets.close(s);
  std::printf("done\n");
  std::fflush(stdout);
  return 0;
}

int hold(Sockets& sockets, const Name& to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const int s = sockets.socket(to.family, SOCK_STREAM, 0);
    if (sockets.connect(s, to.get(), to.length) != 0) return wrong("connect");
  }
  std::printf("open\n");
  std::fflush(stdout);
  while (!input_ended()) sockets.poll(nullptr, 0, 50);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 2 ? argv[1] : "";
  auto context = Context::open();
  if (!context) {
    std::printf("%s\n", context.error().text.c_str());
    return 1;
  }
  SocketsOptions options;
  options.linger = 600 * kSecond;  // a process that waits so long at its end has a connection that does not end
  auto sockets = Sockets::open(*context, options);
  if (!sockets) {
    std::printf("%s\n", sockets.error().text.c_str());
    return 1;
  }
  const auto number = [&](int which) { return std::strtoul(argv[which], nullptr, 10); };
  int status = 2;
  if (what == "echo") status = echo(**sockets, argv[2], argc > 3 ? number(3) : 0);
  else if (what == "itself" && argc == 6) status = itself(**sockets, name_of(argv[2], argv[3]), argv[3], number(4), number(5));
  else if (what == "call" && argc == 6) status = call(**sockets, name_of(argv[2], argv[3]), number(4), number(5));
  else if (what == "datagrams" && argc == 6) status = datagrams(**sockets, name_of(argv[2], argv[3]), number(4), number(5));
  else if (what == "member" && argc == 5) status = member(**sockets, name_of(argv[2], argv[3]), std::atoi(argv[4]));
  else if (what == "shout" && argc == 5) status = shout(**sockets, name_of(argv[2], argv[3]), std::atoi(argv[4]));
  else if (what == "leave" && argc == 5) status = leave(**sockets, name_of(argv[2], argv[3]), number(4));
  else if (what == "fast" && argc == 6) status = fast(**sockets, name_of(argv[2], argv[3]), number(4), number(5));
  else if (what == "segments" && argc == 7) status = segments(**sockets, name_of(argv[2], argv[3]), number(4), number(5), number(6));
  else if (what == "asks" && argc == 4) status = asks(**sockets, name_of(argv[2], argv[3]));
  else if (what == "hold" && argc == 5) status = hold(**sockets, name_of(argv[2], argv[3]), number(4));
  else std::fprintf(stderr, "sockets_peer: see the head of its source\n");
  const StackCounters& counters = (*sockets)->stack().counters();
  std::printf("near %llu\n", static_cast<unsigned long long>(counters.near_in + counters.near_out));
  return status;
}
