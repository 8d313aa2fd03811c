// unet_c.cc - the C ABI (unet.h) over the C++ API: no exception crosses it, set-up calls store an error text, the data path is one call.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <type_traits>

#include "unet/c_abi.h"
#include "unet/context.h"
#include "unet/unet.h"

namespace unet {
namespace c_abi {

thread_local char error_text[1024];

int failed(Errc code, std::string_view text) noexcept {
  const size_t length = std::min(text.size(), sizeof error_text - 1);
  std::memcpy(error_text, text.data(), length);
  error_text[length] = '\0';
  return -static_cast<int>(code);
}

int null_argument(const char* name) noexcept {
  char text[64] = "";
  std::strncat(text, name, sizeof text - 32);
  std::strcat(text, " must not be NULL");
  return failed(Errc::invalid_argument, text);
}

int take_endpoint_options(const unet_endpoint_options* from, EndpointOptions& to) noexcept {
  unet_endpoint_options taken;
  if (const int error = take_options(from, taken); error != 0) return error;
  if (taken.send_depth != 0) to.send_depth = taken.send_depth;
  if (taken.receive_depth != 0) to.receive_depth = taken.receive_depth;
  if (taken.buffers != 0) to.buffers = taken.buffers;
  if (taken.buffer_size != 0) to.buffer_size = taken.buffer_size;
  if (taken.send_bytes != 0) to.send_bytes = taken.send_bytes;
  if (taken.emulated > 1) return failed(Errc::invalid_argument, "the member emulated is neither 0 nor 1");
  to.emulated = static_cast<uint32_t>(taken.emulated);
  // A value that does not fit the narrower member must not become a valid one.
  if (taken.weight != 0) to.weight = static_cast<uint32_t>(std::min<uint64_t>(taken.weight, ~uint32_t{0}));
  return 0;
}

int take_connect_options(const unet_connect_options* from, ConnectOptions& to) noexcept {
  unet_connect_options options;
  if (const int error = take_options(from, options); error != 0) return error;
  if (options.path < UNET_PATH_AUTOMATIC || options.path > UNET_PATH_NI) {
    return failed(Errc::invalid_argument, "no such path: UNET_PATH_AUTOMATIC, UNET_PATH_LOCAL or UNET_PATH_NI");
  }
  if (options.reserved != 0) return failed(Errc::invalid_argument, "the member reserved must be 0");
  constexpr Nanoseconds kHour = 3600 * kSecond;
  to.path = static_cast<control::Path>(options.path);
  if (options.wait_ns != 0) to.wait = std::min(to_timeout(options.wait_ns), kHour);
  if (options.timeout_ns != 0) to.timeout = std::min(to_timeout(options.timeout_ns), kHour);
  if (options.local_depth != 0) to.local.depth = options.local_depth;
  if (options.local_bytes != 0) to.local.data_bytes = options.local_bytes;
  return 0;
}

}  // namespace c_abi

namespace {

using namespace c_abi;  // NOLINT

// ---- types of the C ABI are those of the C++ API: a pointer to one is a pointer to the other

Endpoint& of(unet_endpoint* endpoint) noexcept { return *reinterpret_cast<Endpoint*>(endpoint); }
const Endpoint& of(const unet_endpoint* endpoint) noexcept { return *reinterpret_cast<const Endpoint*>(endpoint); }

// Code here accesses a unet_message only as a Message, so no compiler sees the same memory as both types.
static_assert(sizeof(Message) == sizeof(unet_message) && alignof(Message) == alignof(unet_message));
static_assert(offsetof(Message, data) == offsetof(unet_message, data) && offsetof(Message, length) == offsetof(unet_message, length));
static_assert(offsetof(Message, channel) == offsetof(unet_message, channel) && offsetof(Message, kind) == offsetof(unet_message, kind));
static_assert(offsetof(Message, from_local) == offsetof(unet_message, reserved));
static_assert(offsetof(Message, position) == offsetof(unet_message, position));
static_assert(offsetof(Message, region_offset) == offsetof(unet_message, region_offset));
Message& of(unet_message* message) noexcept { return *reinterpret_cast<Message*>(message); }
const Message& of(const unet_message* message) noexcept { return *reinterpret_cast<const Message*>(message); }

constexpr bool same(int c, Errc code) { return c == -static_cast<int>(code); }
static_assert(same(UNET_EINVALID, Errc::invalid_argument) && same(UNET_EPERMISSION, Errc::not_permitted));
static_assert(same(UNET_EQUOTA, Errc::quota_exceeded) && same(UNET_ENOTFOUND, Errc::not_found));
static_assert(same(UNET_EEXISTS, Errc::already_exists) && same(UNET_EREFUSED, Errc::refused));
static_assert(same(UNET_ETIMEDOUT, Errc::timed_out) && same(UNET_EDISCONNECTED, Errc::disconnected));
static_assert(same(UNET_EUNAVAILABLE, Errc::unavailable) && same(UNET_ENOMEMORY, Errc::out_of_memory));
static_assert(same(UNET_EPROTOCOL, Errc::protocol) && same(UNET_ESYSTEM, Errc::system));

constexpr int to_c(SendOutcome outcome) noexcept { return outcome == SendOutcome::sent ? 0 : -100 - static_cast<int>(outcome); }
static_assert(to_c(SendOutcome::full) == UNET_EFULL && to_c(SendOutcome::too_long) == UNET_ETOOLONG);
static_assert(to_c(SendOutcome::no_channel) == UNET_ENOCHANNEL && to_c(SendOutcome::out_of_bounds) == UNET_EBOUNDS);

static_assert(UNET_PATH_LOCAL == static_cast<int>(control::Path::local) && UNET_PATH_NI == static_cast<int>(control::Path::ni));
static_assert(UNET_KIND_LOCAL == static_cast<int>(control::ChannelKind::local));
static_assert(UNET_KIND_NI == static_cast<int>(control::ChannelKind::ni));
static_assert(UNET_EVENT_CLOSED == static_cast<int>(ChannelEvent::Kind::closed));
static_assert(UNET_REASON_CLOSED_BY_PEER == static_cast<int>(control::CloseReason::closed_by_peer));
static_assert(UNET_REASON_PEER_DIED == static_cast<int>(control::CloseReason::peer_died));
static_assert(UNET_REASON_NI_STOPPED == static_cast<int>(control::CloseReason::ni_stopped));
static_assert(UNET_REASON_WIRE_LOST == static_cast<int>(control::CloseReason::wire_lost));
static_assert(UNET_PUT_DONE == static_cast<int>(MessageKind::put_done));
static_assert(UNET_MESSAGE_MAX == kMessageMax && UNET_INLINE_MAX == kInlineMax);
static_assert(sizeof(unet_request::peer) == kNameMax + 1 && sizeof(unet_event::peer) == kNameMax + 1);

Channel channel_of(int channel) noexcept { return static_cast<Channel>(static_cast<uint32_t>(channel)); }
int to_c(Channel channel) noexcept { return static_cast<int>(channel); }
int done(const Result<Channel>& channel) noexcept { return channel ? to_c(*channel) : failed(channel.error()); }

// ---- structures that may grow

// Copies out a structure, as far as the caller's version has its members.
template <typename Out>
void give(const Out& from, Out* to) noexcept {
  const size_t size = to->size;
  std::memcpy(to, &from, std::min(size, sizeof from));
  to->size = size;
}
template <typename Out>
int check_size(const Out* out) noexcept {
  if (out == nullptr) return null_argument("the structure for the result");
  if (out->size < sizeof out->size) {
    return failed(Errc::invalid_argument, "the structure's member size is not set: it is sizeof(the structure)");
  }
  return 0;
}

void give_text(char (&to)[64], std::string_view text) noexcept {
  const size_t length = std::min(text.size(), sizeof to - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

void give_request(const ConnectionRequest& request, unet_request* to) noexcept {
  unet_request out{};
  out.id = static_cast<uint64_t>(request.id);
  out.peer_uid = request.peer_uid;
  out.peer_pid = request.peer_pid;
  out.same_user = request.same_user ? 1 : 0;
  give_text(out.peer, request.peer);
  give(out, to);
}

}  // namespace
}  // namespace unet

// From here on every line needs the C++ names.
using namespace unet;         // NOLINT
using namespace unet::c_abi;  // NOLINT

extern "C" {

// ---- errors

const char* unet_error_text(void) { return error_text; }

const char* unet_error_name(int code) {
  switch (code) {
    case UNET_EFULL: return "full";
    case UNET_ETOOLONG: return "too_long";
    case UNET_ENOCHANNEL: return "no_channel";
    case UNET_EBOUNDS: return "out_of_bounds";
    case UNET_EINTERRUPTED: return "interrupted";
    case UNET_EPENDING: return "pending";
    default: return code > 0 || code < -100 ? "unknown" : to_string(static_cast<Errc>(-code)).data();
  }
}

// ---- contexts

int unet_context_open(const char* ni, const unet_context_options* options, unet_context** context) {
  return guarded([&] {
    if (context == nullptr) return null_argument("context");
    *context = nullptr;
    unet_context_options taken;
    if (const int error = take_options(options, taken); error != 0) return error;
    auto opened = Context::open(ni == nullptr ? "" : ni, taken.program == nullptr ? "" : taken.program);
    if (!opened) return failed(opened.error());
    *context = reinterpret_cast<unet_context*>(new Context(std::move(*opened)));
    return 0;
  });
}

void unet_context_close(unet_context* context) { delete reinterpret_cast<Context*>(context); }

int unet_alive(const unet_context* context) { return of(context).alive() ? 1 : 0; }

int unet_report(unet_context* context, char** json) {
  return guarded([&] {
    if (context == nullptr || json == nullptr) return null_argument(context == nullptr ? "context" : "json");
    *json = nullptr;
    const auto text = of(context).report();
    if (!text) return failed(text.error());
    *json = ::strdup(text->c_str());
    return *json == nullptr ? failed(Errc::out_of_memory, "no memory left in this process") : 0;
  });
}

void unet_free(void* memory) { std::free(memory); }

// ---- endpoints

int unet_endpoint_create(unet_context* context, const unet_endpoint_options* options, unet_endpoint** endpoint) {
  return guarded([&] {
    if (context == nullptr || endpoint == nullptr) return null_argument(context == nullptr ? "context" : "endpoint");
    *endpoint = nullptr;
    EndpointOptions wanted;
    if (const int error = take_endpoint_options(options, wanted); error != 0) return error;
    auto created = of(context).create_endpoint(wanted);
    if (!created) return failed(created.error());
    *endpoint = reinterpret_cast<unet_endpoint*>(new Endpoint(std::move(*created)));
    return 0;
  });
}

void unet_endpoint_destroy(unet_endpoint* endpoint) { delete reinterpret_cast<Endpoint*>(endpoint); }

uint32_t unet_endpoint_id(const unet_endpoint* endpoint) { return of(endpoint).id(); }

int unet_bind(unet_endpoint* endpoint, const char* name) {
  return guarded([&] {
    if (endpoint == nullptr || name == nullptr) return null_argument(endpoint == nullptr ? "endpoint" : "name");
    return done(of(endpoint).bind(name));
  });
}

int unet_unbind(unet_endpoint* endpoint) {
  return guarded([&] { return endpoint == nullptr ? null_argument("endpoint") : done(of(endpoint).unbind()); });
}

// ---- channels

int unet_connect(unet_endpoint* endpoint, const char* target, const unet_connect_options* options) {
  return guarded([&] {
    if (endpoint == nullptr || target == nullptr) return null_argument(endpoint == nullptr ? "endpoint" : "target");
    ConnectOptions taken;
    if (const int error = take_connect_options(options, taken); error != 0) return error;
    return done(of(endpoint).connect(target, taken));
  });
}

int unet_connect_start(unet_endpoint* endpoint, const char* target, const unet_connect_options* options, uint64_t* pending) {
  return guarded([&] {
    if (endpoint == nullptr || target == nullptr) return null_argument(endpoint == nullptr ? "endpoint" : "target");
    if (pending == nullptr) return null_argument("pending");
    ConnectOptions taken;
    if (const int error = take_connect_options(options, taken); error != 0) return error;
    const auto started = of(endpoint).start_connect(target, taken);
    if (!started) return failed(started.error());
    *pending = static_cast<uint64_t>(*started);
    return 0;
  });
}

int unet_connect_poll(unet_endpoint* endpoint, uint64_t pending) {
  return guarded([&] {
    if (endpoint == nullptr) return null_argument("endpoint");
    const auto answer = of(endpoint).poll_connect(PendingId{pending});
    return answer ? done(*answer) : UNET_EPENDING;
  });
}

int unet_connect_cancel(unet_endpoint* endpoint, uint64_t pending) {
  return guarded([&] { return endpoint == nullptr ? null_argument("endpoint") : done(of(endpoint).cancel_connect(PendingId{pending})); });
}

int unet_next_request(unet_endpoint* endpoint, unet_request* request) {
  return guarded([&] {
    if (endpoint == nullptr) return null_argument("endpoint");
    if (const int error = check_size(request); error != 0) return error;
    const auto next = of(endpoint).next_request();
    if (!next) return 0;
    give_request(*next, request);
    return 1;
  });
}

int unet_accept(unet_endpoint* endpoint, uint64_t id) {
  return guarded([&] { return endpoint == nullptr ? null_argument("endpoint") : done(of(endpoint).accept(RequestId{id})); });
}

int unet_reject(unet_endpoint* endpoint, uint64_t id) {
  return guarded([&] { return endpoint == nullptr ? null_argument("endpoint") : done(of(endpoint).reject(RequestId{id})); });
}

int unet_accept_next(unet_endpoint* endpoint, int64_t timeout_ns, unet_request* from) {
  return guarded([&] {
    if (endpoint == nullptr) return null_argument("endpoint");
    if (from != nullptr) {
      if (const int error = check_size(from); error != 0) return error;
    }
    ConnectionRequest request;
    const auto channel = of(endpoint).accept(to_timeout(timeout_ns), &request);
    if (channel && from != nullptr) give_request(request, from);
    return done(channel);
  });
}

int unet_channel_close(unet_endpoint* endpoint, int channel) {
  return guarded([&] { return endpoint == nullptr ? null_argument("endpoint") : done(of(endpoint).close(channel_of(channel))); });
}

int unet_is_open(const unet_endpoint* endpoint, int channel) { return of(endpoint).is_open(channel_of(channel)) ? 1 : 0; }

int unet_channel_kind(const unet_endpoint* endpoint, int channel) {
  return static_cast<int>(of(endpoint).kind(channel_of(channel)));
}

int unet_next_event(unet_endpoint* endpoint, unet_event* event) {
  return guarded([&] {
    if (endpoint == nullptr) return null_argument("endpoint");
    if (const int error = check_size(event); error != 0) return error;
    const auto next = of(endpoint).next_event();
    if (!next) return 0;
    unet_event out{};
    out.kind = static_cast<int32_t>(next->kind);
    out.channel = to_c(next->channel);
    out.reason = static_cast<int32_t>(next->reason);
    give_text(out.peer, next->peer);
    give(out, event);
    return 1;
  });
}

// ---- sending

int unet_send(unet_endpoint* endpoint, int channel, const void* data, size_t length, unsigned flags) {
  if (__builtin_expect((flags & ~unsigned{UNET_MORE}) != 0, 0)) return UNET_EINVALID;
  return to_c(of(endpoint).send(channel_of(channel), as_bytes(data, length), flags != 0));
}

int unet_reserve(unet_endpoint* endpoint, int channel, size_t length, void** room) {
  if (length > kMessageMax) return UNET_ETOOLONG;
  if (!of(endpoint).is_open(channel_of(channel))) return UNET_ENOCHANNEL;
  const MutableBytes reserved = of(endpoint).reserve(channel_of(channel), static_cast<uint32_t>(length));
  if (reserved.empty()) return UNET_EFULL;
  *room = reserved.data();
  return 0;
}

int unet_post(unet_endpoint* endpoint, int channel, size_t length, unsigned flags) {
  if (__builtin_expect((flags & ~unsigned{UNET_MORE}) != 0, 0)) return UNET_EINVALID;
  if (length > kMessageMax) return UNET_ETOOLONG;
  return to_c(of(endpoint).post(channel_of(channel), static_cast<uint32_t>(length), flags != 0));
}

int unet_put(unet_endpoint* endpoint, int channel, uint64_t region_offset, const void* data, size_t length, unsigned flags) {
  if (__builtin_expect((flags & ~unsigned{UNET_MORE | UNET_NOTIFY}) != 0, 0)) return UNET_EINVALID;
  return to_c(of(endpoint).put(channel_of(channel), region_offset, as_bytes(data, length), (flags & UNET_NOTIFY) != 0,
                               (flags & UNET_MORE) != 0));
}

// ---- direct access

int unet_expose(unet_endpoint* endpoint, uint64_t bytes, void** memory) {
  return guarded([&] {
    if (endpoint == nullptr || memory == nullptr) return null_argument(endpoint == nullptr ? "endpoint" : "memory");
    const auto region = of(endpoint).expose(bytes);
    if (!region) return failed(region.error());
    *memory = region->data();
    return 0;
  });
}

int unet_map_peer_region(unet_endpoint* endpoint, int channel, uint64_t* bytes) {
  return guarded([&] {
    if (endpoint == nullptr || bytes == nullptr) return null_argument(endpoint == nullptr ? "endpoint" : "bytes");
    const auto size = of(endpoint).map_peer_region(channel_of(channel));
    if (!size) return failed(size.error());
    *bytes = *size;
    return 0;
  });
}

// ---- receiving

int unet_receive(unet_endpoint* endpoint, unet_message* message) { return of(endpoint).receive(of(message)) ? 1 : 0; }

unsigned unet_receive_batch(unet_endpoint* endpoint, unet_message* messages, unsigned count) {
  return of(endpoint).receive(std::span<Message>(&of(messages), count));
}

void unet_release(unet_endpoint* endpoint, const unet_message* message) { of(endpoint).release(of(message)); }

// ---- waiting

int unet_wait(unet_endpoint* endpoint, int64_t timeout_ns, int64_t spin_ns) {
  return to_c(of(endpoint).wait(to_timeout(timeout_ns), to_spin(spin_ns)));
}

int unet_wait_room(unet_endpoint* endpoint, int channel, int64_t timeout_ns, int64_t spin_ns) {
  return to_c(of(endpoint).wait_room(channel_of(channel), to_timeout(timeout_ns), to_spin(spin_ns)));
}

int unet_descriptor(unet_endpoint* endpoint) {
  return guarded([&] {
    if (endpoint == nullptr) return null_argument("endpoint");
    const auto descriptor = of(endpoint).descriptor();
    return descriptor ? *descriptor : failed(descriptor.error());
  });
}

int unet_arm(unet_endpoint* endpoint) { return of(endpoint).arm() ? 1 : 0; }

int unet_arm_room(unet_endpoint* endpoint, int channel) { return of(endpoint).arm(channel_of(channel)) ? 1 : 0; }

int unet_start_upcall(unet_endpoint* endpoint, unet_upcall upcall, void* argument) {
  return guarded([&] {
    if (endpoint == nullptr || upcall == nullptr) return null_argument(endpoint == nullptr ? "endpoint" : "upcall");
    return done(of(endpoint).start_upcall([endpoint, upcall, argument](Endpoint&) { upcall(endpoint, argument); }));
  });
}

void unet_stop_upcall(unet_endpoint* endpoint) { of(endpoint).stop_upcall(); }
void unet_mask(unet_endpoint* endpoint) { of(endpoint).mask(); }
void unet_unmask(unet_endpoint* endpoint) { of(endpoint).unmask(); }

// ---- inspection

int unet_counter(const unet_endpoint* endpoint, const char* name, uint64_t* value) {
  return guarded([&] {
    if (endpoint == nullptr || name == nullptr || value == nullptr) return null_argument("endpoint, name and value");
    for (const auto& [known, count] : of(endpoint).counters()) {
      if (known != name) continue;
      *value = count;
      return 0;
    }
    return failed(Errc::not_found, "no counter '" + std::string(name) + "': unet_counter_name() lists them");
  });
}

const char* unet_counter_name(const unet_endpoint* endpoint, size_t index) {
  const char* name = nullptr;
  guarded([&] {
    const auto counters = of(endpoint).counters();
    if (index < counters.size()) name = counters[index].first.data();
    return 0;
  });
  return name;
}

// ---- old names

int unet_open(const char* ni, const unet_context_options* options, unet_context** context) __attribute__((alias("unet_context_open")));
void unet_close(unet_context* context) __attribute__((alias("unet_context_close")));
int unet_create_endpoint(unet_context* context, const unet_endpoint_options* options, unet_endpoint** endpoint)
    __attribute__((alias("unet_endpoint_create")));
void unet_destroy_endpoint(unet_endpoint* endpoint) __attribute__((alias("unet_endpoint_destroy")));
int unet_close_channel(unet_endpoint* endpoint, int channel) __attribute__((alias("unet_channel_close")));

}  // extern "C"
