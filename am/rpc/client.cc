// client.cc - calls on their way out, and the answers that end them.
#include "am/rpc/client.h"

#include <algorithm>

#include "unet/base/misuse.h"

namespace unet::rpc {
namespace {

constexpr uint32_t kPollEvery = 16;      // calls started between two polls
constexpr uint32_t kLookEvery = 1024;    // polls between two looks for servers that ended and deadlines that passed
constexpr uint32_t kEmptyWeight = 16;    // an empty poll counts as so many
constexpr uint32_t kFreeSlots = 1024;      // a slot rests while others are used: a late answer must not meet a new call of its number
constexpr Nanoseconds kNap = kMillisecond;  // time between looks while a call waits
constexpr Nanoseconds kNapMax = 100 * kNap;
constexpr Nanoseconds kLongPolling = 300 * kMicrosecond;  // while a server takes the long messages under way

CallStatus status_of(am::ReturnStatus why) noexcept {
  switch (why) {
    case am::ReturnStatus::unreachable: return CallStatus::lost;
    case am::ReturnStatus::bad_tag: return CallStatus::not_admitted;
    case am::ReturnStatus::congestion: return CallStatus::overloaded;
    default: return CallStatus::unavailable;
  }
}

bool is_known(uint8_t status) noexcept { return to_string(static_cast<CallStatus>(status)) != "unknown"; }

}  // namespace

Result<std::unique_ptr<Client>> Client::create(Context& context, const ClientOptions& options) {
  am::Options of_endpoint = options.endpoint;
  of_endpoint.both_ways = true;
  auto endpoint = am::Endpoint::create(context, of_endpoint);
  if (!endpoint) return tl::unexpected(endpoint.error());
  return std::unique_ptr<Client>(new Client(std::move(*endpoint), options));
}

Client::Client(std::unique_ptr<am::Endpoint> endpoint, const ClientOptions& options)
    : endpoint_(std::move(endpoint)), connect_(options.connect), result_max_(options.result_max), results_max_(options.results_max),
      polling_time_(options.spin), long_polling_(options.spin == PollingTime::kAdaptive ? kLongPolling : 0) {
  const auto answer = [](am::Token& token, void* client) { static_cast<Client*>(client)->take_answer(token); };
  const auto piece = [](am::Token& token, void* client) { static_cast<Client*>(client)->take_answer_piece(token); };
  endpoint_->set_handler(kAnswerHandler, answer, this);
  endpoint_->set_handler(kAnswerPieceHandler, piece, this);
  endpoint_->set_error_handler(
      [](am::Endpoint&, const am::Returned& returned, void* client) { static_cast<Client*>(client)->take_returned(returned); }, this);
}

Client::~Client() {
  if (under_way() != 0 || !ended_.empty()) misused("a client outlives its calls: let them end, or destroy them, before it");
}

// ---- sending

bool Client::begin(Request& request, uint32_t binding, uint64_t long_total) {
  if (__builtin_expect(++unpolled_ >= kPollEvery, 0)) {
    unpolled_ = 0;
    receive();
  }
  if (request.call != nullptr) {
    PendingCall& call = *request.call;
    if (!call.done()) misused("a call that is under way is not started again: wait until it is done()");
    if (free_slots_ < kFreeSlots && slots_.size() < kIndexMask) {
      slots_.push_back({.next_free = first_free_});
      first_free_ = static_cast<uint32_t>(slots_.size() - 1);
      if (free_slots_++ == 0) last_free_ = first_free_;
    }
    call.failure_ = 0;
    call.sent_ = false;
    call.long_ = long_total != 0;
    if (free_slots_ == 0) {
      set_ended(call, CallStatus::overloaded);
      return false;
    }
    const uint32_t index = first_free_;
    Slot& slot = slots_[index];
    first_free_ = slot.next_free;
    --free_slots_;
    slot.call = &call;
    request.id = index | ++slot.generation << kIndexBits;
    call.client_.store(this, std::memory_order_relaxed);
    call.remote_ = &request.remote;
    ++request.remote.under_way;
    call.id_ = request.id;
    call.deadline_ = request.deadline;
  } else {
    request.head.flags |= CallHead::kOneWay;
    request.id = kIndexMask | ++one_way_ << kIndexBits;
  }
  const bool limited = request.deadline != kNever;
  if (limited) request.head.flags |= CallHead::kDeadline;
  if (long_total != 0) request.head.flags |= CallHead::kLong;
  request.words.add(request.id);
  request.words.add(binding);
  request.words.add(request.head.word());
  if (limited) {
    const Nanoseconds now = monotonic_now();
    const Nanoseconds left = request.deadline > now ? (request.deadline - now) / kMicrosecond : 0;
    request.words.add(static_cast<uint32_t>(std::min<Nanoseconds>(left, ~uint32_t{0})));
    if (request.call != nullptr) deadlines_.emplace(request.deadline, request.id);
  }
  if (long_total != 0) request.words.add_wide(long_total);
  ++counters_.calls;
  return true;
}

// Returns whether the request may be tried again. False: its call has ended.
bool Client::wait_for_credit(const Request& request) {
  Remote& remote = request.remote;
  const uint32_t epoch = remote.epoch;
  bool polls = (request.head.flags & CallHead::kLong) != 0;  // only once: the server may give no credit at all
  for (;;) {
    if (fiber::Fiber* const self = fiber::current()) {
      CreditWaiter waiter{self};
      const auto place = remote.waiters.insert(remote.waiters.end(), &waiter);
      const Nanoseconds nap = std::min(kNap * ++waiting_, kNapMax);  // about one of them looks in each kNap
      unlock();
      fiber::park_until(std::min(request.deadline, monotonic_now() + nap));
      lock();
      if (waiter.waits) {
        remote.waiters.erase(place);
        --waiting_;
      }
      wake_waiter(remote);  // a message brings several credits, and this fiber may not use its own
    } else {
      ++starting_;
      wait_for_long(kNap, polls);
      --starting_;
    }
    if (!is_under_way(request) || remote.epoch != epoch) return false;
    if (!endpoint_->is_open(remote.index)) {
      not_sent(request);
      return false;
    }
    if (request.deadline != kNever && monotonic_now() >= request.deadline) {
      look();
      return false;
    }
    if (endpoint_->has_credit(remote.index)) return true;
  }
}

// Ends the call of a request that could not be sent, unless the error handler has done so.
void Client::not_sent(const Request& request) noexcept {
  PendingCall* const call = find(request.id);
  if (call != nullptr) end(*call, call->sent_ ? CallStatus::lost : CallStatus::unavailable);
}

void Client::send_line(Request& request) {
  do {
    const am::Outcome outcome = endpoint_->request_now(request.remote.index, kCallHandler, {}, request.words);
    if (__builtin_expect(outcome == am::Outcome::sent, 1)) {
      if (request.call != nullptr) request.call->sent_ = true;
      return;
    }
    if (outcome != am::Outcome::not_sent) return not_sent(request);
  } while (wait_for_credit(request));
}

MutableBytes Client::reserve(const Request& request, size_t bytes) {
  const auto count = static_cast<uint8_t>(request.words.size());
  do {
    const MutableBytes room = endpoint_->reserve_now(request.remote.index, static_cast<uint32_t>(bytes), count);
    if (__builtin_expect(!room.empty(), 1)) return room;
  } while (wait_for_credit(request));
  return {};
}

bool Client::commit(const Request& request, uint8_t handler, size_t bytes) {
  if (endpoint_->commit(handler, static_cast<uint32_t>(bytes), request.words) == am::Outcome::sent) {
    if (PendingCall* const call = find(request.id)) call->sent_ = true;
    return true;
  }
  not_sent(request);
  return false;
}

// Sends the parts as one message after another, each composed in place.
void Client::send_long(Request& request, std::span<const Bytes> parts, uint64_t total) {
  uint8_t handler = kCallHandler;
  size_t part = 0, at_part = 0;
  for (uint64_t at = 0; at < total;) {
    const size_t length = std::min<uint64_t>(total - at, kPayloadMax);
    const MutableBytes room = reserve(request, length);
    if (room.empty()) return;
    for (size_t filled = 0; filled < length;) {
      const Bytes rest = parts[part].subspan(at_part);
      const size_t count = std::min(rest.size(), length - filled);
      copy_bytes(room.data() + filled, rest.data(), count);
      filled += count;
      at_part += count;
      if (at_part == parts[part].size()) ++part, at_part = 0;
    }
    if (!commit(request, handler, length)) return;
    at += length;
    handler = kPieceHandler;
    request.words = {};
    request.words.add(request.id);
    request.words.add_wide(at);
    if (!is_under_way(request)) return;  // the server has refused it
  }
}

// Sends a request that the server itself handles, without waiting.
am::Outcome Client::send_control(const Remote& remote, uint16_t procedure, uint32_t binding, uint32_t id) noexcept {
  MessageWords words;
  words.add(id);
  words.add(binding);
  words.add(CallHead{.procedure = procedure, .flags = CallHead::kControl | CallHead::kOneWay}.word());
  return endpoint_->request_now(remote.index, kCallHandler, {}, words);
}

void Client::control(Remote& remote, uint16_t procedure, uint32_t binding, uint32_t id) noexcept {
  if (send_control(remote, procedure, binding, id) == am::Outcome::sent) return;
  if (endpoint_->is_open(remote.index)) notices_.push_back({&remote, remote.epoch, procedure, binding, id});
}

// ---- ending

PendingCall* Client::find(uint32_t id) noexcept {
  const uint32_t index = id & kIndexMask;
  if (index >= slots_.size()) return nullptr;
  PendingCall* const call = slots_[index].call;
  return call != nullptr && call->id_ == id ? call : nullptr;
}

// The call that a server's answer names; nullptr if there is none at that server.
PendingCall* Client::find(uint32_t id, am::Index from) noexcept {
  PendingCall* const call = find(id);
  if (__builtin_expect(call != nullptr && call->remote_->index == from, 1)) return call;
  ++counters_.stray_answers;
  return nullptr;
}

void Client::end(PendingCall& call, CallStatus status) noexcept {
  free_slot(call);
  set_ended(call, status);
}

// After this, a call without a function may be gone.
void Client::set_ended(PendingCall& call, CallStatus status) noexcept {
  ++ends_;
  call.status_ = status;
  if (call.function_ != nullptr) {
    call.client_.store(this, std::memory_order_relaxed);
    ended_.push_back(&call);
    return;
  }
  fiber::Fiber* const waiting = std::exchange(call.waiting_, nullptr);
  call.client_.store(nullptr, std::memory_order_release);
  if (waiting != nullptr) fiber::unpark(*waiting);
}

void Client::free_slot(PendingCall& call) noexcept {
  const uint32_t index = call.id_ & kIndexMask;
  slots_[index].call = nullptr;
  --call.remote_->under_way;
  (free_slots_++ == 0 ? first_free_ : slots_[last_free_].next_free) = index;
  last_free_ = index;
  if (call.deadline_ != kNever) {
    auto [first, last] = deadlines_.equal_range(call.deadline_);
    const auto found = std::find_if(first, last, [&](const auto& each) { return each.second == call.id_; });
    if (found != last) deadlines_.erase(found);
  }
  if (call.long_result_ != nullptr) {
    results_coming_ -= call.long_result_->total();
    call.long_result_.reset();
  }
}

void PendingCall::cancel() noexcept {
  Client* const client = client_.load(std::memory_order_acquire);
  if (client == nullptr) return;
  const FiberLock held(*client);
  client->forget(*this);
}

void Client::forget(PendingCall& call) noexcept {
  if (call.done()) return;
  const bool is_coming = find(call.id_) == &call;
  if (is_coming) {
    free_slot(call);
    ++ends_;
    call.status_ = call.sent_ ? CallStatus::abandoned : CallStatus::cancelled;
  } else {
    std::erase(ended_, &call);
  }
  fiber::Fiber* const waiting = std::exchange(call.waiting_, nullptr);
  Remote* const remote = call.remote_;
  const uint32_t id = call.id_;
  const bool sent = call.sent_;
  call.client_.store(nullptr, std::memory_order_release);
  if (is_coming && sent) control(*remote, Control::kCancel, 0, id);
  if (waiting != nullptr) fiber::unpark(*waiting);
}

void Client::take_answer(const am::Token& token) {
  WordReader words(token.arguments());
  PendingCall* const call = find(words.take(), token.index());
  if (call == nullptr) return;
  prefetch_next(*call);
  const AnswerHead head = AnswerHead::of(words.take());
  const auto status = static_cast<CallStatus>(head.status);
  ++counters_.answers;
  if (__builtin_expect(status == CallStatus::ok, 1)) {
    const Bytes result = token.payload().empty() ? words.take_bytes(head.length) : Bytes(token.payload());
    return words.ok() ? take_result(*call, result) : bad_result(*call);
  }
  if (status == CallStatus::failed) call->failure_ = words.take();
  if (!words.ok() || !is_known(head.status)) return bad_result(*call);
  end(*call, status);
}

void Client::take_result(PendingCall& call, Bytes result) {
  if (__builtin_expect(!call.take(AlignedBytes(result)), 0)) return bad_result(call);
  end(call, CallStatus::ok);
}

void Client::bad_result(PendingCall& call) noexcept {
  ++counters_.bad_results;
  end(call, CallStatus::bad_result);
}

void Client::take_answer_piece(const am::Token& token) {
  WordReader words(token.arguments());
  PendingCall* const call = find(words.take(), token.index());
  if (call == nullptr) return;
  const uint64_t total = words.take_wide(), offset = words.take_wide();
  if (call->long_result_ == nullptr) {
    if (!words.ok() || total == 0 || total > result_max_ || total > results_max_ - results_coming_) return bad_result(*call);
    call->long_result_ = std::make_unique<Assembly>(total);
    results_coming_ += total;
  }
  Assembly& assembly = *call->long_result_;
  if (!words.ok() || total != assembly.total() || !assembly.add(offset, token.payload())) return bad_result(*call);
  if (!assembly.complete()) return;
  ++counters_.answers;
  take_result(*call, assembly.bytes());
}

void Client::take_returned(const am::Returned& returned) {
  if (returned.arguments.empty()) return;
  PendingCall* const call = find(returned.arguments[0]);
  if (call != nullptr && call->remote_->index == returned.index) end(*call, status_of(returned.status));
}

// After the end of a channel: ends the calls that were under way there.
void Client::lose(Remote& remote) {
  if (endpoint_->in_use(remote.index)) (void)endpoint_->unmap(remote.index);
  ++remote.epoch;
  for (size_t i = 0; i < slots_.size(); ++i) {
    PendingCall* const call = slots_[i].call;
    if (call == nullptr || call->remote_ != &remote) continue;
    ++counters_.lost;
    end(*call, CallStatus::lost);
  }
  while (!remote.waiters.empty()) unpark_first(remote);
}

// ---- progress

uint32_t Client::poll() {
  unpolled_ = 0;
  const uint32_t arrived = receive();
  settle(arrived != 0);
  return arrived;
}

WaitOutcome Client::wait(Nanoseconds timeout) {
  WaitOutcome outcome = WaitOutcome::ready;
  polling_time_.wait([this] { return poll_once(); }, [&] {
    outcome = sleep(timeout, 0);
    return outcome == WaitOutcome::ready;
  });
  return outcome;
}

// While long arguments are under way the server is busy, and a sleep would cost both sides more than polling. Only the first wait with
// `polls` polls so long, and clears it.
WaitOutcome Client::wait_for_long(Nanoseconds timeout, bool& polls) {
  if (!std::exchange(polls, false) || long_polling_ == 0) return wait(timeout);
  return poll_once() != 0 ? WaitOutcome::ready : sleep(timeout, long_polling_);
}

// Returns the number of messages that have arrived and calls that have ended.
uint64_t Client::poll_once() {
  const uint64_t before = ends_;
  return poll() + (ends_ - before);
}

WaitOutcome Client::sleep(Nanoseconds timeout, Nanoseconds spin) {
  if (look()) return WaitOutcome::ready;
  Nanoseconds limit = timeout;
  shorten(limit);
  const WaitOutcome outcome = endpoint_->wait(limit, spin);
  look();
  return outcome == WaitOutcome::timed_out && limit != timeout ? WaitOutcome::ready : outcome;
}

std::optional<int> Client::arm(Nanoseconds& limit) {
  if (look()) return std::nullopt;
  shorten(limit);
  if (!endpoint_->arm(limit)) return std::nullopt;
  return endpoint_->descriptor().value_or(-1);
}

// Lowers a time-out to the next deadline.
void Client::shorten(Nanoseconds& limit) const noexcept {
  if (deadlines_.empty()) return;
  const Nanoseconds now = monotonic_now(), next = deadlines_.begin()->first;
  limit = std::min(limit, next > now ? next - now : 0);
}

void Client::wait_for(PendingCall& call) {
  const FiberLock held(*this);
  wait_locked(call);
}

// In a fiber the caller holds the client; other fibers use it meanwhile.
void Client::wait_locked(PendingCall& call) {
  if (fiber::Fiber* const self = fiber::current()) {
    while (!call.done()) {
      if (call.waiting_ != nullptr && call.waiting_ != self) misused("two fibers wait for one call: let one wait, and tell the other");
      call.waiting_ = self;
      unlock();
      fiber::park();
      lock();
    }
    return;
  }
  while (!call.done()) wait_for_long(unet::Endpoint::kForever, call.long_);
}

void Client::settle(bool arrived) {
  if (__builtin_expect(!ended_.empty(), 0)) run_functions();
  looks_ += arrived ? 1 : kEmptyWeight;
  if (looks_ >= kLookEvery) look();
}

// A function may start calls, poll, and end other calls.
void Client::run_functions() {
  while (!ended_.empty() && starting_ == 0) {
    PendingCall& call = *ended_.front();
    ended_.pop_front();
    fiber::Fiber* const waiting = std::exchange(call.waiting_, nullptr);
    const PendingCall::Function function = call.function_;
    void* const context = call.context_;
    ++ends_;
    call.client_.store(nullptr, std::memory_order_release);
    if (waiting != nullptr) fiber::unpark(*waiting);
    if (function != nullptr) function(call, context);
  }
}

// Looks for servers that have ended and deadlines that have passed. Returns whether a call has ended or a function has run.
bool Client::look() {
  const uint64_t before = ends_;
  looks_ = 0;
  for (size_t i = 0; i < remotes_.size(); ++i) lose_if_closed(*remotes_[i]);
  // A server forgets its callers when their channels end.
  std::erase_if(notices_, [this](const Notice& each) {
    return each.epoch != each.remote->epoch ||
           send_control(*each.remote, each.procedure, each.binding, each.id) != am::Outcome::not_sent;
  });
  for (const Nanoseconds now = deadlines_.empty() ? 0 : monotonic_now(); !deadlines_.empty() && deadlines_.begin()->first <= now;) {
    PendingCall& call = *find(deadlines_.begin()->second);
    Remote& remote = *call.remote_;
    const uint32_t id = call.id_;
    const bool sent = call.sent_;
    end(call, sent ? CallStatus::timed_out : CallStatus::expired);
    if (sent) control(remote, Control::kCancel, 0, id);
  }
  run_functions();
  return ends_ != before;
}

}  // namespace unet::rpc
