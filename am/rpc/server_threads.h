// server_threads.h - threads that run a server's procedures, and give the answers back to the server's thread; used by Server.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "am/rpc/detached_call.h"
#include "unet/mapping.h"

namespace unet::rpc {

class ServerThreads {
 public:
  // Errors: system (no descriptor left).
  static Result<std::unique_ptr<ServerThreads>> create(uint32_t threads);
  // Waits for the procedures that run; calls that have not begun are dropped.
  ~ServerThreads();
  ServerThreads(const ServerThreads&) = delete;
  ServerThreads& operator=(const ServerThreads&) = delete;

  void add(DetachedCall call);
  // Returns the calls that have ended.
  std::vector<DetachedCall> take_ended();
  // Readable while there are calls that have ended.
  int descriptor() const noexcept { return ended_event_.get(); }

 private:
  explicit ServerThreads(Descriptor ended_event) noexcept : ended_event_(std::move(ended_event)) {}
  void work();

  Descriptor ended_event_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::deque<DetachedCall> waiting_;
  std::vector<DetachedCall> ended_;
  std::vector<std::thread> threads_;
};

}  // namespace unet::rpc
