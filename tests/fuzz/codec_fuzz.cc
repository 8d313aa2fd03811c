// codec_fuzz.cc - any bytes as arguments of calls: decoding stays in the message, and accepted values have an encoding that is not longer.
//
// Input: one byte that chooses the types, then the message.
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "am/rpc/codec.h"
#include "tests/fuzz/fuzz_input.h"
#include "unet/base/check.h"

using namespace unet;

namespace {

struct Entry {
  std::string key;
  std::vector<double> values;
  bool is_new;
  using Fields = rpc::Fields<&Entry::key, &Entry::values, &Entry::is_new>;
};

struct Message {  // of exactly its size, so that AddressSanitizer sees any access beyond
  explicit Message(size_t of_size) : size(of_size), bytes(new std::byte[of_size]) {}
  Bytes all() const { return {bytes.get(), size}; }
  size_t size;
  std::unique_ptr<std::byte[]> bytes;
};

template <typename... Args>
Message encoded(const std::tuple<Args...>& values) {
  return std::apply([](const auto&... value) {
    Message message(rpc::encoded_size(value...));
    UNET_CHECK(rpc::encode(message.bytes.get(), value...) == message.bytes.get() + message.size);
    return message;
  }, values);
}

template <typename... Args>
void decode_as(Bytes from) {
  const auto decode = [](Bytes message, std::tuple<Args...>& values) {
    return std::apply([message](auto&... value) { return rpc::decode(message, value...); }, values);
  };
  std::tuple<Args...> values, again;
  if (!decode(from, values)) return;
  UNET_CHECK(from.size() >= rpc::Layout<Args...>::kMinimum);
  const Message first = encoded(values);
  UNET_CHECK(first.size <= from.size());
  UNET_CHECK(decode(first.all(), again));
  const Message second = encoded(again);
  UNET_CHECK(std::equal(first.all().begin(), first.all().end(), second.all().begin(), second.all().end()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput input(data, size);
  const auto types = input.take<uint8_t>();
  const std::vector<std::byte> bytes = input.take_bytes(4096);
  Message message(bytes.size());
  std::copy(bytes.begin(), bytes.end(), message.bytes.get());
  switch (types % 6) {
    case 0: decode_as<int, bool, uint16_t>(message.all()); break;
    case 1: decode_as<uint8_t, std::string_view, std::span<const double>, std::span<const uint16_t>>(message.all()); break;
    case 2: decode_as<std::vector<Entry>>(message.all()); break;
    case 3: decode_as<std::optional<std::vector<std::string>>, std::array<std::pair<bool, std::vector<uint64_t>>, 2>>(message.all()); break;
    case 4: decode_as<std::vector<std::vector<std::vector<uint8_t>>>, std::tuple<std::optional<int>, std::string>>(message.all()); break;
    case 5: decode_as<uint16_t, rpc::RawBytes>(message.all()); break;
  }
  return 0;
}
