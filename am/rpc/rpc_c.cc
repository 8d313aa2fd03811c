// rpc_c.cc - the C ABI of calls (unet/rpc.h) over the C++ API.
#include <unet/rpc.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "am/rpc/client.h"
#include "am/rpc/server.h"
#include "unet/c_abi.h"

using namespace unet;         // NOLINT
using namespace unet::rpc;    // NOLINT
using namespace unet::c_abi;  // NOLINT

struct unet_rpc_binding {
  unet_rpc_client* client;
  Binding binding;
  uint32_t failure = 0;  // of the last call that was waited for
  std::unique_ptr<Import> import = nullptr;  // unet_rpc_import_poll() waits for it
};

struct unet_rpc_client {
  std::unique_ptr<Client> client;
  std::vector<std::unique_ptr<unet_rpc_binding>> bindings;  // declared last: they end first
};

// A call that keeps its result.
struct unet_rpc_pending final : PendingCall {
  bool take(Bytes from) override {
    result = ByteBuffer(from);
    return true;
  }
  ByteBuffer result;
  unet_rpc_client* client = nullptr;  // of the last start
  unet_rpc_ended function = nullptr;
  void* context = nullptr;
};

struct unet_rpc_server {
  unet_rpc_admit admit = nullptr;
  void* admit_context = nullptr;
  bool has_threads = false;
  std::unique_ptr<Server> server;  // declared last, because it uses the other members
};

struct unet_rpc_later {
  LateResponse response;
};

namespace {

constexpr bool same(int c, CallStatus status) { return c == static_cast<int>(status); }
static_assert(same(UNET_RPC_OK, CallStatus::ok) && same(UNET_RPC_UNAVAILABLE, CallStatus::unavailable));
static_assert(same(UNET_RPC_NOT_ADMITTED, CallStatus::not_admitted) && same(UNET_RPC_NO_INTERFACE, CallStatus::no_interface));
static_assert(same(UNET_RPC_REVOKED, CallStatus::revoked) && same(UNET_RPC_NO_PROCEDURE, CallStatus::no_procedure));
static_assert(same(UNET_RPC_BAD_ARGUMENTS, CallStatus::bad_arguments) && same(UNET_RPC_TOO_LONG, CallStatus::too_long));
static_assert(same(UNET_RPC_OVERLOADED, CallStatus::overloaded) && same(UNET_RPC_EXPIRED, CallStatus::expired));
static_assert(same(UNET_RPC_CANCELLED, CallStatus::cancelled) && same(UNET_RPC_LOST, CallStatus::lost));
static_assert(same(UNET_RPC_TIMED_OUT, CallStatus::timed_out) && same(UNET_RPC_ABANDONED, CallStatus::abandoned));
static_assert(same(UNET_RPC_BAD_RESULT, CallStatus::bad_result) && same(UNET_RPC_FAILED, CallStatus::failed));

constexpr unsigned kProcedureMax = 0xFFFF;

// Wraps calls that run functions of the program or allocate. An exception ends the program here, because the caller may be C.
template <typename Call>
auto no_throw(Call&& call) noexcept {
  return call();
}

int bad_procedure() noexcept { return failed(Errc::invalid_argument, "a procedure has a number from 0 to 65535"); }

// A call with room of its caller's for the result.
struct CallIntoRoom final : PendingCall {
  explicit CallIntoRoom(MutableBytes to) noexcept : room(to) {}
  bool take(Bytes result) override {
    length = result.size();
    if (length > room.size()) return false;
    copy_bytes(room.data(), result.data(), length);
    return true;
  }
  MutableBytes room;
  size_t length = 0;
};

// ---- what the program's functions get is the C++ API's object by another name

IncomingCall& of(unet_rpc_request* request) noexcept { return *reinterpret_cast<IncomingCall*>(request); }
const IncomingCall& of(const unet_rpc_request* request) noexcept { return *reinterpret_cast<const IncomingCall*>(request); }

void run_ended(PendingCall& call, void*) {
  auto& ended = static_cast<unet_rpc_pending&>(call);
  no_throw([&] { ended.function(&ended, ended.context); });
}

bool run_admit(const Importer& importer, void* server) {
  const auto* const self = static_cast<const unet_rpc_server*>(server);
  return no_throw([&] {
    const std::string name(importer.name), interface(importer.interface);
    const unet_rpc_importer out{.size = sizeof out, .caller = importer.caller, .name = name.c_str(), .interface = interface.c_str(),
                                .version = importer.version, .reserved = 0};
    return self->admit(&out, self->admit_context) != 0;
  });
}

int answer_once(unet_rpc_request* request, const auto& answer) noexcept {
  if (of(request).answered()) return failed(Errc::invalid_argument, "the call is answered or deferred");
  no_throw([&] { answer(of(request)); });
  return 0;
}

// Arms a client or a server for an event loop of the program.
int arm(auto& side, int* descriptor, int64_t* limit_ns) noexcept {
  Nanoseconds limit = Endpoint::kForever;
  const std::optional<int> armed = no_throw([&] { return side.arm(limit); });
  if (!armed) return 0;
  if (*armed < 0) return failed(Errc::disconnected, "the network interface is gone");
  *descriptor = *armed;
  *limit_ns = limit == Endpoint::kForever ? UNET_FOREVER : static_cast<int64_t>(limit);
  return 1;
}

// Adds the binding that `make` returns to the client.
int add_binding(unet_rpc_client* client, const char* target, const char* interface, unet_rpc_binding** binding, const auto& make) noexcept {
  return guarded([&] {
    if (client == nullptr || binding == nullptr) return null_argument(client == nullptr ? "client" : "binding");
    if (target == nullptr || interface == nullptr) return null_argument(target == nullptr ? "target" : "interface");
    *binding = nullptr;
    Result<Binding> made = make();
    if (!made) return failed(made.error());
    auto owned = std::make_unique<unet_rpc_binding>(unet_rpc_binding{.client = client, .binding = std::move(*made)});
    *binding = client->bindings.emplace_back(std::move(owned)).get();
    return 0;
  });
}

template <typename Value>
void take_if_set(Value from, Value& to) noexcept {
  if (from != 0) to = from;
}

}  // namespace

extern "C" {

int unet_rpc_may_have_run(int status) { return may_have_run(static_cast<CallStatus>(status)) ? 1 : 0; }

const char* unet_rpc_status_name(int status) {
  return status < 0 || status > UINT8_MAX ? "unknown" : to_string(static_cast<CallStatus>(status)).data();
}

// ---- clients

int unet_rpc_client_create(unet_context* context, const unet_rpc_client_options* options, unet_rpc_client** client) {
  return guarded([&] {
    if (context == nullptr || client == nullptr) return null_argument(context == nullptr ? "context" : "client");
    *client = nullptr;
    unet_rpc_client_options taken;
    if (const int error = take_options(options, taken); error != 0) return error;
    ClientOptions wanted;
    if (taken.endpoint.size != 0) {
      if (const int error = take_endpoint_options(&taken.endpoint, wanted.endpoint.endpoint); error != 0) return error;
    }
    if (taken.connect.size != 0) {
      if (const int error = take_connect_options(&taken.connect, wanted.connect); error != 0) return error;
    }
    take_if_set(taken.result_max, wanted.result_max);
    take_if_set(taken.results_max, wanted.results_max);
    if (taken.spin_ns != 0) wanted.spin = static_cast<Nanoseconds>(std::max<int64_t>(taken.spin_ns, 0));
    wanted.endpoint.same_user_only = taken.same_user_only != 0;
    auto made = Client::create(c_abi::of(context), wanted);
    if (!made) return failed(made.error());
    *client = new unet_rpc_client{.client = std::move(*made), .bindings = {}};
    return 0;
  });
}

void unet_rpc_client_destroy(unet_rpc_client* client) { delete client; }

int unet_rpc_import(unet_rpc_client* client, const char* target, const char* interface, uint32_t version, int64_t timeout_ns,
                    unet_rpc_binding** binding) {
  return add_binding(client, target, interface, binding, [&] {
    return client->client->import(target, Interface{interface, version}, to_timeout(timeout_ns));
  });
}

int unet_rpc_import_start(unet_rpc_client* client, const char* target, const char* interface, uint32_t version,
                          unet_rpc_binding** binding) {
  return add_binding(client, target, interface, binding, [&]() -> Result<Binding> {
    return client->client->bind_later(target, Interface{interface, version});
  });
}

int unet_rpc_import_poll(unet_rpc_binding* binding, int64_t timeout_ns) {
  return guarded([&] {
    if (binding == nullptr) return null_argument("binding");
    const Status step = binding->binding.open_step(binding->import, to_timeout(timeout_ns));
    if (!step) return failed(step.error());
    return binding->binding.is_open() ? 0 : int{UNET_EPENDING};
  });
}

void unet_rpc_release(unet_rpc_binding* binding) {
  if (binding == nullptr) return;
  std::erase_if(binding->client->bindings, [binding](const auto& each) { return each.get() == binding; });
}

void unet_rpc_set_timeout(unet_rpc_binding* binding, int64_t timeout_ns) {
  binding->binding.set_timeout(timeout_ns < 0 ? kNever : static_cast<Nanoseconds>(timeout_ns));
}

// ---- calls

int unet_rpc_call(unet_rpc_binding* binding, unsigned procedure, const void* arguments, size_t length, void* result, size_t room,
                  size_t* result_length) {
  if (procedure > kProcedureMax) return bad_procedure();
  return no_throw([&] {
    CallIntoRoom call({static_cast<std::byte*>(result), room});
    const Bytes part = as_bytes(arguments, length);
    binding->binding.start_bytes(call, static_cast<uint16_t>(procedure), {&part, 1});
    binding->client->client->wait_for(call);
    binding->failure = call.failure();
    if (result_length != nullptr) *result_length = call.length;
    return static_cast<int>(call.status());
  });
}

uint32_t unet_rpc_call_failure(const unet_rpc_binding* binding) { return binding->failure; }

int unet_rpc_tell(unet_rpc_binding* binding, unsigned procedure, const void* arguments, size_t length) {
  if (procedure > kProcedureMax) return bad_procedure();
  no_throw([&] {
    binding->binding.tell(Procedure<void(RawBytes)>(static_cast<uint16_t>(procedure)), RawBytes{as_bytes(arguments, length)});
  });
  return 0;
}

int unet_rpc_pending_create(unet_rpc_pending** call) {
  return guarded([&] {
    if (call == nullptr) return null_argument("call");
    *call = new unet_rpc_pending;
    return 0;
  });
}

void unet_rpc_pending_destroy(unet_rpc_pending* call) { delete call; }

int unet_rpc_start(unet_rpc_binding* binding, unet_rpc_pending* call, unsigned procedure, const unet_rpc_part* parts, size_t count) {
  if (procedure > kProcedureMax) return bad_procedure();
  no_throw([&] {
    std::array<Bytes, 8> few;
    std::vector<Bytes> many(count > few.size() ? count : 0);
    const std::span<Bytes> all = many.empty() ? std::span<Bytes>(few).first(count) : std::span<Bytes>(many);
    for (size_t i = 0; i < count; ++i) all[i] = as_bytes(parts[i].data, parts[i].length);
    call->client = binding->client;
    binding->binding.start_bytes(*call, static_cast<uint16_t>(procedure), all);
  });
  return 0;
}

int unet_rpc_is_done(const unet_rpc_pending* call) { return call->done() ? 1 : 0; }

int unet_rpc_join(unet_rpc_pending* call) {
  if (!call->done()) no_throw([&] { call->client->client->wait_for(*call); });
  return unet_rpc_status(call);
}

int unet_rpc_status(const unet_rpc_pending* call) { return static_cast<int>(call->status()); }
uint32_t unet_rpc_failure(const unet_rpc_pending* call) { return call->failure(); }

const void* unet_rpc_result(const unet_rpc_pending* call, size_t* length) {
  const Bytes result = call->result.bytes();
  if (length != nullptr) *length = result.size();
  return result.data();
}

void unet_rpc_cancel(unet_rpc_pending* call) { call->cancel(); }

void unet_rpc_on_end(unet_rpc_pending* call, unet_rpc_ended function, void* context) {
  call->function = function;
  call->context = context;
  call->on_done(function == nullptr ? nullptr : run_ended, nullptr);
}

unsigned unet_rpc_poll(unet_rpc_client* client) {
  return no_throw([&] { return client->client->poll(); });
}

int unet_rpc_wait(unet_rpc_client* client, int64_t timeout_ns) {
  return to_c(no_throw([&] { return client->client->wait(to_timeout(timeout_ns)); }));
}

int unet_rpc_arm(unet_rpc_client* client, int* descriptor, int64_t* limit_ns) { return arm(*client->client, descriptor, limit_ns); }

// ---- servers

int unet_rpc_server_create(unet_context* context, const char* name, const unet_rpc_server_options* options, unet_rpc_server** server) {
  return guarded([&] {
    if (context == nullptr || server == nullptr) return null_argument(context == nullptr ? "context" : "server");
    if (name == nullptr) return null_argument("name");
    *server = nullptr;
    unet_rpc_server_options taken;
    if (const int error = take_options(options, taken); error != 0) return error;
    auto owner = std::make_unique<unet_rpc_server>();
    ServerOptions wanted;
    if (taken.endpoint.size != 0) {
      if (const int error = take_endpoint_options(&taken.endpoint, wanted.endpoint.endpoint); error != 0) return error;
    }
    if (taken.admit != nullptr) {
      owner->admit = taken.admit;
      owner->admit_context = taken.admit_context;
      wanted.admit = run_admit;
      wanted.admit_context = owner.get();
    }
    take_if_set(taken.bindings_max, wanted.bindings_max);
    take_if_set(taken.late_max, wanted.late_max);
    take_if_set(taken.arguments_max, wanted.arguments_max);
    take_if_set(taken.memory_max, wanted.memory_max);
    if (taken.spin_ns != 0) wanted.spin = static_cast<Nanoseconds>(std::max<int64_t>(taken.spin_ns, 0));
    take_if_set(taken.threads, wanted.threads);
    wanted.endpoint.same_user_only = taken.same_user_only != 0;
    owner->has_threads = wanted.threads != 0;
    auto made = Server::create(c_abi::of(context), name, wanted);
    if (!made) return failed(made.error());
    owner->server = std::move(*made);
    *server = owner.release();
    return 0;
  });
}

void unet_rpc_server_destroy(unet_rpc_server* server) { delete server; }

int unet_rpc_provide(unet_rpc_server* server, const char* interface, uint32_t version, unsigned number, unet_rpc_procedure procedure,
                     void* context, unsigned flags) {
  return guarded([&] {
    if (server == nullptr || interface == nullptr) return null_argument(server == nullptr ? "server" : "interface");
    if (procedure == nullptr) return null_argument("procedure");
    if (number > kProcedureMax) return bad_procedure();
    if ((flags & ~unsigned{UNET_RPC_IN_THREAD}) != 0) return failed(Errc::invalid_argument, "an unknown flag: 0 or UNET_RPC_IN_THREAD");
    if (flags != 0 && !server->has_threads) return failed(Errc::invalid_argument, "the server has no threads: set its option");
    const auto run = [procedure, context](IncomingCall& call) {
      no_throw([&] { procedure(reinterpret_cast<unet_rpc_request*>(&call), context); });
    };
    server->server->provide_bytes({interface, version}, static_cast<uint16_t>(number), run,
                                  flags == 0 ? RunIn::poll : RunIn::thread);
    return 0;
  });
}

unsigned unet_rpc_revoke(unet_rpc_server* server, const char* interface, uint32_t version) {
  return no_throw([&] { return server->server->revoke({interface, version}); });
}

unsigned unet_rpc_revoke_caller(unet_rpc_server* server, uint64_t caller) {
  return no_throw([&] { return server->server->revoke_caller(caller); });
}

unsigned unet_rpc_server_poll(unet_rpc_server* server) {
  return no_throw([&] { return server->server->poll(); });
}

int unet_rpc_server_wait(unet_rpc_server* server, int64_t timeout_ns) {
  return to_c(no_throw([&] { return server->server->wait(to_timeout(timeout_ns)); }));
}

int unet_rpc_server_arm(unet_rpc_server* server, int* descriptor, int64_t* limit_ns) {
  return arm(*server->server, descriptor, limit_ns);
}

// ---- functions of a procedure

const void* unet_rpc_arguments(const unet_rpc_request* request, size_t* length) {
  const Bytes arguments = of(request).arguments();
  if (length != nullptr) *length = arguments.size();
  return arguments.data();
}

uint64_t unet_rpc_caller(const unet_rpc_request* request) { return of(request).caller(); }

int64_t unet_rpc_time_left(const unet_rpc_request* request) {
  const Nanoseconds deadline = of(request).deadline();
  if (deadline == kNever) return UNET_FOREVER;
  const Nanoseconds now = monotonic_now();
  return deadline > now ? static_cast<int64_t>(deadline - now) : 0;
}

int unet_rpc_answer(unet_rpc_request* request, const void* result, size_t length) {
  return answer_once(request, [&](IncomingCall& call) { call.answer(RawBytes{as_bytes(result, length)}); });
}

int unet_rpc_fail(unet_rpc_request* request, uint32_t number) {
  return answer_once(request, [&](IncomingCall& call) { call.refuse(CallStatus::failed, number); });
}

int unet_rpc_refuse(unet_rpc_request* request) {
  return answer_once(request, [](IncomingCall& call) { call.refuse(CallStatus::bad_arguments); });
}

unet_rpc_later* unet_rpc_defer(unet_rpc_request* request) {
  if (!of(request).can_defer()) return nullptr;
  return no_throw([&] { return new unet_rpc_later{of(request).defer()}; });
}

void unet_rpc_later_answer(unet_rpc_later* later, const void* result, size_t length) {
  const std::unique_ptr<unet_rpc_later> owned(later);
  no_throw([&] { owned->response.send({.result = ByteBuffer(as_bytes(result, length))}); });
}

void unet_rpc_later_fail(unet_rpc_later* later, uint32_t number) {
  const std::unique_ptr<unet_rpc_later> owned(later);
  no_throw([&] { owned->response.send({.status = CallStatus::failed, .failure = number}); });
}

int unet_rpc_later_cancelled(const unet_rpc_later* later) { return later->response.cancelled() ? 1 : 0; }

}  // extern "C"
