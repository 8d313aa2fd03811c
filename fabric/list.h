// list.h - a queue of objects that contain their own links: no allocation, and removal from the middle; used by the matching engine.
#pragma once

namespace unet::fabric {

template <typename T>
struct Linked {
  T* next = nullptr;
  T* before = nullptr;
};

// T derives from Linked<T>. The list owns nothing.
template <typename T>
class List {
 public:
  T* first() const noexcept { return first_; }
  bool empty() const noexcept { return first_ == nullptr; }
  void add(T& item) noexcept {
    item.next = nullptr;
    item.before = last_;
    (last_ != nullptr ? last_->next : first_) = &item;
    last_ = &item;
  }
  void remove(T& item) noexcept {
    (item.before != nullptr ? item.before->next : first_) = item.next;
    (item.next != nullptr ? item.next->before : last_) = item.before;
  }

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;
};

}  // namespace unet::fabric
