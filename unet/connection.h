// connection.h - libunet's end of the control socket: requests, replies and events; over a unetd or an NI inside the process.
//
// Everything here is set-up, never the path of a message. All calls may be made from any thread, of the process that opened the
// connection: a child that inherited it by fork() shares the socket and must keep away from it.
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

// An answer of the service with the descriptors that came with it.
struct Answer {
  control::Reply reply{};
  std::vector<Descriptor> descriptors;
  std::string text;    // of a report's part
  bool more = false;   // and whether another follows
  bool truncated = false;  // this process had no room for all of them
  uint64_t order = 0;  // the how-manieth packet it was: it may be taken after an event that the service sent later
};

// Of an endpoint, with nothing else set.
template <typename Request>
Request request_for(control::Op op, uint32_t endpoint) {
  Request request{};
  request.header.op = op;
  request.header.endpoint = endpoint;
  return request;
}

constexpr Nanoseconds kLongestSleep = kSecond;  // of who waits for messages; then a look whether the NI is still alive

struct ControlEvent {
  std::variant<control::ConnectRequest, control::ChannelOpened, control::ChannelClosed, control::IpChanged> event;
  uint64_t order = 0;
};

class Carrier;

class Connection {
 public:
  // `ni`: "" (the default socket), "unix:PATH", a path, or "embedded:SPEC" (embedded_abi.h).
  static Result<std::shared_ptr<Connection>> open(std::string_view ni, std::string_view program, int first_descriptor = 0);
  // Over an NI that this process has opened itself; `handle` is closed with the connection.
  static Result<std::shared_ptr<Connection>> attach(const unet_embedded_table& table, void* handle, Descriptor control,
                                                    std::string_view program);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Sends a request (its header's cookie is filled in) and returns the cookie; the answer is taken with take_answer(). While the socket is
  // full it waits for the service; with `waits` false the request goes with a later look at the socket.
  template <typename Request>
  Result<uint64_t> send(Request request, bool waits = true) {
    static_assert(sizeof(Request) <= control::kPacketMax);
    return send_packet(&request.header, sizeof request, waits);
  }
  // The answer to `cookie` if it has arrived; an Error if it was one, or if the NI is gone. nullopt: not yet.
  std::optional<Result<Answer>> take_answer(uint64_t cookie);
  // Nobody waits for this answer any longer; when it comes, it is thrown away.
  void abandon(uint64_t cookie);
  // An endpoint is gone: no answer to these, which were abandoned, comes any longer.
  void forget(const std::vector<uint64_t>& cookies);
  // Gives back the channel or endpoint that came with an answer which nobody wants or can use.
  void throw_away(const control::Reply& reply);

  // Request and answer in one; waits at most `timeout` for the answer. 0: it waits for nothing, and throws the answer away.
  template <typename Request>
  Result<Answer> call(Request request, Nanoseconds timeout = 10 * kSecond) {
    auto cookie = send(request, timeout != 0);
    if (!cookie) return tl::unexpected(cookie.error());
    return wait_answer(*cookie, timeout);
  }
  Result<Answer> wait_answer(uint64_t cookie, Nanoseconds timeout);

  // Receives what the socket holds, without blocking.
  void process();
  // Events of one endpoint that have arrived, oldest first.
  std::deque<ControlEvent> take_events(uint32_t endpoint);
  // Those of which take_events() has some, after a look at the socket.
  std::vector<uint32_t> endpoints_with_events();
  // Sleeps until the socket may have something, at most `timeout`; an embedded NI works meanwhile.
  void wait_activity(Nanoseconds timeout);

  // Held while a report is asked for: the NI keeps the place of one report, and a second one would begin anew.
  std::mutex& report_mutex() noexcept { return report_mutex_; }

  // Changes when the service has sent something: one load, so that polling for events costs nothing.
  uint32_t event_count() const noexcept { return doorbells_.page()->control_events.value.load(std::memory_order_acquire); }
  bool alive() const noexcept { return alive_.load(std::memory_order_relaxed); }
  // False in a child that inherited it.
  bool is_own() const noexcept;
  // It is that process's from now on: a child's that goes on with all that this one had of the NI. Both are to say so.
  void pass_to(pid_t process) noexcept { process_.store(process, std::memory_order_relaxed); }
  int descriptor() const noexcept { return socket_.get(); }
  // Numbers below it are left to the program.
  int first_descriptor() const noexcept { return first_descriptor_; }
  // An eventfd, written when somebody took packets off the socket: they may be for an endpoint that sleeps in another thread,
  // which the socket itself no longer wakes. To be watched edge-triggered, never read.
  int news_descriptor() const noexcept { return news_.get(); }
  Doorbells& doorbells() noexcept { return doorbells_; }

  // The NI inside this process, or nullptr. Its functions are called by one thread at a time: the endpoint's.
  const unet_embedded_table* embedded() const noexcept { return embedded_; }
  void* embedded_handle() const noexcept { return embedded_handle_; }

  // The carrier of this connection's emulated endpoints, for Carrier::of() alone.
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
  std::set<uint64_t> asked_;      // cookies of requests without an answer yet
  uint64_t last_event_ = 0;       // the largest number of an event so far
  std::deque<std::vector<std::byte>> unsent_;  // requests that found no room in the socket, in order
  std::map<uint32_t, std::deque<ControlEvent>> events_;

  std::mutex carrier_mutex_;
  std::weak_ptr<Carrier> carrier_;
};

}  // namespace unet
