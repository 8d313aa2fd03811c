// toml_reader.cc - reads values, and words the errors of wrong lines.
#include "ni/service/toml_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "ni/service/names.h"
#include "unet/mapping.h"

namespace unet::service {
namespace {

constexpr size_t kFileMax = 1 << 20;  // bytes of a configuration or policy file

std::string place(const std::string& file, const toml::source_region& at) {
  return file + ":" + std::to_string(at.begin.line) + ": ";
}

}  // namespace

Result<std::string> read_text_file(const std::string& file) {
  // Opening a FIFO or terminal could block the service, and its clients.
  const Descriptor in(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  return read_text(in.get(), file);
}

Result<std::string> read_text(int descriptor, const std::string& name) {
  const auto failed = [&](const std::string& why) { return fail(Errc::invalid_argument, "cannot read " + in_quotes(name) + ": " + why); };
  const auto failed_errno = [&] { return failed(std::error_code(errno, std::system_category()).message()); };
  struct stat about {};
  if (descriptor < 0 || ::fstat(descriptor, &about) != 0) return failed_errno();
  if (S_ISFIFO(about.st_mode)) return failed("it is a pipe, which cannot be read again, by a reload or another unetd: write it to a file");
  if (!S_ISREG(about.st_mode)) return failed("it is not a regular file");
  std::string text;
  std::array<char, 64 * 1024> part;
  ssize_t n = 0;
  while ((n = ::pread(descriptor, part.data(), part.size(), static_cast<off_t>(text.size()))) > 0) {
    text.append(part.data(), static_cast<size_t>(n));
    if (text.size() > kFileMax) return fail(Errc::invalid_argument, in_quotes(name) + " is longer than 1 MiB");
  }
  if (n < 0) return failed_errno();
  return text;
}

Result<toml::table> parse_toml(std::string_view text, const std::string& file) {
  try {
    return toml::parse(text, std::string_view(file));
  } catch (const toml::parse_error& error) {
    return fail(Errc::invalid_argument, place(file, error.source()) + "not TOML: " + std::string(error.description()));
  }
}

std::optional<uint64_t> parse_bytes(std::string_view text) {
  uint64_t value = 0;
  size_t digits = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') {
    if (digits == 15) return std::nullopt;
    value = value * 10 + static_cast<uint64_t>(text[digits] - '0');
    ++digits;
  }
  if (digits == 0) return std::nullopt;
  const std::string_view unit = text.substr(digits);
  unsigned shift = 0;
  if (unit == "K" || unit == "KiB") shift = 10;
  else if (unit == "M" || unit == "MiB") shift = 20;
  else if (unit == "G" || unit == "GiB") shift = 30;
  else if (!unit.empty()) return std::nullopt;
  if (value > (~uint64_t{0} >> shift)) return std::nullopt;
  return value << shift;
}

void TomlReader::set_error(const toml::source_region& at, const std::string& text) {
  if (!error_) error_ = Error{Errc::invalid_argument, place(file_, at) + text};
}

void TomlReader::wrong(std::string_view key, const std::string& text) {
  const toml::node* node = table_.get(key);
  set_error(node != nullptr ? node->source() : table_.source(), text);
}

Status TomlReader::status() const {
  if (error_) return tl::unexpected(*error_);
  return {};
}

void TomlReader::allow(std::initializer_list<std::string_view> keys) {
  std::string allowed;
  for (const std::string_view key : keys) allowed += (allowed.empty() ? "" : ", ") + std::string(key);
  for (const auto& [key, node] : table_) {
    bool known = false;
    for (const std::string_view k : keys) known = known || key.str() == k;
    if (!known) set_error(node.source(), "unknown key " + in_quotes(key.str()) + " in " + where_ + "; allowed: " + allowed);
  }
}

uint64_t TomlReader::number(std::string_view key, uint64_t otherwise, uint64_t least, uint64_t most) {
  const toml::node* node = table_.get(key);
  if (node == nullptr) return otherwise;
  const auto* value = node->as_integer();
  if (value == nullptr || value->get() < 0 || static_cast<uint64_t>(value->get()) < least ||
      static_cast<uint64_t>(value->get()) > most) {
    wrong(key, std::string(key) + " must be a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    return otherwise;
  }
  return static_cast<uint64_t>(value->get());
}

std::string TomlReader::text(std::string_view key, std::string otherwise) {
  const toml::node* node = table_.get(key);
  if (node == nullptr) return otherwise;
  const auto* value = node->as_string();
  if (value == nullptr || value->get().empty()) {
    wrong(key, std::string(key) + " must be a text in quotes, not empty");
    return otherwise;
  }
  return value->get();
}

bool TomlReader::boolean(std::string_view key, bool otherwise) {
  const toml::node* node = table_.get(key);
  if (node == nullptr) return otherwise;
  const auto* value = node->as_boolean();
  if (value == nullptr) {
    wrong(key, std::string(key) + " must be true or false");
    return otherwise;
  }
  return value->get();
}

uint64_t TomlReader::bytes(std::string_view key, uint64_t otherwise, uint64_t most) {
  const toml::node* node = table_.get(key);
  if (node == nullptr) return otherwise;
  std::optional<uint64_t> value;
  if (const auto* n = node->as_integer(); n != nullptr && n->get() >= 0) value = static_cast<uint64_t>(n->get());
  if (const auto* t = node->as_string(); t != nullptr) value = parse_bytes(t->get());
  if (!value || *value > most) {
    wrong(key, std::string(key) + " must be a number of bytes or a text like \"64K\", \"256M\", \"2G\", at most " +
                   std::to_string(most));
    return otherwise;
  }
  return *value;
}

std::vector<std::string> TomlReader::texts(std::string_view key, std::vector<std::string> otherwise) {
  const toml::node* node = table_.get(key);
  if (node == nullptr) return otherwise;
  const toml::array* array = node->as_array();
  std::vector<std::string> out;
  if (array != nullptr) {
    for (const toml::node& element : *array) {
      const auto* value = element.as_string();
      if (value == nullptr || value->get().empty()) {
        set_error(element.source(), std::string(key) + " must be a list of texts: [\"one\", \"two\"]");
        return otherwise;
      }
      out.push_back(value->get());
    }
    return out;
  }
  wrong(key, std::string(key) + " must be a list of texts: [\"one\", \"two\"]");
  return otherwise;
}

std::vector<uint32_t> TomlReader::numbers(std::string_view key, std::vector<uint32_t> otherwise, uint32_t most) {
  const toml::node* const node = table_.get(key);
  if (node == nullptr) return otherwise;
  const std::string allowed = std::string(key) + " must be a number from 0 to " + std::to_string(most) + " or a list of such: [0, 1]";
  std::vector<uint32_t> values;
  const auto take = [&](const toml::node& element) {
    const auto value = element.value_exact<int64_t>();
    if (!value || *value < 0 || *value > int64_t{most}) return set_error(element.source(), allowed);
    values.push_back(static_cast<uint32_t>(*value));
  };
  if (const toml::array* const list = node->as_array()) {
    for (const toml::node& element : *list) take(element);
  } else {
    take(*node);
  }
  return values;
}

std::vector<const toml::table*> TomlReader::tables(std::string_view key) {
  std::vector<const toml::table*> out;
  const toml::node* node = table_.get(key);
  if (node == nullptr) return out;
  const toml::array* array = node->as_array();
  if (array != nullptr) {
    for (const toml::node& element : *array) {
      if (element.as_table() != nullptr) out.push_back(element.as_table());
    }
  }
  if (array == nullptr || out.size() != array->size()) {
    wrong(key, "write [[" + std::string(key) + "]], once for each " + std::string(key));
  }
  return out;
}

}  // namespace unet::service
