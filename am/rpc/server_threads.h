// server_threads.h - threads that run a server's procedures, and give the answers back to the server's thread; used by Server.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "am/rpc/incoming_call.h"
#include "unet/mapping.h"

namespace unet::rpc {

// A procedure that a server exports.
class ExportedProcedure {
 public:
  ExportedProcedure(bool in_thread, bool may_be_late) noexcept : in_thread_(in_thread), may_be_late_(in_thread || may_be_late) {}
  virtual ~ExportedProcedure() = default;
  // Decodes the arguments, calls the function, and answers.
  virtual void run(IncomingCall& call) = 0;
  bool in_thread() const noexcept { return in_thread_; }
  // The call may be answered after run() has returned.
  bool may_be_late() const noexcept { return may_be_late_; }

 private:
  bool in_thread_, may_be_late_;
};

class ServerThreads {
 public:
  struct Job {
    std::shared_ptr<LateCall> call;
    std::shared_ptr<ExportedProcedure> procedure;
    ByteBuffer arguments;
    AnswerBytes answer{};
  };

  // Errors: system (no descriptor left).
  static Result<std::unique_ptr<ServerThreads>> create(uint32_t threads);
  // Waits for the procedures that run; jobs that have not begun are dropped.
  ~ServerThreads();
  ServerThreads(const ServerThreads&) = delete;
  ServerThreads& operator=(const ServerThreads&) = delete;

  void add(Job job);
  // Returns the jobs that have ended.
  std::vector<Job> take_ended();
  // Readable while there are jobs that have ended.
  int descriptor() const noexcept { return ended_event_.get(); }

 private:
  explicit ServerThreads(Descriptor ended_event) noexcept : ended_event_(std::move(ended_event)) {}
  void work();

  Descriptor ended_event_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::deque<Job> waiting_;
  std::vector<Job> ended_;
  std::vector<std::thread> threads_;
};

}  // namespace unet::rpc
