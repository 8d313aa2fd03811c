// connection.h - libunet's end of the control socket: requests, replies and events; over a unetd or an NI inside the process.
//
// Everything here is set-up, never the path of a message. Any thread of the process that opened the connection may make all calls. A forked
// child shares the socket and must not use it.
#pragma once

#include <unistd.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "unet/base/result.h"
#include "unet/base/time.h"
#include "unet/control.h"
#include "unet/embedded_abi.h"
#include "unet/mapping.h"
#include "unet/ni_queues.h"

namespace unet {

// An answer of the service with its descriptors.
struct Answer {
  control::Reply reply{};
  std::vector<Descriptor> descriptors;
  std::string text;    // one part of a report
  bool more = false;   // another part of the report follows
  bool truncated = false;  // this process had no room for all descriptors
  uint64_t order = 0;  // number of the packet in order of arrival: the caller may take an answer after a later event
};

// Makes a request about an endpoint, with all other fields zero.
template <typename Request>
Request request_for(control::Op op, uint32_t endpoint) {
  Request request{};
  request.header.op = op;
  request.header.endpoint = endpoint;
  return request;
}

constexpr Nanoseconds kLongestSleep = kSecond;  // a waiting endpoint checks this often whether the NI is alive

struct ControlEvent {
  std::variant<control::ConnectRequest, control::ChannelOpened, control::ChannelClosed, control::IpChanged> event;
  uint64_t order = 0;
};

class Carrier;

class Connection {
 public:
  // `ni`: "" (the default socket), "unix:PATH", a path, or "embedded:SPEC" (embedded_abi.h). Descriptors get numbers from
  // `first_descriptor` on.
  static Result<std::shared_ptr<Connection>> open(std::string_view ni, std::string_view program, int first_descriptor = 0);
  // Uses an NI that this process has opened itself. The connection closes `handle`.
  static Result<std::shared_ptr<Connection>> attach(const unet_embedded_table& table, void* handle, Descriptor control,
                                                    std::string_view program);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Sends a request and returns its cookie, which this call fills in; take_answer() gets the answer. While the socket is full it waits for
  // the service. With `waits` false the request is instead queued, and sent when the socket is processed later.
  template <typename Request>
  Result<uint64_t> send(Request request, bool waits = true) {
    static_assert(sizeof(Request) <= control::kPacketMax);
    return send_packet(&request.header, sizeof request, waits);
  }
  // Returns the answer to `cookie` if it has arrived: an Error if the service sent one or the NI is gone. nullopt: not yet.
  std::optional<Result<Answer>> take_answer(uint64_t cookie);
  // Tells that no caller waits for this answer: it is thrown away when it comes.
  void abandon(uint64_t cookie);
  // Tells that an endpoint is gone: no answers to these abandoned requests will come.
  void forget(const std::vector<uint64_t>& cookies);
  // Gives back the channel or endpoint of an answer that no caller can use.
  void throw_away(const control::Reply& reply);

  // Sends a request and waits at most `timeout` for the answer. With 0 it does not wait, and throws the answer away.
  template <typename Request>
  Result<Answer> call(Request request, Nanoseconds timeout = 10 * kSecond) {
    auto cookie = send(request, timeout != 0);
    if (!cookie) return tl::unexpected(cookie.error());
    return wait_answer(*cookie, timeout);
  }
  Result<Answer> wait_answer(uint64_t cookie, Nanoseconds timeout);

  // Receives all packets in the socket, without blocking.
  void process();
  // Takes the events of one endpoint that have arrived, oldest first.
  std::deque<ControlEvent> take_events(uint32_t endpoint);
  // Receives packets, and returns the endpoints that have events for take_events().
  std::vector<uint32_t> endpoints_with_events();
  // Sleeps at most `timeout`, until the socket may have a packet. An embedded NI runs meanwhile.
  void wait_activity(Nanoseconds timeout);

  // The caller of a report must hold this: the NI has state for one report per connection, and a second one would reset it.
  std::mutex& report_mutex() noexcept { return report_mutex_; }

  // Changes when the service has sent a packet. Polling for events thus costs one load.
  uint32_t event_count() const noexcept { return doorbells_.page()->control_events.value.load(std::memory_order_acquire); }
  bool alive() const noexcept { return alive_.load(std::memory_order_relaxed); }
  // False in a child that inherited the connection by fork().
  bool is_own() const noexcept;
  // Marks the connection as owned by `process`, a forked child that takes it over. Parent and child must both call this.
  void pass_to(pid_t process) noexcept { process_.store(process, std::memory_order_relaxed); }
  int descriptor() const noexcept { return socket_.get(); }
  // Descriptor numbers below this are reserved for the program.
  int first_descriptor() const noexcept { return first_descriptor_; }
  // An eventfd, written when a thread has taken packets off the socket. The packets may be for an endpoint that sleeps in another thread,
  // and the socket no longer wakes it. Watch it edge-triggered, and never read it.
  int news_descriptor() const noexcept { return news_.get(); }
  Doorbells& doorbells() noexcept { return doorbells_; }

  // The NI inside this process, or nullptr. Only one thread at a time, the endpoint's, may call its functions.
  const unet_embedded_table* embedded() const noexcept { return embedded_; }
  void* embedded_handle() const noexcept { return embedded_handle_; }

  // The carrier of this connection's emulated endpoints, for Carrier::of() only.
  std::weak_ptr<Carrier>& carrier() noexcept { return carrier_; }
  std::mutex& carrier_mutex() noexcept { return carrier_mutex_; }

 private:
  Connection() = default;
  static Result<std::shared_ptr<Connection>> open_socket(const std::string& path, std::string_view program, int first_descriptor);
  Status connect_socket(const std::string& path);
  Status open_embedded(const std::string& spec);
  Status hello(std::string_view program);
  Result<uint64_t> send_packet(control::Header* header, size_t size, bool waits);
  void receive_locked();
  void take_packets_locked();
  void dispatch_locked(const std::byte* packet, size_t size, std::vector<Descriptor> descriptors, bool truncated);
  void throw_away_locked(const control::Reply& reply);
  void keep_unsent_locked(const void* packet, size_t size);
  void send_unsent_locked();

  int first_descriptor_ = 0;
  Descriptor socket_;
  Descriptor news_;
  Doorbells doorbells_;
  const unet_embedded_table* embedded_ = nullptr;
  void* embedded_handle_ = nullptr;
  std::atomic<bool> alive_{true};
  std::atomic<pid_t> process_{::getpid()};

  std::mutex mutex_;
  std::mutex report_mutex_;
  uint64_t next_cookie_ = 1;
  uint64_t packets_ = 0;
  std::map<uint64_t, Answer> answers_;
  std::vector<uint64_t> abandoned_;
  std::set<uint64_t> asked_;      // cookies of requests without an answer so far
  uint64_t last_event_ = 0;       // the largest number of an event so far
  std::deque<std::vector<std::byte>> unsent_;  // requests without room in the socket, in order
  std::map<uint32_t, std::deque<ControlEvent>> events_;

  std::mutex carrier_mutex_;
  std::weak_ptr<Carrier> carrier_;
};

}  // namespace unet
