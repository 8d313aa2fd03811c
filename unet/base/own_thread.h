// own_thread.h - a thread of this library in the process of a program; used by endpoints, and by the libfabric provider.
#pragma once

#include <csignal>
#include <memory>
#include <thread>
#include <utility>

namespace unet {

class OwnThread {
 public:
  bool is_running() const noexcept { return thread_ != nullptr; }
  // Throws std::system_error or std::bad_alloc if there can be no thread.
  template <typename Body>
  void start(Body body) {
    thread_ = std::make_unique<std::thread>(std::move(body));
  }
  // Works like start(). The thread takes no signals: these are for the program's threads.
  template <typename Body>
  void start_without_signals(Body body) {
    const NoSignals none;
    start(std::move(body));
  }
  void join() {
    thread_->join();
    thread_.reset();
  }
  // Forgets the thread without ending it. A forked child has no such thread, and may have another one with the same handle.
  void forget() noexcept { static_cast<void>(thread_.release()); }

 private:
  struct NoSignals {
    NoSignals() noexcept {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    NoSignals(const NoSignals&) = delete;
    NoSignals& operator=(const NoSignals&) = delete;
    sigset_t before;
  };

  std::unique_ptr<std::thread> thread_;
};

}  // namespace unet
