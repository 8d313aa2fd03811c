// key.cc - reads a key from its hexadecimal digits.
#include "am/splitc/key.h"

#include <charconv>

namespace unet::splitc {

Result<Key> parse_key(std::string_view text) {
  constexpr size_t kDigits = 16;  // of each half
  Key key;
  bool sound = text.size() == 2 * kDigits;
  for (uint64_t* const half : {&key.low, &key.high}) {
    if (!sound) break;
    const auto [end, error] = std::from_chars(text.data(), text.data() + kDigits, *half, 16);
    sound = error == std::errc() && end == text.data() + kDigits;
    text.remove_prefix(kDigits);
  }
  if (!sound) return fail(Errc::invalid_argument, "that is not 32 hexadecimal digits");
  return key;
}

}  // namespace unet::splitc
