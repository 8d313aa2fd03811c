// rpc_order.cc - a call with arguments and a result made by FlatBuffers; bytes of Protobuf and Cap'n Proto pass the same way.
//
//   flatc --cpp order.fbs
//   c++ -std=c++20 -I. -o rpc_order rpc_order.cc $(pkg-config --cflags --libs unet-rpc flatbuffers)
//   ./rpc_order serve &                     (start unetd before)
//   ./rpc_order
#include <am/rpc/client.h>
#include <am/rpc/server.h>
#include <order_generated.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace rpc = unet::rpc;

namespace {

// RawBytes travel as they are, and begin at a multiple of 8 bytes. A RawBuffer is a copy: a result needs one.
constexpr rpc::Interface kShop{"shop", 1};
constexpr rpc::Procedure<rpc::RawBuffer(rpc::RawBytes)> kOrder{1};
constexpr uint32_t kNoOrder = 1;  // the number with which kOrder fails

[[noreturn]] void give_up(std::string_view why) {
  std::fprintf(stderr, "rpc_order: %s\n", std::string(why).c_str());
  std::exit(1);
}

template <typename T>
T check(unet::Result<T> result) {
  if (!result) give_up(result.error().text);
  return std::move(*result);
}

// What a builder has finished.
unet::Bytes bytes_of(const flatbuffers::FlatBufferBuilder& builder) {
  return unet::as_bytes(builder.GetBufferPointer(), builder.GetSize());
}

// A table in these bytes; nullptr if they are none.
template <typename Table>
const Table* table_in(unet::Bytes bytes) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  flatbuffers::Verifier verifier(data, bytes.size());
  return verifier.VerifyBuffer<Table>(nullptr) ? flatbuffers::GetRoot<Table>(data) : nullptr;
}

rpc::OrFailure<rpc::RawBuffer> take_order(rpc::RawBytes arguments) {
  // A caller on this host could change its bytes after they are verified, so verify a copy.
  const std::vector<std::byte> copy(arguments.bytes.begin(), arguments.bytes.end());
  const auto* order = table_in<shop::Order>(copy);
  if (order == nullptr || order->customer() == nullptr || order->items() == nullptr) return tl::unexpected(rpc::Failure{kNoOrder});
  uint64_t cents = 0;
  for (const shop::Item* item : *order->items()) cents += item->count() * item->cents();
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(shop::CreateReceiptDirect(builder, ("Thank you, " + order->customer()->str() + ".").c_str(), cents));
  const unet::Bytes receipt = bytes_of(builder);
  return rpc::RawBuffer{{receipt.begin(), receipt.end()}};
}

void serve(unet::Context& context) {
  const auto server = check(rpc::Server::create(context, "shop"));
  server->provide(kShop, kOrder, take_order);
  std::printf("the shop is open\n");
  std::fflush(stdout);
  while (server->wait() != unet::WaitOutcome::disconnected) {}
}

void order(unet::Context& context) {
  const auto client = check(rpc::Client::create(context));
  rpc::Binding shop = check(client->import("shop", kShop));
  flatbuffers::FlatBufferBuilder builder;
  const std::vector<flatbuffers::Offset<shop::Item>> items{shop::CreateItemDirect(builder, "pencil", 3, 120),
                                                           shop::CreateItemDirect(builder, "paper", 1, 499)};
  builder.Finish(shop::CreateOrderDirect(builder, "Alice", &items));
  rpc::Reply<rpc::RawBuffer> reply = shop.call(kOrder, rpc::RawBytes{bytes_of(builder)});
  if (!reply) give_up(to_string(reply.status()));
  const auto* receipt = table_in<shop::Receipt>(reply->bytes);
  if (receipt == nullptr || receipt->text() == nullptr) give_up("the result is no receipt");
  std::printf("%s %llu cents\n", receipt->text()->c_str(), static_cast<unsigned long long>(receipt->cents()));

  // Other bytes are no order.
  const std::array<std::byte, 100> zeros{};
  reply = shop.call(kOrder, rpc::RawBytes{zeros});
  std::printf("%s %u\n", std::string(to_string(reply.status())).c_str(), reply.failure());
}

}  // namespace

int main(int argc, char** argv) {
  unet::Context context = check(unet::Context::open());
  if (argc > 1 && std::string_view(argv[1]) == "serve") {
    serve(context);
  } else {
    order(context);
  }
}
