// names.h - the names of this NI's endpoints; used by the service.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "unet/base/result.h"

namespace unet::service {

// An endpoint has at most one name, a name at most one endpoint. The policy says which client may have which name.
class Names {
 public:
  // Errors: invalid_argument (malformed name), already_exists (name or endpoint is bound).
  Status bind(std::string_view name, uint32_t endpoint);

  // The name that the endpoint had; empty if none.
  std::string unbind(uint32_t endpoint);

  std::optional<uint32_t> find(std::string_view name) const;

  // Empty if the endpoint has none. Valid until the next bind() or unbind().
  std::string_view name_of(uint32_t endpoint) const;

  const std::map<std::string, uint32_t, std::less<>>& all() const noexcept { return endpoints_; }

 private:
  std::map<std::string, uint32_t, std::less<>> endpoints_;
  std::map<uint32_t, std::string> names_;
};

// `text` in quotes for an error message: cut at 80 characters, unprintable ones replaced.
std::string in_quotes(std::string_view text);

// An error text that says which names are valid.
std::string name_rule(std::string_view name);

}  // namespace unet::service
