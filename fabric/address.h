// address.h - addresses of endpoints: the string unet://HOST/NAME (FI_ADDR_STR) and a binary form of fixed size; used by AddressVector,
// Endpoint and get_info().
#pragma once

#include <rdma/fabric.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace unet::fabric {

// The binary form is "NAME@HOST" with zeros behind it. Open MPI takes addresses of at most FI_NAME_MAX bytes.
constexpr uint32_t kBinaryFormat = FI_PROV_SPECIFIC | 0x756E;
constexpr uint32_t kStringFormat = FI_ADDR_STR;
constexpr size_t kBinaryBytes = FI_NAME_MAX;
using BinaryAddress = std::array<char, kBinaryBytes>;

struct Address {
  std::string name;  // of an endpoint
  std::string host;  // as its NI calls it

  bool operator==(const Address&) const = default;
  // The string form.
  std::string text() const { return "unet://" + host + '/' + name; }
  // nullopt: the names are too long.
  std::optional<BinaryAddress> binary() const;
  // The target for am::Endpoint::map() by an endpoint of `own_host`, under which the peer is also known when it connects.
  std::string target(std::string_view own_host) const { return host == own_host ? name : name + '@' + host; }
};

// A name that no other endpoint has.
std::string new_name();
// Whether another name does as well: one that new_name() made, or a number in place of a name, as a service of other networks is.
bool is_replaceable(std::string_view name) noexcept;

std::optional<Address> parse_text(std::string_view text);
std::optional<Address> parse_binary(const char* bytes);
// Parses `length` bytes of either form; `format` is kStringFormat, kBinaryFormat, or 0: unknown.
std::optional<Address> parse_bytes(const void* bytes, size_t length, uint32_t format);
// Parses "NAME" or "NAME@HOST", a target. `own_host` is the host of the first.
std::optional<Address> parse_target(std::string_view target, std::string_view own_host);

// Writes the address in a format (kBinaryFormat or kStringFormat) to *length bytes at `to`, as fi_getname() does: *length becomes the
// address's length. -FI_ETOOSMALL: it was cut.
int give(const Address& address, uint32_t format, void* to, size_t* length) noexcept;

}  // namespace unet::fabric
