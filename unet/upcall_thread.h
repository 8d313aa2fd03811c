// upcall_thread.h - the thread that runs an endpoint's upcall under a lock, and sleeps while nothing arrives; used by Endpoint.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>

#include "unet/base/own_thread.h"
#include "unet/base/result.h"
#include "unet/mapping.h"

namespace unet {

class UpcallThread {
 public:
  UpcallThread() = default;
  ~UpcallThread();
  UpcallThread(const UpcallThread&) = delete;
  UpcallThread& operator=(const UpcallThread&) = delete;

  // Calls `poll` again and again with the lock held. If that returns true, sleeps until `descriptor` is readable or wake() is called.
  Status start(int descriptor, std::function<bool()> poll);
  // No call of `poll` runs after stop() returns.
  void stop() noexcept;
  // For a forked child, which has no such thread.
  void forget() noexcept { thread_.forget(); }
  bool is_running() const noexcept { return thread_.is_running(); }
  // Makes the thread call `poll` again if it sleeps. The caller holds the lock, or there is no thread.
  void wake() noexcept;

  // The lock: any thread that holds it keeps `poll` from running.
  void mask() noexcept;
  void unmask() noexcept { mutex_.unlock(); }

 private:
  void loop(int descriptor, const std::function<bool()>& poll) noexcept;

  std::mutex mutex_;
  std::atomic<int> maskers_{0};  // threads that wait in mask()
  OwnThread thread_;
  std::atomic<bool> stop_{false};
  bool asleep_ = false;          // guarded by mutex_
  Descriptor wake_;
};

}  // namespace unet
