// handler_table.h - the program's functions that an endpoint calls: handlers, the error handler and others; used by Endpoint and its parts.
#pragma once

#include <array>
#include <utility>

#include "am/counters.h"
#include "am/handler.h"

namespace unet::am {

constexpr uint32_t kHandlersMax = 256;

// Records calls of the program's functions by one endpoint, or by all endpoints of a bundle. While a call runs, none of these endpoints
// sends, polls or maps, because one of them may be waiting for the others.
struct Callbacks {
  bool running = false;
  uint64_t ended = 0;  // calls so far, including those for which the program set no function
};

class HandlerTable {
 public:
  // `endpoint` is only passed on, to the error handler.
  HandlerTable(Endpoint& endpoint, Counters& counters) noexcept : endpoint_(endpoint), counters_(counters) {}
  HandlerTable(const HandlerTable&) = delete;
  HandlerTable& operator=(const HandlerTable&) = delete;

  void set(uint8_t index, const Handler& handler) noexcept { handlers_[index] = handler; }
  void set_error_handler(ErrorFunction function, void* context) noexcept {
    error_function_ = function;
    error_context_ = context;
  }
  const Handler& operator[](uint8_t index) const noexcept { return handlers_[index]; }

  // Where calls are recorded: by the endpoint itself, or by its bundle.
  void record_in(Callbacks& callbacks) noexcept { callbacks_ = &callbacks; }
  void record_here() noexcept { callbacks_ = &own_callbacks_; }
  bool running() const noexcept { return callbacks_->running; }
  uint64_t ended() const noexcept { return callbacks_->ended; }
  // The endpoint's calls that wait for a peer.
  void begin_wait() noexcept { ++waiting_; }
  void end_wait() noexcept { --waiting_; }
  bool is_waited_for() const noexcept { return waiting_ != 0; }
  // A peer has returned credits. A call of another thread may wait for these, so it must look again, as after a handler.
  void note_credits() noexcept {
    if (__builtin_expect(waiting_ != 0, 0)) ++callbacks_->ended;
  }

  // Calls may nest: a function of the program may destroy an endpoint of another bundle, which returns the requests of that endpoint. An
  // exception ends the program, because its message could be neither handled again nor dropped.
  template <typename Call>
  void call(const Call& function) noexcept {
    Callbacks& callbacks = *callbacks_;
    const bool before = std::exchange(callbacks.running, true);
    function();
    callbacks.running = before;
    ++callbacks.ended;
  }
  void run(const Handler& handler, Token& token) noexcept {
    call([&] { handler.function(token, handler.context); });
    ++counters_.handled;
  }
  // Returns a message to the error handler.
  Outcome come_back(ReturnStatus status, Kind kind, uint8_t handler, uint32_t index, std::span<const uint32_t> arguments,
                    MutableBytes memory = {}) noexcept {
    ++counters_.returned;
    const Returned returned{.status = status, .kind = kind, .handler = handler, .index = index, .arguments = arguments, .memory = memory};
    call([&] {
      if (error_function_ != nullptr) error_function_(endpoint_, returned, error_context_);
    });
    return Outcome::returned;
  }

 private:
  Callbacks own_callbacks_;
  Callbacks* callbacks_ = &own_callbacks_;  // the bundle's, while the endpoint is in a bundle
  uint32_t waiting_ = 0;
  Endpoint& endpoint_;
  Counters& counters_;
  ErrorFunction error_function_ = nullptr;
  void* error_context_ = nullptr;
  std::array<Handler, kHandlersMax> handlers_{};
};

}  // namespace unet::am
