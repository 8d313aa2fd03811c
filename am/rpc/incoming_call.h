// incoming_call.h - one call at its server: its arguments, and the right to answer it once; part of the public API of calls.
#pragma once

#include <atomic>
#include <memory>
#include <type_traits>
#include <utility>

#include "am/handler.h"
#include "am/rpc/byte_buffer.h"
#include "am/rpc/call_message.h"
#include "am/rpc/call_status.h"
#include "am/rpc/codec.h"
#include "unet/base/time.h"

namespace unet::rpc {

class Server;

// What a procedure returns instead of a result: the caller gets CallStatus::failed and this number.
struct Failure {
  uint32_t number = 0;
};
template <typename Result>
using OrFailure = tl::expected<Result, Failure>;

// Describes a call that has arrived.
struct CallInfo {
  uint64_t caller = 0;       // am::Token::source()
  uint32_t id = 0;
  bool one_way = false;
  Nanoseconds deadline = kNever;
};

// A call that is answered after its handler has returned.
struct LateCall : CallInfo {
  LateCall(const CallInfo& call, std::shared_ptr<Server*> of_server, uint64_t of_bytes) noexcept
      : CallInfo(call), server(std::move(of_server)), bytes(of_bytes) {}
  std::shared_ptr<Server*> server;  // it points to nullptr when the server has ended
  uint64_t bytes;                   // of the server's memory
  std::atomic<bool> cancelled{false};  // by the caller, or by its end
};

// How a call ends, on its way to the caller.
struct AnswerBytes {
  CallStatus status = CallStatus::ok;
  uint32_t failure = 0;
  ByteBuffer result{};
};

// The right to answer a call later, once. It belongs to the server's thread. Its end without an answer is a Failure of number 0.
class LateResponse {
 public:
  explicit LateResponse(std::shared_ptr<LateCall> call) noexcept : call_(std::move(call)) {}
  LateResponse(LateResponse&&) noexcept = default;
  LateResponse& operator=(LateResponse&& other) noexcept {
    LateResponse ends(std::move(*this));
    call_ = std::move(other.call_);
    return *this;
  }
  ~LateResponse() {
    if (call_ != nullptr) send({.status = CallStatus::failed});
  }
  // The caller does not want the answer any more, or is gone.
  bool cancelled() const noexcept { return call_ == nullptr || call_->cancelled.load(std::memory_order_relaxed); }
  Nanoseconds deadline() const noexcept { return call_ == nullptr ? kNever : call_->deadline; }
  void send(AnswerBytes answer);

 private:
  std::shared_ptr<LateCall> call_;
};

// The same for a procedure with this result.
template <typename Result>
class Response : public LateResponse {
 public:
  explicit Response(LateResponse&& answer) noexcept : LateResponse(std::move(answer)) {}
  void operator()() requires std::is_void_v<Result> { send({}); }
  template <typename R = Result>
    requires(!std::is_void_v<R>)
  void operator()(const std::type_identity_t<R>& result) {
    ByteBuffer bytes(encoded_size<R>(result));
    encode<R>(bytes.data(), result);
    send({.result = std::move(bytes)});
  }
  void fail(Failure why) { send({.status = CallStatus::failed, .failure = why.number}); }
};

// A call as its procedure gets it.
class IncomingCall {
 public:
  // In the server's poll, with the message of the call.
  IncomingCall(Server& server, am::Token& token, const CallInfo& call, Bytes arguments) noexcept
      : server_(&server), token_(&token), call_(&call), arguments_(arguments) {}
  // Elsewhere: the answer goes to `answer`.
  IncomingCall(const LateCall& call, Bytes arguments, AnswerBytes& answer) noexcept
      : call_(&call), arguments_(arguments), answer_(&answer), cancelled_(&call.cancelled) {}
  IncomingCall(const IncomingCall&) = delete;
  IncomingCall& operator=(const IncomingCall&) = delete;

  // As they arrived, at an address that a codec accepts. A local caller can still change them.
  Bytes arguments() const noexcept { return arguments_; }
  Nanoseconds deadline() const noexcept { return call_->deadline; }
  // A number for the caller, as am::Token::source().
  uint64_t caller() const noexcept { return call_->caller; }
  // The caller does not want the answer any more, or is gone. Always false in the server's poll: the server hears of it later.
  bool cancelled() const noexcept { return cancelled_ != nullptr && cancelled_->load(std::memory_order_relaxed); }

  // Answer once, at most; a call without an answer fails with number 0.
  template <typename... Result>  // one, or none for void
  void answer(const Result&... result) {
    const size_t size = encoded_size<Result...>(result...);
    const auto emit = [&](std::byte* to) { encode<Result...>(to, result...); };
    if constexpr (fit<Result...>(kInlineResult)) {
      if (size <= kInlineResult && token_ != nullptr) return answer_line(size, emit);
    }
    answer_long(size, emit);
  }
  void refuse(CallStatus status, uint32_t failure = 0);
  // The call is answered later. Only in the server's poll.
  LateResponse defer();
  bool can_defer() const noexcept { return server_ != nullptr && !answered_; }
  bool answered() const noexcept { return answered_; }

 private:
  void give(AnswerBytes answer);
  // Answers elsewhere, or with a payload.
  template <typename Emit>
  void answer_long(size_t size, const Emit& emit) {
    if (answered_) return;
    if (token_ == nullptr || size > kPayloadMax) {
      ByteBuffer bytes(size);
      emit(bytes.data());
      return give({.result = std::move(bytes)});
    }
    alignas(kAlignment) std::byte room[kPayloadMax];
    emit(room);
    answered_ = true;
    if (call_->one_way) return;
    MessageWords words;
    words.add(call_->id);
    words.add(AnswerHead{}.word());
    token_->reply_medium(kAnswerHandler, {room, size}, words);
  }
  // Answers in one line.
  template <typename Emit>
  void answer_line(size_t size, const Emit& emit) {
    if (std::exchange(answered_, true) || call_->one_way) return;
    MessageWords words;
    words.add(call_->id);
    words.add(AnswerHead{.status = 0, .length = static_cast<uint8_t>(size)}.word());
    emit(words.add_bytes(size));
    token_->reply_short(kAnswerHandler, words);
  }

  Server* server_ = nullptr;
  am::Token* token_ = nullptr;
  const CallInfo* call_;
  Bytes arguments_;
  AnswerBytes* answer_ = nullptr;
  const std::atomic<bool>* cancelled_ = nullptr;
  bool answered_ = false;
};

}  // namespace unet::rpc
