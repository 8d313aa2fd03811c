// call.h - one call under way, as its caller sees it; part of the public API of calls.
//
//   rpc::Call<int> call;                         // the caller owns it; its end cancels the call
//   binding.start(call, kAdd, 1, 2);
//   client->wait_for(call);
//   if (call.ok()) use(call.result());
//
// A client ends a call from poll(), wait() or wait_for(), or from start() itself. A call that has ended can be started again. It belongs to
// the thread of its client, and ends before the client does.
#pragma once

#include <atomic>
#include <coroutine>
#include <memory>
#include <type_traits>
#include <utility>
#include <variant>

#include "am/rpc/byte_buffer.h"
#include "am/rpc/call_status.h"
#include "am/rpc/codec.h"
#include "am/rpc/fiber/fiber.h"
#include "unet/base/time.h"

namespace unet::rpc {

class Client;
struct Remote;

class PendingCall {
 public:
  PendingCall() = default;
  PendingCall(const PendingCall&) = delete;
  PendingCall& operator=(const PendingCall&) = delete;
  virtual ~PendingCall() { cancel(); }

  // False while the call is under way.
  bool done() const noexcept { return client_.load(std::memory_order_acquire) == nullptr; }
  CallStatus status() const noexcept { return status_; }
  bool ok() const noexcept { return status_ == CallStatus::ok; }
  // The procedure's own number, for CallStatus::failed.
  uint32_t failure() const noexcept { return failure_; }

  // Ends a call that is under way with `abandoned`, and tells the server. An answer that still comes is dropped.
  void cancel() noexcept;

  // Sets the function that runs when the call ends, for this and later starts: from the client's poll(), where it may start calls.
  using Function = void (*)(PendingCall& call, void* context);
  void on_done(Function function, void* context) noexcept {
    function_ = function;
    context_ = context;
  }

 private:
  friend class Client;
  friend class Binding;
  // Decodes a result, in place; false if it is none.
  virtual bool take(Bytes result) = 0;

  std::atomic<Client*> client_{nullptr};  // while the call is under way, and until function_ has run
  bool sent_ = false;  // a message of it
  bool long_ = false;  // its arguments are long, and no wait for it has begun
  Remote* remote_ = nullptr;
  uint32_t id_ = 0;
  CallStatus status_ = CallStatus::unavailable;
  uint32_t failure_ = 0;
  Nanoseconds deadline_ = kNever;
  Function function_ = nullptr;
  void* context_ = nullptr;
  fiber::Fiber* waiting_ = nullptr;
  std::unique_ptr<Assembly> long_result_;
};

// The type of a stored result. A void one stores nothing.
template <typename Result>
using Stored = std::conditional_t<std::is_void_v<Result>, std::monostate, Result>;

template <typename Result>
class Call final : public PendingCall {
 public:
  // Valid if ok().
  Stored<Result>& result() noexcept { return result_; }

 private:
  bool take(Bytes result) override {
    if constexpr (std::is_void_v<Result>) {
      return result.empty();
    } else {
      return decode(result, result_);
    }
  }
  Stored<Result> result_{};
};

// The result of a call that was waited for: like an optional result, with the reason if there is none.
template <typename Result>
class Reply {
 public:
  explicit Reply(Call<Result>& call) : status_(call.status()), failure_(call.failure()) {
    if (call.ok()) result_ = std::move(call.result());
  }
  CallStatus status() const noexcept { return status_; }
  uint32_t failure() const noexcept { return failure_; }
  explicit operator bool() const noexcept { return status_ == CallStatus::ok; }
  Stored<Result>& operator*() noexcept { return result_; }
  const Stored<Result>& operator*() const noexcept { return result_; }
  Stored<Result>* operator->() noexcept { return &result_; }
  const Stored<Result>* operator->() const noexcept { return &result_; }

 private:
  CallStatus status_;
  uint32_t failure_;
  Stored<Result> result_{};
};

// Binding::begin() returns one: a call with memory of its own.
template <typename Result>
class Future {
 public:
  Future(Client& client, std::unique_ptr<Call<Result>> call) noexcept : client_(&client), call_(std::move(call)) {}
  bool done() const noexcept { return call_->done(); }
  // Waits for the end of the call.
  Reply<Result> get();

  // co_await waits without a thread: the coroutine continues from the client's poll().
  bool await_ready() const noexcept { return done(); }
  void await_suspend(std::coroutine_handle<> waiting) noexcept {
    call_->on_done([](PendingCall&, void* context) { std::coroutine_handle<>::from_address(context).resume(); }, waiting.address());
  }
  Reply<Result> await_resume() { return Reply<Result>(*call_); }

 private:
  Client* client_;
  std::unique_ptr<Call<Result>> call_;
};

}  // namespace unet::rpc
