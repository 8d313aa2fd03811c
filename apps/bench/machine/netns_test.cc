// netns_test.cc - real namespaces, when there are the rights to make them: made, carrying traffic, gone again.
#include "apps/bench/machine/netns.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "apps/bench/machine/command.h"

namespace unet::bench::netns_test {

namespace {

constexpr const char* kPrefix = "unet-bench-test";

bool exists(const std::string& name) {
  struct stat status {};
  return stat(("/var/run/netns/" + name).c_str(), &status) == 0;
}

sockaddr_in address_of(const std::string& text) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(4000);
  REQUIRE(inet_pton(AF_INET, text.c_str(), &address.sin_addr) == 1);
  return address;
}

int udp_socket_in(const std::string& name, const std::string& address) {
  auto scope = NamespaceScope::enter(name);
  REQUIRE(scope);
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const sockaddr_in bound = address_of(address);
  REQUIRE(bind(fd, reinterpret_cast<const sockaddr*>(&bound), sizeof(bound)) == 0);
  return fd;
}

}  // namespace

TEST_CASE("netns: the process of a namespace") {
  CHECK(owner_of_namespace("unet-bench-123-a", "unet-bench") == 123);
  CHECK(owner_of_namespace("unet-bench-123-b", "unet-bench") == 123);
  for (const char* name : {"unet-bench-123", "unet-bench-123-c", "unet-bench--a", "unet-bench-x-a", "unet-bench-1x-a", "other-123-a",
                           "unet-bench-test-123-a", "unet-bench-0-a", "unet-bench--5-a", "unet-bench", ""}) {
    CAPTURE(name);
    CHECK(owner_of_namespace(name, "unet-bench") == 0);
  }
}

TEST_CASE("netns: a veth pair carries a datagram between the two, and both go with their owner") {
  if (geteuid() != 0) {
    CHECK(NamespacePair::create(kPrefix).error().text.find("root") != std::string::npos);
    return;
  }
  std::string name_a, name_b;
  {
    auto pair = NamespacePair::create(kPrefix);
    if (!pair) {
      WARN("left out, this machine makes no namespaces: " << pair.error().text);
      return;
    }
    name_a = pair->name_a();
    name_b = pair->name_b();
    CHECK(exists(name_a));
    CHECK(exists(name_b));
    const auto veth = pair->add_veth({.mtu = 3000, .offloads = false});
    REQUIRE(veth);
    {
      auto scope = NamespaceScope::enter(name_a);
      REQUIRE(scope);
      CHECK(offloads_of(veth->interface_a) == "none");
    }
    const int a = udp_socket_in(name_a, veth->address_a);
    const int b = udp_socket_in(name_b, veth->address_b);
    const timeval patience{60, 0};
    setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    const sockaddr_in to = address_of(veth->address_b);
    CHECK(sendto(a, "hello", 5, 0, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 5);
    char received[8] = {};
    CHECK(recv(b, received, sizeof(received), 0) == 5);
    CHECK(std::string(received) == "hello");
    close(a);
    close(b);
    const auto second = pair->add_veth({});
    REQUIRE(second);
    CHECK(second->address_a != veth->address_a);
  }
  CHECK_FALSE(exists(name_a));
  CHECK_FALSE(exists(name_b));
}

TEST_CASE("netns: what a killed process left behind is removed, what a living one has is not") {
  if (geteuid() != 0) return;
  const pid_t child = fork();
  if (child == 0) {
    auto pair = NamespacePair::create(kPrefix);
    _exit(pair ? 0 : 1);  // no destructor: as if killed
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  if (status != 0) {
    WARN("left out, this machine makes no namespaces");
    return;
  }
  const std::string left = std::string(kPrefix) + "-" + std::to_string(child) + "-a";
  CHECK(exists(left));
  auto own = NamespacePair::create(kPrefix);  // removes leftovers first
  REQUIRE(own);
  CHECK_FALSE(exists(left));
  CHECK(remove_stale_namespaces(kPrefix) == 0);
  CHECK(exists(own->name_a()));
}

}  // namespace unet::bench::netns_test
