// test_world.h - a unetd, a bundle and endpoints in one process; for tests of Active Messages.
#pragma once

#include <memory>
#include <vector>

#include "am/bundle.h"
#include "unet/test_daemon.h"

namespace unet::am {

constexpr uint8_t kEcho = 1, kAnswer = 2, kWho = 3;

inline void echo(Token& token, void*) { token.reply_short(kAnswer, token.arguments()); }
inline void count(Token&, void* context) { ++*static_cast<uint32_t*>(context); }
inline void note(am::Endpoint&, const Returned& returned, void* context) {
  static_cast<std::vector<ReturnStatus>*>(context)->push_back(returned.status);
}

struct World {
  explicit World(Threads threads = Threads::one)
      : context(*Context::open(daemon.ni(), "test")), bundle(std::move(*Bundle::create(threads))) {}
  std::unique_ptr<am::Endpoint> make(const am::Options& options = {}) {
    auto made = am::Endpoint::create(context, options);
    must(made.has_value(), "am::Endpoint::create");
    return std::move(*made);
  }
  // Makes an endpoint and adds it to the bundle.
  std::unique_ptr<am::Endpoint> add(const am::Options& options = {}) {
    auto made = make(options);
    must(bundle->add(*made).has_value(), "Bundle::add");
    return made;
  }
  TestDaemon daemon;
  Context context;
  std::unique_ptr<Bundle> bundle;
};

#define EITHER_PATH GENERATE(control::Path::local, control::Path::ni)

inline ConnectOptions by(control::Path path) { return {.path = path, .local = kLocalOptions}; }

template <typename Done>
void until(Bundle& bundle, const Done& done) {
  const Nanoseconds end = monotonic_now() + 60 * kSecond;
  while (!done()) {
    must(monotonic_now() < end, "what a test waits for");
    bundle.wait(kSecond);
  }
}

}  // namespace unet::am
