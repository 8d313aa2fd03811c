// interface.h - unetctl's requests to an NI.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "unet/base/result.h"
#include "unet/context.h"

namespace unet::unetctl {

// A connection that stays open between reports.
class Interface {
 public:
  // Errors: unavailable (no NI listens at `socket`), not_permitted, protocol (another release).
  static Result<Interface> open(const std::string& socket);

  // The parts that this user may see, now.
  Result<nlohmann::json> report();

 private:
  explicit Interface(Context context) : context_(std::move(context)) {}
  Context context_;
};

// The NI at `socket` reads its policy file again. Errors: not_permitted, or the fault in the file.
Status reload_policy(const std::string& socket);

// The NI stops taking new endpoints, names and channels, or takes them again. Errors: not_permitted.
Status drain(const std::string& socket, bool on);

// Another unetd takes over: `program`, or the one that was started if that is empty. Errors: not_permitted, unavailable (no supervisor, or
// the new unetd does not come up; then the old one goes on).
Status upgrade(const std::string& socket, const std::string& program);

}  // namespace unet::unetctl
