// objects.h - endpoints and bundles of AM-2, and the state of the library; used only inside it.
#pragma once

#include <array>
#include <atomic>
#include <exception>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "am/am.h"
#include "am/compat/am2/am.h"

struct unet_am2_endpoint {
  struct Translation {
    bool in_use = false;
    en_t name{};
    tag_t tag = AM_NONE;
  };
  ~unet_am2_endpoint() { unet_am_endpoint_destroy(endpoint); }
  std::array<std::atomic<unet_am2_function>, UNET_AM_HANDLERS_MAX> functions{};  // 0: the error handler
  eb_t bundle = nullptr;
  unet_am_endpoint* endpoint = nullptr;
  // Guards the members below, because a shared bundle has several threads. Handlers lock it, too, so never take a bundle while holding it.
  std::mutex mutex;
  std::vector<Translation> translations{256};
  std::atomic<int> limit{256};  // number of translations, for requests, which do not lock
  int handlers = UNET_AM_HANDLERS_MAX;
  bool expects = false;  // AM_SetExpectedResources() was called
};

struct unet_am2_bundle {
  ~unet_am2_bundle() { unet_am_bundle_destroy(bundle); }
  unet_am_bundle* bundle = nullptr;
  std::atomic<int> mask{AM_NOEVENTS};
  std::vector<ep_t> endpoints;  // guarded by State::mutex
};

namespace unet::am::am2 {

struct State {
  unet_context* context = nullptr;
  std::string host;
  std::vector<eb_t> bundles;
  bool ends = false;  // AM_Terminate() is running
  std::mutex mutex;   // handlers lock it, too, so never take a bundle while holding it
};
extern State state;

// The translation that AM_UnMap() of this thread is removing.
struct Unmapping {
  ep_t endpoint = nullptr;
  int index = 0;
};
extern thread_local Unmapping unmapping;

inline bool initialised() noexcept { return state.context != nullptr; }

// Runs a call that allocates. C programs cannot handle exceptions.
template <typename Call>
int guarded(Call&& call) noexcept {
  try {
    return call();
  } catch (const std::exception&) {
    return AM_ERR_RESOURCE;
  }
}

inline en_t to_name(std::string_view text) noexcept {
  en_t name{};
  text.copy(name.text, sizeof name.text - 1);
  return name;
}

}  // namespace unet::am::am2
