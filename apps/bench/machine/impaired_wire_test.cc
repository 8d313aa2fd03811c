// impaired_wire_test.cc - a cable that loses what it is told to, and brings what is late in the end.
#include "apps/bench/machine/impaired_wire.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <set>

namespace unet::bench::impaired_wire_test {

namespace {

constexpr const char* kPrefix = "unet-impaired-test";

struct Socket {
  Descriptor fd;
  sockaddr_in address{};

  Socket(const std::string& name_space, const std::string& at) {
    auto scope = NamespaceScope::enter(name_space);
    REQUIRE(scope);
    fd = Descriptor(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    address.sin_family = AF_INET;
    inet_pton(AF_INET, at.c_str(), &address.sin_addr);
    socklen_t length = sizeof address;
    REQUIRE(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0);
    REQUIRE(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  }
  void send(const Socket& to, uint32_t number) const {
    CHECK(sendto(fd.get(), &number, sizeof number, 0, reinterpret_cast<const sockaddr*>(&to.address), sizeof to.address) == sizeof number);
  }
  // Which numbers have come, until there are `wanted` or none comes for so long.
  std::set<uint32_t> receive(size_t wanted, timeval patience) const {
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    std::set<uint32_t> numbers;
    uint32_t number = 0;
    while (numbers.size() < wanted && recv(fd.get(), &number, sizeof number, 0) == sizeof number) numbers.insert(number);
    return numbers;
  }
};

constexpr timeval kSoon{.tv_sec = 0, .tv_usec = 200'000}, kSurely{.tv_sec = 60, .tv_usec = 0};

}  // namespace

TEST_CASE("impaired wire: whole, lossy, late, in both directions") {
  auto namespaces = NamespacePair::create(kPrefix);
  if (!namespaces) {
    WARN("left out, this machine makes no namespaces: " << namespaces.error().text);
    return;
  }
  auto wire = ImpairedWire::create(*namespaces);
  if (!wire) {
    WARN("left out, this kernel has no programs on wires: " << wire.error().text);
    return;
  }
  const Socket a(namespaces->name_a(), wire->cable().address_a), b(namespaces->name_b(), wire->cable().address_b);
  for (const auto& [from, to] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    const auto arrived = [&, from = from, to = to](const Impairment& impairment, uint32_t count, timeval patience) {
      wire->set(impairment);
      for (uint32_t i = 0; i < count; ++i) from->send(*to, i);
      return to->receive(count, patience).size();
    };
    CHECK(arrived({}, 100, kSurely) == 100);
    CHECK(arrived({.loss = 1}, 100, kSoon) == 0);
    const size_t half = arrived({.loss = 0.5}, 200, kSoon);  // 100, and a deviation of 7
    CHECK(half > 30);
    CHECK(half < 170);
    CHECK(arrived({.late = 1}, 100, kSurely) == 100);
    CHECK(arrived({.late = 0.5}, 100, kSurely) == 100);
  }
}

}  // namespace unet::bench::impaired_wire_test
