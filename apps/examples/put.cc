// put.cc - direct access: one process writes into memory that another exposes, and notifies it when all pieces are there.
//
//   c++ -std=c++20 -o put put.cc $(pkg-config --cflags --libs unet)
//   unet-run -n 2 -- ./put                  (starts a network interface and the program twice, with UNET_RANK 0 and 1)
//   UNET_RANK=0 ./put   on one host, and   UNET_RANK=1 ./put put/0@HOST   on another
//
// Rank 0 exposes a region. Rank 1 puts three pieces into it, the last one with a notification. No message carries the data: on one host
// rank 1 stores it where rank 0 reads it; over a wire the network interface of rank 0 deposits it there.
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <unet/context.h>

namespace {

constexpr uint64_t kRegionBytes = 1 << 20;
constexpr std::array<std::string_view, 3> kPieces{"Written by rank 1 ", "into the memory of rank 0, ", "where nobody copied it."};

[[noreturn]] void give_up(std::string_view call, std::string_view why) {
  std::fprintf(stderr, "put: %.*s: %.*s\n", int(call.size()), call.data(), int(why.size()), why.data());
  std::exit(1);
}

template <typename T>
T check(unet::Result<T> result, std::string_view call) {
  if (!result) give_up(call, result.error().text);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

// Rank 0: exposes memory, and waits for a notification.
void expose_and_wait(unet::Endpoint& endpoint) {
  const unet::MutableBytes region = check(endpoint.expose(kRegionBytes), "expose");
  check(endpoint.bind("put/0"), "bind");
  check(endpoint.accept(10 * unet::kSecond, nullptr), "accept");
  unet::Message message;
  bool left = false;
  while (!endpoint.receive(message)) {
    if (left) give_up("receive", "rank 1 has left without putting anything");
    if (endpoint.wait(10 * unet::kSecond) != unet::WaitOutcome::ready) give_up("wait", "nothing was put within 10 s");
    left = endpoint.next_event().has_value();  // puts from before it left are still there: look once more
  }
  if (message.kind != unet::MessageKind::put_done) give_up("receive", "this is a message, not the end of a put");
  const uint64_t end = message.region_offset + message.length;
  std::printf("rank 0: the last put ends at byte %llu of the region, which says:\n  %.*s\n", static_cast<unsigned long long>(end),
              int(end), reinterpret_cast<const char*>(region.data()));
  endpoint.release(message);
}

unet::Channel connect(unet::Endpoint& endpoint, std::string_view target) {
  for (int tries = 0;; ++tries) {
    const auto channel = endpoint.connect(target);
    if (channel) return *channel;
    // Rank 0 may not have bound its name yet.
    if (channel.error().code != unet::Errc::not_found || tries == 1000) give_up("connect", channel.error().text);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// Rank 1: puts the pieces one after the other.
void put_pieces(unet::Endpoint& endpoint, std::string_view target) {
  const unet::Channel channel = connect(endpoint, target);
  uint64_t offset = 0;
  for (const std::string_view& piece : kPieces) {
    // Only the last put notifies, because puts on a local channel arrive in order. On a wire each would need its own notification.
    const bool notify = &piece == &kPieces.back();
    unet::SendOutcome outcome;
    while ((outcome = endpoint.put(channel, offset, unet::as_bytes(piece.data(), piece.size()), notify)) == unet::SendOutcome::full) {
      endpoint.wait_room(channel);
    }
    if (outcome != unet::SendOutcome::sent) give_up("put", to_string(outcome));
    offset += piece.size();
  }
  std::printf("rank 1: %llu bytes put\n", static_cast<unsigned long long>(offset));
}

}  // namespace

int main(int argc, char** argv) {
  const char* rank = std::getenv("UNET_RANK");
  if (rank == nullptr || (std::strcmp(rank, "0") != 0 && std::strcmp(rank, "1") != 0)) {
    std::fprintf(stderr, "put: two processes are wanted: unet-run -n 2 -- put\n");
    return 2;
  }
  unet::Context context = check(unet::Context::open(), "open");
  unet::Endpoint endpoint = check(context.create_endpoint(), "create_endpoint");
  if (rank[0] == '0') {
    expose_and_wait(endpoint);
  } else {
    put_pieces(endpoint, argc > 1 ? argv[1] : "put/0");
  }
}
