// option_sets.h - TCP options of sockets: sockets with equal options, as nearly all are, share one set. A set is larger than the rest of a
// socket. Used by the stack.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "ipstack/tcp/options.h"

namespace unet::sockets {

// A counted reference to an immutable set: other options are another set. Sets belong to one thread.
class SharedOptions {
 public:
  SharedOptions() noexcept = default;  // refers to no set
  explicit SharedOptions(const tcp::Options& options) : set_(new Set{options}) {}
  SharedOptions(const SharedOptions& other) noexcept : set_(other.set_) {
    if (set_ != nullptr) ++set_->users;
  }
  SharedOptions(SharedOptions&& other) noexcept : set_(std::exchange(other.set_, nullptr)) {}
  SharedOptions& operator=(SharedOptions other) noexcept {
    std::swap(set_, other.set_);
    return *this;
  }
  ~SharedOptions() {
    if (set_ != nullptr && --set_->users == 0) delete set_;
  }

  explicit operator bool() const noexcept { return set_ != nullptr; }
  const tcp::Options& operator*() const noexcept { return set_->options; }
  const tcp::Options* operator->() const noexcept { return &set_->options; }

 private:
  struct Set {
    tcp::Options options;
    uint32_t users = 1;
  };
  Set* set_ = nullptr;
};

class OptionSets {
 public:
  // A set with these options: a recent one if it is equal, else a new one.
  SharedOptions get(const tcp::Options& options) {
    for (const SharedOptions& each : recent_) {
      if (each && *each == options) return each;
    }
    SharedOptions& oldest = recent_[next_++ % recent_.size()];
    return oldest = SharedOptions(options);
  }

 private:
  std::array<SharedOptions, 8> recent_{};
  size_t next_ = 0;
};

}  // namespace unet::sockets
