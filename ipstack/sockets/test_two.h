// test_two.h - two hosts of test_network.h with an application each, and connections between them; for tests.
#pragma once

#include <cerrno>
#include <cstdint>
#include <utility>

#include "ipstack/sockets/test_network.h"
#include "unet/base/check.h"

namespace unet::sockets::sim {

// Two hosts, with an application each.
struct Two {
  // `lends`: what is sent lies where it is until the world runs (World::lends).
  explicit Two(bool lends = false) : world(1, lends) {}

  World world;
  uint32_t here = world.add_interface({"10.0.0.1", "fd00::1"}), there = world.add_interface({"10.0.0.2", "fd00::2"});
  Application a{world, here}, b{world, there};

  int listen(Application& on, const Address& address, int backlog = 8) {
    const int socket = on.stack->socket(Type::stream, !address.host.is_ipv4());
    UNET_CHECK(on.stack->bind(socket, address) == 0);
    UNET_CHECK(on.stack->listen(socket, backlog) == 0);
    return socket;
  }
  // A connection, and its two sockets.
  std::pair<int, int> connect(Application& from, Application& to, const Address& address) {
    const int listener = listen(to, address);
    const int client = from.stack->socket(Type::stream, !address.host.is_ipv4());
    UNET_CHECK(from.stack->connect(client, address) == -EINPROGRESS);
    world.run(world.now + kSecond);
    const int server = to.stack->accept(listener);
    UNET_CHECK(server >= 0);
    to.stack->close(listener);
    return {client, server};
  }
  std::pair<int, int> connect(const Address& address) { return connect(a, b, address); }
};

}  // namespace unet::sockets::sim
