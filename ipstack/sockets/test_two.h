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
    world.run_for(kSecond);
    const int server = to.stack->accept(listener);
    UNET_CHECK(server >= 0);
    to.stack->close(listener);
    return {client, server};
  }
  std::pair<int, int> connect(const Address& address) { return connect(a, b, address); }
};

// A segment from a stranger to 10.0.0.2.
inline std::vector<std::byte> segment(const ip::TcpFields& fields, bool checked = false) {
  std::vector<std::byte> made(sizeof(IpMessageHeader) + 20 + 20);
  ip::emit_ip_header(made.data() + sizeof(IpMessageHeader),
                     {.from = *ip::parse_ip("10.0.0.99"), .to = *ip::parse_ip("10.0.0.2"), .protocol = 6, .hop_limit = 64}, 20);
  ip::emit_tcp(made.data() + sizeof(IpMessageHeader) + 20, fields);
  const IpMessageHeader header{.flags = checked ? IpMessageFlags::kChecked : uint16_t{0}};
  std::memcpy(made.data(), &header, sizeof header);
  return made;
}

}  // namespace unet::sockets::sim
