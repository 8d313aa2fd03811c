// toml_reader.h - typed access to a parsed TOML file; its errors name file, line, key and what is allowed; used by the policy and the
// configuration.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <toml++/toml.h>

#include "unet/base/result.h"

namespace unet::service {

// Reads a whole regular file, without waiting. Errors: invalid_argument, with the reason.
Result<std::string> read_text_file(const std::string& file);
// read_text_file() for an open file, from its beginning; its position does not move. `name`: for errors.
Result<std::string> read_text(int descriptor, const std::string& name);

// The parsed document. Errors: "FILE:LINE: ...".
Result<toml::table> parse_toml(std::string_view text, const std::string& file);

// "256M" or a number of bytes.
std::optional<uint64_t> parse_bytes(std::string_view text);

// One table of the file. The getters return the default when the key is missing; the first malformed value is kept as the
// error, and everything after it is ignored.
class TomlReader {
 public:
  TomlReader(const std::string& file, const toml::table& table, std::string where)
      : file_(file), table_(table), where_(std::move(where)) {}

  // Any key but these is an error.
  void allow(std::initializer_list<std::string_view> keys);

  bool has(std::string_view key) const { return table_.contains(key); }
  uint64_t number(std::string_view key, uint64_t otherwise, uint64_t least, uint64_t most);
  std::string text(std::string_view key, std::string otherwise);
  bool boolean(std::string_view key, bool otherwise);
  uint64_t bytes(std::string_view key, uint64_t otherwise, uint64_t most);
  std::vector<std::string> texts(std::string_view key, std::vector<std::string> otherwise);
  // A list, or a single number.
  std::vector<uint32_t> numbers(std::string_view key, std::vector<uint32_t> otherwise, uint32_t most);
  // The tables of `[[key]]`.
  std::vector<const toml::table*> tables(std::string_view key);

  // Records that the value of `key` is wrong; `text` says what is allowed.
  void wrong(std::string_view key, const std::string& text);

  bool ok() const noexcept { return !error_.has_value(); }
  Status status() const;

 private:
  void set_error(const toml::source_region& at, const std::string& text);

  const std::string& file_;
  const toml::table& table_;
  std::string where_;  // "[[rule]]", for messages
  std::optional<Error> error_;
};

}  // namespace unet::service
