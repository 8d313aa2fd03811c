// openings.cc - connecting to the targets of translations.
#include "am/openings.h"

#include <algorithm>
#include <utility>

namespace unet::am {

Opening* Openings::find(Index index) noexcept {
  const auto found = std::find_if(openings_.begin(), openings_.end(), [&](const Opening& each) { return each.index == index; });
  return found != openings_.end() ? &*found : nullptr;
}

bool Openings::lead_to(std::string_view name) const noexcept {
  return std::any_of(openings_.begin(), openings_.end(), [&](const Opening& each) { return is_target(each.target, name); });
}

Status Openings::add(Opening opening) {
  if (const Status begun = begin(opening); !begun) return begun;
  openings_.push_back(std::move(opening));
  return {};
}

Status Openings::begin(Opening& opening) {
  const auto pending = endpoint_.start_connect(opening.target, opening.options);
  if (!pending) return tl::unexpected(pending.error());
  opening.pending = *pending;
  return {};
}

void Openings::cancel(Index index) noexcept {
  Opening* const opening = find(index);
  if (opening == nullptr) return;
  if (opening->pending) static_cast<void>(endpoint_.cancel_connect(*opening->pending));
  openings_.erase(openings_.begin() + (opening - openings_.data()));
}

std::optional<Openings::Opened> Openings::take_open() {
  for (Opening& each : openings_) {
    const auto channel = poll(each);
    if (!channel) continue;
    Opened opened{std::move(each), *channel};
    openings_.erase(openings_.begin() + (&each - openings_.data()));
    return opened;
  }
  return std::nullopt;
}

// Returns the channel if it is open now.
std::optional<Channel> Openings::poll(Opening& opening) {
  if (!opening.pending) return std::nullopt;
  auto channel = endpoint_.poll_connect(*opening.pending);
  if (!channel) return std::nullopt;
  opening.pending.reset();
  if (!*channel) {
    opening.failed = std::move(channel->error());
    return std::nullopt;
  }
  if (!admission_.allows(endpoint_.same_user(**channel), endpoint_.over_wire(**channel))) {
    endpoint_.close(**channel);
    opening.failed = {Errc::not_permitted,
                      "the endpoint " + opening.target + " is not of the same user at this network interface; on another host nobody is"};
    return std::nullopt;
  }
  return **channel;
}

}  // namespace unet::am
