// server.h - the serving side: exports interfaces, and runs their procedures; part of the public API of calls.
//
//   auto server = rpc::Server::create(context, "calculator");
//   (*server)->provide(kCalculator, kAdd, [](int a, int b) { return a + b; });
//   for (;;) (*server)->wait();                                              // runs procedures
//
// A function is called as function(arguments...). It returns the result, or rpc::OrFailure<Result>. A function that takes an
// rpc::Response<Result> first answers later: it keeps the response, and calls it when the result is there. A function that takes a
// `const rpc::IncomingCall&` first sees the call's deadline, and whether its caller still waits. RunIn chooses where the function runs.
//
// A procedure runs at most once for each call. Spans and string_views among its arguments lie in the message, where a caller on this host
// can still change them; strings and vectors are copies.
//
// A server belongs to one thread, or to the fibers of a fiber::Scheduler to which it was added. Nothing that a caller does makes it wait:
// answers without room wait in a bounded backlog.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "am/endpoint.h"
#include "am/rpc/budget.h"
#include "am/rpc/detached_call.h"
#include "am/rpc/fiber_lock.h"
#include "am/rpc/polling_time.h"
#include "am/rpc/procedure.h"
#include "am/rpc/server_threads.h"

namespace unet::rpc {

// A process that asks for a binding.
struct Importer {
  uint64_t caller = 0;    // as IncomingCall::caller()
  std::string_view name;  // as am::Token::source_name(); valid during the question
  std::string_view interface;
  uint32_t version = 0;
};

struct ServerOptions {
  am::Options endpoint{};
  // Decides about each import; nullptr gives a binding to every process that has a channel. `endpoint` decides about channels.
  bool (*admit)(const Importer& importer, void* context) = nullptr;
  void* admit_context = nullptr;
  uint32_t bindings_max = 65536;             // of one caller
  uint32_t late_max = 16384;                 // calls under way that are answered late, of which one caller gets half; others: overloaded
  uint64_t arguments_max = 64 * 1024 * 1024;  // bytes of one call's arguments
  uint64_t memory_max = 256 * 1024 * 1024;   // bytes of long arguments and of answers that wait; one caller gets half of it
  Nanoseconds spin = PollingTime::kAdaptive;  // time to poll before a wait sleeps
  uint32_t threads = 0;                      // for procedures that run in threads (RunIn::thread)
  bool replica = false;                      // one of up to kReplicasMax servers of one name (BindingGroup::of_replicas)
};

struct ServerCounters {
  uint64_t calls = 0;            // procedures run
  uint64_t refused = 0;          // calls that did not run, with a status
  uint64_t imports = 0;
  uint64_t malformed = 0;        // messages that are none of a client
  uint64_t dropped_answers = 0;  // of callers that are gone, or without memory for their backlog
};

class Server final : public fiber::Poller {
 public:
  // Binds `name`; a replica binds the first free one of NAME/1 to NAME/8. Errors: as am::Endpoint::create() and bind().
  static Result<std::unique_ptr<Server>> create(Context& context, std::string_view name, const ServerOptions& options = {});
  // No procedure may run in a fiber any more.
  ~Server() override;
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Exports a procedure. A second one of the same number replaces it.
  template <typename R, typename... A, typename F>
  void provide(const Interface& interface, const Procedure<R(A...)>& procedure, F function, RunIn run = RunIn::poll);
  // Exports a procedure of bytes: function(IncomingCall&).
  template <typename F>
  void provide_bytes(const Interface& interface, uint16_t number, F function, RunIn run = RunIn::poll);

  // Ends the bindings to an interface, or of a caller, and returns their number. Later calls by them end with CallStatus::revoked; calls
  // under way go on.
  uint32_t revoke(const Interface& interface);
  uint32_t revoke_caller(uint64_t caller);

  // Runs the procedures of calls that have arrived, and sends late answers. Returns the number of messages.
  uint32_t poll() override;
  WaitOutcome wait(Nanoseconds timeout = unet::Endpoint::kForever);
  // For an event loop, or a fiber::Scheduler: nullopt if there is work already; poll() then. Otherwise a descriptor, which becomes readable
  // when there may be work; lowers `limit` to the time after which the program must poll anyway. -1: the NI is gone.
  std::optional<int> arm(Nanoseconds& limit) override;

  uint64_t late_under_way() const noexcept { return late_.used(); }
  uint64_t memory() const noexcept { return memory_.used(); }
  size_t callers() const noexcept { return by_source_.size(); }
  const ServerCounters& counters() const noexcept { return counters_; }
  am::Endpoint& endpoint() noexcept { return *endpoint_; }

 private:
  friend class IncomingCall;
  friend class LateResponse;
  struct ExportedInterface {
    std::string name;
    uint32_t version;
    std::vector<std::shared_ptr<ExportedProcedure>> procedures;  // by number
  };
  struct BindingEntry {
    uint32_t id = 0;
    uint64_t caller = 0;  // 0: free
    ExportedInterface* interface = nullptr;
  };
  struct LongCall {  // its arguments are coming
    uint32_t binding;
    CallHead head;
    Nanoseconds deadline;
    Assembly arguments;
  };
  struct Outgoing {  // an answer that waits for a credit
    std::shared_ptr<LateCall> call;
    AnswerBytes answer;
    uint64_t at = 0;  // bytes of a long result that are sent
  };
  struct Caller {
    uint64_t source;
    am::Index index;      // of the translation to it
    bool mapped = false;
    std::vector<uint32_t> bindings;
    std::map<uint32_t, LongCall> long_calls;                  // by call id
    std::map<uint32_t, std::shared_ptr<LateCall>> late_calls;  // by call id
    std::deque<Outgoing> backlog;
    uint64_t late = 0, memory = 0;  // shares of the server's
  };

  Server(std::unique_ptr<am::Endpoint> endpoint, const ServerOptions& options);
  ExportedInterface* find_interface(const Interface& interface) noexcept;
  void set(const Interface& interface, uint16_t number, std::shared_ptr<ExportedProcedure> procedure);

  // Calls that arrive.
  void take_call(am::Token& token);
  void take_piece(am::Token& token);
  void take_control(am::Token& token, const CallHead& head, const CallInfo& call, uint32_t binding, WordReader& words);
  void begin_long(am::Token& token, const CallInfo& call, uint32_t binding, const CallHead& head, uint64_t total);
  void run(am::Token& token, const CallInfo& call, const BindingEntry& binding, uint32_t number, Bytes arguments);
  bool detach(const CallInfo& call, const std::shared_ptr<ExportedProcedure>& procedure, Bytes arguments);
  void import(am::Token& token, const CallInfo& call, Bytes arguments);
  void refuse(am::Token& token, const CallInfo& call, CallStatus status);
  const BindingEntry* find_binding(uint32_t binding, uint64_t caller) const noexcept;

  // Callers.
  Caller* find_caller(uint64_t source) noexcept;
  Caller* caller_of(const am::Token& token);
  void map_callers();
  void look_at_callers();
  void end_caller(Caller& caller);
  void end_binding(BindingEntry& entry) noexcept;

  // Answers.
  bool may_defer(const CallInfo& call, uint64_t bytes) noexcept;
  std::shared_ptr<LateCall> defer(const CallInfo& call, uint64_t bytes);
  void send_late(std::shared_ptr<LateCall> call, AnswerBytes answer);
  bool send(Caller& caller, Outgoing& out);
  bool send_pieces(Caller& caller, Outgoing& out);
  void pump();
  void drop(const Outgoing& out) noexcept;
  void settle(bool arrived);
  WaitOutcome sleep_beside_threads(Nanoseconds limit);

  std::unique_ptr<am::Endpoint> endpoint_;
  const ServerOptions options_;
  PollingTime polling_time_;
  std::vector<std::unique_ptr<ExportedInterface>> interfaces_;
  std::vector<BindingEntry> bindings_;
  std::vector<uint32_t> free_bindings_;
  std::vector<std::unique_ptr<Caller>> callers_;  // by translation; nullptr: free
  std::unordered_map<uint64_t, Caller*> by_source_;
  std::vector<Caller*> unmapped_;
  std::vector<Caller*> backlogged_;
  Budget late_, memory_;      // calls; bytes
  uint32_t looks_ = 0;        // polls since the last look at callers; an empty one counts more
  uint32_t fibers_ = 0;       // that run procedures
  bool running_ = false;      // a procedure, in poll()
  std::shared_ptr<Server*> self_ = std::make_shared<Server*>(this);
  size_t next_look_ = 0;      // the caller to be looked at next
  ServerCounters counters_;
  std::unique_ptr<ServerThreads> threads_;  // declared last: they end first
};

// ---- procedures with types

namespace detail {

template <typename Function, typename R, typename... A>
class TypedProcedure final : public ExportedProcedure {
  static constexpr bool kLate = std::is_invocable_v<Function&, Response<R>, A...>;
  static constexpr bool kPlain = std::is_invocable_v<Function&, A...>;

 public:
  TypedProcedure(Function function, RunIn run) : ExportedProcedure(run, kLate), function_(std::move(function)) {}

 private:
  static_assert(kLate || kPlain || std::is_invocable_v<Function&, const IncomingCall&, A...>,
                "the function takes the procedure's arguments");

  void run(IncomingCall& call) override {
    std::tuple<A...> arguments;
    const bool decoded = std::apply([&](auto&... each) { return decode(call.arguments(), each...); }, arguments);
    if (!decoded) return call.refuse(CallStatus::bad_arguments);
    std::apply([&](auto&... each) { invoke(call, each...); }, arguments);
  }
  decltype(auto) result_of(const IncomingCall& call, A&... arguments) {
    if constexpr (kPlain) {
      return function_(std::move(arguments)...);
    } else {
      return function_(call, std::move(arguments)...);
    }
  }
  void invoke(IncomingCall& call, A&... arguments) {
    if constexpr (kLate) {
      function_(Response<R>(call.defer()), std::move(arguments)...);
    } else {
      using Returned = decltype(result_of(call, arguments...));
      if constexpr (std::is_void_v<Returned>) {
        static_assert(std::is_void_v<R>, "the function returns the procedure's result");
        result_of(call, arguments...);
        call.answer();
      } else if constexpr (std::is_same_v<Returned, OrFailure<R>>) {
        const OrFailure<R> result = result_of(call, arguments...);
        if (!result) return call.refuse(CallStatus::failed, result.error().number);
        if constexpr (std::is_void_v<R>) {
          call.answer();
        } else {
          call.template answer<R>(*result);
        }
      } else {
        call.template answer<R>(result_of(call, arguments...));
      }
    }
  }
  Function function_;
};

template <typename Function>
class BytesProcedure final : public ExportedProcedure {
 public:
  BytesProcedure(Function function, RunIn run) : ExportedProcedure(run, true), function_(std::move(function)) {}

 private:
  void run(IncomingCall& call) override { function_(call); }
  Function function_;
};

}  // namespace detail

template <typename R, typename... A, typename F>
void Server::provide(const Interface& interface, const Procedure<R(A...)>& procedure, F function, RunIn run) {
  using Typed = detail::TypedProcedure<F, R, std::remove_cvref_t<A>...>;
  set(interface, procedure.number, std::make_shared<Typed>(std::move(function), run));
}

template <typename F>
void Server::provide_bytes(const Interface& interface, uint16_t number, F function, RunIn run) {
  set(interface, number, std::make_shared<detail::BytesProcedure<F>>(std::move(function), run));
}

}  // namespace unet::rpc
