// binding.cc - interfaces that a client imports, and the bindings to them.
#include <algorithm>

#include "am/rpc/client.h"
#include "unet/base/misuse.h"

namespace unet::rpc {
namespace {

Errc error_of(CallStatus status) noexcept {
  switch (status) {
    case CallStatus::no_interface: return Errc::not_found;
    case CallStatus::not_admitted: return Errc::not_permitted;
    case CallStatus::overloaded: return Errc::quota_exceeded;
    case CallStatus::expired:
    case CallStatus::timed_out: return Errc::timed_out;
    case CallStatus::bad_result: return Errc::protocol;
    default: return Errc::disconnected;
  }
}

}  // namespace

// ---- importing

Binding Client::bind_later(std::string_view target, const Interface& interface) {
  const FiberLock held(*this);
  return make_binding(target, interface);
}

Binding Client::make_binding(std::string_view target, const Interface& interface) {
  auto remote = std::find_if(remotes_.begin(), remotes_.end(), [&](const auto& each) { return each->target == target; });
  if (remote == remotes_.end()) {
    const auto index = static_cast<am::Index>(remotes_.size());
    remote = remotes_.insert(remote, std::make_unique<Remote>(Remote{.target = std::string(target), .index = index}));
  }
  Binding binding;
  binding.client_ = this;
  binding.remote_ = remote->get();
  binding.epoch_ = binding.remote_->epoch - 1;  // not imported
  binding.name_ = interface.name;
  binding.version_ = interface.version;
  return binding;
}

Result<Binding> Client::import(std::string_view target, const Interface& interface, Nanoseconds timeout) {
  const FiberLock held(*this);
  Binding binding = make_binding(target, interface);
  if (const Status there = import_into(binding, timeout, connect_.wait); !there) return tl::unexpected(there.error());
  return binding;
}

void Client::lose_if_closed(Remote& remote) {
  if (endpoint_->is_mapped(remote.index) && !endpoint_->is_open(remote.index)) lose(remote);
}

Status Client::import_into(Binding& binding, Nanoseconds timeout, Nanoseconds wait_for_name) {
  Remote& remote = *binding.remote_;
  const Nanoseconds begun = monotonic_now();
  ConnectOptions connect = connect_;
  connect.wait = std::min(wait_for_name, timeout);
  connect.timeout = std::clamp(timeout, kMillisecond, std::max(connect.timeout, kMillisecond));
  if (endpoint_->in_use(remote.index) && !endpoint_->is_open(remote.index)) lose(remote);
  if (!endpoint_->in_use(remote.index)) {
    if (const Status mapped = endpoint_->map(remote.index, remote.target, am::kAnyTag, connect); !mapped) return mapped;
  }
  Import import;
  const Status sent = send_import(binding, import, deadline_after(begun, timeout));
  if (!sent) return sent;
  wait_locked(import.call);
  return take_import(binding, import);
}

Status Client::import_step(Binding& binding, std::unique_ptr<Import>& import, Nanoseconds timeout) {
  Remote& remote = *binding.remote_;
  if (import != nullptr) return import->call.done() ? take_import(binding, *std::exchange(import, nullptr)) : Status();
  lose_if_closed(remote);
  if (!endpoint_->in_use(remote.index)) return endpoint_->start_map(remote.index, remote.target, am::kAnyTag, connect_);
  if (const Error* const failure = endpoint_->map_failure(remote.index)) {
    const Error failed = *failure;
    (void)endpoint_->unmap(remote.index);
    return tl::unexpected(failed);
  }
  if (!endpoint_->has_credit(remote.index)) return {};
  import = std::make_unique<Import>();
  Status sent = send_import(binding, *import, deadline_after(monotonic_now(), timeout));
  if (!sent) import = nullptr;
  return sent;
}

Status Client::send_import(const Binding& binding, Import& import, Nanoseconds deadline) {
  import.epoch = binding.remote_->epoch;
  Request request(&import.call, *binding.remote_, {.procedure = Control::kImport, .flags = CallHead::kControl}, deadline);
  const std::string_view name = binding.name_;
  const size_t size = encoded_size<uint32_t, std::string_view>(binding.version_, name);
  if (size > kPayloadMax) return fail(Errc::invalid_argument, "an interface's name is too long");
  if (begin(request, 0, 0)) {
    if (const MutableBytes room = reserve(request, size); !room.empty()) {
      encode<uint32_t, std::string_view>(room.data(), binding.version_, name);
      commit(request, kCallHandler, size);
    }
  }
  return {};
}

Status Client::take_import(Binding& binding, Import& import) {
  if (!import.call.ok()) {
    return fail(error_of(import.call.status()), "import " + binding.name_ + " version " + std::to_string(binding.version_) + " from " +
                                               binding.remote_->target + ": " + std::string(to_string(import.call.status())));
  }
  binding.id_ = import.call.result();
  binding.epoch_ = import.epoch;
  return {};
}

// ---- bindings

Binding& Binding::operator=(Binding&& from) noexcept {
  if (this == &from) return *this;
  release();
  client_ = std::exchange(from.client_, nullptr);
  remote_ = from.remote_;
  id_ = from.id_;
  epoch_ = from.epoch_;
  timeout_ = from.timeout_;
  name_ = std::move(from.name_);
  version_ = from.version_;
  return *this;
}

void Binding::release() noexcept {
  if (client_ == nullptr) return;
  const FiberLock held(*client_);
  if (is_open()) client_->control(*remote_, Control::kRelease, id_, 0);
  client_ = nullptr;
}

// Imports again from a server that has ended meanwhile. False: the call has ended.
bool Binding::ready(PendingCall* call) {
  if (client_ == nullptr) misused("a binding without a server has no procedures: use one that Client::import() has returned");
  const Nanoseconds patience = std::min(timeout_, 10 * kSecond);
  if (client_->import_into(*this, patience)) return true;
  if (call != nullptr) client_->set_ended(*call, CallStatus::unavailable);
  return false;
}

// The deadline of a call that starts now.
Nanoseconds Binding::deadline() const noexcept { return deadline_after(monotonic_now(), timeout_); }

void Binding::start_bytes(PendingCall& call, uint16_t number, std::span<const Bytes> parts) {
  const FiberLock held(*client_);
  if (!is_open() && !ready(&call)) return;
  uint64_t total = 0;
  for (const Bytes part : parts) total += part.size();
  Client::Request request = this->request(&call, number);
  if (total > line_room()) {
    if (client_->begin(request, id_, total > kPayloadMax ? total : 0)) client_->send_long(request, parts, total);
    return;
  }
  request.head.length = static_cast<uint8_t>(total);
  if (!client_->begin(request, id_, 0)) return;
  std::byte* to = request.words.add_bytes(total);
  for (const Bytes part : parts) {
    copy_small(to, part.data(), part.size());
    to += part.size();
  }
  client_->send_line(request);
}

}  // namespace unet::rpc
