// names.cc - two maps, by name and by endpoint.
#include "ni/service/names.h"

#include "unet/control.h"

namespace unet::service {

Status Names::bind(std::string_view name, uint32_t endpoint) {
  if (!control::valid_name(name)) return fail(Errc::invalid_argument, name_rule(name));
  if (endpoints_.find(name) != endpoints_.end()) {
    return fail(Errc::already_exists, "the name " + in_quotes(name) + " is bound to another endpoint of this network interface");
  }
  if (const auto has = names_.find(endpoint); has != names_.end()) {
    return fail(Errc::already_exists, "this endpoint is bound to " + in_quotes(has->second) + " already: unbind it first");
  }
  endpoints_.emplace(name, endpoint);
  names_.emplace(endpoint, name);
  return {};
}

std::string Names::unbind(uint32_t endpoint) {
  const auto at = names_.find(endpoint);
  if (at == names_.end()) return {};
  std::string name = std::move(at->second);
  names_.erase(at);
  endpoints_.erase(name);
  return name;
}

std::optional<uint32_t> Names::find(std::string_view name) const {
  const auto at = endpoints_.find(name);
  if (at == endpoints_.end()) return std::nullopt;
  return at->second;
}

std::string_view Names::name_of(uint32_t endpoint) const {
  const auto at = names_.find(endpoint);
  return at == names_.end() ? std::string_view() : std::string_view(at->second);
}

std::string in_quotes(std::string_view text) {
  constexpr size_t kShown = 80;
  std::string out = "'";
  for (const char c : text.substr(0, kShown)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + (text.size() > kShown ? "...'" : "'");
}

std::string name_rule(std::string_view name) {
  return in_quotes(name) + " is not a valid name: 1 to " + std::to_string(kNameMax) +
         " characters of A-Z a-z 0-9 . _ - / are allowed, not beginning with - or /";
}

}  // namespace unet::service
