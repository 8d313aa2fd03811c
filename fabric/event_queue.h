// event_queue.h - the object of fi_eq_open(): ends of asynchronous set-up calls.
#pragma once

#include <rdma/fi_eq.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <vector>

#include "unet/mapping.h"

namespace unet::fabric {

// fi_ops_fabric::eq_open.
int open_event_queue(fid_fabric* fabric, fi_eq_attr* attributes, fid_eq** queue, void* context);

// It belongs to a fabric, so it has a lock of its own.
class EventQueue : public fid_eq {
 public:
  // `wakes`: an eventfd that is readable while the queue has events; or none.
  EventQueue(Descriptor wakes, void* context) noexcept;

  void write(uint32_t event, const fi_eq_entry& entry);
  void write(uint32_t event, const void* bytes, size_t length);
  // Returns the length of the event, or -FI_EAGAIN or -FI_ETOOSMALL. Waits for at most `timeout` milliseconds; -1: for ever.
  ssize_t read(uint32_t* event, void* to, size_t length, uint64_t flags, int timeout);
  // 0: the program may sleep on the descriptor.
  int try_wait() noexcept;
  int descriptor() const noexcept { return wakes_.get(); }
  // The address vectors that write here.
  void add_vector() noexcept { ++vectors_; }
  void remove_vector() noexcept { --vectors_; }
  bool is_bound() const noexcept { return vectors_ != 0; }

 private:
  struct Event {
    uint32_t number;
    std::vector<char> bytes;
  };
  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<Event> events_;
  Descriptor wakes_;
  std::atomic<uint32_t> vectors_{0};
};

}  // namespace unet::fabric
