// embedded_ni.h - an endpoint's calls into the NI inside its process, and its sends that are not on the wire yet; used by OwnChannels.
#pragma once

#include "unet/base/bytes.h"
#include "unet/base/time.h"
#include "unet/embedded_abi.h"
#include "unet/message.h"

namespace unet {

class EmbeddedNi {
 public:
  EmbeddedNi(const unet_embedded_table* table, void* handle, uint32_t endpoint) noexcept
      : table_(table), handle_(handle), endpoint_(endpoint) {}
  // False: the NI is another process, and nothing else may be called.
  explicit operator bool() const noexcept { return table_ != nullptr; }

  // Runs one turn of the engine.
  void poll() noexcept {
    unsent_ = 0;
    table_->poll(handle_);
  }
  void pull() noexcept { table_->pull(handle_); }
  void push() noexcept {
    unsent_ = 0;
    table_->push(handle_);
  }
  // Whether sends with `more` wait for a push.
  bool has_unsent() const noexcept { return unsent_ != 0; }
  // Sends past the queue. False: this message must go by the queue.
  bool send(Channel channel, Bytes data, bool more) noexcept {
    const auto length = static_cast<uint32_t>(data.size());
    if (table_->send(handle_, endpoint_, static_cast<uint32_t>(channel), data.data(), length, more ? 1 : 0) == 0) return false;
    unsent_ = more ? unsent_ + 1 : 0;
    return true;
  }
  // A message was queued. It leaves now, or with the next one if another send follows at once.
  void queued(bool more) noexcept {
    if (!more || ++unsent_ >= kUnsentMax) push();
  }

  // Sleeps at most `timeout`, or runs a turn and returns at once with 0. False: a signal ended the sleep.
  bool wait(Nanoseconds timeout) noexcept { return table_->wait(handle_, static_cast<int64_t>(timeout)) >= 0; }
  int descriptor() const noexcept { return table_->descriptor(handle_); }
  // True: the caller may sleep on descriptor().
  bool arm() noexcept { return table_->arm(handle_) == 1; }

 private:
  static constexpr uint32_t kUnsentMax = 32;  // sends with `more` that the NI collects

  const unet_embedded_table* table_;
  void* handle_;
  uint32_t endpoint_;
  uint32_t unsent_ = 0;  // sends with `more` since the NI's last turn
};

}  // namespace unet
