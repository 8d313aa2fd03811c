// memif_connection_test.cc - memif ports and the control socket alone: peers that die or fall silent half-way through connecting.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "drivers/dpdk/dpdk_port.h"

namespace unet::drivers {
namespace {

constexpr Nanoseconds kHang = 60 * kSecond;  // an event that has not happened by then counts as missing

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// Message types of memif 2.0, from memif.h of VPP and DPDK.
enum class Kind : uint16_t { ack = 1, hello, init, add_region, add_ring, connect, connected, disconnect };
constexpr size_t kMessage = 128, kRingBytes = 192 + (16 << 10), kRings = 2;
constexpr uint32_t kRingCookie = 0x3E31F20;

class Message {
 public:
  explicit Message(Kind kind) { put(static_cast<uint16_t>(kind)); }
  template <typename T>
  Message& put(T value) {
    std::memcpy(bytes_.data() + length_, &value, sizeof(value));
    length_ += sizeof(value);
    return *this;
  }
  Message& skip(size_t bytes) {
    length_ += bytes;
    return *this;
  }
  std::array<std::byte, kMessage> bytes_{};

 private:
  size_t length_ = 0;
};

class ControlSocket {
 public:
  explicit ControlSocket(const std::string& name) : fd_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    address_.sun_family = AF_UNIX;
    std::memcpy(address_.sun_path, name.data(), name.size());
    size_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  explicit ControlSocket(Descriptor fd) : fd_(std::move(fd)) {}

  bool connect() { return ::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address_), size_) == 0; }
  bool listen() { return ::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address_), size_) == 0 && ::listen(fd_.get(), 4) == 0; }
  ControlSocket accept() { return ControlSocket(Descriptor(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC))); }
  bool is_open() const { return fd_.get() >= 0; }

  bool send(const Message& message, int descriptor = -1) {
    iovec data{const_cast<std::byte*>(message.bytes_.data()), kMessage};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    if (descriptor >= 0) {
      header.msg_control = control;
      header.msg_controllen = sizeof(control);
      cmsghdr* const c = CMSG_FIRSTHDR(&header);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(c), &descriptor, sizeof(int));
    }
    return sendmsg(fd_.get(), &header, MSG_NOSIGNAL) == static_cast<ssize_t>(kMessage);
  }
  // Empty if the peer has hung up or nothing came within `timeout`.
  std::optional<Kind> receive(Nanoseconds timeout = kHang) {
    if (!readable(timeout)) return {};
    std::array<std::byte, kMessage> bytes;
    if (recv(fd_.get(), bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(kMessage)) return {};
    uint16_t kind;
    std::memcpy(&kind, bytes.data(), sizeof(kind));
    return static_cast<Kind>(kind);
  }
  bool readable(Nanoseconds timeout) const {
    pollfd wanted{.fd = fd_.get(), .events = POLLIN, .revents = 0};
    return poll(&wanted, 1, static_cast<int>(timeout / kMillisecond)) == 1;
  }

 private:
  Descriptor fd_;
  sockaddr_un address_{};
  socklen_t size_ = 0;
};

std::string socket_name(const char* which) { return "/tmp/unet-memif-" + std::to_string(getpid()) + which; }

std::unique_ptr<DpdkPort> open_port(const std::string& device) {
  auto port = DpdkPort::open({.device = device, .eal = {.hugepages = Hugepages::never, .memory_mib = 96}});
  if (!port) FAIL(port.error().text);
  return std::move(*port);
}

// A process that listens there until it is killed.
class OtherProcess {
 public:
  explicit OtherProcess(const std::string& name) {
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      ControlSocket socket(name);
      if (!socket.listen() || write(ready[1], "r", 1) != 1) _exit(1);
      for (;;) pause();
    }
    close(ready[1]);
    char byte = 0;
    listens_ = read(ready[0], &byte, 1) == 1;
    close(ready[0]);
  }
  ~OtherProcess() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;
  bool listens() const { return listens_; }

 private:
  pid_t pid_ = -1;
  bool listens_ = false;
};

// Omits the descriptors of this listing itself, and the epoll set that DPDK's interrupt thread makes anew whenever a descriptor comes or
// goes.
std::vector<std::string> descriptors() {
  std::vector<std::string> all;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string name = std::filesystem::read_symlink(each, gone).string();
    if (!gone && !name.starts_with("/proc/") && name != "anon_inode:[eventpoll]") all.push_back(name);
  }
  std::sort(all.begin(), all.end());
  return all;
}

template <typename Condition>
bool eventually(Condition condition) {
  const Nanoseconds end = monotonic_now() + kHang;
  while (!condition() && monotonic_now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return condition();
}

Message hello() {
  return Message(Kind::hello).skip(32).put<uint16_t>(0x0200).put<uint16_t>(0x0200).put<uint16_t>(255).put<uint16_t>(0).put<uint16_t>(0)
      .put<uint8_t>(14);
}

// Number of steps of a connecting client; the server answers each.
constexpr uint32_t kSteps = 5;

Descriptor region() {
  Descriptor memory(memfd_create("memif_region_0", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(ftruncate(memory.get(), kRings * kRingBytes) == 0);
  for (size_t ring = 0; ring < kRings; ++ring) {
    REQUIRE(pwrite(memory.get(), &kRingCookie, sizeof(kRingCookie), static_cast<off_t>(ring * kRingBytes)) == sizeof(kRingCookie));
  }
  return memory;
}

bool step(ControlSocket& socket, uint32_t number, uint32_t id = 0) {
  const Descriptor memory = region(), interrupt(eventfd(0, EFD_CLOEXEC));
  switch (number) {
    case 0: return socket.send(Message(Kind::init).put<uint16_t>(0x0200).put<uint32_t>(id).put<uint8_t>(0));
    case 1: return socket.send(Message(Kind::add_region).put<uint16_t>(0).put<uint64_t>(kRings * kRingBytes), memory.get());
    case 2:
    case 3: {
      const bool from_client = number == 2;
      Message ring(Kind::add_ring);
      ring.put<uint16_t>(from_client ? 1 : 0).put<uint16_t>(0).put<uint16_t>(0);
      ring.put<uint32_t>(from_client ? 0 : kRingBytes).put<uint8_t>(10).put<uint16_t>(0);
      return socket.send(ring, interrupt.get());
    }
    default: return socket.send(Message(Kind::connect).skip(32));
  }
}

// Returns a client that the server has greeted and that has sent nothing yet.
ControlSocket greeted_client(const char* socket) {
  ControlSocket client(socket_name(socket));
  REQUIRE(client.connect());
  REQUIRE(client.receive() == Kind::hello);
  return client;
}

// Takes steps [from, to) of a client, each with the matching answer.
void take_steps(ControlSocket& client, uint32_t from, uint32_t to, uint32_t id = 0) {
  for (uint32_t i = from; i < to; ++i) {
    CAPTURE(i);
    REQUIRE(step(client, i, id));
    REQUIRE(client.receive() == (i + 1 == kSteps ? Kind::connected : Kind::ack));
  }
}

ControlSocket connected_client(const char* socket, uint32_t id) {
  ControlSocket client = greeted_client(socket);
  take_steps(client, 0, kSteps, id);
  return client;
}

}  // namespace

// DPDK keeps the memory of a client that dies half-way, so the test does not count it.
TEST_CASE("a memif server serves the next client after one that has died at any step, and keeps nothing of a connected one") {
  const auto port = open_port("net_memif0,role=server,socket=" + socket_name("a"));
  const auto without_memory = [] {
    auto all = descriptors();
    std::erase_if(all, [](const std::string& name) { return name.starts_with("/memfd:memif_region"); });
    return all;
  };
  for (uint32_t steps = 0; steps <= kSteps; ++steps) {
    CAPTURE(steps);
    const auto all_before = descriptors(), before = without_memory();
    {
      ControlSocket client = greeted_client("a");
      take_steps(client, 0, steps);
      if (steps == kSteps) REQUIRE(eventually([&] { return port->link_up(); }));
    }
    REQUIRE(eventually([&] { return without_memory() == before; }));
    if (steps == kSteps) CHECK(eventually([&] { return descriptors() == all_before; }));
    CHECK_FALSE(port->link_up());
  }
}

// Without the greeting's detour DPDK frees such a connection but leaves it registered, and then aborts or hangs for ever.
TEST_CASE("a memif server lives on when clients hang up before it has greeted them") {
  const auto one = open_port("net_memif0,role=server,id=0,socket=" + socket_name("a"));
  const auto other = open_port("net_memif1,role=server,id=0,socket=" + socket_name("b"));
  const auto before = descriptors();
  const ControlSocket living = connected_client("b", 0);
  REQUIRE(eventually([&] { return other->link_up(); }));
  for (int i = 0; i < 500; ++i) {
    ControlSocket hasty(socket_name(i % 4 == 0 ? "b" : "a"));
    REQUIRE(hasty.connect());
  }
  const ControlSocket client = connected_client("a", 0);
  REQUIRE(eventually([&] { return one->link_up(); }));
  CHECK(other->link_up());
  // Each of the two live connections has five descriptors: its socket at both ends, its memory and its two interrupts.
  eventually([&] { return descriptors().size() == before.size() + 10; });
  CHECK(descriptors().size() == before.size() + 10);
}

TEST_CASE("a memif server lives on when clients hang up before it has greeted them while it opens") {
  std::atomic<bool> enough = false;
  std::thread hasty([&] {
    while (!enough) ControlSocket(socket_name("a")).connect();
  });
  for (int i = 0; i < 20; ++i) open_port("net_memif0,role=server,socket=" + socket_name("a"));
  const auto port = open_port("net_memif0,role=server,socket=" + socket_name("a"));
  enough = true;
  hasty.join();
  const ControlSocket client = connected_client("a", 0);
  CHECK(eventually([&] { return port->link_up(); }));
}

TEST_CASE("memif servers at one socket are reached until the last of them is closed") {
  const std::string name = socket_name("a");
  auto one = open_port("net_memif0,role=server,id=0,socket=" + name);
  auto other = open_port("net_memif1,role=server,id=1,socket=" + name);
  ControlSocket first_client = connected_client("a", 0);
  REQUIRE(eventually([&] { return one->link_up(); }));
  one.reset();
  CHECK_FALSE(first_client.receive());
  ControlSocket again = greeted_client("a");
  REQUIRE(step(again, 0, 0));
  CHECK(again.receive() == Kind::disconnect);  // no port there has that id now
  const ControlSocket second_client = connected_client("a", 1);
  CHECK(eventually([&] { return other->link_up(); }));
  one = open_port("net_memif0,role=server,id=0,socket=" + name);
  const ControlSocket third_client = connected_client("a", 0);
  CHECK(eventually([&] { return one->link_up(); }));
  CHECK(other->link_up());
  other.reset();
  one.reset();
  CHECK_FALSE(ControlSocket(name).connect());
  CHECK_FALSE(std::filesystem::exists(name));
}

TEST_CASE("a memif server whose socket is taken can be opened when it is free") {
  const std::string name = socket_name("d");
  const std::string device = "net_memif0,role=server,socket=" + name;
  {
    const OtherProcess other(name);
    REQUIRE(other.listens());
    for (int i = 0; i < 2; ++i) {
      const auto port = DpdkPort::open({.device = device, .eal = {.hugepages = Hugepages::never, .memory_mib = 96}});
      REQUIRE_FALSE(port);
      CHECK(port.error().code == Errc::already_exists);
      CHECK(port.error().text.find("choose another socket=") != std::string::npos);
    }
  }
  open_port(device);  // the file that the killed process left is removed
  CHECK_FALSE(std::filesystem::exists(name));
}

// DPDK trusts what its client writes, so this is the protection from other users.
TEST_CASE("a memif server's socket is its user's alone, or its directory's owner's") {
  const std::string directory = socket_name("e"), name = directory + "/memif";
  REQUIRE(std::filesystem::create_directory(directory));
  const bool given = geteuid() == 0 && GENERATE(false, true);
  const uid_t owner = given ? 65534 : geteuid();
  REQUIRE(chown(directory.c_str(), owner, static_cast<gid_t>(-1)) == 0);
  const mode_t before = umask(0);
  {
    const auto port = open_port("net_memif0,role=server,socket=" + name);
    CHECK(umask(before) == 0);
    struct stat file{};
    REQUIRE(lstat(name.c_str(), &file) == 0);
    CHECK(S_ISSOCK(file.st_mode));
    CHECK((file.st_mode & 07777) == 0600);
    CHECK(file.st_uid == owner);
  }
  CHECK(std::filesystem::remove(directory));  // the directory is empty
}

// A memif server of the test, and a memif client. The test advances the client's clock.
struct ClientAndServer {
  ClientAndServer() : listener(socket_name("c")) {
    REQUIRE(listener.listen());
    port = open_port("net_memif0,role=client,socket=" + socket_name("c"));
  }
  ~ClientAndServer() { std::filesystem::remove(socket_name("c")); }
  ClientAndServer(const ClientAndServer&) = delete;
  ClientAndServer& operator=(const ClientAndServer&) = delete;
  // Advances the clock by at most `time`, and gives DPDK's thread more real time than that at each step.
  ControlSocket accept(Nanoseconds time) {
    for (const Nanoseconds end = now + time; !listener.readable(100 * kMillisecond) && now < end;) port->poll(now += 20 * kMillisecond);
    REQUIRE(listener.readable(0));
    return listener.accept();
  }
  // Lets a second pass on the port's clock. The port reacts within each poll.
  void let_a_second_pass() {
    for (int i = 0; i < 10; ++i) port->poll(now += 100 * kMillisecond);
  }

  ControlSocket listener;
  std::unique_ptr<DpdkPort> port;
  Nanoseconds now = kSecond;
};

TEST_CASE("a memif client has patience with a server that is slow or half-way, and none with one that refuses") {
  ClientAndServer both;
  {
    ControlSocket refusing = both.accept(kHang);
    REQUIRE(refusing.send(hello()));
    REQUIRE(refusing.receive() == Kind::init);
    REQUIRE(refusing.send(Message(Kind::disconnect)));
    CHECK_FALSE(refusing.receive());
  }
  ControlSocket slow = both.accept(kSecond);
  for (int i = 0; i < 10; ++i) both.let_a_second_pass();
  CHECK_FALSE(slow.readable(20 * kMillisecond));
  REQUIRE(slow.send(hello()));
  REQUIRE(slow.receive() == Kind::init);
  for (const Kind expected : {Kind::add_region, Kind::add_ring, Kind::add_ring, Kind::connect}) {
    both.let_a_second_pass();
    CHECK_FALSE(slow.readable(20 * kMillisecond));
    REQUIRE(slow.send(Message(Kind::ack)));
    REQUIRE(slow.receive() == expected);
  }
  REQUIRE(slow.send(Message(Kind::connected).skip(32)));
  CHECK(eventually([&] {
    both.port->poll(both.now += kMillisecond);
    return both.port->link_up();
  }));
}

TEST_CASE("a memif client does not lose patience with its server when another memif of the process ends") {
  ClientAndServer both;
  ControlSocket slow = both.accept(kHang);
  REQUIRE(slow.send(hello()));
  REQUIRE(slow.receive() == Kind::init);
  both.let_a_second_pass();
  open_port("net_memif1,role=client,socket=" + socket_name("nobody"));  // has the same id
  {
    const auto server = open_port("net_memif1,role=server,socket=" + socket_name("b"));
    ControlSocket client = greeted_client("b");
    take_steps(client, 0, 1);
    REQUIRE(client.send(Message(Kind::disconnect)));
    CHECK_FALSE(client.receive());
  }
  both.let_a_second_pass();
  CHECK_FALSE(slow.readable(20 * kMillisecond));
  REQUIRE(slow.send(Message(Kind::ack)));
  CHECK(slow.receive() == Kind::add_region);
}

}  // namespace unet::drivers
