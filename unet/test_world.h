// test_world.h - endpoints against a service and an NI that act exactly when a test says; for unit tests of Endpoint.
#pragma once

#include <memory>

#include "unet/context.h"
#include "unet/layer_endpoint.h"
#include "unet/test_service.h"

namespace unet {

constexpr EndpointOptions kSmall{.send_depth = 8, .receive_depth = 8, .buffers = 16, .buffer_size = 256, .send_bytes = 64 * 1024};
constexpr Nanoseconds kHang = kHangSeconds * kSecond;
constexpr ConnectOptions kSmallChannel{.timeout = kHang, .local = {.depth = 4, .data_bytes = 4 * kMessageMax}};

struct World {
  World() : context(*Context::open("unix:" + service.path(), "test")) { service.keep(control::Op::connect); }
  std::unique_ptr<LayerEndpoint> endpoint() {
    auto made = context.create_endpoint(kSmall);
    UNET_CHECK(made);
    return std::make_unique<LayerEndpoint>(std::move(*made));
  }
  // Connects, and lets the test play the peer.
  std::unique_ptr<LocalChannel> local(Endpoint& endpoint, uint32_t number, const LocalOptions& options = kSmallChannel.local) {
    const auto pending = endpoint.start_connect("peer", {.timeout = kHang, .local = options});
    UNET_CHECK(pending);
    auto peer = service.grant_local(service.take(), number);
    UNET_CHECK(wait_connect(endpoint, *pending) == Channel{number});
    return peer;
  }
  Channel ni(Endpoint& endpoint, uint32_t number) {
    const auto pending = endpoint.start_connect("peer");
    UNET_CHECK(pending);
    service.grant_ni(service.take(), number);
    return wait_connect(endpoint, *pending);
  }
  static Channel wait_connect(Endpoint& endpoint, PendingId pending) {
    while (true) {
      if (auto channel = endpoint.poll_connect(pending)) {
        UNET_CHECK(*channel);
        return **channel;
      }
      UNET_CHECK(endpoint.wait(kHang) == WaitOutcome::ready);
    }
  }

  TestService service;
  Context context;
};

}  // namespace unet
