// life.cc - making and freeing bundles and endpoints of AM-2. Handlers run meanwhile and may call these functions, so no mutex is held
// then.
#include <unistd.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "am/am.h"
#include "am/compat/am2/am.h"
#include "am/compat/am2/objects.h"
#include "am/compat/host_name.h"
#include "unet/base/misuse.h"

using namespace unet::am::am2;  // NOLINT

unet::am::am2::State unet::am::am2::state;
thread_local unet::am::am2::Unmapping unet::am::am2::unmapping;

namespace {

constexpr int64_t kFlushTime = 5'000'000'000;  // how long freeing an endpoint waits for its peers

// Returns whether bundles and endpoints may be made. Needs state.mutex.
bool goes_on() noexcept { return initialised() && !state.ends; }

op_t opcode_of(int kind) noexcept {
  switch (kind) {
    case UNET_AM_SHORT_REQUEST: return AM_REQUEST_M;
    case UNET_AM_MEDIUM_REQUEST: return AM_REQUEST_IM;
    case UNET_AM_GET: return AM_GET_XFER_M;
    case UNET_AM_SHORT_REPLY: return AM_REPLY_M;
    case UNET_AM_MEDIUM_REPLY: return AM_REPLY_IM;
    case UNET_AM_LONG_REPLY: return AM_REPLY_XFER_M;
    default: return AM_REQUEST_XFER_M;
  }
}

void run_error_handler(unet_am_endpoint* endpoint, const unet_am_returned* returned, void*) {
  const auto self = static_cast<ep_t>(unet_am_attachment(endpoint));
  const auto function = self->functions[0].load(std::memory_order_relaxed);
  const bool given_up = returned->status == UNET_AM_UNREACHABLE && unmapping.endpoint == self &&
                        returned->index == static_cast<uint32_t>(unmapping.index);
  if (function == nullptr && given_up) return;
  if (function == nullptr) unet::misused("an Active Message came back, and there is no error handler (AM_SetHandler(endpoint, 0, ...))");
  unet_am2_argblock block{};
  block.endpoint = self;
  block.index = returned->index == UNET_AM_NO_INDEX ? -1 : static_cast<int>(returned->index);
  block.handler = static_cast<handler_t>(returned->handler);
  block.count = static_cast<int>(returned->count);
  if (returned->count != 0) std::memcpy(block.arguments, returned->arguments, returned->count * sizeof(uint32_t));
  reinterpret_cast<void (*)(int, op_t, void*)>(function)(returned->status, opcode_of(returned->kind), &block);
}

// ---- freeing objects that no call can find any longer. Handlers run meanwhile.

void free_endpoint(ep_t endpoint) {
  unet_am_flush(endpoint->endpoint, kFlushTime);
  delete endpoint;
}

// Takes the bundle's last endpoint out of it; nullptr if there is none.
ep_t take_endpoint(eb_t bundle) {
  const std::lock_guard held(state.mutex);
  if (bundle->endpoints.empty()) return nullptr;
  const ep_t last = bundle->endpoints.back();
  bundle->endpoints.pop_back();
  return last;
}

void free_bundle(eb_t bundle) {
  while (const ep_t each = take_endpoint(bundle)) free_endpoint(each);
  delete bundle;
}

// ---- making

// Makes an endpoint that is not in its bundle's list yet.
std::unique_ptr<unet_am2_endpoint> make_endpoint(eb_t bundle, en_t* name) {
  auto made = std::make_unique<unet_am2_endpoint>();
  if (unet_am_endpoint_create(state.context, bundle->bundle, nullptr, &made->endpoint) < 0) return nullptr;
  made->bundle = bundle;
  unet_am_attach(made->endpoint, made.get());
  unet_am_set_tag(made->endpoint, AM_NONE);
  unet_am_set_error_handler(made->endpoint, run_error_handler, nullptr);
  const std::string own = "am2/" + std::to_string(unet_am_endpoint_id(made->endpoint)) + "/" + std::to_string(::getpid());
  if (unet_am_bind(made->endpoint, own.c_str()) < 0) return nullptr;
  *name = to_name(own + "@" + state.host);
  return made;
}

}  // namespace

extern "C" {

int AM_Init(void) {
  return guarded([&] {
    const std::lock_guard held(state.mutex);
    if (state.ends) return AM_ERR_RESOURCE;
    if (initialised()) return AM_OK;
    unet_context* context = nullptr;
    if (unet_context_open(nullptr, nullptr, &context) < 0) return AM_ERR_RESOURCE;
    std::unique_ptr<unet_context, decltype(&unet_context_close)> opened(context, unet_context_close);
    state.host = unet::am::host_name(context);
    state.context = opened.release();
    return AM_OK;
  });
}

int AM_Terminate(void) {
  std::vector<eb_t> bundles;
  {
    const std::lock_guard held(state.mutex);
    if (!goes_on()) return AM_ERR_NOT_INIT;
    state.ends = true;
    bundles.swap(state.bundles);
  }
  for (const eb_t each : bundles) free_bundle(each);
  const std::lock_guard held(state.mutex);
  unet_context_close(state.context);
  state.context = nullptr;
  state.ends = false;
  return AM_OK;
}

int AM_AllocateBundle(int type, eb_t* bundle) {
  return guarded([&] {
    const std::lock_guard held(state.mutex);
    if (!goes_on()) return AM_ERR_NOT_INIT;
    if (bundle == nullptr || (type != AM_SEQ && type != AM_PAR)) return AM_ERR_BAD_ARG;
    auto made = std::make_unique<unet_am2_bundle>();
    if (unet_am_bundle_create(type == AM_PAR ? UNET_AM_SHARED : 0, &made->bundle) < 0) return AM_ERR_RESOURCE;
    state.bundles.push_back(made.get());
    *bundle = made.release();
    return AM_OK;
  });
}

int AM_AllocateEndpoint(eb_t bundle, ep_t* endpoint, en_t* name) {
  return guarded([&] {
    {
      const std::lock_guard held(state.mutex);
      if (!goes_on()) return AM_ERR_NOT_INIT;
    }
    if (bundle == nullptr || endpoint == nullptr || name == nullptr) return AM_ERR_BAD_ARG;
    auto made = make_endpoint(bundle, name);
    if (made == nullptr) return AM_ERR_RESOURCE;
    const std::lock_guard held(state.mutex);
    bundle->endpoints.push_back(made.get());
    *endpoint = made.release();
    return AM_OK;
  });
}

int AM_FreeEndpoint(ep_t endpoint) {
  {
    const std::lock_guard held(state.mutex);
    if (!initialised()) return AM_ERR_NOT_INIT;
    if (endpoint == nullptr || std::erase(endpoint->bundle->endpoints, endpoint) == 0) return AM_ERR_BAD_ARG;
  }
  free_endpoint(endpoint);
  return AM_OK;
}

int AM_FreeBundle(eb_t bundle) {
  {
    const std::lock_guard held(state.mutex);
    if (!initialised()) return AM_ERR_NOT_INIT;
    if (bundle == nullptr || std::erase(state.bundles, bundle) == 0) return AM_ERR_BAD_ARG;
  }
  free_bundle(bundle);
  return AM_OK;
}

int AM_MoveEndpoint(ep_t endpoint, eb_t from, eb_t to) {
  return guarded([&] {
    {
      const std::lock_guard held(state.mutex);
      if (!initialised()) return AM_ERR_NOT_INIT;
      if (endpoint == nullptr || from == nullptr || to == nullptr || endpoint->bundle != from) return AM_ERR_BAD_ARG;
      if (from == to) return AM_OK;
      to->endpoints.reserve(to->endpoints.size() + 1);
    }
    if (unet_am_move_endpoint(endpoint->endpoint, to->bundle) < 0) return AM_ERR_RESOURCE;
    const std::lock_guard held(state.mutex);
    std::erase(from->endpoints, endpoint);
    to->endpoints.push_back(endpoint);
    endpoint->bundle = to;
    return AM_OK;
  });
}

}  // extern "C"
