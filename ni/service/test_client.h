// test_client.h - a raw end of a control connection, for tests: packets as bytes, nothing assumed.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "ni/service/ni.h"
#include "unet/control.h"
#include "unet/mapping.h"
#include "unet/ring.h"

namespace unet::service::test {

struct Incoming {
  std::vector<std::byte> bytes;
  std::vector<Descriptor> descriptors;

  template <typename T>
  T as() const {
    T value{};
    std::memcpy(static_cast<void*>(&value), bytes.data(), std::min(bytes.size(), sizeof value));
    return value;
  }
  control::Op op() const { return as<control::Header>().op; }
};

// The next packet at a client's end of a connection; nothing if there is none. `closed`: none will follow.
inline std::optional<Incoming> receive_packet(int socket, bool& closed) {
  Incoming in;
  in.bytes.resize(2 * control::kPacketMax);
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(8 * sizeof(int))> control{};
  iovec part{in.bytes.data(), in.bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t n = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n <= 0) {
    closed = closed || n == 0 || errno != EAGAIN;
    return std::nullopt;
  }
  in.bytes.resize(static_cast<size_t>(n));
  for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
    const size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof fd);
      in.descriptors.emplace_back(fd);
    }
  }
  return in;
}

class TestClient {
 public:
  explicit TestClient(Ni& ni) : ni_(&ni), socket_(std::move(*ni.connect())) {}
  // `turn` is what makes the NI go on, in a time of the test's own.
  TestClient(Ni& ni, std::function<void()> turn) : ni_(&ni), turn_(std::move(turn)), socket_(std::move(*ni.connect())) {}
  TestClient(Ni& ni, Descriptor socket) : ni_(&ni), socket_(std::move(socket)) {}

  bool send_bytes(const void* data, size_t size) {
    return ::send(socket_.get(), data, size, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(size);
  }
  template <typename T>
  bool send(const T& packet) {
    return send_bytes(&packet, sizeof packet);
  }

  void turn(int times = 4) {
    for (int i = 0; i < times; ++i) {
      if (turn_) turn_();
      else ni_->wait(0);
    }
  }
  // Another has taken over.
  void turn_with(Ni& ni) { ni_ = &ni; }

  // What has arrived; nothing if there is none. closed() tells of an end.
  std::optional<Incoming> receive() { return receive_packet(socket_.get(), closed_); }
  // Pumps the NI until something arrives. Events that came before an answer to call() come first.
  std::optional<Incoming> next() {
    if (!events_.empty()) {
      Incoming in = std::move(events_.front());
      events_.erase(events_.begin());
      return in;
    }
    return next_packet();
  }
  std::optional<Incoming> next_packet() {
    for (int i = 0; i < 50 && !closed_; ++i) {
      if (auto in = receive()) return in;
      turn(1);
    }
    return std::nullopt;
  }
  bool closed() {
    turn();
    while (receive()) {
    }
    return closed_;
  }
  void close() { socket_.reset(); }
  // The service sees an end, and what was not received stays.
  void stop_sending() { ::shutdown(socket_.get(), SHUT_WR); }

  template <typename T>
  Incoming call(T request) {
    request.header.cookie = ++cookie_;
    send(request);
    while (std::optional<Incoming> in = next_packet()) {
      if (in->op() < control::Op::connect_request) return std::move(*in);
      events_.push_back(std::move(*in));
    }
    return {};
  }
  template <typename T>
  control::Reply ask(const T& request) {
    return call(request).template as<control::Reply>();
  }

  // Requests with everything in its place.
  Incoming hello(uint32_t version = control::kVersion) {
    control::Hello p{};
    p.header.op = control::Op::hello;
    p.version = version;
    p.program.set("test");
    return call(p);
  }
  Incoming create(const EndpointOptions& options = small()) {
    control::CreateEndpoint p{};
    p.header.op = control::Op::create_endpoint;
    p.options = options;
    return call(p);
  }
  uint32_t endpoint() { return create().as<control::Reply>().create_endpoint.endpoint; }
  control::Reply bind(uint32_t endpoint, std::string_view name) {
    control::Bind p{};
    p.header = {control::Op::bind, endpoint, 0};
    p.name.set(name);
    return ask(p);
  }
  // Only sends; the answer comes when the other side decided.
  uint64_t start_connect(uint32_t endpoint, std::string_view target, control::Path path = control::Path::automatic,
                         uint32_t timeout_ms = 0) {
    control::Connect p{};
    p.header = {control::Op::connect, endpoint, ++cookie_};
    p.target.set(target);
    p.path = path;
    p.timeout_ms = timeout_ms;
    p.local = {.depth = 16, .data_bytes = 4 * kMessageMax};
    send(p);
    return cookie_;
  }
  Incoming accept(uint32_t endpoint, uint64_t request) {
    control::Accept p{};
    p.header = {control::Op::accept, endpoint, 0};
    p.request = request;
    return call(p);
  }
  template <typename T>
  T simple(control::Op op, uint32_t endpoint) {
    T p{};
    p.header = {op, endpoint, 0};
    return p;
  }

  // A whole report; with `parts` into how many it was cut.
  std::string report(uint32_t* parts = nullptr) {
    std::string text;
    auto request = simple<control::Report>(control::Op::report, 0);
    for (uint32_t more = 1; more != 0; ++request.part) {
      const Incoming in = call(request);
      if (in.bytes.size() != sizeof(control::ReportPart) || !in.descriptors.empty()) return "no part of a report";
      const auto part = in.as<control::ReportPart>();
      text.append(part.bytes, std::min<size_t>(part.length, sizeof part.bytes));
      more = part.more;
    }
    if (parts != nullptr) *parts = request.part;
    return text;
  }

  static EndpointOptions small() {
    return {.send_depth = 16, .receive_depth = 16, .buffers = 16, .buffer_size = 256, .send_bytes = 64 * 1024};
  }

 private:
  Ni* ni_;
  std::function<void()> turn_;
  Descriptor socket_;
  uint64_t cookie_ = 0;
  bool closed_ = false;
  std::vector<Incoming> events_;
};

// An endpoint of a client that always has something to send: descriptors of no channel, which take the engine's time as messages do.
class Flood {
 public:
  static constexpr uint32_t kDepth = 8192;

  Flood(TestClient& client, uint32_t weight) {
    const EndpointOptions options{.send_depth = kDepth, .receive_depth = 4, .buffers = 4, .buffer_size = 256, .send_bytes = kMessageMax,
                                  .weight = weight};
    const Incoming created = client.create(options);
    const auto reply = created.as<control::Reply>();
    if (reply.code != 0) return;
    id = reply.create_endpoint.endpoint;
    doorbell_ = reply.create_endpoint.doorbell;
    geometry_ = SegmentGeometry::of(options);
    memory_ = std::move(*Mapping::map(created.descriptors.at(0).get(), geometry_.total));
  }
  void fill(ClientPage& page) {
    SlotWriter writer(reinterpret_cast<Slot*>(memory_.data() + geometry_.send_queue), geometry_.send_depth,
                      &header().send_consumed.value);
    for (uint32_t i = 0; i < kDepth; ++i) {
      Slot* const slot = writer.reserve();
      slot->channel = 0;
      writer.publish(slot, 8, SlotKind::inline_data);
    }
    page.doorbells[doorbell_ / 64].fetch_or(uint64_t{1} << (doorbell_ % 64), std::memory_order_release);
    page.summary.words[doorbell_ / 4096].fetch_or(uint64_t{1} << (doorbell_ / 64 % 64), std::memory_order_release);
  }
  // Writes over all that the NI and this client tell each other in the first page of the segment.
  void lie() { std::memset(static_cast<void*>(&header()), 0xFF, sizeof(SegmentHeader)); }
  // How many descriptors of fill() the engine has taken.
  uint64_t taken() const {
    return header().counters[static_cast<size_t>(EndpointCounter::unknown_channel)].load(std::memory_order_relaxed);
  }

  uint32_t id = ~uint32_t{0};

 private:
  SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(memory_.data()); }

  uint32_t doorbell_ = 0;
  SegmentGeometry geometry_{};
  Mapping memory_;
};

// An NI without a wire, run by the test's own thread.
inline std::unique_ptr<Ni> make_ni(std::string_view policy = {}, std::string socket = {}) {
  NiOptions options;
  options.service.host = "testhost";
  options.service.own_user = geteuid();
  options.service.policy = policy.empty() ? Policy(geteuid()) : *Policy::parse(policy, "policy", geteuid());
  options.socket = std::move(socket);
  return std::move(*Ni::create(std::move(options), {}));
}

// Runs `call` as user `uid`, in this thread alone, and returns its result.
template <typename Call>
auto as_user(uid_t uid, const Call& call) {
  const uid_t own = geteuid();
  if (syscall(SYS_setresuid, -1, uid, -1) != 0) std::abort();
  auto result = call();
  if (syscall(SYS_setresuid, -1, own, -1) != 0) std::abort();
  return result;
}

// Whether as_user() can: only root can, and only those that its user namespace knows.
inline bool can_be(uid_t uid) {
  const uid_t own = geteuid();
  if (own != 0 || syscall(SYS_setresuid, -1, uid, -1) != 0) return false;
  if (syscall(SYS_setresuid, -1, own, -1) != 0) std::abort();
  return true;
}

// ---- what tests of the service ask

inline Errc code_of(const control::Reply& reply) { return static_cast<Errc>(reply.code); }
inline Errc code_of(const Incoming& in) { return code_of(in.as<control::Reply>()); }
inline std::string text_of(const control::Reply& reply) { return std::string(reply.error.view()); }
inline bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// The report as root gets it.
inline std::string report_text(Ni& ni) { return ni.service().report({.uid = 0, .pid = 0, .groups = {}}); }

// How much the report shows as held by any part of the NI, and as charged to users. Answers that signalling keeps for a while after an end
// are left out.
inline uint64_t still_held(const nlohmann::json& report) {
  uint64_t all = report["users"].size();
  for (const auto& part : {report["held"]["engine"], report["held"]["service"]}) {
    for (const auto& [name, value] : part.items()) all += value.get<uint64_t>();
  }
  return all + report["held"]["signalling"]["channels"].get<uint64_t>();
}

// An open channel of `client` to `server`, both of the same NI.
struct Pair {
  bool open = false;
  uint32_t server_endpoint = 0, client_endpoint = 0, server_channel = 0, client_channel = 0;
  std::vector<Descriptor> server_descriptors, client_descriptors;
};

inline Pair open_channel(TestClient& server, TestClient& client, control::Path path, const char* name = "echo") {
  Pair pair;
  pair.server_endpoint = server.endpoint();
  pair.client_endpoint = client.endpoint();
  server.bind(pair.server_endpoint, name);
  client.start_connect(pair.client_endpoint, name, path);
  const auto event = server.next();
  if (!event || event->op() != control::Op::connect_request) return pair;
  Incoming accepted = server.accept(pair.server_endpoint, event->as<control::ConnectRequest>().request);
  auto connected = client.next();
  if (!connected) return pair;
  pair.open = code_of(accepted) == Errc::ok && code_of(*connected) == Errc::ok;
  pair.server_channel = accepted.as<control::Reply>().channel.channel;
  pair.client_channel = connected->as<control::Reply>().channel.channel;
  pair.server_descriptors = std::move(accepted.descriptors);
  pair.client_descriptors = std::move(connected->descriptors);
  return pair;
}

}  // namespace unet::service::test
