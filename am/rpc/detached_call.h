// detached_call.h - procedures, and calls that run outside of the server's poll: in a thread or a fiber; used by Server.
#pragma once

#include <memory>

#include "am/rpc/incoming_call.h"

namespace unet::rpc {

// Where a procedure's function runs.
enum class RunIn : uint8_t {
  poll,    // in the server's poll(): at once, and nothing else runs meanwhile
  fiber,   // in a fiber of the scheduler that polls the server; with several threads, the function must be safe to call from several
  thread,  // in one of ServerOptions::threads; the function must be safe to call from several
};

// A procedure that a server exports.
class ExportedProcedure {
 public:
  ExportedProcedure(RunIn run_in, bool may_answer_late) noexcept
      : run_in_(run_in), may_be_late_(run_in != RunIn::poll || may_answer_late) {}
  virtual ~ExportedProcedure() = default;
  // Decodes the arguments, calls the function, and answers.
  virtual void run(IncomingCall& call) = 0;
  RunIn run_in() const noexcept { return run_in_; }
  // The call may be answered after run() has returned.
  bool may_be_late() const noexcept { return may_be_late_; }

 private:
  RunIn run_in_;
  bool may_be_late_;
};

struct DetachedCall {
  std::shared_ptr<LateCall> call;
  std::shared_ptr<ExportedProcedure> procedure;
  ByteBuffer arguments;
  AnswerBytes answer{};

  // Runs the procedure, unless its caller does not want it any more.
  void run() {
    if (call->cancelled.load(std::memory_order_relaxed)) {
      answer.status = CallStatus::cancelled;
    } else if (call->deadline != kNever && monotonic_now() >= call->deadline) {
      answer.status = CallStatus::expired;
    } else {
      answer.status = CallStatus::failed;  // unless the procedure answers
      IncomingCall incoming(*call, arguments.bytes(), answer);
      procedure->run(incoming);
    }
  }
};

}  // namespace unet::rpc
