// thread_specific.h - what each thread has for itself; used by runtime_wait.cc and transfer.cc.
#pragma once

#include <pthread.h>

namespace unet::preload {

// It goes with its thread, but is there as long as the thread can call. thread_local objects are not: exit() destroys them before it calls
// the program's last functions (atexit()), and the end of a thread before its keys' (pthread_key_create()).
template <typename T>
class ThreadSpecific {
 public:
  static T& get() {
    if (own == nullptr) make();
    return *own;
  }

 private:
  static void make() {
    static const pthread_key_t key = made_key();
    own = new T;
    ::pthread_setspecific(key, own);
  }
  static pthread_key_t made_key() noexcept {
    pthread_key_t key{};
    ::pthread_key_create(&key, &end);
    return key;
  }
  // May be called again, where another key's end has made it anew.
  static void end(void* of_thread) noexcept {
    own = nullptr;
    delete static_cast<T*>(of_thread);
  }

  inline static constinit thread_local T* own = nullptr;
};

}  // namespace unet::preload
