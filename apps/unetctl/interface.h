// interface.h - what unetctl asks of a network interface.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "unet/base/result.h"
#include "unet/context.h"

namespace unet::unetctl {

// A connection for reports, kept between them.
class Interface {
 public:
  // Errors: unavailable (nobody listens at `socket`), not_permitted, protocol (another release).
  static Result<Interface> open(const std::string& socket);

  // What this user may see, now.
  Result<nlohmann::json> report();

 private:
  explicit Interface(Context context) : context_(std::move(context)) {}
  Context context_;
};

// The NI at `socket` reads its policy file again. Errors: not_permitted, or what is wrong with the file.
Status reload_policy(const std::string& socket);

// From now on the NI takes no new endpoints, names and channels, or takes them again. Errors: not_permitted.
Status drain(const std::string& socket, bool on);

// Another unetd takes over: `program`, or the one that was started if that is empty. Errors: not_permitted, unavailable (no supervisor, or
// the new one does not come up; the old one goes on).
Status upgrade(const std::string& socket, const std::string& program);

}  // namespace unet::unetctl
