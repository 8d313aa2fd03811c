// address.cc - see address.h.
#include "fabric/address.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "unet/base/keyed_random.h"
#include "unet/control.h"

namespace unet::fabric {
namespace {

constexpr std::string_view kScheme = "unet://";
constexpr char kMade[] = "fi-";

std::optional<Address> checked(std::string_view name, std::string_view host) {
  if (!control::valid_name(name) || !control::valid_name(host)) return std::nullopt;
  return Address{std::string(name), std::string(host)};
}

}  // namespace

std::string new_name() {
  std::array<char, 24> name;
  std::snprintf(name.data(), name.size(), "%s%012llx", kMade, static_cast<unsigned long long>(KeyedRandom(0).next() >> 16));
  return name.data();
}

bool is_replaceable(std::string_view name) noexcept {
  return name.substr(0, sizeof kMade - 1) == kMade || name.find_first_not_of("0123456789") == std::string_view::npos;
}

std::optional<BinaryAddress> Address::binary() const {
  BinaryAddress bytes{};
  if (name.size() + 1 + host.size() >= bytes.size()) return std::nullopt;
  char* const at = std::copy(name.begin(), name.end(), bytes.data());
  *at = '@';
  std::copy(host.begin(), host.end(), at + 1);
  return bytes;
}

std::optional<Address> parse_text(std::string_view text) {
  if (text.substr(0, kScheme.size()) != kScheme) return std::nullopt;
  text.remove_prefix(kScheme.size());
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  return checked(text.substr(slash + 1), text.substr(0, slash));
}

std::optional<Address> parse_binary(const char* bytes) {
  const std::string_view text(bytes, ::strnlen(bytes, kBinaryBytes));
  const size_t at = text.find('@');
  if (at == std::string_view::npos) return std::nullopt;
  return checked(text.substr(0, at), text.substr(at + 1));
}

std::optional<Address> parse_bytes(const void* bytes, size_t length, uint32_t format) {
  const char* const text = static_cast<const char*>(bytes);
  const std::string_view string(text, ::strnlen(text, length));
  if (format == kStringFormat || string.substr(0, kScheme.size()) == kScheme) return parse_text(string);
  return length == kBinaryBytes ? parse_binary(text) : std::nullopt;
}

std::optional<Address> parse_target(std::string_view target, std::string_view own_host) {
  const size_t at = target.find('@');
  return at == std::string_view::npos ? checked(target, own_host) : checked(target.substr(0, at), target.substr(at + 1));
}

int give(const Address& address, uint32_t format, void* to, size_t* length) noexcept {
  const std::string text = address.text();
  const auto binary = address.binary();
  if (format != kStringFormat && !binary) return -FI_EINVAL;
  const char* const from = format == kStringFormat ? text.c_str() : binary->data();
  const size_t size = format == kStringFormat ? text.size() + 1 : binary->size();
  const size_t room = std::exchange(*length, size);
  if (room > 0 && to != nullptr) std::memcpy(to, from, std::min(room, size));
  return room < size ? -FI_ETOOSMALL : 0;
}

}  // namespace unet::fabric
