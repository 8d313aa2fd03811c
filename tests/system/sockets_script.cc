// sockets_script.cc - makes the socket calls that it reads from standard input, on ipstack's sockets or the kernel's, and prints each
// result in a line. Tests play scenes with it: results must be equal on both.
//
// Usage: sockets_script ours [marks|dctcp]    on the NI $UNET_NI; marks: requests ECN; dctcp: by its congestion control
//        sockets_script kernel
//
// A socket has a name. An answer is a number, or the name of an errno. Commands:
//   socket NAME stream|datagram 4|6      bind NAME ADDRESS PORT      listen NAME BACKLOG        accept NAME NEW
//   connect NAME ADDRESS PORT            shutdown NAME read|write|both                          close NAME
//   send NAME BYTES                      recv NAME BYTES             all of them, checked: prints `wrong` if they differ
//   fast NAME ADDRESS PORT BYTES         sendto() with MSG_FASTOPEN
//   drain NAME                           recv() to the end: `BYTES END`
//   to NAME ADDRESS PORT BYTES           from NAME                   datagrams
//   urgent NAME BYTES                    send() with MSG_OOB; the last byte is kUrgent
//   beside NAME                          recv() with MSG_OOB: the byte's number
//   mark NAME                            sockatmark()                byte NAME                  recv() of one byte: its number
//   nonblock NAME                        set NAME OPTION VALUE       get NAME OPTION            (kOptions, linger, join)
//   block NAME                           ecn NAME                    whether both ends agreed on ECN
//   wait NAME EVENT...                   poll() until it has all of these; prints all events, or `never`
//   quick NAME                           waits a second for IN; prints all events
//   events NAME                          poll() without waiting
//   port NAME                            of getsockname()            peer NAME                  getpeername(): 0
//   forget                               closes all sockets, without any output
//   near                                 how many streams used local channels; none with the kernel
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "ipstack/sockets/calls.h"

namespace {

using Words = std::vector<std::string>;

constexpr int kPatience = 60;  // seconds for a blocking call
constexpr size_t kPart = 65536;
constexpr std::byte kUrgent{'!'};  // not in the pattern

struct Name {
  int value;
  const char* text;
};
constexpr Name kErrors[] = {
    {EAGAIN, "EAGAIN"}, {EINPROGRESS, "EINPROGRESS"}, {EALREADY, "EALREADY"}, {EISCONN, "EISCONN"}, {ENOTCONN, "ENOTCONN"},
    {EPIPE, "EPIPE"}, {ECONNRESET, "ECONNRESET"}, {ECONNREFUSED, "ECONNREFUSED"}, {ECONNABORTED, "ECONNABORTED"},
    {ETIMEDOUT, "ETIMEDOUT"}, {EHOSTUNREACH, "EHOSTUNREACH"}, {ENETUNREACH, "ENETUNREACH"}, {EINVAL, "EINVAL"},
    {EADDRINUSE, "EADDRINUSE"}, {EADDRNOTAVAIL, "EADDRNOTAVAIL"}, {EMSGSIZE, "EMSGSIZE"}, {EDESTADDRREQ, "EDESTADDRREQ"},
    {EBADF, "EBADF"}, {EOPNOTSUPP, "EOPNOTSUPP"}, {EAFNOSUPPORT, "EAFNOSUPPORT"}, {EACCES, "EACCES"}, {ENOBUFS, "ENOBUFS"},
    {ENOPROTOOPT, "ENOPROTOOPT"}, {EPROTO, "EPROTO"}, {ENODEV, "ENODEV"}, {ENETDOWN, "ENETDOWN"}};
constexpr Name kEvents[] = {{POLLIN, "IN"}, {POLLPRI, "PRI"}, {POLLOUT, "OUT"}, {POLLERR, "ERR"}, {POLLRDHUP, "RDHUP"}, {POLLHUP, "HUP"}};
struct Option {
  const char* text;
  int level, name;
};
constexpr Option kOptions[] = {
    {"accepts", SOL_SOCKET, SO_ACCEPTCONN}, {"error", SOL_SOCKET, SO_ERROR},
    {"reuse", SOL_SOCKET, SO_REUSEADDR}, {"keepalive", SOL_SOCKET, SO_KEEPALIVE}, {"oobinline", SOL_SOCKET, SO_OOBINLINE},
    {"sndbuf", SOL_SOCKET, SO_SNDBUF}, {"rcvbuf", SOL_SOCKET, SO_RCVBUF},
    {"keepidle", IPPROTO_TCP, TCP_KEEPIDLE}, {"keepintvl", IPPROTO_TCP, TCP_KEEPINTVL}, {"keepcnt", IPPROTO_TCP, TCP_KEEPCNT},
    {"user_timeout", IPPROTO_TCP, TCP_USER_TIMEOUT}, {"nodelay", IPPROTO_TCP, TCP_NODELAY}, {"mss", IPPROTO_TCP, TCP_MAXSEG},
    {"fastopen", IPPROTO_TCP, TCP_FASTOPEN}, {"fastopen_connect", IPPROTO_TCP, TCP_FASTOPEN_CONNECT}, {"ttl", IPPROTO_IP, IP_TTL},
    {"hops", IPPROTO_IPV6, IPV6_UNICAST_HOPS},
    {"discover4", IPPROTO_IP, IP_MTU_DISCOVER}, {"discover6", IPPROTO_IPV6, IPV6_MTU_DISCOVER},
    {"mtu4", IPPROTO_IP, IP_MTU}, {"mtu6", IPPROTO_IPV6, IPV6_MTU}};

std::string error_text(int error) {
  const auto at = std::find_if(std::begin(kErrors), std::end(kErrors), [&](const Name& each) { return each.value == error; });
  return at == std::end(kErrors) ? "errno " + std::to_string(error) : at->text;
}

std::string answer(int64_t result) { return result < 0 ? error_text(errno) : std::to_string(result); }

std::byte pattern(uint64_t place) { return static_cast<std::byte>(place * 31 + place / 251 + place / 65521); }

struct Address {
  sockaddr_storage bytes{};
  socklen_t length = sizeof(sockaddr_storage);
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&bytes); }
  uint16_t port() const {
    sockaddr_in four;  // the port has the same offset in both families
    std::memcpy(&four, &bytes, sizeof four);
    return ntohs(four.sin_port);
  }
};

Address address_of(const std::string& host, const std::string& port) {
  Address address;
  sockaddr_in four{};
  sockaddr_in6 six{};
  four.sin_family = AF_INET;
  six.sin6_family = AF_INET6;
  four.sin_port = six.sin6_port = htons(static_cast<uint16_t>(std::stoi(port)));
  if (::inet_pton(AF_INET, host.c_str(), &four.sin_addr) == 1) {
    std::memcpy(&address.bytes, &four, address.length = sizeof four);
  } else if (::inet_pton(AF_INET6, host.c_str(), &six.sin6_addr) == 1) {
    std::memcpy(&address.bytes, &six, address.length = sizeof six);
  } else if (host == "nothing") {
    address.length = sizeof(sa_family_t);  // AF_UNSPEC
  }
  return address;
}

// The kernel's calls, under the names of ipstack's.
struct Kernel {
  int socket(int domain, int type, int protocol) { return ::socket(domain, type | SOCK_CLOEXEC, protocol); }
  int bind(int s, const sockaddr* address, socklen_t length) { return ::bind(s, address, length); }
  int listen(int s, int backlog) { return ::listen(s, backlog); }
  int accept(int s, sockaddr* address, socklen_t* length, int flags) { return ::accept4(s, address, length, flags | SOCK_CLOEXEC); }
  int connect(int s, const sockaddr* address, socklen_t length) { return ::connect(s, address, length); }
  ssize_t send(int s, const void* data, size_t length, int flags) { return ::send(s, data, length, flags | MSG_NOSIGNAL); }
  ssize_t recv(int s, void* data, size_t length, int flags) { return ::recv(s, data, length, flags); }
  ssize_t sendto(int s, const void* data, size_t length, int flags, const sockaddr* to, socklen_t to_length) {
    return ::sendto(s, data, length, flags | MSG_NOSIGNAL, to, to_length);
  }
  int shutdown(int s, int how) { return ::shutdown(s, how); }
  int close(int s) { return ::close(s); }
  int getsockname(int s, sockaddr* address, socklen_t* length) { return ::getsockname(s, address, length); }
  int getpeername(int s, sockaddr* address, socklen_t* length) { return ::getpeername(s, address, length); }
  int setsockopt(int s, int level, int name, const void* value, socklen_t length) { return ::setsockopt(s, level, name, value, length); }
  int getsockopt(int s, int level, int name, void* value, socklen_t* length) { return ::getsockopt(s, level, name, value, length); }
  int set_nonblocking(int s, bool on) { return ::fcntl(s, F_SETFL, on ? O_NONBLOCK : 0); }
  int poll(pollfd* sockets, nfds_t count, int timeout_ms) { return ::poll(sockets, count, timeout_ms); }
};

template <typename Calls>
class Script {
 public:
  explicit Script(Calls& calls) : calls_(calls) {}

  std::string does(const Words& words) {
    const std::string& what = words[0];
    if (what == "forget") return forget();
    if (what == "near") return std::to_string(near_streams());
    if (words.size() < 2) return "what?";
    const auto word = [&](size_t i) { return i < words.size() ? words[i] : std::string("0"); };
    if (what == "socket") {
      const int s = calls_.socket(word(3) == "6" ? AF_INET6 : AF_INET, word(2) == "stream" ? SOCK_STREAM : SOCK_DGRAM, 0);
      return s < 0 ? answer(s) : keep(word(1), s);
    }
    const auto at = sockets_.find(words[1]);
    if (at == sockets_.end()) return "no such name";
    One& it = at->second;
    const int s = it.socket;
    if (what == "bind" || what == "connect" || what == "fast" || what == "to") {
      Address to = address_of(word(2), word(3));
      if (what == "bind") return answer(calls_.bind(s, to.get(), to.length));
      if (what == "connect") return answer(calls_.connect(s, to.get(), to.length));
      std::vector<std::byte> data(std::stoul(word(4)));
      for (size_t i = 0; i < data.size(); ++i) data[i] = pattern(it.sent + i);
      const ssize_t sent = calls_.sendto(s, data.data(), data.size(), what == "fast" ? MSG_FASTOPEN : 0, to.get(), to.length);
      if (what == "fast" && sent > 0) it.sent += static_cast<uint64_t>(sent);
      return answer(sent);
    }
    if (what == "disconnect") {
      const sockaddr none{.sa_family = AF_UNSPEC, .sa_data = {}};
      return answer(calls_.connect(s, &none, sizeof none));
    }
    if (what == "listen") return answer(calls_.listen(s, std::stoi(word(2))));
    if (what == "accept") {
      const int made = calls_.accept(s, nullptr, nullptr, 0);
      return made < 0 ? answer(made) : keep(word(2), made);
    }
    if (what == "send") return send(it, std::stoul(word(2)));
    if (what == "urgent") return urge(it, std::stoul(word(2)));
    if (what == "beside" || what == "byte") return one_byte(s, what == "beside" ? MSG_OOB : 0);
    if (what == "mark") return at_mark(s);
    if (what == "recv") return receive(it, std::stoul(word(2)));
    if (what == "drain") return drain(it);
    if (what == "from") return datagram(it);
    if (what == "shutdown") return answer(calls_.shutdown(s, word(2) == "read" ? SHUT_RD : word(2) == "write" ? SHUT_WR : SHUT_RDWR));
    if (what == "close") {
      sockets_.erase(at);
      return answer(calls_.close(s));
    }
    if (what == "nonblock" || what == "block") return answer(calls_.set_nonblocking(s, what == "nonblock"));
    if (what == "ecn") return agreed_upon(s, TCPI_OPT_ECN);
    if (what == "set") return set(s, word(2), word(3));
    if (what == "get") return get(s, word(2));
    if (what == "wait") return wait(s, {words.begin() + 2, words.end()});
    if (what == "quick") return events_text(poll(s, 1000, POLLIN));
    if (what == "events") return events_text(poll(s, 0));
    Address name;
    if (what == "peer") return answer(calls_.getpeername(s, name.get(), &name.length));
    if (what == "port") return calls_.getsockname(s, name.get(), &name.length) < 0 ? answer(-1) : std::to_string(name.port());
    return "what?";
  }

 private:
  struct One {
    int socket = -1;
    uint64_t sent = 0, received = 0;
  };

  std::string keep(const std::string& name, int s) {
    const timeval patience{.tv_sec = kPatience, .tv_usec = 0};
    calls_.setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    calls_.setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    sockets_[name] = {.socket = s};
    return "0";
  }

  std::string forget() {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    for (const auto& [name, it] : sockets_) {
      calls_.setsockopt(it.socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
      calls_.close(it.socket);
    }
    sockets_.clear();
    return "0";
  }

  uint64_t near_streams() {
    if constexpr (requires { calls_.stack(); }) return calls_.stack().counters().near_in + calls_.stack().counters().near_out;
    return 0;
  }

  std::string send(One& it, size_t bytes) {
    std::vector<std::byte> data(bytes);
    for (size_t i = 0; i < bytes; ++i) data[i] = pattern(it.sent + i);
    const ssize_t sent = calls_.send(it.socket, data.data(), bytes, 0);
    if (sent > 0) it.sent += static_cast<uint64_t>(sent);
    return answer(sent);
  }

  std::string urge(One& it, size_t bytes) {
    std::vector<std::byte> data(bytes, kUrgent);
    for (size_t i = 0; i + 1 < bytes; ++i) data[i] = pattern(it.sent + i);
    const ssize_t sent = calls_.send(it.socket, data.data(), bytes, MSG_OOB);
    if (sent > 0) it.sent += static_cast<uint64_t>(sent) - 1;
    return answer(sent);
  }

  std::string one_byte(int s, int flags) {
    std::byte byte{};
    const ssize_t got = calls_.recv(s, &byte, 1, flags);
    return got != 1 ? answer(got) : std::to_string(std::to_integer<int>(byte));
  }

  std::string at_mark(int s) {
    if constexpr (requires { calls_.stack(); }) return calls_.stack().is_at_urgent(s) ? "1" : "0";
    return answer(::sockatmark(s));
  }

  std::string agreed_upon(int s, uint8_t option) {
    tcp_info info{};
    socklen_t length = sizeof info;
    if (calls_.getsockopt(s, IPPROTO_TCP, TCP_INFO, &info, &length) < 0) return answer(-1);
    return (info.tcpi_options & option) != 0 ? "1" : "0";
  }

  // Whether these are the next bytes of the stream.
  bool right(One& it, const std::byte* data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) {
      if (data[i] != pattern(it.received + i)) return false;
    }
    it.received += bytes;
    return true;
  }

  std::string receive(One& it, size_t bytes) {
    std::vector<std::byte> data(bytes);
    const ssize_t got = calls_.recv(it.socket, data.data(), bytes, MSG_WAITALL);
    return got > 0 && !right(it, data.data(), static_cast<size_t>(got)) ? "wrong" : answer(got);
  }

  std::string drain(One& it) {
    std::vector<std::byte> data(kPart);
    uint64_t all = 0;
    while (true) {
      const ssize_t got = calls_.recv(it.socket, data.data(), data.size(), 0);
      if (got <= 0) return std::to_string(all) + " " + answer(got);
      if (!right(it, data.data(), static_cast<size_t>(got))) return "wrong";
      all += static_cast<uint64_t>(got);
    }
  }

  // Each datagram begins the pattern anew.
  std::string datagram(One& it) {
    std::vector<std::byte> data(kPart);
    const ssize_t got = calls_.recv(it.socket, data.data(), data.size(), 0);
    it.received = 0;
    return got > 0 && !right(it, data.data(), static_cast<size_t>(got)) ? "wrong" : answer(got);
  }

  static const Option* option_of(const std::string& name) {
    const auto at = std::find_if(std::begin(kOptions), std::end(kOptions), [&](const Option& each) { return each.text == name; });
    return at == std::end(kOptions) ? nullptr : at;
  }

  std::string set(int s, const std::string& name, const std::string& value) {
    if (name == "linger") {
      const linger wanted{.l_onoff = 1, .l_linger = std::stoi(value)};
      return answer(calls_.setsockopt(s, SOL_SOCKET, SO_LINGER, &wanted, sizeof wanted));
    }
    if (name == "join") {
      group_req wanted{};
      const Address group = address_of(value, "0");
      wanted.gr_group = group.bytes;
      const int level = group.bytes.ss_family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6;
      return answer(calls_.setsockopt(s, level, MCAST_JOIN_GROUP, &wanted, sizeof wanted));
    }
    const Option* const option = option_of(name);
    if (option == nullptr) return "no such option";
    const int number = std::stoi(value);
    return answer(calls_.setsockopt(s, option->level, option->name, &number, sizeof number));
  }

  std::string get(int s, const std::string& name) {
    const Option* const option = option_of(name);
    if (option == nullptr) return "no such option";
    int number = 0;
    socklen_t length = sizeof number;
    if (calls_.getsockopt(s, option->level, option->name, &number, &length) < 0) return answer(-1);
    return name == "error" && number != 0 ? error_text(number) : std::to_string(number);
  }

  static std::string events_text(int events) {
    std::string text;
    for (const Name& each : kEvents) {
      if ((events & each.value) != 0) text += (text.empty() ? "" : " ") + std::string(each.text);
    }
    return text.empty() ? "none" : text;
  }

  int poll(int s, int timeout_ms, short wanted = POLLIN | POLLPRI | POLLOUT | POLLRDHUP) {
    pollfd each{.fd = s, .events = wanted, .revents = 0};
    return calls_.poll(&each, 1, timeout_ms) < 0 ? 0 : each.revents;
  }

  std::string wait(int s, const Words& names) {
    int wanted = 0;
    for (const Name& each : kEvents) {
      if (std::find(names.begin(), names.end(), each.text) != names.end()) wanted |= each.value;
    }
    for (int i = 0; i < kPatience * 500; ++i) {
      const int events = poll(s, 0);
      if ((events & wanted) == wanted) return events_text(events);
      calls_.poll(nullptr, 0, 2);
    }
    return "never: " + events_text(poll(s, 0));
  }

  Calls& calls_;
  std::map<std::string, One> sockets_;
};

template <typename Calls>
int play(Calls& calls) {
  Script<Calls> script(calls);
  std::string input;
  std::printf("ready\n");
  std::fflush(stdout);
  while (true) {
    pollfd standard_input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    if (::poll(&standard_input, 1, 0) == 0) {
      calls.poll(nullptr, 0, 2);  // the stack works only inside of calls
      continue;
    }
    std::array<char, 4096> part;
    const ssize_t got = ::read(STDIN_FILENO, part.data(), part.size());
    if (got <= 0) return 0;
    input.append(part.data(), static_cast<size_t>(got));
    for (size_t end; (end = input.find('\n')) != std::string::npos; input.erase(0, end + 1)) {
      std::istringstream line(input.substr(0, end));
      const Words words{std::istream_iterator<std::string>(line), {}};
      std::printf("%s\n", words.empty() ? "what?" : script.does(words).c_str());
      std::fflush(stdout);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "kernel") {
    Kernel kernel;
    return play(kernel);
  }
  const std::string asks = argc == 3 ? argv[2] : "";
  if ((argc != 2 && asks != "marks" && asks != "dctcp") || std::string(argv[1]) != "ours") {
    std::fprintf(stderr, "sockets_script: see the head of its source\n");
    return 2;
  }
  auto context = unet::Context::open();
  if (!context) return std::printf("%s\n", context.error().text.c_str()), 1;
  unet::sockets::SocketsOptions options;
  if (asks == "marks") options.stack.tcp.ecn = unet::tcp::Ecn::on;
  if (asks == "dctcp") options.stack.tcp.congestion = unet::tcp::Algorithm::dctcp;
  auto sockets = unet::sockets::Sockets::open(*context, options);
  if (!sockets) return std::printf("%s\n", sockets.error().text.c_str()), 1;
  return play(**sockets);
}
