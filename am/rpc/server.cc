// server.cc - calls that arrive at a server, their callers, and the answers that do not leave at once.
#include "am/rpc/server.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "unet/base/misuse.h"

namespace unet::rpc {
namespace {

constexpr uint32_t kCallersLookEvery = 1024;  // polls between two looks at callers
constexpr uint32_t kEmptyPollWeight = 16;     // an empty poll counts as so many
constexpr size_t kCallersPerLook = 64;
constexpr uint32_t kMessagesPerTurn = 32;  // answers to one caller before the next one has its turn
constexpr uint64_t kOutgoingBytes = 256;   // memory of a waiting answer besides its result
constexpr uint32_t kLongCallsMax = 64;     // of one caller: calls with arguments that are still coming

Nanoseconds deadline_in(uint32_t microseconds) noexcept { return monotonic_now() + microseconds * kMicrosecond; }

}  // namespace

Result<std::unique_ptr<Server>> Server::create(Context& context, std::string_view name, const ServerOptions& options) {
  am::Options of_endpoint = options.endpoint;
  of_endpoint.both_ways = true;
  auto endpoint = am::Endpoint::create(context, of_endpoint);
  if (!endpoint) return tl::unexpected(endpoint.error());
  std::unique_ptr<Server> server(new Server(std::move(*endpoint), options));
  if (options.threads != 0) {
    auto threads = ServerThreads::create(options.threads);
    if (!threads) return tl::unexpected(threads.error());
    server->threads_ = std::move(*threads);
  }
  const auto bind = [&](uint32_t number) {
    return server->endpoint_->bind(options.replica ? replica_name(name, number) : std::string(name));
  };
  Status bound = bind(1);
  for (uint32_t number = 2; number <= kReplicasMax && options.replica && !bound && bound.error().code == Errc::already_exists; ++number) {
    bound = bind(number);
  }
  if (!bound) return tl::unexpected(bound.error());
  return server;
}

Server::Server(std::unique_ptr<am::Endpoint> endpoint, const ServerOptions& options)
    : endpoint_(std::move(endpoint)), options_(options), polling_time_(options.spin), late_(options.late_max), memory_(options.memory_max) {
  endpoint_->set_handler(kCallHandler, [](am::Token& token, void* server) { static_cast<Server*>(server)->take_call(token); }, this);
  endpoint_->set_poll([](void* server) { return static_cast<Server*>(server)->poll(); }, this);
  endpoint_->set_handler(kPieceHandler, [](am::Token& token, void* server) { static_cast<Server*>(server)->take_piece(token); }, this);
}

Server::~Server() {
  if (fibers_ != 0) misused("a server outlives the fibers that run its procedures: end their scheduler first");
  *self_ = nullptr;
  for (const auto& caller : callers_) {
    if (caller == nullptr) continue;
    for (const auto& [id, call] : caller->late_calls) call->cancelled.store(true, std::memory_order_relaxed);
  }
}

// ---- exporting

Server::ExportedInterface* Server::find_interface(const Interface& interface) noexcept {
  const auto found = std::find_if(interfaces_.begin(), interfaces_.end(), [&](const auto& each) {
    return each->name == interface.name && each->version == interface.version;
  });
  return found == interfaces_.end() ? nullptr : found->get();
}

void Server::set(const Interface& interface, uint16_t number, std::shared_ptr<ExportedProcedure> procedure) {
  if (running_) misused("a procedure exports none: do so when poll() or wait() has returned");
  const FiberLock held(*this);
  if (procedure->run_in() == RunIn::thread && threads_ == nullptr) misused("procedures that run in threads need ServerOptions::threads");
  if (find_interface(interface) == nullptr) {
    interfaces_.push_back(std::make_unique<ExportedInterface>(ExportedInterface{std::string(interface.name), interface.version, {}}));
  }
  auto& procedures = find_interface(interface)->procedures;
  if (procedures.size() <= number) procedures.resize(size_t{number} + 1);
  procedures[number] = std::move(procedure);
}

void Server::end_binding(BindingEntry& entry) noexcept {
  free_bindings_.push_back(entry.id & kIndexMask);
  entry.caller = 0;
}

uint32_t Server::revoke(const Interface& interface) {
  const FiberLock held(*this);
  const ExportedInterface* const ended = find_interface(interface);
  size_t count = 0;
  for (const auto& caller : callers_) {
    if (caller == nullptr) continue;
    count += std::erase_if(caller->bindings, [&](uint32_t id) {
      BindingEntry& entry = bindings_[id & kIndexMask];
      if (entry.interface != ended) return false;
      end_binding(entry);
      return true;
    });
  }
  return static_cast<uint32_t>(count);
}

uint32_t Server::revoke_caller(uint64_t source) {
  const FiberLock held(*this);
  Caller* const caller = find_caller(source);
  if (caller == nullptr) return 0;
  for (const uint32_t id : caller->bindings) end_binding(bindings_[id & kIndexMask]);
  return static_cast<uint32_t>(std::exchange(caller->bindings, {}).size());
}

// ---- calls that arrive

const Server::BindingEntry* Server::find_binding(uint32_t binding, uint64_t caller) const noexcept {
  const uint32_t index = binding & kIndexMask;
  if (index >= bindings_.size()) return nullptr;
  const BindingEntry& entry = bindings_[index];
  return entry.id == binding && entry.caller == caller ? &entry : nullptr;
}

void Server::take_call(am::Token& token) {
  WordReader words(token.arguments());
  CallInfo call{.caller = token.source(), .id = words.take()};
  const uint32_t binding = words.take();
  const CallHead head = CallHead::of(words.take());
  call.one_way = head.has(CallHead::kOneWay);
  if (__builtin_expect(head.has(CallHead::kDeadline), 0)) {
    const uint32_t left = words.take();
    if (left == 0) return refuse(token, call, CallStatus::expired);
    call.deadline = deadline_in(left);
  }
  if (__builtin_expect(!head.has(CallHead::kControl), 1)) {
    const BindingEntry* const entry = find_binding(binding, call.caller);
    if (__builtin_expect(entry == nullptr, 0)) return refuse(token, call, CallStatus::revoked);
    if (__builtin_expect(head.has(CallHead::kLong), 0)) {
      const uint64_t total = words.take_wide();
      return words.ok() ? begin_long(token, call, binding, head, total) : refuse(token, call, CallStatus::bad_arguments);
    }
    if (!token.payload().empty()) return run(token, call, *entry, head.procedure, AlignedBytes(token.payload()));
    const Bytes bytes = words.take_bytes(head.length);
    if (!words.ok()) return refuse(token, call, CallStatus::bad_arguments);
    return run(token, call, *entry, head.procedure, AlignedBytes(bytes));
  }
  take_control(token, head, call, binding, words);
}

void Server::run(am::Token& token, const CallInfo& call, const BindingEntry& binding, uint32_t number, Bytes arguments) {
  const auto& procedures = binding.interface->procedures;
  if (__builtin_expect(number >= procedures.size() || procedures[number] == nullptr, 0)) {
    return refuse(token, call, CallStatus::no_procedure);
  }
  const std::shared_ptr<ExportedProcedure>& procedure = procedures[number];
  if (procedure->may_be_late() && !may_defer(call, arguments.size())) return refuse(token, call, CallStatus::overloaded);
  ++counters_.calls;
  if (procedure->run_in() != RunIn::poll) {
    if (!detach(call, procedure, arguments)) refuse(token, call, CallStatus::overloaded);
    return;
  }
  IncomingCall incoming(*this, token, call, arguments);
  const bool before = std::exchange(running_, true);
  procedure->run(incoming);
  running_ = before;
  if (!incoming.answered()) incoming.refuse(CallStatus::failed);
}

// Gives the call to a thread or a fiber. False: there is no memory for the fiber.
bool Server::detach(const CallInfo& call, const std::shared_ptr<ExportedProcedure>& procedure, Bytes arguments) {
  DetachedCall detached{.call = defer(call, arguments.size()), .procedure = procedure, .arguments = ByteBuffer(arguments)};
  if (procedure->run_in() == RunIn::thread) {
    threads_->add(std::move(detached));
    return true;
  }
  if (fiber::Worker::current() == nullptr) misused("a procedure that runs in a fiber needs Scheduler::add(server), and run()");
  const std::shared_ptr<LateCall> late = detached.call;
  auto started = fiber::spawn([this, detached = std::move(detached)]() mutable {
    detached.run();
    const FiberLock held(*this);
    --fibers_;
    send_late(std::move(detached.call), std::move(detached.answer));
  });
  if (started) {
    ++fibers_;
    started.detach();
    return true;
  }
  late->one_way = true;  // the caller gets its refusal elsewhere
  send_late(late, {});
  return false;
}

void Server::refuse(am::Token& token, const CallInfo& call, CallStatus status) {
  ++counters_.refused;
  IncomingCall(*this, token, call, {}).refuse(status);
}

void Server::begin_long(am::Token& token, const CallInfo& call, uint32_t binding, const CallHead& head, uint64_t total) {
  Caller& caller = *find_caller(call.caller);  // it has a binding
  if (total > options_.arguments_max) return refuse(token, call, CallStatus::too_long);
  if (!memory_.has(caller.memory, total) || caller.long_calls.size() >= kLongCallsMax) {
    return refuse(token, call, CallStatus::overloaded);
  }
  LongCall coming{.binding = binding, .head = head, .deadline = call.deadline, .arguments = Assembly(total)};
  if (!coming.arguments.add(0, token.payload()) || coming.arguments.complete() || caller.long_calls.contains(call.id)) {
    return refuse(token, call, CallStatus::bad_arguments);
  }
  memory_.take(caller.memory, total);
  caller.long_calls.emplace(call.id, std::move(coming));
}

void Server::take_piece(am::Token& token) {
  WordReader words(token.arguments());
  const uint32_t id = words.take();
  const uint64_t offset = words.take_wide();
  Caller* const caller = find_caller(token.source());
  if (caller == nullptr || !words.ok()) {
    ++counters_.malformed;
    return;
  }
  const auto found = caller->long_calls.find(id);
  if (found == caller->long_calls.end()) return;  // refused or cancelled before
  LongCall& coming = found->second;
  const bool added = coming.arguments.add(offset, token.payload());
  if (added && !coming.arguments.complete()) return;
  const LongCall ended = std::move(coming);
  caller->long_calls.erase(found);
  const CallInfo call{.caller = token.source(), .id = id, .one_way = ended.head.has(CallHead::kOneWay), .deadline = ended.deadline};
  const BindingEntry* const entry = find_binding(ended.binding, call.caller);
  memory_.give_back(&caller->memory, ended.arguments.total());
  if (!added) return refuse(token, call, CallStatus::bad_arguments);
  if (entry == nullptr) return refuse(token, call, CallStatus::revoked);
  if (call.deadline != kNever && monotonic_now() >= call.deadline) return refuse(token, call, CallStatus::expired);
  run(token, call, *entry, ended.head.procedure, ended.arguments.bytes());
}

void Server::take_control(am::Token& token, const CallHead& head, const CallInfo& call, uint32_t binding, WordReader& words) {
  if (!words.ok()) {
    ++counters_.malformed;
    return;
  }
  if (head.procedure == Control::kImport) return import(token, call, token.payload());
  Caller* const caller = find_caller(call.caller);
  if (caller == nullptr) return;
  if (head.procedure == Control::kRelease && find_binding(binding, call.caller) != nullptr) {
    std::erase(caller->bindings, binding);
    end_binding(bindings_[binding & kIndexMask]);
  } else if (head.procedure == Control::kCancel) {
    const auto late = caller->late_calls.find(call.id);
    if (late != caller->late_calls.end()) late->second->cancelled.store(true, std::memory_order_relaxed);
    const auto coming = caller->long_calls.find(call.id);
    if (coming == caller->long_calls.end()) return;
    memory_.give_back(&caller->memory, coming->second.arguments.total());
    caller->long_calls.erase(coming);
  }
}

void Server::import(am::Token& token, const CallInfo& call, Bytes arguments) {
  uint32_t version = 0;
  std::string_view name;
  const AlignedBytes aligned(arguments);
  if (!decode(aligned, version, name)) return refuse(token, call, CallStatus::bad_arguments);
  const std::string copied(name);  // the caller can still change its own bytes
  ExportedInterface* const exported = find_interface({copied, version});
  if (exported == nullptr) return refuse(token, call, CallStatus::no_interface);
  const Importer importer{.caller = call.caller, .name = token.source_name(), .interface = copied, .version = version};
  if (options_.admit != nullptr && !options_.admit(importer, options_.admit_context)) {
    return refuse(token, call, CallStatus::not_admitted);
  }
  Caller* const found = caller_of(token);
  if (found == nullptr) return refuse(token, call, CallStatus::overloaded);
  Caller& caller = *found;
  if (caller.bindings.size() >= options_.bindings_max || (free_bindings_.empty() && bindings_.size() > kIndexMask)) {
    return refuse(token, call, CallStatus::overloaded);
  }
  if (free_bindings_.empty()) {
    free_bindings_.push_back(static_cast<uint32_t>(bindings_.size()));
    bindings_.push_back({.id = free_bindings_.back()});
  }
  BindingEntry& entry = bindings_[free_bindings_.back()];
  free_bindings_.pop_back();
  entry = {.id = entry.id + (1u << kIndexBits), .caller = call.caller, .interface = exported};
  caller.bindings.push_back(entry.id);
  ++counters_.imports;
  IncomingCall incoming(*this, token, call, {});
  incoming.answer<uint32_t>(entry.id);
}

// ---- callers

Server::Caller* Server::find_caller(uint64_t source) noexcept {
  const auto found = by_source_.find(source);
  return found == by_source_.end() ? nullptr : found->second;
}

// Returns nullptr if there are too many.
Server::Caller* Server::caller_of(const am::Token& token) {
  if (Caller* const known = find_caller(token.source())) return known;
  auto free = std::find(callers_.begin(), callers_.end(), nullptr);
  if (free == callers_.end()) {
    if (callers_.size() == am::kTranslationsMax) return nullptr;
    free = callers_.insert(free, nullptr);
  }
  *free = std::make_unique<Caller>();
  Caller& caller = **free;
  caller.source = token.source();
  caller.index = static_cast<am::Index>(free - callers_.begin());
  by_source_.emplace(caller.source, &caller);
  unmapped_.push_back(&caller);
  return &caller;
}

// A translation to each new caller tells of its end, and carries late answers.
void Server::map_callers() {
  while (!unmapped_.empty()) {
    Caller& caller = *unmapped_.back();
    unmapped_.pop_back();
    caller.mapped = endpoint_->map_back(caller.index, caller.source).has_value();
    if (!caller.mapped) end_caller(caller);
  }
}

void Server::look_at_callers() {
  looks_ = 0;
  for (size_t count = std::min(callers_.size(), kCallersPerLook); count != 0; --count) {
    if (next_look_ >= callers_.size()) next_look_ = 0;
    Caller* const caller = callers_[next_look_++].get();
    if (caller == nullptr || !caller->mapped) continue;
    if (!endpoint_->is_open(caller->index)) {
      end_caller(*caller);
      continue;
    }
    if (caller->long_calls.empty()) continue;
    std::erase_if(caller->long_calls, [this, caller, now = monotonic_now()](const auto& each) {
      if (each.second.deadline > now) return false;
      memory_.give_back(&caller->memory, each.second.arguments.total());
      return true;
    });
  }
}

void Server::end_caller(Caller& caller) {
  if (caller.mapped) (void)endpoint_->unmap(caller.index);
  for (const uint32_t id : caller.bindings) end_binding(bindings_[id & kIndexMask]);
  for (const auto& [id, coming] : caller.long_calls) memory_.give_back(nullptr, coming.arguments.total());
  for (const auto& [id, call] : caller.late_calls) call->cancelled.store(true, std::memory_order_relaxed);
  by_source_.erase(caller.source);
  for (const Outgoing& out : caller.backlog) drop(out);
  std::erase(backlogged_, &caller);
  callers_[caller.index] = nullptr;
}

// ---- answers

// Returns whether a call with so many bytes of arguments may be answered late.
bool Server::may_defer(const CallInfo& call, uint64_t bytes) noexcept {
  const Caller* const caller = find_caller(call.caller);
  return caller != nullptr && late_.has(caller->late, 1) && memory_.has(caller->memory, kOutgoingBytes + bytes);
}

// may_defer() has been asked.
std::shared_ptr<LateCall> Server::defer(const CallInfo& call, uint64_t bytes) {
  auto late = std::make_shared<LateCall>(call, self_, kOutgoingBytes + bytes);
  Caller& caller = *find_caller(call.caller);
  late_.take(caller.late, 1);
  memory_.take(caller.memory, late->bytes);
  std::shared_ptr<LateCall>& place = caller.late_calls[call.id];
  if (place != nullptr) place->cancelled.store(true, std::memory_order_relaxed);  // no later message can name it
  place = late;
  return late;
}

void IncomingCall::give(AnswerBytes answer) {
  if (answer_ == nullptr && !server_->may_defer(*call_, 0)) {
    ++server_->counters_.dropped_answers;
    return refuse(CallStatus::bad_result);
  }
  answered_ = true;
  if (answer_ != nullptr) {
    *answer_ = std::move(answer);
  } else {
    server_->send_late(server_->defer(*call_, 0), std::move(answer));
  }
}

void IncomingCall::refuse(CallStatus status, uint32_t failure) {
  if (answered_) return;
  if (token_ == nullptr) return give({.status = status, .failure = failure});
  answered_ = true;
  if (call_->one_way) return;
  MessageWords words;
  words.add(call_->id);
  words.add(AnswerHead{.status = static_cast<uint8_t>(status)}.word());
  words.add(failure);
  token_->reply_short(kAnswerHandler, words);
}

LateResponse IncomingCall::defer() {
  if (server_ == nullptr) misused("a procedure that answers after it has returned runs in the server's poll: RunIn::poll");
  answered_ = true;
  return LateResponse(server_->defer(*call_, 0));
}

void LateResponse::send(AnswerBytes answer) {
  const std::shared_ptr<LateCall> call = std::exchange(call_, nullptr);
  if (call == nullptr || *call->server == nullptr) return;
  Server& server = **call->server;
  const FiberLock held(server);
  server.send_late(call, std::move(answer));
}

void Server::send_late(std::shared_ptr<LateCall> call, AnswerBytes answer) {
  Caller* const caller = find_caller(call->caller);
  Outgoing out{.call = std::move(call), .answer = std::move(answer)};
  if (caller == nullptr || out.call->one_way || out.call->cancelled.load(std::memory_order_relaxed)) return drop(out);
  if (caller->backlog.empty() && caller->mapped && send(*caller, out)) return drop(out);
  const uint64_t bytes = out.answer.result.size();
  if (memory_.take(caller->memory, bytes)) {
    out.call->bytes += bytes;
  } else {
    ++counters_.dropped_answers;
    out.answer = {.status = CallStatus::bad_result};
    out.at = 0;
  }
  if (caller->backlog.empty()) backlogged_.push_back(caller);
  caller->backlog.push_back(std::move(out));
}

// Frees what a late call has taken, when its answer is sent or its caller is gone.
void Server::drop(const Outgoing& out) noexcept {
  Caller* const caller = find_caller(out.call->caller);
  late_.give_back(caller == nullptr ? nullptr : &caller->late, 1);
  memory_.give_back(caller == nullptr ? nullptr : &caller->memory, out.call->bytes);
  if (caller == nullptr) return;
  const auto found = caller->late_calls.find(out.call->id);
  if (found != caller->late_calls.end() && found->second == out.call) caller->late_calls.erase(found);
}

// Sends an answer, or a part of it, as a request in the other direction. False: it must wait.
bool Server::send(Caller& caller, Outgoing& out) {
  const Bytes result = out.answer.result.bytes();
  if (result.size() > kPayloadMax) return send_pieces(caller, out);
  MessageWords words;
  words.add(out.call->id);
  AnswerHead head{.status = static_cast<uint8_t>(out.answer.status)};
  Bytes payload;
  if (out.answer.status == CallStatus::failed) {
    words.add(head.word());
    words.add(out.answer.failure);
  } else if (result.size() <= kInlineResult) {
    head.length = static_cast<uint8_t>(result.size());
    words.add(head.word());
    copy_bytes(words.add_bytes(result.size()), result.data(), result.size());
  } else {
    words.add(head.word());
    payload = result;
  }
  const am::Outcome outcome = endpoint_->request_now(caller.index, kAnswerHandler, payload, words);
  return outcome == am::Outcome::sent || outcome == am::Outcome::returned;
}

bool Server::send_pieces(Caller& caller, Outgoing& out) {
  const Bytes result = out.answer.result.bytes();
  while (out.at < result.size()) {
    MessageWords words;
    words.add(out.call->id);
    words.add_wide(result.size());
    words.add_wide(out.at);
    const Bytes piece = result.subspan(out.at, std::min<uint64_t>(result.size() - out.at, kPayloadMax));
    const am::Outcome outcome = endpoint_->request_now(caller.index, kAnswerPieceHandler, piece, words);
    if (outcome == am::Outcome::returned) return true;
    if (outcome != am::Outcome::sent) return false;
    out.at += piece.size();
  }
  return true;
}

// Sends what has waited. A caller that does not poll keeps its backlog, and no other caller waits for it.
void Server::pump() {
  std::erase_if(backlogged_, [this](Caller* caller) {
    for (uint32_t count = 0; count < kMessagesPerTurn && !caller->backlog.empty() && caller->mapped; ++count) {
      if (!send(*caller, caller->backlog.front())) break;
      const Outgoing sent = std::move(caller->backlog.front());
      caller->backlog.pop_front();
      drop(sent);
    }
    return caller->backlog.empty();
  });
}

// ---- progress

void Server::settle(bool arrived) {
  if (__builtin_expect(!unmapped_.empty(), 0)) map_callers();
  if (threads_ != nullptr) {
    for (DetachedCall& each : threads_->take_ended()) send_late(std::move(each.call), std::move(each.answer));
  }
  if (__builtin_expect(!backlogged_.empty(), 0)) pump();
  looks_ += arrived ? 1 : kEmptyPollWeight;
  if (looks_ >= kCallersLookEvery) look_at_callers();
}

uint32_t Server::poll() {
  if (running_) return 0;  // a procedure polls
  const uint32_t arrived = endpoint_->poll();
  settle(arrived != 0);
  return arrived;
}

WaitOutcome Server::wait(Nanoseconds timeout) {
  WaitOutcome outcome = WaitOutcome::ready;
  if (running_) return outcome;
  const auto sleep = [&] {
    look_at_callers();
    if (threads_ == nullptr) {
      outcome = endpoint_->wait(timeout, 0);
    } else if (Nanoseconds limit = timeout; endpoint_->arm(limit)) {
      outcome = sleep_beside_threads(limit);
    }
    settle(false);
    look_at_callers();
    return outcome == WaitOutcome::ready;
  };
  polling_time_.wait([this] { return poll(); }, sleep);
  return outcome;
}

// Sleeps until a message arrives or a thread has ended a call.
WaitOutcome Server::sleep_beside_threads(Nanoseconds limit) {
  const auto descriptor = endpoint_->descriptor();
  if (!descriptor) return WaitOutcome::disconnected;
  std::array<pollfd, 2> events{{{.fd = *descriptor, .events = POLLIN, .revents = 0},
                                {.fd = threads_->descriptor(), .events = POLLIN, .revents = 0}}};
  const timespec time = timespec_of(std::min(limit, kSecond));
  const int ready = ::ppoll(events.data(), events.size(), &time, nullptr);
  endpoint_->poll();
  if (ready == 0) return limit > kSecond ? WaitOutcome::ready : WaitOutcome::timed_out;
  return ready > 0 ? WaitOutcome::ready : WaitOutcome::interrupted;
}

std::optional<int> Server::arm(Nanoseconds& limit) {
  settle(false);
  look_at_callers();
  if (!endpoint_->arm(limit)) return std::nullopt;
  if (threads_ != nullptr) limit = std::min(limit, kMillisecond);  // their results do not make the descriptor readable
  return endpoint_->descriptor().value_or(-1);
}

}  // namespace unet::rpc
