// service_memory_test.cc - what a client can do to the memory and the descriptors that it shares with the NI.
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/kcmp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <catch2/catch.hpp>

#include "unet/service/memory.h"
#include "unet/service/test_client.h"

namespace unet::service::service_memory_test {
namespace {

using namespace test;
using control::Op;

bool immutable_memory() {
  const Descriptor memory = std::move(*create_sealed("unet-test", 4096));
  return make_immutable(memory.get());
}

int open_again(int descriptor, int flags) { return ::open(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), flags | O_CLOEXEC); }

}  // namespace

TEST_CASE("no client makes holes in shared memory", "[root]") {
  if (!immutable_memory()) {
    WARN("skipped: it needs CAP_LINUX_IMMUTABLE, and Linux 6.0");
    return;
  }
  auto ni = make_ni();
  TestClient client(*ni);
  const Incoming hello = client.hello();
  const Incoming created = client.create();
  auto expose = client.simple<control::Expose>(Op::expose, created.as<control::Reply>().create_endpoint.endpoint);
  expose.bytes = 8192;
  const Incoming exposed = client.call(expose);
  TestClient server(*ni);
  server.hello();
  const Pair pair = open_channel(server, client, control::Path::local);
  REQUIRE(pair.open);
  for (const int fd : {hello.descriptors.at(0).get(), created.descriptors.at(0).get(), exposed.descriptors.at(0).get(),
                       pair.client_descriptors.at(0).get()}) {
    const auto memory = Mapping::map(fd, sizeof(ClientPage));
    REQUIRE(memory);
    CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) < 0);
    CHECK(madvise(memory->data(), 4096, MADV_REMOVE) < 0);
    CHECK(Mapping::map(fd, sizeof(ClientPage)));  // it is mapped after a takeover, too
    // Not even root opens it again for writing.
    CHECK(open_again(fd, O_RDWR) < 0);
  }
}

TEST_CASE("shared memory is for its holders alone, and is not run") {
  auto ni = make_ni();
  TestClient client(*ni);
  const Incoming hello = client.hello();
  const Incoming created = client.create();
  for (const int fd : {hello.descriptors.at(0).get(), created.descriptors.at(0).get()}) {
    struct stat status {};
    REQUIRE(fstat(fd, &status) == 0);
    CHECK((status.st_mode & 07777) == 0600);
  }
}

TEST_CASE("an endpoint has one wake descriptor, however often it is asked for") {
  auto ni = make_ni();
  TestClient client(*ni);
  client.hello();
  const uint32_t endpoint = client.endpoint();
  const Incoming one = client.call(client.simple<control::GetDescriptor>(Op::get_descriptor, endpoint));
  const Incoming two = client.call(client.simple<control::GetDescriptor>(Op::get_descriptor, endpoint));
  const auto differ = [](int a, int b) { return syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, a, b); };
  const int a = one.descriptors.at(0).get(), b = two.descriptors.at(0).get();
  if (differ(a, a) != 0) {
    WARN("skipped: the kernel compares no descriptors here");
    return;
  }
  CHECK(differ(a, b) == 0);
}

}  // namespace unet::service::service_memory_test
