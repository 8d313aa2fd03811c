// openings.h - the translations that have no channel yet; used by Endpoint.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "am/admission.h"
#include "am/handler.h"
#include "am/tag_rule.h"
#include "unet/layer_endpoint.h"

namespace unet::am {

struct Opening {
  Index index;
  Tag tag;
  std::string target;
  ConnectOptions options;
  std::optional<PendingId> pending;  // the id of the connect that is under way
  std::optional<Error> failed;       // the error that the next request or map() reports
};

class Openings {
 public:
  Openings(LayerEndpoint& endpoint, const Admission& admission) noexcept : endpoint_(endpoint), admission_(admission) {}
  Openings(const Openings&) = delete;
  Openings& operator=(const Openings&) = delete;

  bool empty() const noexcept { return openings_.empty(); }
  // Returns nullptr if there is none. Valid until the next add(), cancel() or take_open().
  Opening* find(Index index) noexcept;
  bool has(Index index) const noexcept { return const_cast<Openings*>(this)->find(index) != nullptr; }
  // Returns whether one of them may lead to an endpoint of this name.
  bool lead_to(std::string_view name) const noexcept;
  static bool is_target(std::string_view target, std::string_view name) noexcept {
    return !name.empty() && target.substr(0, target.find('@')) == name;
  }

  // Begins to connect, and adds the opening.
  Status add(Opening opening);
  // Begins to connect again.
  Status begin(Opening& opening);
  void cancel(Index index) noexcept;

  struct Opened {
    Opening opening;
    Channel channel;
  };
  // Removes and returns an opening that has its channel now. Those that fail get Opening::failed, and stay for the next request.
  std::optional<Opened> take_open();

 private:
  std::optional<Channel> poll(Opening& opening);

  LayerEndpoint& endpoint_;
  const Admission& admission_;
  std::vector<Opening> openings_;
};

}  // namespace unet::am
