// thread_specific.h - an object of each thread; used by runtime_wait.cc, transfer.cc and last_thread.cc.
#pragma once

#include <pthread.h>

namespace unet::preload {

// The object lives as long as its thread may call this library. A thread_local object would not: exit() destroys these before it calls
// functions of atexit(), and a thread that ends destroys them before it calls destructors of pthread_key_create().
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
  // May be called more than once: the destructor of another key may make the object again.
  static void end(void* of_thread) noexcept {
    own = nullptr;
    delete static_cast<T*>(of_thread);
  }

  inline static constinit thread_local T* own = nullptr;
};

}  // namespace unet::preload
