// last_thread.h - ends the process when all threads of the program have ended: the helper alone must not keep it alive. Used by
// process_calls.cc, forks.cc and the helper.
#pragma once

namespace unet::preload {

class LastThread {
 public:
  // Called by the first thread of a process, also of a child.
  static void watch_first();
  // The first thread has ended and others go on, so the helper looks now and then whether it is alone.
  static bool is_awaited() noexcept;
  // Whether only the calling thread is left in this process, apart from the first.
  static bool is_this() noexcept;

 private:
  struct First {
    ~First();
  };
};

}  // namespace unet::preload
