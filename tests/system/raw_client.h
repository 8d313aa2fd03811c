// raw_client.h - a client that speaks the control protocol without libunet; for tests that lie to a unetd.
//
// It sends packets in any order and of any size, with any descriptors, and waits for nothing longer than kPatience.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unet/base/bytes.h"
#include "unet/base/time.h"
#include "unet/control.h"
#include "unet/layout.h"
#include "unet/mapping.h"

namespace unet {

// A packet of the service: a reply or an event, with its descriptors.
struct RawPacket {
  std::vector<std::byte> bytes;
  std::vector<Descriptor> descriptors;

  template <typename T>
  T as() const {
    T value{};
    std::memcpy(static_cast<void*>(&value), bytes.data(), std::min(bytes.size(), sizeof value));
    return value;
  }
  control::Op op() const { return as<control::Header>().op; }
  Errc code() const { return static_cast<Errc>(as<control::Reply>().code); }
};

class RawClient {
 public:
  static constexpr int kPatience = 60'000;  // milliseconds

  explicit RawClient(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof address.sun_path - 1));
    if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) socket_.reset();
  }
  bool connected() const { return socket_.valid(); }
  int socket() const { return socket_.get(); }
  void close() { socket_.reset(); }

  // False: there is no room now, or the connection is closed.
  bool send_bytes(const void* data, size_t size, std::span<const int> descriptors = {}) {
    iovec part{const_cast<void*>(data), size};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kDescriptorsMost * sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (!descriptors.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
      cmsghdr* const header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
      std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
    }
    return ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(size);
  }
  template <typename T>
  bool send(const T& packet) {
    return send_bytes(&packet, sizeof packet);
  }

  // The next packet, at most `timeout_ms` from now.
  std::optional<RawPacket> receive(int timeout_ms = kPatience) {
    pollfd wanted{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (!socket_.valid() || ::poll(&wanted, 1, timeout_ms) != 1) return std::nullopt;
    RawPacket in;
    in.bytes.resize(control::kPacketMax);
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(8 * sizeof(int))> control{};
    iovec part{in.bytes.data(), in.bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t n = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n <= 0) {
      closed_ = closed_ || n == 0 || (errno != EAGAIN && errno != EINTR);
      return std::nullopt;
    }
    in.bytes.resize(static_cast<size_t>(n));
    for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
      for (size_t i = 0; i < (h->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
        int descriptor = -1;
        std::memcpy(&descriptor, CMSG_DATA(h) + i * sizeof(int), sizeof descriptor);
        in.descriptors.emplace_back(descriptor);
      }
    }
    return in;
  }
  // Whether the service closes the connection, perhaps after some packets.
  bool is_closed() {
    while (!closed_ && receive()) {}
    return closed_;
  }

  // Sends, and waits for the answer; drops events that come before it.
  template <typename T>
  std::optional<RawPacket> call(T request, int timeout_ms = kPatience) {
    request.header.cookie = ++cookie_;
    if (!send(request)) return std::nullopt;
    return answer(cookie_, timeout_ms);
  }
  std::optional<RawPacket> answer(uint64_t cookie, int timeout_ms = kPatience) {
    while (auto in = receive(timeout_ms)) {
      if (in->op() < control::Op::connect_request && in->as<control::Header>().cookie == cookie) return in;
    }
    return std::nullopt;
  }

  // ---- valid requests

  template <typename T>
  static T request(control::Op op, uint32_t endpoint = 0) {
    T packet;
    std::memset(static_cast<void*>(&packet), 0, sizeof packet);
    packet.header = {op, endpoint, 0};
    return packet;
  }
  std::optional<RawPacket> hello() {
    auto packet = request<control::Hello>(control::Op::hello);
    packet.version = control::kVersion;
    packet.program.set("liar");
    return call(packet);
  }
  std::optional<RawPacket> create(const EndpointOptions& options, int timeout_ms = kPatience) {
    auto packet = request<control::CreateEndpoint>(control::Op::create_endpoint);
    packet.options = options;
    return call(packet, timeout_ms);
  }
  // Only sends; returns the cookie of the answer.
  uint64_t start_connect(uint32_t endpoint, std::string_view target, control::Path path, const LocalOptions& local,
                         uint32_t timeout_ms = 1000) {
    auto packet = request<control::Connect>(control::Op::connect, endpoint);
    packet.header.cookie = ++cookie_;
    packet.target.set(target);
    packet.path = path;
    packet.timeout_ms = timeout_ms;
    packet.local = local;
    send(packet);
    return cookie_;
  }

 private:
  static constexpr size_t kDescriptorsMost = 253;  // in one packet: the kernel's limit

  Descriptor socket_;
  uint64_t cookie_ = uint64_t{1} << 32;
  bool closed_ = false;
};

}  // namespace unet
