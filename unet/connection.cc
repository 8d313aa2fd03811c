// connection.cc - sends and receives packets on the control socket.
#include "unet/connection.h"

#include <dlfcn.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "unet/socket_path.h"

namespace unet {
namespace {

constexpr size_t kDescriptorsMax = 4;  // descriptors per packet
constexpr int kSocketSleep = 10;       // ms per wait on the socket: another thread may take the awaited packet

// Takes the descriptors out of a received message. The caller owns all of them.
std::vector<Descriptor> take_descriptors(msghdr& message, int first) {
  std::vector<Descriptor> descriptors;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      descriptors.emplace_back(fd);
      descriptors.back().renumber(first);
    }
  }
  return descriptors;
}

const char* no_ni_hint = "; start one with 'unetd', or run the program with 'unet-run -n 1 -- PROGRAM'";

// Call this before taking the lock: in a forked child, a thread of the parent may hold the lock for ever.
tl::unexpected<Error> of_the_parent() {
  return fail(Errc::disconnected, "the connection is the parent process's: open one of your own after fork()");
}

std::string other_version(const std::string& which) {
  return "the network interface speaks " + which + " of the control protocol, not " + std::to_string(control::kVersion) +
         ": use a libunet of the same release";
}

// Reads the answer to our hello from an NI with another size of Reply. Fields up to `error` have the same place in all versions.
void read_foreign_reply(const std::byte* packet, size_t size, control::Reply& reply) {
  constexpr size_t kAgreed = offsetof(control::Reply, error) + sizeof reply.error;
  reply = {};
  std::memcpy(static_cast<void*>(&reply), packet, std::min(size, kAgreed));
  if (size >= kAgreed && reply.code != 0) return;
  reply.code = static_cast<int32_t>(Errc::protocol);
  reply.error.set(other_version("another version"));
}

}  // namespace

Result<std::shared_ptr<Connection>> Connection::open(std::string_view ni, std::string_view program, int first_descriptor) {
  constexpr std::string_view kEmbedded = "embedded:", kUnix = "unix:";
  if (ni.substr(0, kEmbedded.size()) == kEmbedded) {
    std::shared_ptr<Connection> connection(new Connection);
    connection->first_descriptor_ = first_descriptor;
    Status status = connection->open_embedded(std::string(ni.substr(kEmbedded.size())));
    if (status) status = connection->hello(program);
    if (!status) return tl::unexpected(status.error());
    return connection;
  }
  if (ni.substr(0, kUnix.size()) == kUnix) ni.remove_prefix(kUnix.size());
  const std::string path = ni.empty() ? default_socket_path() : std::string(ni);
  Result<std::shared_ptr<Connection>> connection = open_socket(path, program, first_descriptor);
  if (connection || connection.error().code != Errc::disconnected) return connection;
  // An NI may die just after accepting us, because another NI replaces it. The new NI accepts connections from then on, so one retry is
  // enough. A service that refuses on purpose gets only one more connection.
  return open_socket(path, program, first_descriptor);
}

Result<std::shared_ptr<Connection>> Connection::open_socket(const std::string& path, std::string_view program, int first_descriptor) {
  std::shared_ptr<Connection> connection(new Connection);
  connection->first_descriptor_ = first_descriptor;
  Status status = connection->connect_socket(path);
  if (status) status = connection->hello(program);
  if (!status) return tl::unexpected(status.error());
  return connection;
}

Result<std::shared_ptr<Connection>> Connection::attach(const unet_embedded_table& table, void* handle, Descriptor control,
                                                       std::string_view program) {
  std::shared_ptr<Connection> connection(new Connection);
  connection->embedded_ = &table;
  connection->embedded_handle_ = handle;
  connection->socket_ = std::move(control);
  if (auto status = connection->hello(program); !status) return tl::unexpected(status.error());
  return connection;
}

Connection::~Connection() {
  socket_.reset();
  // In a forked child the NI's wires and clients still belong to the parent.
  if (embedded_handle_ != nullptr && is_own()) embedded_->close(embedded_handle_);
}

bool Connection::is_own() const noexcept { return ::getpid() == process_.load(std::memory_order_relaxed); }

Status Connection::connect_socket(const std::string& path) {
  if (auto ok = check_socket_path(path); !ok) return ok;
  socket_ = Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket_.valid()) return fail_errno("socket(AF_UNIX)", errno);
  socket_.renumber(first_descriptor_);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  static_assert(kSocketPathMax < sizeof address.sun_path);  // check_socket_path() refuses longer paths
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return {};
  const int error = errno;
  if (error == ENOENT || error == ECONNREFUSED) {
    return fail(Errc::unavailable, "no network interface listens at " + path + no_ni_hint);
  }
  if (error == EACCES || error == EPERM) {
    return fail(Errc::not_permitted, "no right to use the network interface at " + path +
                                         ": ask its owner to name a group of yours (unetd --group), or run as that user");
  }
  return fail_errno("connect(" + path + ")", error);
}

Status Connection::open_embedded(const std::string& spec) {
  const char* library = ::secure_getenv("UNET_EMBEDDED_LIBRARY");
  void* module = ::dlopen(library != nullptr ? library : "libunet_embedded.so", RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    return fail(Errc::unavailable, std::string("cannot load the embedded network interface: ") + ::dlerror() +
                                       "; install it, or name it in UNET_EMBEDDED_LIBRARY");
  }
  using Entry = const unet_embedded_table* (*)();
  const auto entry = reinterpret_cast<Entry>(::dlsym(module, "unet_embedded_entry"));
  if (entry == nullptr || entry()->version != UNET_EMBEDDED_VERSION) {
    return fail(Errc::unavailable, "libunet_embedded.so is of another version than libunet");
  }
  embedded_ = entry();
  char error[512] = {};
  int control = -1;
  embedded_handle_ = embedded_->open(spec.c_str(), &control, error, sizeof error);
  if (embedded_handle_ == nullptr) return fail(Errc::unavailable, error);
  socket_ = Descriptor(control);
  return {};
}

Status Connection::hello(std::string_view program) {
  news_ = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!news_.valid()) return fail_errno("eventfd", errno);
  news_.renumber(first_descriptor_);
  control::Hello request{};
  request.header.op = control::Op::hello;
  request.version = control::kVersion;
  request.program.set(program);
  auto answer = call(request);
  if (!answer) return tl::unexpected(answer.error());
  if (answer->reply.hello.version != control::kVersion) {
    return fail(Errc::protocol, other_version("version " + std::to_string(answer->reply.hello.version)));
  }
  if (answer->descriptors.size() != 2) return fail(Errc::protocol, "the network interface greets without its descriptors");
  auto page = Mapping::map(answer->descriptors[0].get(), sizeof(ClientPage));
  if (!page) return tl::unexpected(page.error());
  doorbells_ = Doorbells(std::move(*page), std::move(answer->descriptors[1]));
  return {};
}

// With `waits` false, a request without room is sent when the socket is processed later. A caller that needs no answer now thus never
// waits.
Result<uint64_t> Connection::send_packet(control::Header* header, size_t size, bool waits) {
  if (!is_own()) return of_the_parent();
  const std::lock_guard lock(mutex_);
  if (!alive()) return fail(Errc::disconnected, "the network interface is gone");
  header->cookie = next_cookie_++;
  asked_.insert(header->cookie);
  const auto try_to_send = [&]() -> ssize_t {
    send_unsent_locked();
    errno = alive() ? EAGAIN : EPIPE;
    return unsent_.empty() && alive() ? ::send(socket_.get(), header, size, MSG_NOSIGNAL | MSG_DONTWAIT) : -1;
  };
  ssize_t sent;
  while ((sent = try_to_send()) < 0 && (errno == EAGAIN || errno == EINTR)) {
    if (errno == EINTR) continue;
    if (!waits) {
      keep_unsent_locked(header, size);
      return header->cookie;
    }
    // Never block on the socket alone. The service does not read from a client that does not read. An embedded service takes packets only
    // when it is polled.
    if (embedded_ != nullptr) {
      embedded_->wait(embedded_handle_, 0);
    } else {
      pollfd wanted{.fd = socket_.get(), .events = POLLIN | POLLOUT, .revents = 0};
      ::poll(&wanted, 1, kSocketSleep);
    }
    receive_locked();
  }
  if (sent < 0) {
    alive_ = false;
    return fail(Errc::disconnected, "the network interface is gone");
  }
  return header->cookie;
}

void Connection::process() {
  if (!is_own()) return;
  const std::lock_guard lock(mutex_);
  receive_locked();
}

void Connection::receive_locked() {
  const uint64_t before = packets_;
  take_packets_locked();
  send_unsent_locked();
  if (packets_ == before) return;
  const uint64_t one = 1;
  static_cast<void>(!::write(news_.get(), &one, sizeof one));
}

void Connection::take_packets_locked() {
  while (alive()) {
    alignas(8) std::byte packet[control::kPacketMax];
    alignas(cmsghdr) std::byte ancillary[CMSG_SPACE(kDescriptorsMax * sizeof(int))];
    iovec part{.iov_base = packet, .iov_len = sizeof packet};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = ancillary;
    message.msg_controllen = sizeof ancillary;
    const ssize_t size = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) {
      alive_ = false;
      return;
    }
    const bool truncated = (message.msg_flags & MSG_CTRUNC) != 0;
    dispatch_locked(packet, static_cast<size_t>(size), take_descriptors(message, first_descriptor_), truncated);
  }
}

void Connection::dispatch_locked(const std::byte* packet, size_t size, std::vector<Descriptor> descriptors, bool truncated) {
  const auto take = [&](auto& into) {
    if (size != sizeof into) return false;
    std::memcpy(&into, packet, sizeof into);
    return true;
  };
  const uint64_t order = ++packets_;
  const auto queue = [&](auto event) {
    if (!take(event)) return;
    // An NI that took over repeats events that may have been lost.
    if (event.header.cookie != 0 && event.header.cookie <= last_event_) return;
    last_event_ = std::max(last_event_, event.header.cookie);
    events_[event.header.endpoint].push_back({event, order});
  };
  control::Header header{};
  if (size < sizeof header) return;
  std::memcpy(&header, packet, sizeof header);
  switch (header.op) {
    case control::Op::connect_request: return queue(control::ConnectRequest{});
    case control::Op::channel_opened: return queue(control::ChannelOpened{});
    case control::Op::channel_closed: return queue(control::ChannelClosed{});
    case control::Op::ip_changed: return queue(control::IpChanged{});
    default: break;
  }
  Answer answer;
  if (control::ReportPart part{}; header.op == control::Op::report && take(part)) {
    answer.reply.header = part.header;
    answer.text.assign(part.bytes, std::min<size_t>(part.length, sizeof part.bytes));
    answer.more = part.more != 0;
  } else if (!take(answer.reply)) {
    if (header.op != control::Op::hello) return;
    read_foreign_reply(packet, size, answer.reply);
  }
  if (asked_.erase(header.cookie) == 0) return;  // a repeated answer, or to an unknown request
  answer.descriptors = std::move(descriptors);
  answer.truncated = truncated;
  if (header.op == control::Op::destroy_endpoint && answer.reply.code == 0) {
    // The next owner of this number must not receive the old events, nor lose a channel to an old request.
    events_.erase(header.endpoint);
    std::erase_if(unsent_, [&](const std::vector<std::byte>& packet) {
      control::Header of{};
      std::memcpy(&of, packet.data(), sizeof of);
      return of.endpoint == header.endpoint;
    });
  }
  answer.order = order;
  const auto abandoned = std::find(abandoned_.begin(), abandoned_.end(), header.cookie);
  if (abandoned != abandoned_.end()) {
    abandoned_.erase(abandoned);
    throw_away_locked(answer.reply);
    return;
  }
  answers_.emplace(header.cookie, std::move(answer));
}

// Gives back the resource of an answer that came too late, which would otherwise stay open for ever.
void Connection::throw_away_locked(const control::Reply& reply) {
  if (reply.code != 0) return;
  control::CloseChannel request{};
  switch (reply.header.op) {
    case control::Op::connect:
      if (reply.channel.known != 0) return;  // an existing channel
      [[fallthrough]];
    case control::Op::accept:
    case control::Op::open_ip:
      request.header = {control::Op::close_channel, reply.header.endpoint, next_cookie_++};
      request.channel = reply.channel.channel;
      break;
    case control::Op::claim_ip:
      static_assert(sizeof(control::ReleaseIp) == sizeof request);
      static_assert(offsetof(control::ReleaseIp, claim) == offsetof(control::CloseChannel, channel));
      request.header = {control::Op::release_ip, reply.header.endpoint, next_cookie_++};
      request.channel = reply.claim_ip.claim;
      break;
    case control::Op::create_endpoint:
    case control::Op::create_emulated:
      request.header = {control::Op::destroy_endpoint, reply.create_endpoint.endpoint, next_cookie_++};
      break;
    default: return;
  }
  abandoned_.push_back(request.header.cookie);
  asked_.insert(request.header.cookie);
  keep_unsent_locked(&request, request.header.op == control::Op::destroy_endpoint ? sizeof(control::DestroyEndpoint) : sizeof request);
  send_unsent_locked();
}

void Connection::keep_unsent_locked(const void* packet, size_t size) {
  const auto* const bytes = static_cast<const std::byte*>(packet);
  unsent_.emplace_back(bytes, bytes + size);
}

// Sends queued requests. Those without room stay queued until the socket is processed again.
void Connection::send_unsent_locked() {
  while (!unsent_.empty() && alive()) {
    if (::send(socket_.get(), unsent_.front().data(), unsent_.front().size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
      if (errno == EAGAIN || errno == EINTR) return;
      alive_ = false;
    }
    unsent_.pop_front();
  }
}

void Connection::throw_away(const control::Reply& reply) {
  if (!is_own()) return;
  const std::lock_guard lock(mutex_);
  throw_away_locked(reply);
}

std::optional<Result<Answer>> Connection::take_answer(uint64_t cookie) {
  if (!is_own()) return Result<Answer>(of_the_parent());
  const std::lock_guard lock(mutex_);
  receive_locked();
  const auto found = answers_.find(cookie);
  if (found == answers_.end()) {
    if (!alive()) return Result<Answer>(fail(Errc::disconnected, "the network interface closed the connection"));
    return std::nullopt;
  }
  Answer answer = std::move(found->second);
  answers_.erase(found);
  if (answer.reply.code != 0) {
    return Result<Answer>(fail(static_cast<Errc>(answer.reply.code), std::string(answer.reply.error.view())));
  }
  if (answer.truncated) {
    throw_away_locked(answer.reply);
    return Result<Answer>(fail(Errc::out_of_memory, "this process has no descriptors left: close some, or raise 'ulimit -n'"));
  }
  return Result<Answer>(std::move(answer));
}

void Connection::abandon(uint64_t cookie) {
  if (!is_own()) return;
  const std::lock_guard lock(mutex_);
  const auto found = answers_.find(cookie);
  if (found == answers_.end()) {
    abandoned_.push_back(cookie);
    return;
  }
  const Answer answer = std::move(found->second);
  answers_.erase(found);
  throw_away_locked(answer.reply);
}

void Connection::forget(const std::vector<uint64_t>& cookies) {
  const std::lock_guard lock(mutex_);
  const auto forgotten = [&](uint64_t each) { return std::find(cookies.begin(), cookies.end(), each) != cookies.end(); };
  abandoned_.erase(std::remove_if(abandoned_.begin(), abandoned_.end(), forgotten), abandoned_.end());
  for (const uint64_t each : cookies) asked_.erase(each);
}

Result<Answer> Connection::wait_answer(uint64_t cookie, Nanoseconds timeout) {
  const Nanoseconds start = monotonic_now();
  while (true) {
    if (auto answer = take_answer(cookie)) return std::move(*answer);
    const Nanoseconds waited = monotonic_now() - start;
    if (waited >= timeout) {
      abandon(cookie);
      return fail(Errc::timed_out, "no answer from the network interface within " + std::to_string(timeout / kMillisecond) + " ms");
    }
    wait_activity(timeout - waited);
  }
}

void Connection::wait_activity(Nanoseconds timeout) {
  if (embedded_ != nullptr) {
    // The service runs in this process, so its answer cannot end this wait early: use short waits.
    embedded_->wait(embedded_handle_, static_cast<int64_t>(std::min(timeout, Nanoseconds{100 * kMicrosecond})));
    return;
  }
  pollfd wanted{.fd = socket_.get(), .events = POLLIN, .revents = 0};
  const auto milliseconds = static_cast<int>(std::min(timeout, kSocketSleep * kMillisecond) / kMillisecond);
  ::poll(&wanted, 1, std::max(milliseconds, 1));
}

std::deque<ControlEvent> Connection::take_events(uint32_t endpoint) {
  if (!is_own()) return {};
  const std::lock_guard lock(mutex_);
  receive_locked();
  const auto found = events_.find(endpoint);
  if (found == events_.end()) return {};
  std::deque<ControlEvent> events = std::move(found->second);
  events_.erase(found);
  return events;
}

std::vector<uint32_t> Connection::endpoints_with_events() {
  std::vector<uint32_t> list;
  if (!is_own()) return list;
  const std::lock_guard lock(mutex_);
  receive_locked();
  for (const auto& [endpoint, events] : events_) list.push_back(endpoint);
  return list;
}

}  // namespace unet
