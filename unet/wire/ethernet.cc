// ethernet.cc - the text of an address.
#include "unet/wire/ethernet.h"

#include <charconv>

namespace unet {

std::array<char, 18> mac_text(const MacAddress& address) noexcept {
  constexpr char kDigits[] = "0123456789abcdef";
  std::array<char, 18> text;
  text.fill(':');
  for (size_t i = 0; i < address.size(); ++i) {
    text[3 * i] = kDigits[address[i] >> 4];
    text[3 * i + 1] = kDigits[address[i] & 15];
  }
  text.back() = '\0';
  return text;
}

std::optional<MacAddress> parse_mac(std::string_view text) noexcept {
  MacAddress address;
  if (text.size() != 3 * address.size() - 1) return std::nullopt;
  for (size_t i = 0; i < address.size(); ++i) {
    const char* const at = text.data() + 3 * i;
    const auto [end, error] = std::from_chars(at, at + 2, address[i], 16);
    if (error != std::errc{} || end != at + 2 || (i != 0 && at[-1] != ':')) return std::nullopt;
  }
  return address;
}

}  // namespace unet
