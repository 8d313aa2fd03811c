// procedure.h - names of what a server exports: interfaces and their typed procedures; included by clients and servers alike.
//
//   constexpr unet::rpc::Interface kCalculator{"calculator", 1};
//   constexpr unet::rpc::Procedure<int(int, int)> kAdd{1};
//   constexpr unet::rpc::Procedure<void(std::string_view)> kPrint{2};
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "am/rpc/codec.h"

namespace unet::rpc {

// A client imports exactly the version that it was compiled for.
struct Interface {
  std::string_view name;
  uint32_t version = 1;
  friend constexpr bool operator==(const Interface&, const Interface&) noexcept = default;
};

// A name has one owner, so servers of one name bind NAME/1, NAME/2 and so on (ServerOptions::replica).
inline constexpr uint32_t kReplicasMax = 8;
// The name of one of them, from NAME or NAME@HOST.
inline std::string replica_name(std::string_view name, uint32_t number) {
  const size_t host = std::min(name.find('@'), name.size());
  return std::string(name.substr(0, host)) + "/" + std::to_string(number) + std::string(name.substr(host));
}

// Whether a decoded T points into its message: a result may not, because the message is gone when the caller reads it.
template <typename T>
constexpr bool kPointsIntoMessage = false;
template <>
inline constexpr bool kPointsIntoMessage<std::string_view> = true;
template <>
inline constexpr bool kPointsIntoMessage<RawBytes> = true;
template <typename T, size_t kExtent>
constexpr bool kPointsIntoMessage<std::span<T, kExtent>> = true;
template <template <typename...> typename Container, typename... Ts>
constexpr bool kPointsIntoMessage<Container<Ts...>> = (kPointsIntoMessage<Ts> || ...);
template <typename T, size_t kCount>
constexpr bool kPointsIntoMessage<std::array<T, kCount>> = kPointsIntoMessage<T>;

// A procedure's number within its interface. The signature is that of the handler: arguments by value or const reference, and a result by
// value or none. codec.h has the types.
template <typename Signature>
struct Procedure {
  static_assert(std::is_function_v<Signature>, "name the procedure's types as in Procedure<int(int, std::string_view)>");
};

template <typename ResultType, typename... Args>
struct Procedure<ResultType(Args...)> {
  static_assert(((!std::is_reference_v<Args> || std::is_const_v<std::remove_reference_t<Args>>)&&...),
                "an argument cannot be changed by another process: return a std::pair or std::tuple of the results");
  static_assert(!std::is_reference_v<ResultType>, "a result is a value");
  static_assert(!kPointsIntoMessage<std::remove_cv_t<ResultType>>,
                "a result owns its bytes: return a std::string, a std::vector<T> or a RawBuffer");

  using Result = std::remove_cv_t<ResultType>;
  using Arguments = std::tuple<std::remove_cvref_t<Args>...>;  // as the server decodes them

  constexpr explicit Procedure(uint16_t of_number) noexcept : number(of_number) {}

  uint16_t number;
};

}  // namespace unet::rpc
