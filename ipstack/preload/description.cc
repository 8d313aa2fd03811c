// description.cc - writes and reads sockets in words: fields with commas between them.
#include "ipstack/preload/description.h"

#include <algorithm>
#include <charconv>

namespace unet::preload {
namespace {

// Takes field after field of a text; not is_good() once one was wrong or missing.
class Fields {
 public:
  explicit Fields(std::string_view text) noexcept : text_(text) {}

  uint64_t number(uint64_t most) {
    const std::string_view field = next();
    uint64_t value = 0;
    const auto [at, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    good_ = good_ && error == std::errc{} && at == field.data() + field.size() && value <= most;
    return good_ ? value : 0;
  }
  // An address of a socket of that domain.
  sockets::Address address(int domain) {
    const auto port = static_cast<uint16_t>(number(UINT16_MAX));
    const std::string_view field = next();
    const auto host = ip::parse_address(field);
    good_ = good_ && host && field.find('\0') == std::string_view::npos;  // behind which parse_address() does not look
    good_ = good_ && (domain == AF_INET6 || host->is_ipv4() || host->is_unspecified());
    return good_ ? sockets::Address{*host, port} : sockets::Address{};
  }
  bool is_good() const noexcept { return good_ && !more_; }

 private:
  std::string_view next() {
    good_ = good_ && more_;
    const size_t end = std::min(text_.find(','), text_.size());
    const std::string_view field = text_.substr(0, end);
    more_ = end < text_.size();
    text_.remove_prefix(more_ ? end + 1 : end);
    return field;
  }

  std::string_view text_;
  bool more_ = true, good_ = true;
};

std::string said(const sockets::Address& address) { return std::to_string(address.port) + "," + ip::text_of(address.host); }

int domain_of(bool is_ipv6) noexcept { return is_ipv6 ? AF_INET6 : AF_INET; }

}  // namespace

std::string describe(const File& file, const File::Inherited& left) {
  std::string text;
  const auto add = [&](uint64_t number) { text += std::to_string(number) + ","; };
  add(file.domain == AF_INET6);
  add(file.is_stream());
  add(file.listens ? static_cast<uint64_t>(std::max(file.backlog, 1)) : 0);
  add(left.group);
  add(file.kernel);
  add(file.nonblocking);
  return text + said(left.local) + "," + said(left.remote);
}

std::unique_ptr<File> read_description(std::string_view text) {
  Fields fields(text);
  const int domain = domain_of(fields.number(1) != 0);
  const bool is_stream = fields.number(1) != 0;
  auto file = std::make_unique<File>(domain, is_stream ? SOCK_STREAM : SOCK_DGRAM);
  file->backlog = static_cast<int>(fields.number(INT32_MAX));
  file->listens = file->backlog != 0;
  file->bound = true;
  const uint64_t group = fields.number(UINT64_MAX);
  file->kernel = fields.number(1) != 0;
  file->nonblocking = fields.number(1) != 0;
  const sockets::Address local = fields.address(domain), remote = fields.address(domain);
  file->inherited = {.listens = file->listens, .backlog = file->backlog, .local = local, .remote = remote, .group = group};
  if (!fields.is_good() || (file->listens && !is_stream)) return nullptr;
  return file;
}

std::string describe_names(const Names& names) {
  return std::string(names.domain == AF_INET6 ? "1," : "0,") + said(names.pair.local) + "," + said(names.pair.remote);
}

std::optional<Names> read_names(std::string_view text) {
  Fields fields(text);
  const int domain = domain_of(fields.number(1) != 0);
  const sockets::Address local = fields.address(domain), remote = fields.address(domain);
  if (!fields.is_good()) return std::nullopt;
  return Names{domain, {local, remote}};
}

}  // namespace unet::preload
