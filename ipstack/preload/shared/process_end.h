// process_end.h - what becomes of the sockets when this process ends or becomes another program; used by process_calls.cc, forks.cc and the
// helper.
//
// Either way the stack is lost with this process's memory. Other processes may still have its connections, and peers may not have received
// all data. The process then leaves an orphan: a process without a program, which goes on with the stack as a parent does (forks.h). The
// program that follows after exec takes the place of a child. An embedded network interface ends with its process, so there is no orphan.
#pragma once

#include <cstdint>
#include <vector>

#include "ipstack/preload/shared/orphan_life.h"
#include "unet/base/time.h"

namespace unet::preload {

class SocketProxies;

class ProcessEnd {
 public:
  // Without the lock, as the process ends: closes its sockets, and lets sent data leave. This thread then keeps the lock.
  void finish() noexcept;
  // Without the lock, before this process executes another program (`goes_on`) or ends: leaves an orphan process if one is needed. False:
  // there is none. If it is true and the process ends, this thread has the lock.
  bool leave_orphan(bool goes_on);

  // ---- for the handlers of fork()

  // This thread's fork() is by leave_orphan().
  static bool is_forking() noexcept { return orphan_for_ != OrphanFor::none; }
  // Before that fork(), with the lock. True: an orphan gets the stack, and the program goes on without it.
  bool prepare_fork();

  // ---- for the helper, which is an orphan's only thread

  // This process is an orphan that no other process needs any longer.
  bool is_over() noexcept;
  // The longest time that the helper may sleep.
  Nanoseconds sleep_limit(Nanoseconds at) const noexcept { return life_.limit(at); }

 private:
  enum class OrphanFor : uint8_t { none, exec, end };

  [[noreturn]] void run_orphan(int told);

  inline static constinit thread_local OrphanFor orphan_for_ = OrphanFor::none;
  bool is_needed_ = false;  // the orphan of the fork() under way
  OrphanLife life_;         // of this process, if it is an orphan
};

}  // namespace unet::preload
