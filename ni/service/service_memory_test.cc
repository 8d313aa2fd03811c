// service_memory_test.cc - what a client can do to the memory and the descriptors that it shares with the NI.
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/kcmp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <catch2/catch.hpp>

#include "ni/service/held_memory.h"
#include "ni/service/memory.h"
#include "ni/service/test_client.h"
#include "ni/service/test_journal.h"

namespace unet::service::service_memory_test {
namespace {

using namespace test;
using control::Op;

bool immutable_memory() {
  const Descriptor memory = std::move(*create_sealed("unet-test", 4096));
  return make_immutable(memory.get());
}

uint64_t memory_of(Ni& ni, uid_t user) {
  const auto report = nlohmann::json::parse(report_text(ni));
  for (const auto& each : report["users"]) {
    if (each["uid"] == user) return each["memory"].get<uint64_t>();
  }
  return 0;
}

bool has_leases() {
  const Descriptor memory = std::move(*create_sealed("unet-test", 4096));
  return watch_memory(memory.get())->valid();
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

TEST_CASE("memory that a client keeps stays charged to its user, whatever has ended") {
  if (!has_leases()) {
    WARN("skipped: the kernel has no leases of memfds, or there is no /proc");
    return;
  }
  constexpr uint64_t kLimit = 8 << 20;
  auto ni = make_ni("[[rule]]\nany = true\nendpoints = 1000\nmemory = \"8M\"\n");
  TestClient client(*ni);
  client.hello();
  std::vector<Descriptor> descriptors;
  std::vector<Mapping> mappings;
  uint64_t kept = 0;
  Errc code = Errc::ok;
  while (code == Errc::ok && kept <= 2 * kLimit) {
    Incoming created = client.create();
    if ((code = code_of(created)) != Errc::ok) break;
    const uint32_t endpoint = created.as<control::Reply>().create_endpoint.endpoint;
    auto expose = client.simple<control::Expose>(Op::expose, endpoint);
    expose.bytes = 64 * 1024;
    Incoming exposed = client.call(expose);
    if ((code = code_of(exposed)) != Errc::ok) break;
    // A descriptor of the one, a mapping alone of the other.
    const uint64_t segment = SegmentGeometry::of(TestClient::small()).total;
    descriptors.push_back(std::move(created.descriptors.at(0)));
    mappings.push_back(std::move(*Mapping::map(exposed.descriptors.at(0).get(), expose.bytes)));
    kept += segment + expose.bytes;
    REQUIRE(code_of(client.call(client.simple<control::DestroyEndpoint>(Op::destroy_endpoint, endpoint))) == Errc::ok);
  }
  CHECK(code == Errc::quota_exceeded);
  CHECK(kept > 0);
  CHECK(kept <= kLimit);
  client.close();
  TestClient again(*ni);
  again.hello();
  CHECK(memory_of(*ni, geteuid()) >= kept);  // also when the connection has ended
  descriptors.clear();
  CHECK(memory_of(*ni, geteuid()) >= kept);  // of each endpoint the region is mapped still
  mappings.clear();
  CHECK(code_of(again.create()) == Errc::ok);  // as soon as it is wanted
  again.close();
  for (int i = 0; i < 1000 && memory_of(*ni, geteuid()) != 0; ++i) ni->wait(kMillisecond);
  CHECK(memory_of(*ni, geteuid()) == 0);
}

TEST_CASE("a client that lets go of its memory has all of its quota again at once") {
  auto ni = make_ni("[[rule]]\nany = true\nendpoints = 1\nmemory = \"1M\"\n");
  TestClient client(*ni);
  client.hello();
  for (int i = 0; i < 100; ++i) {
    const Incoming created = client.create();
    REQUIRE(code_of(created) == Errc::ok);
    const uint32_t endpoint = created.as<control::Reply>().create_endpoint.endpoint;
    REQUIRE(code_of(client.call(client.simple<control::DestroyEndpoint>(Op::destroy_endpoint, endpoint))) == Errc::ok);
  }
}

TEST_CASE("memory that a client keeps stays charged when another network interface goes on") {
  if (!has_leases()) {
    WARN("skipped: the kernel has no leases of memfds, or there is no /proc");
    return;
  }
  Original original;
  const auto memory = [&] {
    uint64_t bytes = 0;
    REQUIRE(original.take_over([](auto&) {}, [&](Ni& ni) { bytes = memory_of(ni, geteuid()); }));
    return bytes;
  };
  const uint64_t before = memory();
  Incoming created = original.client().create();
  const uint32_t endpoint = created.as<control::Reply>().create_endpoint.endpoint;
  original.client().call(original.client().simple<control::DestroyEndpoint>(Op::destroy_endpoint, endpoint));
  original.keep();
  CHECK(memory() == before + SegmentGeometry::of(TestClient::small()).total);
  created.descriptors.clear();
  CHECK(memory() == before);
}

}  // namespace unet::service::service_memory_test
