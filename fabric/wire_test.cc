// wire_test.cc - messages between two hosts: what a wire loses, and into how many frames a message is cut.
#include <catch2/catch.hpp>
#include <rdma/fi_rma.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <utility>

#include "am/endpoint.h"
#include "fabric/protocol.h"
#include "fabric/test_side.h"
#include "unet/context.h"

using namespace unet;
using namespace unet::fabric;

namespace {

// A directory that ends with its owner.
struct Directory {
  Directory() { must(::mkdtemp(path) != nullptr, "mkdtemp"); }
  ~Directory() { std::filesystem::remove_all(path); }
  char path[32] = "/tmp/unet-fabric-XXXXXX";
};

// Two network interfaces, joined by a memif. `wrapper`: of the port of the left one.
class Hosts {
 public:
  explicit Hosts(const std::string& wrapper = "")
      : left_(nullptr, {"--host", "left", "--port", wrapper + port("1,role=server")}),
        right_(nullptr, {"--host", "right", "--port", port("2,role=client,wait_link=30s")}) {}
  // What this process opens from now on belongs to that host.
  void choose_left() const { ::setenv("UNET_NI", left_.ni(), 1); }
  void choose_right() const { ::setenv("UNET_NI", right_.ni(), 1); }

 private:
  std::string port(const std::string& end) const {
    return std::string("dpdk:net_memif0,socket=") + directory_.path + "/memif,mac=02:00:00:00:00:0" + end;
  }
  const Directory directory_;
  const TestDaemon left_, right_;
};

// An endpoint of Active Messages that answers as the provider does, and measures the payloads that it receives.
class Listener {
 public:
  Listener() {
    for (const uint8_t handler : {Handlers::kEager, Handlers::kPiece, Handlers::kWrite}) endpoint_->set_handler(handler, hear, this);
    endpoint_->set_handler(Handlers::kHello, welcome, this);
    endpoint_->set_handler(Handlers::kReady, [](am::Token& token, void*) { go(token, token.argument(5)); }, nullptr);
    endpoint_->set_handler(Handlers::kWriteFrom, [](am::Token& token, void*) { go(token, token.argument(1)); }, nullptr);
    must(endpoint_->bind("peer").has_value(), "bind");
  }

  // Polls this endpoint and that side until `bytes` have come.
  void wait(const Side& side, size_t bytes) {
    const Nanoseconds end = monotonic_now() + 30 * kSecond;
    while (bytes_ < bytes && monotonic_now() < end) poll(side);
    CHECK(std::exchange(bytes_, 0) == bytes);
  }
  void poll(const Side& side) {
    fi_cq_read(side.queue, nullptr, 0);
    endpoint_->poll();
  }
  // Asks the side that has said hello for memory that it registered with that key.
  void read(const Side& side, uint32_t key, uint32_t length) {
    if (!endpoint_->in_use(0)) must(endpoint_->map_back(0, source_).has_value(), "map_back");
    const std::array<uint32_t, 8> words{MessageFlags::kPieces, 0, 0, 0, key, 0, length, 0};
    while (endpoint_->request_now(0, Handlers::kRead, {}, words) == am::Outcome::not_sent) poll(side);
  }
  size_t most() noexcept { return std::exchange(most_, 0); }  // bytes in one message since the last call

 private:
  static void hear(am::Token& token, void* listener) {
    Listener& of = *static_cast<Listener*>(listener);
    of.bytes_ += token.payload().size();
    of.most_ = std::max(of.most_, token.payload().size());
  }
  static void welcome(am::Token& token, void* listener) {
    constexpr Identity kNobody{.process = 0, .address = 0, .secret = {}, .copies = -1};
    static_cast<Listener*>(listener)->source_ = token.source();
    token.reply_medium(Handlers::kWelcome, as_bytes(&kNobody, sizeof kNobody),
                       std::array{kProtocolVersion, static_cast<uint32_t>(fabric::Answer::accepted)});
  }
  static void go(am::Token& token, uint32_t operation) { token.reply_short(Handlers::kGo, std::array{operation, 0u}); }

  Context context_ = *Context::open();
  const std::unique_ptr<am::Endpoint> endpoint_ = std::move(*am::Endpoint::create(context_, {.both_ways = true}));
  uint64_t source_ = 0;
  size_t bytes_ = 0, most_ = 0;
};

}  // namespace

TEST_CASE("a message arrives over a wire that loses frames though only its receiver polls") {
  const Hosts hosts("faulty:loss=30%,seed=7 / ");
  hosts.choose_left();
  Side sender;
  hosts.choose_right();
  Side receiver;
  const fi_addr_t to = sender.know(receiver);
  for (uint64_t tag = 0; tag < 20; ++tag) {
    char byte = 0;
    fi_cq_tagged_entry entry{};
    ssize_t read = -FI_EAGAIN;
    const Nanoseconds end = monotonic_now() + 30 * kSecond;
    REQUIRE(fi_trecv(receiver.endpoint, &byte, 1, nullptr, FI_ADDR_UNSPEC, tag, 0, nullptr) == 0);
    REQUIRE(fi_tinject(sender.endpoint, "x", 1, to, tag) == 0);
    while (read == -FI_EAGAIN && monotonic_now() < end) {
      if (tag == 0) fi_cq_read(sender.queue, nullptr, 0);  // opens the channel
      read = fi_cq_read(receiver.queue, &entry, 1);
    }
    REQUIRE(read == 1);
    REQUIRE(byte == 'x');
  }
}

TEST_CASE("over a wire messages, writes and reads travel in parts of at most three frames") {
  const Hosts hosts;
  hosts.choose_left();
  Side side;
  hosts.choose_right();
  Listener peer;
  fi_addr_t to = FI_ADDR_NOTAVAIL;
  REQUIRE(fi_av_insert(side.vector, "unet://right/peer", 1, &to, 0, nullptr) == 1);
  for (const size_t size : {size_t{100}, size_t{am::kPieceMax}, size_t{am::kMediumMax}, size_t{100'000}}) {
    const size_t most = std::min<size_t>(size, am::kPieceMax);
    const std::string text(size, 'x');
    REQUIRE(fi_tsend(side.endpoint, text.data(), size, nullptr, to, 0, nullptr) == 0);
    peer.wait(side, size);
    CHECK(peer.most() == most);
    while (fi_write(side.endpoint, text.data(), size, nullptr, to, 0, 42, nullptr) == -FI_EAGAIN) peer.poll(side);
    peer.wait(side, size);
    CHECK(peer.most() == most);
    fid_mr* region = nullptr;
    REQUIRE(fi_mr_reg(side.domain, text.data(), size, FI_REMOTE_READ, 0, 42, 0, &region, nullptr) == 0);
    peer.read(side, 42, static_cast<uint32_t>(size));
    peer.wait(side, size);
    CHECK(peer.most() == most);
    REQUIRE(fi_close(&region->fid) == 0);
  }
}
