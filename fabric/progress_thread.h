// progress_thread.h - makes progress for the endpoints of a domain while the program does not poll them; used by Domain.
//
// A program that waits elsewhere after its last operation does not see that a wire has lost a frame. This thread checks every few
// milliseconds which endpoints the program polls. It serves the others, and sleeps until something arrives for them.
#pragma once

#include <atomic>

#include "fabric/domain_lock.h"
#include "unet/base/own_thread.h"
#include "unet/mapping.h"

namespace unet::fabric {

class Domain;

class ProgressThread {
 public:
  explicit ProgressThread(Domain& domain);
  // Call it without the domain's lock.
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  // Starts the thread, unless it runs already. Call it with the domain's lock.
  void start() noexcept;

 private:
  static void before_fork();
  static void after_fork();
  void run() noexcept;

  Domain& domain_;
  Descriptor wakes_;  // ends a sleep
  std::atomic<bool> ends_{false};
  OwnThread thread_;
};

}  // namespace unet::fabric
