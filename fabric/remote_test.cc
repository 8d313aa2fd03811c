// remote_test.cc - reads, writes and atomic operations on the memory of a peer: sizes, keys, bounds, counters, and what is refused.
#include <linux/capability.h>
#include <poll.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <cstring>

#include "fabric/test_side.h"

using namespace unet;
using namespace unet::fabric;

namespace {

constexpr uint64_t kAll = FI_REMOTE_READ | FI_REMOTE_WRITE;
constexpr size_t kSizes[] = {0, 1, 8, 1000, 16 * 1024, 16 * 1024 + 1, 1'000'000};

std::string text_of(size_t length, uint64_t seed = 0) {
  std::string text(length, '\0');
  for (size_t i = 0; i < length; ++i) text[i] = static_cast<char>('a' + (seed + i * 7) % 23);
  return text;
}

// Memory of a side that its peers reach by `key`.
struct Region {
  Region(Side& side, void* memory, size_t length, uint64_t access = kAll, uint64_t key = 42) {
    must(fi_mr_reg(side.domain, memory, length, access, 0, key, 0, &region, nullptr) == 0, "fi_mr_reg");
  }
  ~Region() { close(); }
  void close() {
    if (region != nullptr) must(fi_close(&region->fid) == 0, "fi_close");
    region = nullptr;
  }
  fid_mr* region = nullptr;
};

// A child tells its name through a pipe. The parent makes it a peer of a side.
void tell_name(const Side& side, int pipe) {
  std::string name = side.name();
  name.resize(FI_NAME_MAX);
  must(::write(pipe, name.data(), name.size()) == FI_NAME_MAX, "write");
}
fi_addr_t hear_name(Side& side, int pipe) {
  std::string name(FI_NAME_MAX, '\0');
  must(::read(pipe, name.data(), name.size()) == FI_NAME_MAX, "read");
  fi_addr_t peer = FI_ADDR_NOTAVAIL;
  must(fi_av_insert(side.vector, name.data(), 1, &peer, 0, nullptr) == 1, "fi_av_insert");
  return peer;
}

}  // namespace

TEST_CASE("writes and reads of all sizes, also by an endpoint to itself") {
  Pair pair;
  Side& owner = GENERATE(true, false) ? pair.b : pair.a;
  const fi_addr_t to = &owner == &pair.b ? pair.to_b : pair.a.know(pair.a);
  for (const size_t size : kSizes) {
    std::string memory(size + 20, '-');
    Region region(owner, memory.data(), memory.size());
    const std::string text = text_of(size, size);
    int context = 0;
    pair.until_done([&] { return fi_write(pair.a.endpoint, text.data(), size, nullptr, to, 10, 42, &context); });
    const fi_cq_tagged_entry written = pair.next(pair.a);
    REQUIRE(written.flags == (FI_RMA | FI_WRITE));
    REQUIRE(written.op_context == &context);
    REQUIRE(memory == std::string(10, '-') + text + std::string(10, '-'));
    std::string back(size, '?');
    pair.until_done([&] { return fi_read(pair.a.endpoint, back.data(), size, nullptr, to, 10, 42, &context); });
    REQUIRE(pair.next(pair.a).flags == (FI_RMA | FI_READ));
    REQUIRE(back == text);
  }
}

TEST_CASE("with automatic progress a peer reaches memory of a program that does nothing") {
  const fi_threading threading = GENERATE(FI_THREAD_SAFE, FI_THREAD_DOMAIN);
  Pair pair([&](fi_info& hints) {
    hints.domain_attr->data_progress = FI_PROGRESS_AUTO;
    hints.domain_attr->threading = threading;
  });
  std::string memory(100'000, '-');
  const Region region(pair.b, memory.data(), memory.size());
  const std::string text = text_of(memory.size());
  for (const size_t size : {size_t{8}, text.size()}) {
    ssize_t written = 0;
    const Nanoseconds end = monotonic_now() + 60 * kSecond;
    while ((written = fi_write(pair.a.endpoint, text.data(), size, nullptr, pair.to_b, 0, 42, nullptr)) == -FI_EAGAIN) {
      REQUIRE(monotonic_now() < end);
    }
    REQUIRE(written == 0);
    fi_cq_tagged_entry entry{};
    while (fi_cq_read(pair.a.queue, &entry, 1) != 1) REQUIRE(monotonic_now() < end);
    REQUIRE(memory.substr(0, size) == text.substr(0, size));
  }
}

TEST_CASE("a read goes on in pieces when the kernel forbids to read the peer's memory") {
  TestNi ni;
  constexpr size_t kBytes = 100'000;
  const std::string text = text_of(kBytes);
  int to_child[2], to_parent[2];
  REQUIRE((::pipe(to_child) == 0 && ::pipe(to_parent) == 0));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::close(to_child[1]);
    Side side;
    std::string memory = text;
    const Region region(side, memory.data(), memory.size());
    tell_name(side, to_parent[1]);
    for (pollfd on{to_child[0], POLLIN, 0}; ::poll(&on, 1, 0) == 0;) fi_cq_read(side.queue, nullptr, 0);
    must(::prctl(PR_SET_DUMPABLE, 0) == 0 && ::write(to_parent[1], "x", 1) == 1, "prctl");
    for (;;) fi_cq_read(side.queue, nullptr, 0);
  }
  Side side;
  const fi_addr_t peer = hear_name(side, to_parent[0]);
  const auto read = [&] {
    std::string to(kBytes, '-');
    fi_cq_tagged_entry entry{};
    while (fi_read(side.endpoint, to.data(), kBytes, nullptr, peer, 0, 42, nullptr) != 0) {}
    while (fi_cq_read(side.queue, &entry, 1) != 1) {}
    return to;
  };
  CHECK(read() == text);
  char byte = 0;
  REQUIRE((::write(to_child[1], "x", 1) == 1 && ::read(to_parent[0], &byte, 1) == 1));
  // root may read every process.
  __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct had[2], less[2];
  REQUIRE(::syscall(SYS_capget, &head, had) == 0);
  std::copy(had, had + 2, less);
  less[0].effective &= ~(1u << CAP_SYS_PTRACE);
  REQUIRE(::syscall(SYS_capset, &head, less) == 0);
  iovec here{&byte, 1}, there{&byte, 1};
  CHECK(::process_vm_readv(child, &here, 1, &there, 1, 0) == -1);
  CHECK(read() == text);
  REQUIRE(::syscall(SYS_capset, &head, had) == 0);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_CASE("two processes that poll do long copies together") {
  TestNi ni;
  constexpr size_t kBytes = 1'000'001;
  int to_parent[2];
  REQUIRE(::pipe(to_parent) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    Side side;
    std::string memory(kBytes, '-');
    const Region region(side, memory.data(), memory.size());
    tell_name(side, to_parent[1]);
    for (;;) fi_cq_read(side.queue, nullptr, 0);
  }
  Side side;
  const fi_addr_t peer = hear_name(side, to_parent[0]);
  fi_cq_tagged_entry entry{};
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const std::string text = text_of(kBytes, seed);
    std::string back(kBytes, '-');
    while (fi_write(side.endpoint, text.data(), kBytes, nullptr, peer, 0, 42, nullptr) != 0) {}
    while (fi_cq_read(side.queue, &entry, 1) != 1) {}
    while (fi_read(side.endpoint, back.data(), kBytes, nullptr, peer, 0, 42, nullptr) != 0) {}
    while (fi_cq_read(side.queue, &entry, 1) != 1) {}
    REQUIRE(back == text);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_CASE("a call with FI_FENCE waits for the ends of those before it") {
  Pair pair;
  std::string memory(100'000, '-'), back(100'000, '?');
  const Region region(pair.b, memory.data(), memory.size());
  pair.until_done([&] { return fi_read(pair.a.endpoint, back.data(), back.size(), nullptr, pair.to_b, 0, 42, nullptr); });
  const iovec local{back.data(), 8};
  const fi_rma_iov remote{.addr = 0, .len = 8, .key = 42};
  const fi_msg_rma write{.msg_iov = &local, .desc = nullptr, .iov_count = 1, .addr = pair.to_b, .rma_iov = &remote, .rma_iov_count = 1,
                         .context = &pair, .data = 0};
  const fi_msg message{.msg_iov = &local, .desc = nullptr, .iov_count = 1, .addr = pair.to_b, .context = &pair, .data = 0};
  REQUIRE(fi_writemsg(pair.a.endpoint, &write, FI_FENCE) == -FI_EAGAIN);
  REQUIRE(fi_sendmsg(pair.a.endpoint, &message, FI_FENCE) == -FI_EAGAIN);
  pair.next(pair.a);
  REQUIRE(fi_writemsg(pair.a.endpoint, &write, FI_FENCE) == 0);
  pair.next(pair.a);
  REQUIRE(fi_sendmsg(pair.a.endpoint, &message, FI_FENCE) == 0);
}

TEST_CASE("several pieces without bytes are a write") {
  Pair pair;
  char byte = 0;
  const Region region(pair.b, &byte, 1);
  const iovec pieces[] = {{&byte, 0}, {&byte, 0}};
  pair.until_done([&] { return fi_writev(pair.a.endpoint, pieces, nullptr, 2, pair.to_b, 0, 42, nullptr); });
  pair.next(pair.a);
}

TEST_CASE("data of a write is told to the owner") {
  Pair pair;
  std::string memory(100'000, '-');
  Region region(pair.b, memory.data(), memory.size());
  const size_t size = GENERATE(size_t{4}, size_t{50'000});
  const std::string text = text_of(size);
  pair.until_done([&] { return fi_writedata(pair.a.endpoint, text.data(), size, nullptr, 0x123456789, pair.to_b, 0, 42, nullptr); });
  const fi_cq_tagged_entry told = pair.next(pair.b);
  REQUIRE(told.flags == (FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA));
  REQUIRE(told.data == 0x123456789);
  REQUIRE(memory.substr(0, size) == text);
}

TEST_CASE("a key that is wrong, bytes outside, or an access that is not allowed are refused") {
  Pair pair;
  std::string memory(1000, '-');
  Region region(pair.b, memory.data(), memory.size());
  std::string fixed(1000, '=');
  Region readable(pair.b, fixed.data(), fixed.size(), FI_REMOTE_READ, 43);
  struct Row {
    uint64_t key, address;
    size_t length;
  };
  std::string local(100'000, 'x');
  constexpr uint64_t kLast = ~uint64_t{0};
  for (const Row row : {Row{41, 0, 1}, {42, 1000, 1}, {42, 999, 2}, {42, kLast, 1}, {42, kLast, 100'000}, {43, 0, 1}}) {
    pair.until_done([&] { return fi_write(pair.a.endpoint, local.data(), row.length, nullptr, pair.to_b, row.address, row.key, nullptr); });
    REQUIRE(pair.next_error(pair.a).err == FI_EKEYREJECTED);
    if (row.key == 43) continue;
    pair.until_done([&] { return fi_read(pair.a.endpoint, local.data(), row.length, nullptr, pair.to_b, row.address, row.key, nullptr); });
    REQUIRE(pair.next_error(pair.a).err == FI_EKEYREJECTED);
  }
  REQUIRE(memory == std::string(1000, '-'));
  REQUIRE(fixed == std::string(1000, '='));
  region.close();
  pair.until_done([&] { return fi_write(pair.a.endpoint, "x", 1, nullptr, pair.to_b, 0, 42, nullptr); });
  REQUIRE(pair.next_error(pair.a).err == FI_EKEYREJECTED);
}

TEST_CASE("keys are the program's, or the provider's with FI_MR_BASIC") {
  TestNi ni;
  {
    Side side;
    char byte = 0;
    Region region(side, &byte, 1);
    REQUIRE(fi_mr_key(region.region) == 42);
    fid_mr* other = nullptr;
    REQUIRE(fi_mr_reg(side.domain, &byte, 1, kAll, 0, 42, 0, &other, nullptr) == -FI_ENOKEY);
  }
  Pair pair([](fi_info& hints) { hints.domain_attr->mr_mode = FI_MR_BASIC; });
  std::string memory(100, '-');
  Region region(pair.b, memory.data(), memory.size());
  REQUIRE(fi_mr_key(region.region) != 42);
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  pair.until_done([&] { return fi_inject_write(pair.a.endpoint, "abc", 3, pair.to_b, address + 5, fi_mr_key(region.region)); });
  char back[3];
  pair.until_done([&] { return fi_read(pair.a.endpoint, back, 3, nullptr, pair.to_b, address + 5, fi_mr_key(region.region), nullptr); });
  REQUIRE(pair.next(pair.a).flags == (FI_RMA | FI_READ));
  REQUIRE(std::string(back, 3) == "abc");
}

TEST_CASE("counters count on both sides") {
  TestNi ni;
  fid_cntr* writes = nullptr;
  fid_cntr* of_region = nullptr;
  {
    Side b;
    Side a([](fi_info&) {}, {.format = FI_CQ_FORMAT_TAGGED}, FI_TRANSMIT | FI_RECV, [&](Side& side) {
      fi_cntr_attr attributes{.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_NONE};
      must(fi_cntr_open(side.domain, &attributes, &writes, nullptr) == 0, "fi_cntr_open");
      must(fi_ep_bind(side.endpoint, &writes->fid, FI_WRITE) == 0, "fi_ep_bind");
    });
    REQUIRE(fi_cntr_open(b.domain, nullptr, &of_region, nullptr) == 0);
    const fi_addr_t to = a.know(b);
    uint64_t word = 0;
    Region region(b, &word, sizeof word);
    REQUIRE(fi_mr_bind(region.region, &of_region->fid, FI_REMOTE_WRITE) == 0);
    const uint64_t value = 7;
    for (int i = 0; i < 100; ++i) {
      while (fi_inject_write(a.endpoint, &value, sizeof value, to, 0, 42) == -FI_EAGAIN) fi_cq_read(b.queue, nullptr, 0);
    }
    // Reading either counter makes progress, though that of the region is bound to no endpoint.
    while (fi_cntr_read(writes) < 100) fi_cntr_read(of_region);
    REQUIRE(fi_cntr_wait(writes, 100, 0) == 0);
    REQUIRE(fi_cntr_wait(writes, 101, 1) == -FI_ETIMEDOUT);
    REQUIRE(fi_cntr_read(of_region) == 100);
    REQUIRE(word == 7);
    while (fi_inject_write(a.endpoint, &value, sizeof value, to, 0, 41) == -FI_EAGAIN) {}
    while (fi_cntr_readerr(writes) == 0) fi_cq_read(b.queue, nullptr, 0);
    REQUIRE(fi_cntr_set(writes, 5) == 0);
    REQUIRE(fi_cntr_add(writes, 2) == 0);
    REQUIRE(fi_cntr_read(writes) == 7);
    REQUIRE(fi_close(&writes->fid) == -FI_EBUSY);
    region.close();
    a.close_endpoint();
    REQUIRE(fi_close(&writes->fid) == 0);
    REQUIRE(fi_close(&of_region->fid) == 0);
  }
}

TEST_CASE("atomic operations") {
  Pair pair;
  const bool self = GENERATE(false, true);
  const fi_addr_t to = self ? pair.a.know(pair.a) : pair.to_b;
  uint64_t words[2] = {5, 6};
  Region region(self ? pair.a : pair.b, words, sizeof words);
  const uint64_t operands[2] = {10, 20}, compare[2] = {15, 0};
  uint64_t got[2] = {};
  pair.until_done([&] { return fi_atomic(pair.a.endpoint, operands, 2, nullptr, to, 0, 42, FI_UINT64, FI_SUM, nullptr); });
  REQUIRE(pair.next(pair.a).flags == (FI_ATOMIC | FI_WRITE));
  REQUIRE(words[0] == 15);
  REQUIRE(words[1] == 26);
  pair.until_done([&] {
    return fi_compare_atomic(pair.a.endpoint, operands, 2, nullptr, compare, nullptr, got, nullptr, to, 0, 42, FI_UINT64, FI_CSWAP,
                             nullptr);
  });
  REQUIRE(pair.next(pair.a).flags == (FI_ATOMIC | FI_READ));
  REQUIRE(got[0] == 15);
  REQUIRE(got[1] == 26);
  REQUIRE(words[0] == 10);
  REQUIRE(words[1] == 26);
  pair.until_done([&] {
    return fi_fetch_atomic(pair.a.endpoint, nullptr, 2, nullptr, got, nullptr, to, 0, 42, FI_UINT64, FI_ATOMIC_READ, nullptr);
  });
  pair.next(pair.a);
  REQUIRE(got[0] == 10);
  pair.until_done([&] { return fi_inject_atomic(pair.a.endpoint, operands, 1, to, 8, 42, FI_UINT64, FI_BOR); });
  pair.until_done([&] {
    return fi_fetch_atomic(pair.a.endpoint, operands, 1, nullptr, got, nullptr, to, 8, 42, FI_UINT64, FI_ATOMIC_WRITE, nullptr);
  });
  pair.next(pair.a);
  REQUIRE(got[0] == (26 | 10));
  REQUIRE(words[1] == 10);
  pair.until_done([&] { return fi_atomic(pair.a.endpoint, operands, 1, nullptr, to, 12, 42, FI_UINT64, FI_SUM, nullptr); });
  REQUIRE(pair.next_error(pair.a).err == FI_EKEYREJECTED);
  REQUIRE(fi_atomic(pair.a.endpoint, operands, 1, nullptr, to, 0, 42, FI_DOUBLE, FI_BOR, nullptr) == -FI_EOPNOTSUPP);
  REQUIRE(fi_atomic(pair.a.endpoint, operands, 1 << 20, nullptr, to, 0, 42, FI_UINT64, FI_SUM, nullptr) == -FI_EINVAL);
  size_t count = 0;
  REQUIRE(fi_atomicvalid(pair.a.endpoint, FI_UINT64, FI_SUM, &count) == 0);
  REQUIRE(count >= 64);
  REQUIRE(fi_compare_atomicvalid(pair.a.endpoint, FI_UINT64, FI_SUM, &count) == -FI_EOPNOTSUPP);
}
