// am_c.cc - the C ABI of Active Messages (am.h) over the C++ API.
#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "am/am.h"
#include "am/bundle.h"
#include "unet/base/misuse.h"
#include "unet/c_abi.h"

using namespace unet;         // NOLINT
using namespace unet::am;     // NOLINT
using namespace unet::c_abi;  // NOLINT

struct unet_am_bundle {
  std::unique_ptr<Bundle> bundle;
  std::vector<std::unique_ptr<unet_am_endpoint>> endpoints;
  uint32_t going = 0;  // endpoints being destroyed; functions of the program run meanwhile
};

struct unet_am_endpoint {
  ~unet_am_endpoint() { give_up(); }
  // Drops a reservation and unlocks the bundle.
  bool give_up() noexcept {
    const bool was = std::exchange(reserved, false);
    if (was) bundle->bundle->unlock();
    return was;
  }
  struct Entry {
    unet_am_handler function = nullptr;
    void* context = nullptr;
  };
  struct Done {
    unet_am_done function;
    void* context;
  };
  unet_am_bundle* bundle = nullptr;
  std::array<Entry, kHandlersMax> handlers{};
  unet_am_error_handler error_handler = nullptr;
  void* error_context = nullptr;
  unet_am_admit admit = nullptr;
  void* admit_context = nullptr;
  void* attachment = nullptr;
  bool reserved = false;                   // reserved: the bundle is locked
  std::unique_ptr<am::Endpoint> endpoint;  // declared last, because it uses the other members
};

namespace {

static_assert(UNET_AM_ARGUMENTS_MAX == kArgumentsMax && UNET_AM_HANDLERS_MAX == kHandlersMax && UNET_AM_CREDITS == kFlowWindow);
static_assert(UNET_AM_TRANSLATIONS_MAX == kTranslationsMax && UNET_AM_MEDIUM_MAX == kMediumMax);
static_assert(UNET_AM_LONG_REPLY_MAX == kLongReplyMax && UNET_AM_LONG_MAX == kLongMax);
static_assert(UNET_AM_NO_TAG == kNoTag && UNET_AM_ANY_TAG == kAnyTag && UNET_AM_NO_INDEX == kNoIndex);
constexpr bool same(int c, ReturnStatus status) { return c == static_cast<int>(status); }
static_assert(same(UNET_AM_BAD_ARGUMENTS, ReturnStatus::bad_arguments) && same(UNET_AM_BAD_ENTRY, ReturnStatus::bad_entry));
static_assert(same(UNET_AM_BAD_TAG, ReturnStatus::bad_tag) && same(UNET_AM_BAD_HANDLER, ReturnStatus::bad_handler));
static_assert(same(UNET_AM_BAD_SEGMENT_OFFSET, ReturnStatus::bad_segment_offset) && same(UNET_AM_BAD_LENGTH, ReturnStatus::bad_length));
static_assert(same(UNET_AM_BAD_ENDPOINT, ReturnStatus::bad_endpoint) && same(UNET_AM_CONGESTION, ReturnStatus::congestion));
static_assert(same(UNET_AM_UNREACHABLE, ReturnStatus::unreachable) && same(UNET_AM_REPLY_REJECTED, ReturnStatus::reply_rejected));
constexpr bool same(int c, Kind kind) { return c == static_cast<int>(kind); }
static_assert(same(UNET_AM_SHORT_REQUEST, Kind::short_request) && same(UNET_AM_MEDIUM_REQUEST, Kind::medium_request));
static_assert(same(UNET_AM_LONG_REQUEST, Kind::long_request) && same(UNET_AM_GET, Kind::get_request));
static_assert(same(UNET_AM_SHORT_REPLY, Kind::short_reply) && same(UNET_AM_MEDIUM_REPLY, Kind::medium_reply));
static_assert(same(UNET_AM_LONG_REPLY, Kind::long_reply));

constexpr int outcome_to_c(Outcome outcome) noexcept { return outcome == Outcome::sent ? 0 : -200 - static_cast<int>(outcome); }

// Wraps calls that run handlers or allocate. An exception ends the program here, because the caller may be C.
template <typename Call>
auto no_throw(Call&& call) noexcept {
  return call();
}
template <typename Call>
int outcome_of(Call&& call) noexcept {
  return outcome_to_c(call());
}

static_assert(outcome_to_c(Outcome::not_sent) == UNET_AM_ENOTSENT && outcome_to_c(Outcome::returned) == UNET_AM_ERETURNED);
static_assert(outcome_to_c(Outcome::bad_call) == UNET_AM_EBADCALL);

struct Counted {
  const char* name;
  uint64_t am::Counters::*member;
};
constexpr std::array kCounted{
    Counted{"requests", &am::Counters::requests},         Counted{"replies", &am::Counters::replies},
    Counted{"handled", &am::Counters::handled},           Counted{"completed", &am::Counters::completed},
    Counted{"returned", &am::Counters::returned},         Counted{"refused", &am::Counters::refused},
    Counted{"malformed", &am::Counters::malformed},       Counted{"bad_credit", &am::Counters::bad_credit},
    Counted{"bad_reply", &am::Counters::bad_reply},       Counted{"lost_replies", &am::Counters::lost_replies},
    Counted{"unknown_channel", &am::Counters::unknown_channel}, Counted{"not_admitted", &am::Counters::not_admitted},
    Counted{"bad_request", &am::Counters::bad_request}};
static_assert(kCounted.size() == sizeof(am::Counters) / sizeof(uint64_t));

// ---- unet_am_token is the C++ API's Token by another name

Token& of(unet_am_token* token) noexcept { return *reinterpret_cast<Token*>(token); }
const Token& of(const unet_am_token* token) noexcept { return *reinterpret_cast<const Token*>(token); }

// Takes an endpoint out of its bundle's list; nullptr if it is not there because it is being destroyed. The caller holds the bundle.
std::unique_ptr<unet_am_endpoint> take_out(unet_am_endpoint& endpoint) noexcept {
  auto& all = endpoint.bundle->endpoints;
  const auto place = std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.get() == &endpoint; });
  if (place == all.end()) return nullptr;
  std::unique_ptr<unet_am_endpoint> taken = std::move(*place);
  all.erase(place);
  return taken;
}

// Locks the bundle, which has an effect only in a bundle for several threads.
std::unique_lock<Bundle> hold(const unet_am_endpoint* endpoint) noexcept { return std::unique_lock(*endpoint->bundle->bundle); }

std::span<const uint32_t> words(const uint32_t* arguments, unsigned count) noexcept { return {arguments, count}; }

// Returns whether the C++ API's types cannot hold these values.
bool bad(unsigned handler, unsigned count) noexcept { return handler >= kHandlersMax || count > kArgumentsMax; }

// ---- calls of the program's functions

unet_am_endpoint* endpoint_of(am::Endpoint& endpoint) noexcept {
  return static_cast<unet_am_endpoint*>(endpoint.attachment());
}

void run_handler(Token& token, void* entry) {
  const auto* self = static_cast<const unet_am_endpoint::Entry*>(entry);
  no_throw([&] { self->function(reinterpret_cast<unet_am_token*>(&token), self->context); });
}

void run_error_handler(am::Endpoint&, const Returned& returned, void* endpoint) {
  auto* self = static_cast<unet_am_endpoint*>(endpoint);
  unet_am_returned out{};
  out.size = sizeof out;
  out.status = static_cast<int32_t>(returned.status);
  out.kind = static_cast<int32_t>(returned.kind == Kind::long_piece ? Kind::long_request : returned.kind);
  out.handler = returned.handler;
  out.index = returned.index;
  out.arguments = returned.arguments.data();
  out.count = static_cast<uint32_t>(returned.arguments.size());
  out.memory = returned.memory.data();
  no_throw([&] { self->error_handler(self, &out, self->error_context); });
}

bool run_admit(const ConnectionRequest& request, void* endpoint) {
  const auto* self = static_cast<const unet_am_endpoint*>(endpoint);
  unet_request out{};
  out.size = sizeof out;
  out.id = static_cast<uint64_t>(request.id);
  out.peer_uid = request.peer_uid;
  out.peer_pid = request.peer_pid;
  out.same_user = request.same_user ? 1 : 0;
  request.peer.copy(out.peer, sizeof out.peer - 1);
  return no_throw([&] { return self->admit(&out, self->admit_context); }) != 0;
}

void run_done(am::Endpoint& endpoint, void* done) {
  const std::unique_ptr<unet_am_endpoint::Done> self(static_cast<unet_am_endpoint::Done*>(done));
  no_throw([&] { self->function(endpoint_of(endpoint), self->context); });
}

int map_with(unet_am_endpoint* endpoint, const char* target, const unet_connect_options* options,
             Status (*call)(am::Endpoint&, uint32_t, const char*, uint64_t, const ConnectOptions&), uint32_t index, uint64_t tag) noexcept {
  return guarded([&] {
    if (endpoint == nullptr || target == nullptr) return null_argument(endpoint == nullptr ? "endpoint" : "target");
    ConnectOptions taken{.local = kLocalOptions};
    if (const int error = take_connect_options(options, taken); error != 0) return error;
    const auto held = hold(endpoint);
    return done(call(*endpoint->endpoint, index, target, tag, taken));
  });
}

int set_handler(unet_am_endpoint* endpoint, unsigned index, int arguments, unet_am_handler handler, void* context) noexcept {
  if (endpoint == nullptr) return null_argument("endpoint");
  if (index >= kHandlersMax) return failed(Errc::invalid_argument, "a handler has an index from 0 to 255");
  const auto held = hold(endpoint);
  unet_am_endpoint::Entry& entry = endpoint->handlers[index];
  entry = {handler, context};
  if (handler == nullptr) {
    endpoint->endpoint->set_handler(static_cast<uint8_t>(index), Handler{});
  } else {
    endpoint->endpoint->set_handler(static_cast<uint8_t>(index),
                                    Handler{.function = run_handler, .context = &entry, .arguments = static_cast<int16_t>(arguments)});
  }
  return 0;
}

}  // namespace

extern "C" {

const char* unet_am_name_of(int code) {
  switch (code) {
    case UNET_AM_ENOTSENT: return "not_sent";
    case UNET_AM_ERETURNED: return "returned";
    case UNET_AM_EBADCALL: return "bad_call";
    default: return code < 1 || code > kReturnStatusMax ? "unknown" : to_string(static_cast<ReturnStatus>(code)).data();
  }
}

// ---- bundles and endpoints

int unet_am_bundle_create(unsigned flags, unet_am_bundle** bundle) {
  return guarded([&] {
    if (bundle == nullptr) return null_argument("bundle");
    *bundle = nullptr;
    if ((flags & ~unsigned{UNET_AM_SHARED}) != 0) return failed(Errc::invalid_argument, "an unknown flag: 0 or UNET_AM_SHARED");
    auto made = Bundle::create(flags != 0 ? Threads::several : Threads::one);
    if (!made) return failed(made.error());
    *bundle = new unet_am_bundle{.bundle = std::move(*made), .endpoints = {}};
    return 0;
  });
}

void unet_am_bundle_destroy(unet_am_bundle* bundle) {
  if (bundle == nullptr) return;
  if (bundle->going != 0) unet::misused("what is called while an endpoint goes does not destroy its bundle: do so when it is gone");
  while (!bundle->endpoints.empty()) unet_am_endpoint_destroy(bundle->endpoints.back().get());
  delete bundle;
}

int unet_am_endpoint_create(unet_context* context, unet_am_bundle* bundle, const unet_am_options* options, unet_am_endpoint** endpoint) {
  return guarded([&] {
    if (context == nullptr || bundle == nullptr || endpoint == nullptr) return null_argument("context, bundle and endpoint");
    *endpoint = nullptr;
    unet_am_options taken;
    if (const int error = take_options(options, taken); error != 0) return error;
    auto made = std::make_unique<unet_am_endpoint>();
    made->admit = taken.admit;
    made->admit_context = taken.admit_context;
    am::Options wanted;
    if (taken.endpoint.size != 0) {
      if (const int error = take_endpoint_options(&taken.endpoint, wanted.endpoint); error != 0) return error;
    }
    if (taken.admit != nullptr) {
      wanted.admit = run_admit;
      wanted.admit_context = made.get();
    }
    wanted.same_user_only = taken.same_user_only != 0;
    auto created = am::Endpoint::create(of(context), wanted);
    if (!created) return failed(created.error());
    made->endpoint = std::move(*created);
    made->endpoint->attachment() = made.get();
    made->bundle = bundle;
    const std::lock_guard held(*bundle->bundle);
    if (const Status added = bundle->bundle->add(*made->endpoint); !added) return failed(added.error());
    *endpoint = bundle->endpoints.emplace_back(std::move(made)).get();
    return 0;
  });
}

void unet_am_endpoint_destroy(unet_am_endpoint* endpoint) {
  if (endpoint == nullptr) return;
  unet_am_bundle& bundle = *endpoint->bundle;
  const std::lock_guard held(*bundle.bundle);
  ++bundle.going;
  take_out(*endpoint).reset();  // functions of the program run here, and may make or destroy other endpoints
  --bundle.going;
}

int unet_am_move_endpoint(unet_am_endpoint* endpoint, unet_am_bundle* to) {
  return guarded([&] {
    if (endpoint == nullptr || to == nullptr) return null_argument(endpoint == nullptr ? "endpoint" : "to");
    if (endpoint->bundle == to) return 0;
    std::unique_ptr<unet_am_endpoint> moved;
    unet_am_bundle& from = *endpoint->bundle;
    if (from.bundle->in_handler() || to->bundle->in_handler()) {
      return failed(Errc::invalid_argument, "a handler moves no endpoint into its bundle or out of it");
    }
    {
      const std::lock_guard held(*from.bundle);
      moved = take_out(*endpoint);
      if (moved == nullptr) return failed(Errc::invalid_argument, "the endpoint is being destroyed");
      endpoint->give_up();
      from.bundle->remove(*endpoint->endpoint);
    }
    const std::lock_guard held(*to->bundle);
    static_cast<void>(to->bundle->add(*endpoint->endpoint));
    endpoint->bundle = to;
    to->endpoints.push_back(std::move(moved));
    return 0;
  });
}

int unet_am_bind(unet_am_endpoint* endpoint, const char* name) {
  return guarded([&] {
    if (endpoint == nullptr || name == nullptr) return null_argument(endpoint == nullptr ? "endpoint" : "name");
    const auto held = hold(endpoint);
    return done(endpoint->endpoint->bind(name));
  });
}

void unet_am_attach(unet_am_endpoint* endpoint, void* attachment) { endpoint->attachment = attachment; }
void* unet_am_attachment(const unet_am_endpoint* endpoint) { return endpoint->attachment; }

uint32_t unet_am_endpoint_id(const unet_am_endpoint* endpoint) { return endpoint->endpoint->raw().id(); }

// ---- translations, tags, handlers, segment

int unet_am_map(unet_am_endpoint* endpoint, uint32_t index, const char* target, uint64_t tag, const unet_connect_options* options) {
  return map_with(endpoint, target, options, [](am::Endpoint& it, uint32_t at, const char* name, uint64_t its, const ConnectOptions& how) {
    return it.map(at, name, its, how);
  }, index, tag);
}

int unet_am_start_map(unet_am_endpoint* endpoint, uint32_t index, const char* target, uint64_t tag, const unet_connect_options* options) {
  return map_with(endpoint, target, options, [](am::Endpoint& it, uint32_t at, const char* name, uint64_t its, const ConnectOptions& how) {
    return it.start_map(at, name, its, how);
  }, index, tag);
}

int unet_am_poll_map(unet_am_endpoint* endpoint, uint32_t index) {
  return guarded([&] {
    if (endpoint == nullptr) return null_argument("endpoint");
    const auto held = hold(endpoint);
    am::Endpoint& it = *endpoint->endpoint;
    if (it.is_mapped(index)) return 0;
    if (!it.in_use(index)) return failed({Errc::not_found, "translation " + std::to_string(index) + " is not in use"});
    const Error* const failure = it.map_failure(index);
    if (failure == nullptr) return int{UNET_EPENDING};
    const Error why = *failure;
    const Status freed = it.unmap(index);
    return freed ? failed(why) : done(freed);
  });
}

int unet_am_unmap(unet_am_endpoint* endpoint, uint32_t index) {
  return guarded([&] {
    if (endpoint == nullptr) return null_argument("endpoint");
    const auto held = hold(endpoint);
    return done(endpoint->endpoint->unmap(index));
  });
}

int unet_am_in_use(unet_am_endpoint* endpoint, uint32_t index) {
  const auto held = hold(endpoint);
  return endpoint->endpoint->in_use(index) ? 1 : 0;
}

int unet_am_is_local(unet_am_endpoint* endpoint, uint32_t index) {
  const auto held = hold(endpoint);
  return endpoint->endpoint->is_local(index) ? 1 : 0;
}

void unet_am_set_tag(unet_am_endpoint* endpoint, uint64_t tag) {
  const auto held = hold(endpoint);
  endpoint->endpoint->set_tag(tag);
}

uint64_t unet_am_tag(unet_am_endpoint* endpoint) {
  const auto held = hold(endpoint);
  return endpoint->endpoint->tag();
}

int unet_am_set_handler(unet_am_endpoint* endpoint, unsigned index, unet_am_handler handler, void* context) {
  return set_handler(endpoint, index, -1, handler, context);
}

int unet_am_set_handler_counted(unet_am_endpoint* endpoint, unsigned index, unsigned arguments, unet_am_handler handler, void* context) {
  if (arguments > kArgumentsMax) return failed(Errc::invalid_argument, "a handler takes from 0 to 16 arguments");
  return set_handler(endpoint, index, static_cast<int>(arguments), handler, context);
}

void unet_am_set_error_handler(unet_am_endpoint* endpoint, unet_am_error_handler handler, void* context) {
  const auto held = hold(endpoint);
  endpoint->error_handler = handler;
  endpoint->error_context = context;
  endpoint->endpoint->set_error_handler(handler == nullptr ? nullptr : run_error_handler, endpoint);
}

int unet_am_expose(unet_am_endpoint* endpoint, uint64_t length, void** memory) {
  return guarded([&] {
    if (endpoint == nullptr || memory == nullptr) return null_argument(endpoint == nullptr ? "endpoint" : "memory");
    const auto held = hold(endpoint);
    const auto region = endpoint->endpoint->expose(length);
    if (!region) return failed(region.error());
    *memory = region->data();
    return 0;
  });
}

int unet_am_set_segment(unet_am_endpoint* endpoint, void* memory, uint64_t length) {
  return guarded([&] {
    if (endpoint == nullptr || (memory == nullptr && length != 0)) return null_argument(endpoint == nullptr ? "endpoint" : "memory");
    const auto held = hold(endpoint);
    return done(endpoint->endpoint->set_segment({static_cast<std::byte*>(memory), length}));
  });
}

void* unet_am_segment(unet_am_endpoint* endpoint, uint64_t* length) {
  const auto held = hold(endpoint);
  const MutableBytes segment = endpoint->endpoint->segment();
  *length = segment.size();
  return segment.data();
}

// ---- requests

int unet_am_request_short(unet_am_endpoint* endpoint, uint32_t to, unsigned handler, const uint32_t* arguments, unsigned count) {
  if (bad(handler, count)) return UNET_AM_EBADCALL;
  const auto held = hold(endpoint);
  return outcome_of([&] { return endpoint->endpoint->request_short(to, static_cast<uint8_t>(handler), words(arguments, count)); });
}

int unet_am_request_medium(unet_am_endpoint* endpoint, uint32_t to, unsigned handler, const void* payload, size_t length,
                           const uint32_t* arguments, unsigned count) {
  if (bad(handler, count)) return UNET_AM_EBADCALL;
  const auto held = hold(endpoint);
  return outcome_of([&] {
    return endpoint->endpoint->request_medium(to, static_cast<uint8_t>(handler), as_bytes(payload, length), words(arguments, count));
  });
}

int unet_am_request_long(unet_am_endpoint* endpoint, uint32_t to, unsigned handler, uint64_t offset, const void* payload, size_t length,
                         const uint32_t* arguments, unsigned count) {
  if (bad(handler, count)) return UNET_AM_EBADCALL;
  const auto held = hold(endpoint);
  return outcome_of([&] {
    return endpoint->endpoint->request_long(to, static_cast<uint8_t>(handler), offset, as_bytes(payload, length), words(arguments, count));
  });
}

int unet_am_request_long_async(unet_am_endpoint* endpoint, uint32_t to, unsigned handler, uint64_t offset, const void* payload,
                               size_t length, const uint32_t* arguments, unsigned count, unet_am_done done, void* context) {
  if (bad(handler, count)) return UNET_AM_EBADCALL;
  const auto held = hold(endpoint);
  std::unique_ptr<unet_am_endpoint::Done> call;
  if (done != nullptr) {
    call.reset(new (std::nothrow) unet_am_endpoint::Done{done, context});
    if (call == nullptr) return UNET_AM_ENOTSENT;
  }
  const Outcome outcome = no_throw([&] {
    return endpoint->endpoint->request_long_async(to, static_cast<uint8_t>(handler), offset, as_bytes(payload, length),
                                                  words(arguments, count), call == nullptr ? nullptr : run_done, call.get());
  });
  // run_done() owns it, and may have run already.
  if (outcome == Outcome::sent) static_cast<void>(call.release());
  return outcome_to_c(outcome);
}

int unet_am_get(unet_am_endpoint* endpoint, uint32_t from, unsigned handler, uint64_t offset, void* memory, size_t length,
                const uint32_t* arguments, unsigned count) {
  if (bad(handler, count)) return UNET_AM_EBADCALL;
  const auto held = hold(endpoint);
  return outcome_of([&] {
    return endpoint->endpoint->get(from, static_cast<uint8_t>(handler), offset, {static_cast<std::byte*>(memory), length},
                                   words(arguments, count));
  });
}

int unet_am_reserve(unet_am_endpoint* endpoint, uint32_t to, size_t length, unsigned count, void** room) {
  if (length == 0 || length > kMediumMax || count > kArgumentsMax) return UNET_AM_EBADCALL;
  auto held = hold(endpoint);
  endpoint->give_up();
  am::Endpoint& it = *endpoint->endpoint;
  const uint64_t returned = it.counters().returned;
  const MutableBytes bytes = no_throw([&] { return it.reserve(to, static_cast<uint32_t>(length), static_cast<uint8_t>(count)); });
  if (bytes.empty()) return it.counters().returned != returned ? UNET_AM_ERETURNED : UNET_AM_EBADCALL;
  *room = bytes.data();
  endpoint->reserved = true;
  held.release();  // until unet_am_commit()
  return 0;
}

int unet_am_commit(unet_am_endpoint* endpoint, unsigned handler, size_t length, const uint32_t* arguments, unsigned count) {
  if (!std::exchange(endpoint->reserved, false)) return UNET_AM_EBADCALL;
  const std::unique_lock held(*endpoint->bundle->bundle, std::adopt_lock);
  am::Endpoint& it = *endpoint->endpoint;
  const uint32_t bytes = bad(handler, count) || length > kMediumMax ? 0 : static_cast<uint32_t>(length);
  return outcome_of([&] { return it.commit(static_cast<uint8_t>(handler), bytes, words(arguments, count)); });
}

int unet_am_has_credit(unet_am_endpoint* endpoint, uint32_t to) {
  const auto held = hold(endpoint);
  return endpoint->endpoint->has_credit(to) ? 1 : 0;
}

// ---- tokens

const uint32_t* unet_am_arguments(const unet_am_token* token, unsigned* count) {
  const std::span<const uint32_t> arguments = of(token).arguments();
  if (count != nullptr) *count = static_cast<unsigned>(arguments.size());
  return arguments.data();
}

void* unet_am_payload(const unet_am_token* token, size_t* length) {
  const MutableBytes payload = of(token).payload();
  if (length != nullptr) *length = payload.size();
  return payload.data();
}

uint64_t unet_am_offset(const unet_am_token* token) { return of(token).offset(); }
int unet_am_kind(const unet_am_token* token) { return static_cast<int>(of(token).kind()); }
int unet_am_is_request(const unet_am_token* token) { return of(token).is_request() ? 1 : 0; }
int unet_am_can_reply(const unet_am_token* token) { return of(token).can_reply() ? 1 : 0; }
uint64_t unet_am_message_tag(const unet_am_token* token) { return of(token).tag(); }
uint64_t unet_am_source(const unet_am_token* token) { return of(token).source(); }
uint32_t unet_am_index(const unet_am_token* token) { return of(token).index(); }

size_t unet_am_source_name(const unet_am_token* token, char* name, size_t length) {
  const std::string_view whole = of(token).source_name();
  if (length != 0) name[whole.copy(name, length - 1)] = '\0';
  return whole.size();
}

unet_am_endpoint* unet_am_token_endpoint(const unet_am_token* token) { return endpoint_of(of(token).endpoint()); }

int unet_am_reply_short(unet_am_token* token, unsigned handler, const uint32_t* arguments, unsigned count) {
  if (bad(handler, count)) return UNET_AM_EBADCALL;
  return outcome_of([&] { return of(token).reply_short(static_cast<uint8_t>(handler), words(arguments, count)); });
}

int unet_am_reply_medium(unet_am_token* token, unsigned handler, const void* payload, size_t length, const uint32_t* arguments,
                         unsigned count) {
  if (bad(handler, count)) return UNET_AM_EBADCALL;
  return outcome_of([&] {
    return of(token).reply_medium(static_cast<uint8_t>(handler), as_bytes(payload, length), words(arguments, count));
  });
}

int unet_am_reply_long(unet_am_token* token, unsigned handler, uint64_t offset, const void* payload, size_t length,
                       const uint32_t* arguments, unsigned count) {
  if (bad(handler, count)) return UNET_AM_EBADCALL;
  return outcome_of([&] {
    return of(token).reply_long(static_cast<uint8_t>(handler), offset, as_bytes(payload, length), words(arguments, count));
  });
}

// ---- progress

unsigned unet_am_poll(unet_am_bundle* bundle) {
  return no_throw([&] { return bundle->bundle->poll(); });
}

int unet_am_wait(unet_am_bundle* bundle, int64_t timeout_ns, int64_t spin_ns) {
  return c_abi::to_c(no_throw([&] { return bundle->bundle->wait(to_timeout(timeout_ns), to_spin(spin_ns)); }));
}

int unet_am_flush(unet_am_endpoint* endpoint, int64_t timeout_ns) {
  const auto held = hold(endpoint);
  return no_throw([&] { return endpoint->endpoint->flush(to_timeout(timeout_ns)); }) ? 0 : UNET_ETIMEDOUT;
}

int unet_am_counter(unet_am_endpoint* endpoint, const char* name, uint64_t* value) {
  return guarded([&] {
    if (endpoint == nullptr || name == nullptr || value == nullptr) return null_argument("endpoint, name and value");
    const auto held = hold(endpoint);
    for (const Counted& each : kCounted) {
      if (std::string_view(name) != each.name) continue;
      *value = endpoint->endpoint->counters().*each.member;
      return 0;
    }
    return failed(Errc::not_found, "no counter '" + std::string(name) + "': unet_am_counter_name() lists them");
  });
}

const char* unet_am_counter_name(size_t index) { return index < kCounted.size() ? kCounted[index].name : nullptr; }

// ---- old names

int unet_am_create_bundle(unsigned flags, unet_am_bundle** bundle) __attribute__((alias("unet_am_bundle_create")));
void unet_am_destroy_bundle(unet_am_bundle* bundle) __attribute__((alias("unet_am_bundle_destroy")));
int unet_am_create_endpoint(unet_context* context, unet_am_bundle* bundle, const unet_am_options* options, unet_am_endpoint** endpoint)
    __attribute__((alias("unet_am_endpoint_create")));
void unet_am_destroy_endpoint(unet_am_endpoint* endpoint) __attribute__((alias("unet_am_endpoint_destroy")));

}  // extern "C"
