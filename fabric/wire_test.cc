// wire_test.cc - messages between two hosts: what a wire loses, and into how many frames a message is cut.
#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>

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

// The bytes of a peer's messages that an endpoint of Active Messages has received.
struct Heard {
  size_t bytes = 0, most = 0;  // most: in one message
};

void hear(am::Token& token, void* heard) {
  Heard& of = *static_cast<Heard*>(heard);
  of.bytes += token.payload().size();
  of.most = std::max(of.most, token.payload().size());
}

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

TEST_CASE("over a wire a message travels in parts of at most three frames") {
  const Hosts hosts;
  hosts.choose_left();
  Side sender;
  hosts.choose_right();
  Context context = *Context::open();
  const auto peer = std::move(*am::Endpoint::create(context));
  Heard heard;
  for (const uint8_t handler : {Handlers::kEager, Handlers::kPiece}) peer->set_handler(handler, hear, &heard);
  peer->set_handler(Handlers::kHello, [](am::Token& token, void*) {
    constexpr Identity kNobody{.process = 0, .address = 0, .secret = {}, .copies = -1};
    token.reply_medium(Handlers::kWelcome, as_bytes(&kNobody, sizeof kNobody),
                       std::array{kProtocolVersion, static_cast<uint32_t>(fabric::Answer::accepted)});
  }, nullptr);
  peer->set_handler(Handlers::kReady, [](am::Token& token, void*) {
    token.reply_short(Handlers::kGo, std::array{token.argument(5), 0u});
  }, nullptr);
  REQUIRE(peer->bind("peer").has_value());
  fi_addr_t to = FI_ADDR_NOTAVAIL;
  REQUIRE(fi_av_insert(sender.vector, "unet://right/peer", 1, &to, 0, nullptr) == 1);
  for (const size_t size : {size_t{100}, size_t{am::kPieceMax}, size_t{am::kMediumMax}, size_t{100'000}}) {
    heard = {};
    const std::string text(size, 'x');
    REQUIRE(fi_tsend(sender.endpoint, text.data(), size, nullptr, to, 0, nullptr) == 0);
    const Nanoseconds end = monotonic_now() + 30 * kSecond;
    while (heard.bytes < size && monotonic_now() < end) {
      fi_cq_read(sender.queue, nullptr, 0);
      peer->poll();
    }
    CHECK(heard.bytes == size);
    CHECK(heard.most == std::min<size_t>(size, am::kPieceMax));
  }
}
