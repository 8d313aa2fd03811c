// client.h - the calling side: imports interfaces of servers, and calls their procedures; part of the public API of calls.
//
//   auto client = rpc::Client::create(context);
//   auto binding = (*client)->import("calculator@host", kCalculator);
//   rpc::Reply<int> sum = binding->call(kAdd, 1, 2);           // blocks
//   if (sum) std::printf("%d\n", *sum);
//
// A binding is a capability: the server takes it only from this client's channel, and can revoke it. A call runs its procedure at most
// once. CallStatus says how it ended, and may_have_run() whether the procedure may have run.
//
// A client, its bindings and its calls belong to one thread. Call poll() or wait() now and then while calls are under way; the functions
// that wait for a call do so. In a process with one thread they poll its own servers, too. With fibers, add the client to their
// fiber::Scheduler, which polls it: a fiber that waits for a call or for room lets others run. import() in a fiber holds up the other
// fibers of its thread. Sources: Bershad et al., LRPC (1990) and URPC (1991).
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "am/endpoint.h"
#include "am/rpc/call.h"
#include "am/rpc/call_message.h"
#include "am/rpc/fiber_lock.h"
#include "am/rpc/polling_time.h"
#include "am/rpc/procedure.h"

namespace unet::rpc {

class Binding;

struct ClientOptions {
  am::Options endpoint{};
  ConnectOptions connect{.local = am::kLocalOptions};  // for channels to servers; import() alone waits for a name
  Nanoseconds spin = PollingTime::kAdaptive;  // time to poll before a wait sleeps
  uint64_t result_max = 64 * 1024 * 1024;    // bytes of a long result; longer ones end their calls with bad_result
  uint64_t results_max = 256 * 1024 * 1024;  // bytes of all long results that are coming
};

struct ClientCounters {
  uint64_t calls = 0;             // started and sent
  uint64_t answers = 0;           // that ended a call
  uint64_t stray_answers = 0;     // of no call under way at this server: late, twice, or false
  uint64_t bad_results = 0;
  uint64_t lost = 0;              // calls ended by the end of their servers
};

// A fiber that waits for a credit of a server.
struct CreditWaiter {
  fiber::Fiber* fiber;
  bool waits = true;  // is in the list of its server
};

// A server that this client has imported from.
struct Remote {
  std::string target;
  am::Index index = 0;
  uint32_t epoch = 0;  // counts channels that have ended: their bindings are imported again
  uint32_t under_way = 0;  // calls
  std::list<CreditWaiter*> waiters;
};

// An import that is under way.
struct Import {
  Call<uint32_t> call;  // its result is the number of the binding
  uint32_t epoch = 0;   // of the server
};

class Client final : public fiber::Poller {
 public:
  // Errors: as am::Endpoint::create().
  static Result<std::unique_ptr<Client>> create(Context& context, const ClientOptions& options = {});
  ~Client() override;
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Imports an interface from the server "NAME" or "NAME@HOST", and waits at most `timeout` for the answer. Bindings to one server share a
  // channel. Errors: not_found (the server has no such interface), not_permitted, quota_exceeded, timed_out, disconnected, and those of
  // am::Endpoint::map().
  Result<Binding> import(std::string_view target, const Interface& interface, Nanoseconds timeout = 10 * kSecond);

  // Makes a binding that is imported by its first call, or by Binding::open().
  Binding bind_later(std::string_view target, const Interface& interface);

  // Handles what has arrived, and runs the functions of calls that have ended. Returns the number of messages.
  uint32_t poll() override;
  // Waits until something may have happened.
  WaitOutcome wait(Nanoseconds timeout = unet::Endpoint::kForever);
  // Waits until the call has ended.
  void wait_for(PendingCall& call);
  // For an event loop, or a fiber::Scheduler: nullopt if there is work already; poll() then. Otherwise a descriptor, which becomes readable
  // when there may be work; lowers `limit` to the time after which the program must poll anyway. -1: the NI is gone.
  std::optional<int> arm(Nanoseconds& limit) override;

  uint32_t under_way() const noexcept { return static_cast<uint32_t>(slots_.size()) - free_slots_; }
  const ClientCounters& counters() const noexcept { return counters_; }
  am::Endpoint& endpoint() noexcept { return *endpoint_; }

 private:
  friend class Binding;
  friend class PendingCall;
  struct Slot {
    PendingCall* call = nullptr;
    uint32_t generation = 0;
    uint32_t next_free = 0;
  };
  struct Request {  // a call on its way out
    // An aggregate would be cleared first, with all its words.
    Request(PendingCall* of_call, Remote& to, const CallHead& of_head, Nanoseconds until) noexcept
        : call(of_call), remote(to), head(of_head), deadline(until) {}
    PendingCall* call;  // nullptr: one way. It may be gone once its slot is free
    Remote& remote;
    uint32_t id = 0;
    MessageWords words;
    CallHead head;
    Nanoseconds deadline;
  };

  Client(std::unique_ptr<am::Endpoint> endpoint, const ClientOptions& options);

  struct Notice {  // what a server has to learn, and had no credit for
    Remote* remote;
    uint32_t epoch;
    uint16_t procedure;
    uint32_t binding, id;
  };

  // Sending. begin() makes the words before the arguments; false: the call has ended. The others end the call if they cannot send it.
  bool begin(Request& request, uint32_t binding, uint64_t long_total);
  bool wait_for_credit(const Request& request);
  WaitOutcome wait_for_long(Nanoseconds timeout, bool& polls);
  uint64_t poll_once();
  WaitOutcome sleep(Nanoseconds timeout, Nanoseconds spin);
  void not_sent(const Request& request) noexcept;
  void send_line(Request& request);
  MutableBytes reserve(const Request& request, size_t bytes);
  bool commit(const Request& request, uint8_t handler, size_t bytes);
  void send_long(Request& request, std::span<const Bytes> parts, uint64_t total);
  am::Outcome send_control(const Remote& remote, uint16_t procedure, uint32_t binding, uint32_t id) noexcept;
  void control(Remote& remote, uint16_t procedure, uint32_t binding, uint32_t id) noexcept;
  Status import_into(Binding& binding, Nanoseconds timeout, Nanoseconds wait_for_name = 0);
  Status import_step(Binding& binding, std::unique_ptr<Import>& import, Nanoseconds timeout);
  Status send_import(const Binding& binding, Import& import, Nanoseconds deadline);
  static Status take_import(Binding& binding, Import& import);
  void lose_if_closed(Remote& remote);
  Binding make_binding(std::string_view target, const Interface& interface);
  void wait_locked(PendingCall& call);

  // Ending.
  bool is_under_way(const Request& request) noexcept { return request.call == nullptr || find(request.id) != nullptr; }
  PendingCall* find(uint32_t id) noexcept;
  PendingCall* find(uint32_t id, am::Index from) noexcept;
  void end(PendingCall& call, CallStatus status) noexcept;
  void set_ended(PendingCall& call, CallStatus status) noexcept;
  void free_slot(PendingCall& call) noexcept;
  void forget(PendingCall& call) noexcept;
  // With thousands of callers each call is out of the cache. Answers come about in the order of the calls, which have successive slots.
  void prefetch_next(const PendingCall& call) const noexcept {
    constexpr size_t kCall = 4, kFiber = 2;  // answers ahead
    const size_t index = call.id_ & kIndexMask;
    if (index + kCall >= slots_.size()) return;
    if (const PendingCall* const later = slots_[index + kCall].call) {
      __builtin_prefetch(later);
      __builtin_prefetch(&later->waiting_);
    }
    if (const PendingCall* const next = slots_[index + kFiber].call) __builtin_prefetch(next->waiting_);
  }
  void take_answer(const am::Token& token);
  void take_answer_piece(const am::Token& token);
  void take_result(PendingCall& call, Bytes result);
  void bad_result(PendingCall& call) noexcept;
  void take_returned(const am::Returned& returned);
  void lose(Remote& remote);
  void shorten(Nanoseconds& limit) const noexcept;
  uint32_t receive() {
    const uint32_t arrived = endpoint_->poll();
    if (__builtin_expect(waiting_ != 0 && arrived != 0, 0)) {
      for (const auto& remote : remotes_) wake_waiter(*remote);
    }
    return arrived;
  }
  // Wakes the first of the fibers that wait for a credit of this server, if there is one. Each wakes the next one in turn.
  void wake_waiter(Remote& remote) noexcept {
    if (!remote.waiters.empty() && endpoint_->has_credit(remote.index)) unpark_first(remote);
  }
  void unpark_first(Remote& remote) noexcept {
    CreditWaiter& first = *remote.waiters.front();
    remote.waiters.pop_front();
    --waiting_;
    first.waits = false;
    fiber::unpark(*first.fiber);
  }
  void settle(bool arrived);
  void run_functions();
  bool look();

  std::unique_ptr<am::Endpoint> endpoint_;
  const ConnectOptions connect_;
  const uint64_t result_max_, results_max_;
  PollingTime polling_time_;
  const Nanoseconds long_polling_;       // 0: as for other waits
  std::vector<std::unique_ptr<Remote>> remotes_;
  std::vector<Slot> slots_;
  uint32_t first_free_ = 0, last_free_ = 0;  // a list, of which the slot that is free for longest is used first
  uint32_t free_slots_ = 0;
  std::multimap<Nanoseconds, uint32_t> deadlines_;  // of calls that have one: their ids
  std::deque<PendingCall*> ended_;       // calls with functions that have not run
  uint64_t ends_ = 0;                    // calls that have ended
  uint32_t starting_ = 0;                // starts that wait for a credit; no function runs meanwhile
  std::vector<Notice> notices_;
  uint64_t results_coming_ = 0;          // bytes
  uint32_t looks_ = 0;                   // polls since the last look(); an empty one counts more
  uint32_t unpolled_ = 0;                // calls started since the last poll
  uint32_t one_way_ = 0;                 // calls without an answer
  uint32_t waiting_ = 0;                 // fibers in the lists of all servers
  ClientCounters counters_;
};

// An imported interface. Its end releases it. The client must outlive it.
class Binding {
 public:
  Binding() = default;
  ~Binding() { release(); }
  Binding(Binding&& from) noexcept { *this = std::move(from); }
  Binding& operator=(Binding&& from) noexcept;

  // Calls that start from now on have this time; a call that takes longer ends with `expired` or `timed_out`.
  void set_timeout(Nanoseconds timeout) noexcept { timeout_ = timeout; }

  // Calls a procedure and waits for its end.
  template <typename R, typename... A>
  Reply<R> call(const Procedure<R(A...)>& procedure, const std::type_identity_t<std::remove_cvref_t<A>>&... arguments) {
    Call<R> call;
    start(call, procedure, arguments...);
    client_->wait_for(call);
    return Reply<R>(call);
  }
  // Starts a call. `call` must have ended, and stay where it is until it has ended again. The arguments may be reused at return. Waits for
  // a credit if too many calls are under way, and until long arguments are sent.
  template <typename R, typename... A>
  void start(Call<R>& call, const Procedure<R(A...)>& procedure, const std::type_identity_t<std::remove_cvref_t<A>>&... arguments) {
    send(&call, procedure.number, arguments...);
  }
  template <typename R, typename... A>
  Future<R> begin(const Procedure<R(A...)>& procedure, const std::type_identity_t<std::remove_cvref_t<A>>&... arguments) {
    auto call = std::make_unique<Call<R>>();
    start(*call, procedure, arguments...);
    return Future<R>(*client_, std::move(call));
  }
  // Calls a procedure without waiting for any answer: the caller does not learn whether it runs.
  template <typename R, typename... A>
  void tell(const Procedure<R(A...)>& procedure, const std::type_identity_t<std::remove_cvref_t<A>>&... arguments) {
    send(nullptr, procedure.number, arguments...);
  }
  // Calls procedure `number` with bytes made elsewhere: the parts, one after another.
  void start_bytes(PendingCall& call, uint16_t number, std::span<const Bytes> parts);

  Client& client() const noexcept { return *client_; }
  const std::string& target() const noexcept { return remote_->target; }
  // Imports, if there is no channel now, and waits at most `timeout`. Errors: as Client::import().
  Status open(Nanoseconds timeout = 10 * kSecond) {
    const FiberLock held(*client_);
    return is_open() ? Status() : client_->import_into(*this, timeout);
  }
  // Takes a step of open() without waiting: the binding is open after some of them. `import` is the caller's to keep meanwhile.
  Status open_step(std::unique_ptr<Import>& import, Nanoseconds timeout) {
    const FiberLock held(*client_);
    return is_open() ? Status() : client_->import_step(*this, import, timeout);
  }
  // Calls under way at the binding's server.
  uint32_t under_way() const noexcept { return remote_->under_way; }
  // False if the channel of this binding has ended. The next call imports again.
  bool is_open() const noexcept { return client_ != nullptr && epoch_ == remote_->epoch && client_->endpoint_->is_open(remote_->index); }

 private:
  friend class Client;
  template <typename... A>
  void send(PendingCall* call, uint16_t number, const A&... arguments);
  bool ready(PendingCall* call);
  // Bytes of arguments that fit the line of a request, beside its deadline.
  size_t line_room() const noexcept { return kInlineArguments - (timeout_ == kNever ? 0 : 4); }
  void release() noexcept;
  Client::Request request(PendingCall* call, uint16_t number) const noexcept {
    return {call, *remote_, {.procedure = number}, timeout_ == kNever ? kNever : deadline()};
  }
  Nanoseconds deadline() const noexcept;

  Client* client_ = nullptr;
  Remote* remote_ = nullptr;
  uint32_t id_ = 0, epoch_ = 0;
  Nanoseconds timeout_ = kNever;
  std::string name_;
  uint32_t version_ = 0;
};

template <typename... A>
void Binding::send(PendingCall* call, uint16_t number, const A&... arguments) {
  const FiberLock held(*client_);
  if (__builtin_expect(!is_open(), 0) && !ready(call)) return;
  const size_t size = encoded_size<A...>(arguments...);
  Client::Request request = this->request(call, number);
  if constexpr (fit<A...>(kInlineArguments)) {
    if (size <= line_room()) {
      request.head.length = static_cast<uint8_t>(size);
      if (!client_->begin(request, id_, 0)) return;
      encode<A...>(request.words.add_bytes(size), arguments...);
      return client_->send_line(request);
    }
  }
  if (size <= kPayloadMax) {
    if (!client_->begin(request, id_, 0)) return;
    const MutableBytes room = client_->reserve(request, size);
    if (room.empty()) return;
    encode<A...>(room.data(), arguments...);
    client_->commit(request, kCallHandler, size);
  } else {
    const Bytes tail = tail_of(arguments...);
    ByteBuffer head(size - tail.size());
    encode_head<A...>(head.data(), arguments...);
    const std::array parts{head.bytes(), tail};
    if (client_->begin(request, id_, size)) client_->send_long(request, parts, size);
  }
}

template <typename Result>
Reply<Result> Future<Result>::get() {
  client_->wait_for(*call_);
  return Reply<Result>(*call_);
}

}  // namespace unet::rpc
