// trust_test.cc - a peer that lies in each word that it can write.
#include <rdma/fi_rma.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>

#include <atomic>
#include <thread>

#include "am/endpoint.h"
#include "fabric/peers.h"
#include "fabric/protocol.h"
#include "fabric/slots.h"
#include "fabric/test_side.h"
#include "unet/base/keyed_random.h"
#include "unet/context.h"

using namespace unet;
using namespace unet::fabric;

namespace {

constexpr uint32_t kTagged = MessageFlags::kTagged;

// An endpoint of Active Messages that has said hello to a side, and hears what that answers.
struct Liar {
  Liar() {
    endpoint = std::move(*am::Endpoint::create(context, {.both_ways = true}));
    for (uint8_t handler = 1; handler < heard.size(); ++handler) {
      endpoint->set_handler(handler, [](am::Token& token, void* to) {
        auto& list = *static_cast<std::vector<std::vector<uint32_t>>*>(to);
        list.emplace_back(token.arguments().begin(), token.arguments().end());
      }, &heard[handler]);
    }
    must(endpoint->bind("liar").has_value(), "bind");
    const std::string name = side.name();
    must(endpoint->start_map(0, name.substr(0, name.find('@'))).has_value(), "start_map");
  }
  void poll() {
    fi_cq_read(side.queue, nullptr, 0);
    endpoint->poll();
  }
  void settle() {
    for (int i = 0; i < 300; ++i) poll();
  }
  void say(uint8_t handler, std::vector<uint32_t> words, std::string payload = {}) {
    while (endpoint->request_now(0, handler, as_bytes(payload.data(), payload.size()), words) == am::Outcome::not_sent) poll();
    settle();
  }
  void greet(uint32_t version = kProtocolVersion, uint64_t process = 0) {
    greet(version, {.process = process, .address = 1, .secret = {}, .copies = -1});
  }
  void greet(uint32_t version, const Identity& identity) {
    say(Handlers::kHello, {version}, {reinterpret_cast<const char*>(&identity), sizeof identity});
  }
  // Says hello as this process, so that bytes are copied from it. `copies`: see Identity.
  void greet_as_self(int64_t copies) {
    static constexpr uint64_t kSecret[2] = {12, 34};
    greet(kProtocolVersion, {.process = static_cast<uint64_t>(::getpid()), .address = reinterpret_cast<uintptr_t>(kSecret),
                             .secret = {kSecret[0], kSecret[1]}, .copies = copies});
  }
  // Its number in the address vector of the side.
  fi_addr_t number() {
    fi_addr_t number = FI_ADDR_NOTAVAIL;
    const std::string name = "unet://" + std::string(side.info->domain_attr->name) + "/liar";
    must(fi_av_insert(side.vector, name.c_str(), 1, &number, 0, nullptr) == 1, "fi_av_insert");
    return number;
  }
  bool has_completion() {
    fi_cq_tagged_entry entry{};
    return fi_cq_read(side.queue, &entry, 1) == 1;
  }
  TestNi ni;
  Context context = *Context::open();
  Side side;
  std::unique_ptr<am::Endpoint> endpoint;
  std::array<std::vector<std::vector<uint32_t>>, Handlers::kShare + 1> heard;
};

// Memory for claims, which the liar offers to the side.
struct Claims {
  Claims() : memory(::memfd_create("claims", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    must(::ftruncate(memory.get(), 2 * SharedCopy::kSlots * sizeof(SharedCopy)) == 0, "ftruncate");
    must(::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0, "fcntl");
    mapping = std::move(*Mapping::map(memory.get(), 2 * SharedCopy::kSlots * sizeof(SharedCopy)));
  }
  // The copy of the side that has a token.
  SharedCopy& of(uint32_t token) {
    return reinterpret_cast<SharedCopy*>(mapping.data())[SharedCopy::kSlots + token % Slots<int>::kMost];
  }
  Descriptor memory;
  Mapping mapping;
};

}  // namespace

TEST_CASE("before hello nothing is taken, and another version is refused") {
  Liar liar;
  char byte = 0;
  REQUIRE(fi_trecv(liar.side.endpoint, &byte, 1, nullptr, FI_ADDR_UNSPEC, 0, ~uint64_t{0}, nullptr) == 0);
  liar.say(Handlers::kLine, {kTagged | 1 << 8, 0, 0, 'x'});
  REQUIRE_FALSE(liar.has_completion());
  liar.greet(kProtocolVersion + 1);
  REQUIRE(liar.heard[Handlers::kWelcome].back()[1] == static_cast<uint32_t>(fabric::Answer::other_version));
  liar.say(Handlers::kLine, {kTagged | 1 << 8, 0, 0, 'x'});
  REQUIRE_FALSE(liar.has_completion());
  liar.say(Handlers::kHello, {}, "short");
  REQUIRE(liar.heard[Handlers::kWelcome].back()[1] == static_cast<uint32_t>(fabric::Answer::other_version));
}

TEST_CASE("messages with wrong words are dropped") {
  Liar liar;
  liar.greet();
  REQUIRE(liar.heard[Handlers::kWelcome].back()[1] == static_cast<uint32_t>(fabric::Answer::accepted));
  char bytes[64];
  REQUIRE(fi_trecv(liar.side.endpoint, bytes, sizeof bytes, nullptr, FI_ADDR_UNSPEC, 0, ~uint64_t{0}, nullptr) == 0);
  liar.say(Handlers::kLine, {});
  liar.say(Handlers::kLine, {kTagged});                                          // without its tag
  liar.say(Handlers::kLine, {kTagged | 255 << 8, 0, 0, 1});                      // a length beyond the words
  liar.say(Handlers::kLine, {kTagged | 1 << 8, 0, 0, 1, 2});                     // more words than its length
  liar.say(Handlers::kLine, {kTagged | MessageFlags::kData | MessageFlags::kWide, 0, 0, 1});
  liar.say(Handlers::kEager, {kTagged, 0, 0}, "abc");
  liar.say(Handlers::kReady, {kTagged, 0, 0});
  liar.say(Handlers::kReady, {kTagged, 0, ~0u, 0, 0, 0, 0, 0, 0, 0});            // longer than any message
  for (uint8_t handler : {Handlers::kGo, Handlers::kPiece, Handlers::kDone}) {
    liar.say(handler, {});
    liar.say(handler, {0, 0});
    liar.say(handler, {~0u, ~0u, ~0u}, "abc");
  }
  liar.say(Handlers::kPace, {});
  REQUIRE_FALSE(liar.has_completion());
  liar.say(Handlers::kLine, {kTagged | 1 << 8, 0, 0, 'x'});
  REQUIRE(liar.has_completion());
  REQUIRE(bytes[0] == 'x');
}

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

TEST_CASE("unexpected messages of a peer that does not wait are dropped") {
  Liar liar;
  liar.greet();
  const std::array<uint32_t, 4> words{kTagged | 1 << 8, 0, 0, 'x'};
  for (size_t i = 0; i < 2 * kUnexpectedMax; ++i) {
    while (liar.endpoint->request_now(0, Handlers::kLine, {}, words) == am::Outcome::not_sent) liar.poll();
  }
  liar.settle();
  REQUIRE(liar.heard[Handlers::kPace] == std::vector<std::vector<uint32_t>>{{static_cast<uint32_t>(Pace::none)}});
  char byte = 0;
  size_t received = 0;
  do {
    REQUIRE(fi_trecv(liar.side.endpoint, &byte, 1, nullptr, FI_ADDR_UNSPEC, 0, ~uint64_t{0}, nullptr) == 0);
    ++received;
  } while (liar.has_completion());
  liar.settle();
  REQUIRE(received > kUnexpectedMax);
  REQUIRE(received < kUnexpectedMax + 1000);
  REQUIRE(liar.heard[Handlers::kPace].size() == 2);
  REQUIRE(liar.heard[Handlers::kPace].back() == std::vector<uint32_t>{static_cast<uint32_t>(Pace::early)});
}

TEST_CASE("an announced message without bytes is complete at once") {
  Liar liar;
  liar.greet();
  char byte = 0;
  REQUIRE(fi_trecv(liar.side.endpoint, &byte, 1, nullptr, FI_ADDR_UNSPEC, 0, ~uint64_t{0}, nullptr) == 0);
  liar.say(Handlers::kReady, {kTagged, 0, 0, 0, 0, 77, 0, 0, 0, 0});
  REQUIRE(liar.has_completion());
  REQUIRE(liar.heard[Handlers::kGo].empty());
  REQUIRE(liar.heard[Handlers::kDone].back() == std::vector<uint32_t>{77, 0});
}

TEST_CASE("pieces beyond the message or the buffer change nothing else") {
  Liar liar;
  liar.greet();
  std::string bytes(64, '-');
  REQUIRE(fi_trecv(liar.side.endpoint, bytes.data(), 16, nullptr, FI_ADDR_UNSPEC, 0, ~uint64_t{0}, nullptr) == 0);
  liar.say(Handlers::kReady, {kTagged, 32, 0, 0, 0, 77, 0, 0, 0, 0});
  REQUIRE(liar.heard[Handlers::kGo].size() == 1);
  const uint32_t token = liar.heard[Handlers::kGo][0][1];
  liar.say(Handlers::kPiece, {token, 33, 0}, "abc");
  liar.say(Handlers::kPiece, {token, 0, ~0u}, "abc");
  liar.say(Handlers::kPiece, {token, 0, 0}, std::string(33, 'x'));
  liar.say(Handlers::kPiece, {token + 0x10000, 0, 0}, std::string(32, 'x'));
  REQUIRE(bytes == std::string(64, '-'));
  liar.say(Handlers::kPiece, {token, 10, 0}, std::string(22, 'y'));
  liar.say(Handlers::kPiece, {token, 0, 0}, std::string(10, 'z'));
  REQUIRE(bytes == std::string(10, 'z') + std::string(6, 'y') + std::string(48, '-'));
  REQUIRE(liar.heard[Handlers::kDone].back() == std::vector<uint32_t>{77, 0});
  liar.say(Handlers::kPiece, {token, 0, 0}, std::string(10, 'q'));
  REQUIRE(bytes[0] == 'z');
}

TEST_CASE("requests for memory with wrong words change nothing") {
  Liar liar;
  liar.greet();
  std::string memory(64, '-');
  fid_mr* region = nullptr;
  REQUIRE(fi_mr_reg(liar.side.domain, memory.data(), memory.size(), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 42, 0, &region, nullptr) == 0);
  constexpr auto kSum = static_cast<uint32_t>(FI_SUM), kWord = static_cast<uint32_t>(FI_UINT64) << 8;
  const auto last = [&](uint8_t handler) { return liar.heard[handler].back(); };
  liar.say(Handlers::kWrite, {}, "abc");
  liar.say(Handlers::kWrite, {0, 7, 0, 0, 41, 0, 0, 0}, "abc");
  REQUIRE(last(Handlers::kDone) == std::vector<uint32_t>{7, FI_EKEYREJECTED});
  liar.say(Handlers::kWrite, {0, 8, 62, 0, 42, 0, 0, 0}, "abc");
  REQUIRE(last(Handlers::kDone) == std::vector<uint32_t>{8, FI_EKEYREJECTED});
  liar.say(Handlers::kWriteFrom, {0, 9, 0, 0, 42, 0, 0, 0, 0, ~0u, 0, 0});
  REQUIRE(last(Handlers::kDone) == std::vector<uint32_t>{9, FI_EKEYREJECTED});
  liar.say(Handlers::kRead, {0, 10, 60, 0, 42, 0, 5, 0});
  REQUIRE(last(Handlers::kRefused) == std::vector<uint32_t>{10, FI_EKEYREJECTED});
  liar.say(Handlers::kAtomic, {0, 11, kSum | kWord, ~0u, 0, 0, 42, 0, 0, 0}, "12345678");   // more data than bytes
  liar.say(Handlers::kAtomic, {0, 12, kSum | 0xFF00, 1, 0, 0, 42, 0, 0, 0}, "12345678");    // no such datatype
  liar.say(Handlers::kAtomic, {0, 13, kWord | 0xFF, 1, 0, 0, 42, 0, 0, 0}, "12345678");     // no such operation
  liar.say(Handlers::kAtomic, {0, 14, kSum | kWord | 3 << 16, 1, 0, 0, 42, 0, 0, 0}, "12345678");
  liar.say(Handlers::kAtomic, {0, 15, kSum | kWord, 1, 60, 0, 42, 0, 0, 0}, "12345678");
  for (uint8_t handler : {Handlers::kGranted, Handlers::kRefused, Handlers::kRead, Handlers::kAtomic, Handlers::kWriteFrom}) {
    liar.say(handler, {});
    liar.say(handler, {0, 0, 0});
  }
  REQUIRE(memory == std::string(64, '-'));
  liar.say(Handlers::kWrite, {0, 16, 61, 0, 42, 0, 0, 0}, "abc");
  REQUIRE(last(Handlers::kDone) == std::vector<uint32_t>{16, 0});
  REQUIRE(memory == std::string(61, '-') + "abc");
  REQUIRE(fi_close(&region->fid) == 0);
}

TEST_CASE("a region that is closed while it is written in pieces is left alone") {
  Liar liar;
  liar.greet();
  std::string memory(64, '-');
  fid_mr* region = nullptr;
  REQUIRE(fi_mr_reg(liar.side.domain, memory.data(), memory.size(), FI_REMOTE_WRITE, 0, 42, 0, &region, nullptr) == 0);
  liar.say(Handlers::kWriteFrom, {MessageFlags::kPieces, 9, 0, 0, 42, 0, 0, 0, 64, 0, 0, 0});
  const uint32_t token = liar.heard[Handlers::kGo].back()[1];
  liar.say(Handlers::kPiece, {token, 0, 0}, "abc");
  REQUIRE(memory.substr(0, 4) == "abc-");
  REQUIRE(fi_close(&region->fid) == 0);
  liar.say(Handlers::kPiece, {token, 3, 0}, "def");
  REQUIRE(memory.substr(0, 4) == "abc-");
  REQUIRE(liar.heard[Handlers::kDone].back() == std::vector<uint32_t>{9, FI_EKEYREJECTED});
}

TEST_CASE("a region that takes the key of a closed one is not written in its place") {
  Liar liar;
  liar.greet();
  std::string first(64, '-'), second(16, '-');
  fid_mr* region = nullptr;
  REQUIRE(fi_mr_reg(liar.side.domain, first.data(), first.size(), FI_REMOTE_WRITE, 0, 42, 0, &region, nullptr) == 0);
  liar.say(Handlers::kWriteFrom, {MessageFlags::kPieces, 9, 0, 0, 42, 0, 0, 0, 64, 0, 0, 0});
  const uint32_t token = liar.heard[Handlers::kGo].back()[1];
  // The allocator mostly gives the new region the address of the old one.
  REQUIRE(fi_close(&region->fid) == 0);
  REQUIRE(fi_mr_reg(liar.side.domain, second.data(), second.size(), FI_REMOTE_WRITE, 0, 42, 0, &region, nullptr) == 0);
  liar.say(Handlers::kPiece, {token, 0, 0}, "abc");
  REQUIRE(first == std::string(64, '-'));
  REQUIRE(liar.heard[Handlers::kDone].back() == std::vector<uint32_t>{9, FI_EKEYREJECTED});
  REQUIRE(fi_close(&region->fid) == 0);
}

TEST_CASE("a peer with too many transfers in pieces is refused") {
  Liar liar;
  liar.greet();
  std::string memory(64, '-');
  fid_mr* region = nullptr;
  REQUIRE(fi_mr_reg(liar.side.domain, memory.data(), memory.size(), FI_REMOTE_WRITE, 0, 42, 0, &region, nullptr) == 0);
  const std::array<uint32_t, 12> write{MessageFlags::kPieces, 9, 0, 0, 42, 0, 0, 0, 64, 0, 0, 0};
  for (uint32_t i = 0; i <= kPeerTransfersMax; ++i) {
    while (liar.endpoint->request_now(0, Handlers::kWriteFrom, {}, write) == am::Outcome::not_sent) liar.poll();
  }
  liar.settle();
  REQUIRE(liar.heard[Handlers::kGo].size() == kPeerTransfersMax);
  REQUIRE(liar.heard[Handlers::kDone].back() == std::vector<uint32_t>{9, FI_ENOSPC});
  // One that ends makes room for another one.
  liar.say(Handlers::kPiece, {liar.heard[Handlers::kGo].back()[1], 0, 0}, std::string(64, 'x'));
  REQUIRE(liar.heard[Handlers::kDone].back() == std::vector<uint32_t>{9, 0});
  liar.say(Handlers::kWriteFrom, {write.begin(), write.end()});
  REQUIRE(liar.heard[Handlers::kGo].size() == kPeerTransfersMax + 1);
  REQUIRE(fi_close(&region->fid) == 0);
}

TEST_CASE("answers to operations that do not exist, or of another peer, end nothing") {
  Liar liar;
  liar.greet();
  Side honest;
  const fi_addr_t to = liar.side.know(honest);
  const std::string text(100'000, 't');
  ssize_t sent = 0;
  while ((sent = fi_tsend(liar.side.endpoint, text.data(), text.size(), nullptr, to, 1, nullptr)) == -FI_EAGAIN) {
    fi_cq_read(honest.queue, nullptr, 0);
    liar.poll();
  }
  REQUIRE(sent == 0);
  for (uint32_t token = 0; token < 4; ++token) {
    liar.say(Handlers::kDone, {token, 0});
    liar.say(Handlers::kGo, {token, 0});
  }
  REQUIRE_FALSE(liar.has_completion());
  std::string got(text.size(), '-');
  REQUIRE(fi_trecv(honest.endpoint, got.data(), got.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr) == 0);
  fi_cq_tagged_entry entry{};
  while (fi_cq_read(honest.queue, &entry, 1) != 1) liar.poll();
  REQUIRE(got == text);
}

TEST_CASE("answers to a send that waits for its channel change nothing") {
  Liar liar;
  const uint8_t lie = GENERATE(Handlers::kDone, Handlers::kGo);
  uint64_t source = 0;
  liar.endpoint->set_handler(Handlers::kHello, [](am::Token& token, void* to) { *static_cast<uint64_t*>(to) = token.source(); }, &source);
  const std::string name = liar.side.name();
  std::string address = "liar" + name.substr(name.find('@'));
  address.resize(name.size());
  fi_addr_t to = FI_ADDR_NOTAVAIL;
  REQUIRE(fi_av_insert(liar.side.vector, address.data(), 1, &to, 0, nullptr) == 1);
  char first[] = "ab", second[] = "cd";
  const iovec pieces[] = {{first, 2}, {second, 2}};
  REQUIRE(fi_tsendv(liar.side.endpoint, pieces, nullptr, 2, to, 1, nullptr) == 0);
  for (int i = 0; i < 1'000'000 && source == 0; ++i) liar.poll();
  REQUIRE(source != 0);
  REQUIRE(liar.endpoint->map_back(1, source).has_value());
  const auto say = [&](uint8_t handler, std::vector<uint32_t> words, const std::string& payload = {}) {
    while (liar.endpoint->request_now(1, handler, as_bytes(payload.data(), payload.size()), words) == am::Outcome::not_sent) liar.poll();
    liar.settle();
  };
  say(lie, {0, 0});
  REQUIRE_FALSE(liar.has_completion());
  REQUIRE(liar.heard[Handlers::kPiece].empty());
  say(Handlers::kWelcome, {kProtocolVersion, static_cast<uint32_t>(fabric::Answer::accepted)}, std::string(sizeof(Identity), '\0'));
  REQUIRE(liar.has_completion());
  REQUIRE(liar.heard[Handlers::kLine].back() == std::vector<uint32_t>{kTagged | 4 << 8, 1, 0, 'a' | 'b' << 8 | 'c' << 16 | 'd' << 24});
}

TEST_CASE("a claimed message of a peer that is gone fails its receive") {
  Liar liar;
  liar.greet();
  liar.say(Handlers::kReady, {kTagged, 32, 0, 0, 0, 77, 0, 0, 0, 0});
  int claim = 0;
  fi_msg_tagged message{.msg_iov = nullptr, .desc = nullptr, .iov_count = 0, .addr = FI_ADDR_UNSPEC, .tag = 0, .ignore = ~uint64_t{0},
                        .context = &claim, .data = 0};
  REQUIRE(fi_trecvmsg(liar.side.endpoint, &message, FI_PEEK | FI_CLAIM) == 0);
  REQUIRE(liar.has_completion());
  liar.endpoint.reset();
  for (int i = 0; i < 2000; ++i) fi_cq_read(liar.side.queue, nullptr, 0);
  char bytes[32];
  const iovec piece{bytes, sizeof bytes};
  message.msg_iov = &piece;
  message.iov_count = 1;
  REQUIRE(fi_trecvmsg(liar.side.endpoint, &message, FI_CLAIM) == 0);
  fi_cq_err_entry error{};
  REQUIRE(fi_cq_readerr(liar.side.queue, &error, 0) == 1);
  REQUIRE(error.err == FI_ECONNRESET);
  REQUIRE(error.op_context == &claim);
}

TEST_CASE("a peer that dies in the middle of a message ends its receive") {
  Liar liar;
  liar.greet();
  std::string bytes(64, '-');
  REQUIRE(fi_trecv(liar.side.endpoint, bytes.data(), 64, nullptr, FI_ADDR_UNSPEC, 0, ~uint64_t{0}, &bytes) == 0);
  liar.say(Handlers::kReady, {kTagged, 32, 0, 0, 0, 77, 0, 0, 0, 0});
  liar.endpoint.reset();
  fi_cq_tagged_entry entry{};
  fi_cq_err_entry error{};
  ssize_t read = 0;
  while ((read = fi_cq_read(liar.side.queue, &entry, 1)) == -FI_EAGAIN) {}
  REQUIRE(read == -FI_EAVAIL);
  REQUIRE(fi_cq_readerr(liar.side.queue, &error, 0) == 1);
  REQUIRE(error.err == FI_ECONNRESET);
  REQUIRE(error.op_context == &bytes);
}
