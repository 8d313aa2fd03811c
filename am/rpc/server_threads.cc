// server_threads.cc - threads that run a server's procedures.
#include "am/rpc/server_threads.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace unet::rpc {

Result<std::unique_ptr<ServerThreads>> ServerThreads::create(uint32_t threads) {
  Descriptor ended_event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!ended_event.valid()) return fail_errno("eventfd", errno);
  std::unique_ptr<ServerThreads> made(new ServerThreads(std::move(ended_event)));
  for (uint32_t i = 0; i < threads; ++i) made->threads_.emplace_back([pool = made.get()] { pool->work(); });
  return made;
}

ServerThreads::~ServerThreads() {
  {
    const std::lock_guard held(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ServerThreads::add(DetachedCall call) {
  {
    const std::lock_guard held(mutex_);
    waiting_.push_back(std::move(call));
  }
  changed_.notify_one();
}

std::vector<DetachedCall> ServerThreads::take_ended() {
  const std::lock_guard held(mutex_);
  if (!ended_.empty()) {
    uint64_t count;
    (void)!::read(ended_event_.get(), &count, sizeof count);
  }
  return std::exchange(ended_, {});
}

void ServerThreads::work() {
  std::unique_lock held(mutex_);
  for (;;) {
    changed_.wait(held, [this] { return ends_ || !waiting_.empty(); });
    if (ends_) return;
    DetachedCall call = std::move(waiting_.front());
    waiting_.pop_front();
    held.unlock();
    call.run();
    held.lock();
    ended_.push_back(std::move(call));
    const uint64_t one = 1;
    (void)!::write(ended_event_.get(), &one, sizeof one);
  }
}

}  // namespace unet::rpc
