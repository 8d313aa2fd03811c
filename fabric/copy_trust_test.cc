// copy_trust_test.cc - a peer that lies about the memory which bytes are copied from and to.
#include <fcntl.h>
#include <rdma/fi_rma.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>

#include <atomic>
#include <thread>

#include "fabric/test_liar.h"
#include "unet/base/keyed_random.h"

using namespace unet;
using namespace unet::fabric;

namespace {

constexpr uint32_t kTagged = MessageFlags::kTagged;

}  // namespace

TEST_CASE("a process that is not the peer's is never read") {
  Liar liar;
  liar.greet(kProtocolVersion, static_cast<uint64_t>(::getpid()));
  char bytes[64] = {};
  REQUIRE(fi_trecv(liar.side.endpoint, bytes, sizeof bytes, nullptr, FI_ADDR_UNSPEC, 0, ~uint64_t{0}, nullptr) == 0);
  const uint64_t here = reinterpret_cast<uintptr_t>(&liar);
  liar.say(Handlers::kReady, {kTagged, 64, 0, static_cast<uint32_t>(here), static_cast<uint32_t>(here >> 32), 77, 0, 0, 0, 0});
  REQUIRE(liar.heard[Handlers::kGo].size() == 1);  // asks for pieces
  REQUIRE(liar.heard[Handlers::kGo][0][0] == 77);
}

TEST_CASE("a process that the network interface does not know the peer by is never read") {
  static constexpr uint64_t kSecret[2] = {12, 34};
  const pid_t other = ::fork();  // has the same bytes at the same addresses
  if (other == 0) {
    ::alarm(60);
    for (;;) ::pause();
  }
  {
    Liar liar;
    liar.greet(kProtocolVersion, {.process = static_cast<uint64_t>(other), .address = reinterpret_cast<uintptr_t>(kSecret),
                                  .secret = {kSecret[0], kSecret[1]}, .copies = -1});
    char bytes[16] = {};
    REQUIRE(fi_trecv(liar.side.endpoint, bytes, sizeof bytes, nullptr, FI_ADDR_UNSPEC, 0, ~uint64_t{0}, nullptr) == 0);
    const uint64_t there = reinterpret_cast<uintptr_t>(kSecret);
    liar.say(Handlers::kReady, {kTagged, 16, 0, static_cast<uint32_t>(there), static_cast<uint32_t>(there >> 32), 77, 0, 0, 0, 0});
    CHECK(liar.heard[Handlers::kGo].size() == 1);  // asks for pieces
  }
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
}

TEST_CASE("a read that cannot be copied from the peer's memory is asked for in pieces, once") {
  Liar liar;
  const fi_addr_t to = liar.number();
  liar.greet_as_self(-1);
  std::string bytes(20'000, '-');
  REQUIRE(fi_read(liar.side.endpoint, bytes.data(), bytes.size(), nullptr, to, 5, 42, nullptr) == 0);
  liar.settle();
  REQUIRE(liar.heard[Handlers::kRead].size() == 1);
  std::vector<uint32_t> request = liar.heard[Handlers::kRead][0];
  REQUIRE(request[0] == 0);
  const uint32_t token = request[1];
  liar.say(Handlers::kGranted, {token, 16, 0});
  REQUIRE(liar.heard[Handlers::kRead].size() == 2);
  request[0] = MessageFlags::kPieces;
  REQUIRE(liar.heard[Handlers::kRead][1] == request);
  if (GENERATE(true, false)) {
    liar.say(Handlers::kPiece, {token, 0, 0}, std::string(16'000, 'a'));
    liar.say(Handlers::kPiece, {token, 16'000, 0}, std::string(4'000, 'b'));
    REQUIRE(liar.has_completion());
    REQUIRE(bytes == std::string(16'000, 'a') + std::string(4'000, 'b'));
  } else {
    liar.say(Handlers::kGranted, {token, 16, 0});
    fi_cq_err_entry error{};
    REQUIRE(fi_cq_readerr(liar.side.queue, &error, 0) == 1);
    REQUIRE(error.err == FI_EIO);
  }
}

TEST_CASE("a buffer gets no more bytes than it has, whatever the peer grants") {
  Liar liar;
  liar.greet_as_self(-1);
  const std::string text(1'000'000, 't');
  std::string memory(text.size(), '-');
  REQUIRE(fi_trecv(liar.side.endpoint, memory.data(), 16, nullptr, FI_ADDR_UNSPEC, 0, ~uint64_t{0}, nullptr) == 0);
  const auto length = static_cast<uint32_t>(text.size());
  const uint64_t here = reinterpret_cast<uintptr_t>(text.data());
  liar.say(Handlers::kReady, {kTagged | MessageFlags::kPieces, length, 0, 0, 0, 77, 0, 0, 0, 0});
  REQUIRE(liar.heard[Handlers::kGo].size() == 1);
  liar.say(Handlers::kGranted, {liar.heard[Handlers::kGo][0][1], static_cast<uint32_t>(here), static_cast<uint32_t>(here >> 32)});
  REQUIRE(memory == std::string(text.size(), '-'));
  REQUIRE_FALSE(liar.has_completion());
}

TEST_CASE("a read into several pieces is copied from the peer's memory") {
  Liar liar;
  const fi_addr_t to = liar.number();
  liar.greet_as_self(-1);
  const std::string text = std::string(150'000, 'a') + std::string(150'000, 'b');
  std::string first(100'000, '-'), second(200'000, '-');
  const iovec pieces[] = {{first.data(), first.size()}, {second.data(), second.size()}};
  REQUIRE(fi_readv(liar.side.endpoint, pieces, nullptr, 2, to, 5, 42, nullptr) == 0);
  liar.settle();
  const uint64_t here = reinterpret_cast<uintptr_t>(text.data());
  liar.say(Handlers::kGranted, {liar.heard[Handlers::kRead][0][1], static_cast<uint32_t>(here), static_cast<uint32_t>(here >> 32)});
  REQUIRE(liar.has_completion());
  REQUIRE(first + second == text);
  REQUIRE(liar.heard[Handlers::kRead].size() == 1);  // asks for no pieces
}

TEST_CASE("memory for claims that is not sealed, or no memory, is not mapped") {
  Liar liar;
  const fi_addr_t to = liar.number();
  const Descriptor open(::memfd_create("claims", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(open.get(), 1 << 16) == 0);
  liar.greet_as_self(GENERATE_REF(int64_t{open.get()}, int64_t{0}, int64_t{1} << 40));
  std::string bytes(1'000'000, '-');
  REQUIRE(fi_read(liar.side.endpoint, bytes.data(), bytes.size(), nullptr, to, 5, 42, nullptr) == 0);
  liar.settle();
  REQUIRE(liar.heard[Handlers::kRead].back().size() == 8);  // asks for no help
}

TEST_CASE("a process that is asked for help writes the chunks that the reader has not claimed") {
  Liar liar;
  Claims claims;
  liar.greet_as_self(claims.memory.get());
  std::string memory(1'000'000, 't');
  fid_mr* region = nullptr;
  REQUIRE(fi_mr_reg(liar.side.domain, memory.data(), memory.size(), FI_REMOTE_READ, 0, 42, 0, &region, nullptr) == 0);
  const auto length = static_cast<uint32_t>(memory.size());
  const uint32_t chunks = SharedCopy::chunks_of(length);
  std::string bytes(memory.size(), '-');
  const uint64_t here = reinterpret_cast<uintptr_t>(bytes.data());
  SharedCopy& copy = claims.of_liar(9);
  copy.begin(9);
  REQUIRE(copy.claim_front(9, 0, chunks));
  liar.say(Handlers::kRead, {0, 9, 0, 0, 42, 0, length, 0, static_cast<uint32_t>(here), static_cast<uint32_t>(here >> 32)});
  uint32_t written = 0;
  REQUIRE(copy.is_written(written));
  REQUIRE(written == chunks - 1);
  const size_t first = SharedCopy::chunk_bytes(length);
  REQUIRE(bytes == std::string(first, '-') + std::string(memory.size() - first, 't'));
  REQUIRE(fi_close(&region->fid) == 0);
}

TEST_CASE("a read waits for the chunk that its peer has claimed, and only that") {
  Liar liar;
  Claims claims;
  const fi_addr_t to = liar.number();
  liar.greet_as_self(claims.memory.get());
  const std::string text(1'000'000, 't');
  const size_t rest = text.size() - (SharedCopy::chunks_of(text.size()) - 1) * SharedCopy::chunk_bytes(text.size());
  std::string bytes(text.size(), '-');
  REQUIRE(fi_read(liar.side.endpoint, bytes.data(), bytes.size(), nullptr, to, 5, 42, nullptr) == 0);
  liar.settle();
  REQUIRE(liar.heard[Handlers::kRead].back().size() == 10);
  const uint32_t token = liar.heard[Handlers::kRead].back()[1];
  SharedCopy& copy = claims.of(token);
  REQUIRE(copy.claim_back(token, 0, SharedCopy::chunks_of(text.size())));
  const uint64_t here = reinterpret_cast<uintptr_t>(text.data());
  liar.say(Handlers::kGranted, {token, static_cast<uint32_t>(here), static_cast<uint32_t>(here >> 32)});
  REQUIRE_FALSE(liar.has_completion());
  REQUIRE(bytes == std::string(text.size() - rest, 't') + std::string(rest, '-'));
  SECTION("it says that it has written") {
    copy.set_written(9, false);
    REQUIRE(liar.has_completion());
    REQUIRE(bytes == std::string(text.size() - rest, 't') + std::string(rest, '-'));  // its own bytes are missing
  }
  SECTION("it cannot write") {
    copy.set_written(0, true);
    REQUIRE(liar.has_completion());
    REQUIRE(bytes == text);
  }
  SECTION("it forgets the copy") {
    copy.begin(token + 1);
    REQUIRE(liar.has_completion());
    REQUIRE(bytes == text);
  }
  SECTION("it closes its endpoint") {
    liar.endpoint.reset();
    fi_cq_err_entry error{};
    while (fi_cq_readerr(liar.side.queue, &error, 0) != 1) fi_cq_read(liar.side.queue, nullptr, 0);
    REQUIRE(error.err == FI_ECONNRESET);
    REQUIRE_FALSE(copy.claim_back(token, 1, 100));
  }
}

TEST_CASE("a region is closed although a peer has claimed a part of it") {
  Liar liar;
  Claims claims;
  liar.greet_as_self(claims.memory.get());
  const std::string text(1'000'000, 't');
  std::string memory(text.size(), '-');
  const uint64_t here = reinterpret_cast<uintptr_t>(text.data());
  fid_mr* region = nullptr;
  REQUIRE(fi_mr_reg(liar.side.domain, memory.data(), memory.size(), FI_REMOTE_WRITE, 0, 42, 0, &region, nullptr) == 0);
  // A thread claims a chunk while the side copies; that may be too late a few times.
  for (bool claimed = false; !claimed;) {
    const auto written = liar.heard[Handlers::kShare].size();
    const uint32_t token = static_cast<uint32_t>(written) << Slots<int>::kNumberBits;
    claims.of(token).begin(token + 1);  // new memory has the number of the first copy, which must not be claimed before it begins
    std::atomic<bool> over = false;
    std::thread claimer([&] {
      while (!claimed && !over) claimed = claims.of(token).claim_back(token, 0, SharedCopy::chunks_of(text.size()));
    });
    const auto length = static_cast<uint32_t>(text.size());
    liar.say(Handlers::kWriteFrom,
             {0, 9, 0, 0, 42, 0, 0, 0, length, 0, static_cast<uint32_t>(here), static_cast<uint32_t>(here >> 32)});
    over = true;
    claimer.join();
    REQUIRE(liar.heard[Handlers::kShare].size() == written + 1);
  }
  REQUIRE((liar.heard[Handlers::kDone].empty() || liar.heard[Handlers::kDone].back() == std::vector<uint32_t>{9, 0}));
  const Nanoseconds start = monotonic_now();
  REQUIRE(fi_close(&region->fid) == 0);
  REQUIRE(monotonic_now() - start < 2 * kSecond);
  liar.settle();
  REQUIRE(liar.heard[Handlers::kDone].back() == std::vector<uint32_t>{9, FI_EKEYREJECTED});
}

TEST_CASE("claims that are forged at any time spoil only messages of their writer") {
  Liar liar;
  Claims claims;
  liar.greet_as_self(claims.memory.get());
  constexpr size_t kBytes = 300'000, kAround = 10'000;
  const std::string text(kBytes, 't');
  const uint64_t here = reinterpret_cast<uintptr_t>(text.data());
  Side honest;
  const fi_addr_t to = honest.know(liar.side);
  std::atomic<bool> over = false;
  std::thread forger([&] {
    KeyedRandom random(1);
    while (!over) {
      SharedCopy& copy = claims.of(static_cast<uint32_t>(random.next() % 8));
      const auto number = static_cast<uint32_t>(random.next() % 8 | random.next() % 4 << Slots<int>::kNumberBits);
      if (random.next() % 4 == 0) copy.begin(number);
      copy.claim_back(number, random.next() % 4, 100);
      copy.set_written(static_cast<uint32_t>(random.next() % 8), random.next() % 2 == 0);
    }
  });
  std::vector<std::string> all(100, std::string(kBytes + 2 * kAround, '-'));
  for (uint32_t i = 0; i < all.size(); ++i) {
    REQUIRE(fi_trecv(liar.side.endpoint, all[i].data() + kAround, kBytes, nullptr, FI_ADDR_UNSPEC, 7, 0, nullptr) == 0);
    liar.say(Handlers::kReady, {kTagged, kBytes, 0, static_cast<uint32_t>(here), static_cast<uint32_t>(here >> 32), i, 7, 0, 0, 0});
    std::string got(kBytes, '-');
    REQUIRE(fi_trecv(liar.side.endpoint, got.data(), kBytes, nullptr, FI_ADDR_UNSPEC, 8, 0, &got) == 0);
    const std::string sent(kBytes, static_cast<char>('a' + i % 26));
    while (fi_tsend(honest.endpoint, sent.data(), kBytes, nullptr, to, 8, nullptr) != 0) liar.poll();
    fi_cq_tagged_entry entry{};
    do {
      fi_cq_read(honest.queue, nullptr, 0);
      liar.endpoint->poll();
    } while (fi_cq_read(liar.side.queue, &entry, 1) != 1 || entry.op_context != &got);
    REQUIRE(got == sent);
  }
  over = true;
  forger.join();
  for (const std::string& each : all) {
    REQUIRE(each.substr(0, kAround) == std::string(kAround, '-'));
    REQUIRE(each.substr(kAround + kBytes) == std::string(kAround, '-'));
  }
}
