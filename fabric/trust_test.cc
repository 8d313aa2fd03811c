// trust_test.cc - a peer that lies in each word that it can write.
#include <rdma/fi_rma.h>

#include <catch2/catch.hpp>

#include "fabric/test_liar.h"

using namespace unet;
using namespace unet::fabric;

namespace {

constexpr uint32_t kTagged = MessageFlags::kTagged;

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
