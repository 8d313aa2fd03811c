// test_service.h - plays the service behind a control socket; for unit tests of Connection and Endpoint.
//
// It answers by itself what a test does not care about, and leaves the important moments to the test. It serves one client. One of its
// threads answers; the test's threads call everything else.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "unet/connection.h"
#include "unet/test_engine.h"
#include "unet/test_process.h"

namespace unet {

class TestService {
 public:
  struct Options {
    uint32_t version = control::kVersion;  // version in the answer to hello
    bool page = true;                      // the answer to hello has its descriptors
    size_t reply_size = 0;                 // size of the answer to hello, if it is of another release; 0: ours
    Errc code = Errc::ok;                  // code in that answer
    bool hang_up = false;                  // closes the connection instead of answering hello
  };
  struct Request {
    std::vector<std::byte> bytes;
    template <typename T>
    T as() const {
      T value{};
      std::memcpy(static_cast<void*>(&value), bytes.data(), std::min(bytes.size(), sizeof value));
      return value;
    }
    control::Header header() const { return as<control::Header>(); }
  };
  // One of the endpoints that the client has created.
  struct End {
    explicit End(const EndpointOptions& options) : engine(options), wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
    TestEngine engine;
    Descriptor wake;
    // Does what the NI does after a delivery.
    void wake_if_asleep() {
      if (engine.header->receiver_asleep.value.exchange(0) == 0 && engine.header->sender_waiting.value.exchange(0) == 0) return;
      const uint64_t one = 1;
      UNET_CHECK(::write(wake.get(), &one, sizeof one) == sizeof one);
    }
  };

  TestService() : TestService(Options{}) {}
  explicit TestService(const Options& options) : options_(options) {
    char directory[] = "/tmp/unet-test-XXXXXX";
    UNET_CHECK(::mkdtemp(directory) != nullptr);
    directory_ = directory;
    listener_ = Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path().c_str(), path().size() + 1);
    UNET_CHECK(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    UNET_CHECK(::listen(listener_.get(), 4) == 0);
    stop_ = Descriptor(eventfd(0, EFD_CLOEXEC));
    thread_ = std::thread([this] { loop(); });
  }
  ~TestService() {
    die();
    ::unlink(path().c_str());
    ::rmdir(directory_.c_str());
  }
  TestService(const TestService&) = delete;
  TestService& operator=(const TestService&) = delete;

  std::string path() const { return directory_ + "/socket"; }

  // The NI stops: the connection ends, and no more answers come.
  void die() {
    if (!thread_.joinable()) return;
    const uint64_t one = 1;
    UNET_CHECK(::write(stop_.get(), &one, sizeof one) == sizeof one);
    thread_.join();
    client_.reset();
    listener_.reset();
  }

  // Requests of this kind are stored for take() instead of being answered.
  void keep(control::Op op) {
    const std::lock_guard lock(mutex_);
    kept_ops_.insert(op);
  }
  // Answers requests of this kind again.
  void keep_no_longer(control::Op op) {
    const std::lock_guard lock(mutex_);
    kept_ops_.erase(op);
  }
  // The next emulated endpoint gets this id, and later ones the following numbers.
  void next_emulated(uint32_t id) {
    const std::lock_guard lock(mutex_);
    next_emulated_ = id;
  }
  // While the lock lives, the service takes at most the packet that it is handling.
  std::unique_lock<std::mutex> hold() { return std::unique_lock(mutex_); }
  // Waits for a stored request.
  Request take() {
    std::unique_lock lock(mutex_);
    UNET_CHECK(arrived_.wait_for(lock, std::chrono::seconds(kHangSeconds), [&] { return !kept_.empty(); }));
    Request request = std::move(kept_.front());
    kept_.pop_front();
    return request;
  }

  // Number of requests of this kind so far.
  int asked(control::Op op) {
    const std::lock_guard lock(mutex_);
    return asked_[op];
  }

  // Sends a packet. The real service counts a packet a moment after sending it; call count() for that moment.
  template <typename Packet>
  void send(const Packet& packet, const std::vector<int>& descriptors = {}) {
    iovec part{.iov_base = const_cast<Packet*>(&packet), .iov_len = sizeof packet};
    alignas(cmsghdr) std::byte control[CMSG_SPACE(4 * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (!descriptors.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
      std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
    }
    UNET_CHECK(::sendmsg(client_.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof packet));
  }
  void count() { doorbells.page().control_events.value.fetch_add(1, std::memory_order_release); }

  control::Reply reply_to(const Request& request) const {
    control::Reply reply{};
    reply.header = request.header();
    return reply;
  }
  void refuse(const Request& request, Errc code, std::string_view text) {
    control::Reply reply = reply_to(request);
    reply.code = static_cast<int32_t>(code);
    reply.error.set(text);
    send(reply);
    count();
  }
  // Grants a local channel. The test gets the other side.
  std::unique_ptr<LocalChannel> grant_local(const Request& connect, uint32_t channel) {
    const ChannelParts parts(connect.as<control::Connect>().local);
    control::Reply reply = reply_to(connect);
    reply.channel = parts.info(0);
    reply.channel.channel = channel;
    parts.hand_over(0, [&](int memory, int sleep, int wake) { send(reply, {memory, sleep, wake}); });
    count();
    return parts.open(1);
  }
  void grant_ni(const Request& connect, uint32_t channel) {
    control::Reply reply = reply_to(connect);
    reply.channel.kind = control::ChannelKind::ni;
    reply.channel.channel = channel;
    send(reply);
    count();
  }
  void send_closed(uint32_t endpoint, uint32_t channel, control::CloseReason reason = control::CloseReason::closed_by_peer) {
    send(control::ChannelClosed{.header = {control::Op::channel_closed, endpoint, 0}, .channel = channel, .reason = reason});
  }
  void send_opened(uint32_t endpoint, uint32_t channel) {
    control::ChannelOpened event{};
    event.header = {control::Op::channel_opened, endpoint, 0};
    event.channel.kind = control::ChannelKind::ni;
    event.channel.channel = channel;
    send(event);
  }
  void send_request(uint32_t endpoint, uint64_t id) {
    control::ConnectRequest request{};
    request.header = {control::Op::connect_request, endpoint, 0};
    request.request = id;
    request.peer.set("tester");
    send(request);
  }

  End& end(uint32_t endpoint) {
    const std::lock_guard lock(mutex_);
    return *ends_.at(endpoint);
  }

  TestDoorbells doorbells;

 private:
  void loop() {
    while (true) {
      pollfd wanted[2] = {{.fd = stop_.get(), .events = POLLIN, .revents = 0},
                          {.fd = client_.valid() ? client_.get() : listener_.get(), .events = POLLIN, .revents = 0}};
      if (::poll(wanted, 2, -1) < 0) continue;
      if (wanted[0].revents != 0) return;
      if (!client_.valid()) {
        client_ = Descriptor(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        continue;
      }
      Request request;
      request.bytes.resize(control::kPacketMax);
      const ssize_t size = ::recv(client_.get(), request.bytes.data(), request.bytes.size(), 0);
      if (size <= 0) return;
      request.bytes.resize(static_cast<size_t>(size));
      const std::lock_guard lock(mutex_);
      ++asked_[request.header().op];
      if (kept_ops_.count(request.header().op) != 0) {
        kept_.push_back(std::move(request));
        arrived_.notify_all();
      } else if (!answer(request)) {
        client_.reset();
        if (!options_.hang_up) return;
      }
    }
  }

  void send_foreign(control::Reply reply) {
    std::vector<std::byte> bytes(options_.reply_size);
    reply.code = static_cast<int32_t>(options_.code);
    if (options_.code != Errc::ok) reply.error.set("of another release");
    std::memcpy(bytes.data(), &reply, std::min(bytes.size(), sizeof reply));
    UNET_CHECK(::send(client_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
  }

  bool answer(const Request& request) {
    control::Reply reply = reply_to(request);
    switch (request.header().op) {
      case control::Op::hello:
        if (options_.hang_up) return false;
        if (options_.reply_size != 0) {
          send_foreign(reply);
          return true;
        }
        reply.hello.version = options_.version;
        if (!options_.page) {
          send(reply);
        } else {
          send(reply, {doorbells.memory().get(), doorbells.event().get()});
        }
        return true;
      case control::Op::create_endpoint: {
        const auto id = static_cast<uint32_t>(ends_.size());
        ends_[id] = std::make_unique<End>(request.as<control::CreateEndpoint>().options);
        reply.create_endpoint = {.endpoint = id, .doorbell = id};
        send(reply, {ends_[id]->engine.memory().get()});
        break;
      }
      case control::Op::create_emulated:
        reply.create_endpoint = {.endpoint = next_emulated_++, .doorbell = 0};
        send(reply);
        break;
      case control::Op::get_descriptor: {
        const Descriptor wake = wake_descriptor(ends_.at(request.header().endpoint)->wake);
        send(reply, {wake.get()});
        break;
      }
      default: send(reply); break;
    }
    count();
    return true;
  }

  Options options_;
  std::string directory_;
  Descriptor listener_, client_, stop_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::set<control::Op> kept_ops_;
  std::map<control::Op, int> asked_;
  std::deque<Request> kept_;
  std::map<uint32_t, std::unique_ptr<End>> ends_;
  uint32_t next_emulated_ = kEndpointsMax;
};

}  // namespace unet
