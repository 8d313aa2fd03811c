// am_links.cc - maps targets, sends records as requests, and stores arrivals until poll() gives them to the owner.
#include "am/rpc/task/am_links.h"

#include <unistd.h>

#include <algorithm>

namespace unet::rpc {
namespace {

constexpr Nanoseconds kConnectTime = 4 * kSecond;
constexpr Nanoseconds kNap = kMillisecond;  // no event says that a link has room again
constexpr uint32_t kWords = 5;  // key (2), type, a, b

TaskFailure failure_of(const Error& error) {
  switch (error.code) {
    case Errc::not_permitted: return {Reason::not_permitted, error.text};
    case Errc::refused: return {Reason::not_permitted, "its agent accepts no channel from here: its policy does not name this host"};
    default: return {Reason::unreachable, error.text};
  }
}

}  // namespace

Result<std::unique_ptr<AmLinks>> AmLinks::create(Context& context, const std::string& name, uint64_t secret, LinkOwner& owner) {
  std::unique_ptr<AmLinks> links(new AmLinks(secret, owner));
  const am::Options options{.endpoint = {.send_depth = 256, .receive_depth = 512, .buffers = 512, .send_bytes = 1024 * 1024},
                            .admit = admit,
                            .admit_context = links.get(),
                            .both_ways = true};
  auto endpoint = am::Endpoint::create(context, options);
  if (!endpoint) return tl::unexpected(endpoint.error());
  links->endpoint_ = std::move(*endpoint);
  links->endpoint_->set_handler(kHandler, arrive, links.get());
  links->endpoint_->set_error_handler(come_back, links.get());
  if (secret != 0) links->endpoint_->require_tag_bits(secret, ~am::Tag{0});
  if (name.empty()) return links;
  if (const Status bound = links->endpoint_->bind(name); !bound) return tl::unexpected(bound.error());
  return links;
}

bool AmLinks::admit(const ConnectionRequest& request, void* self) {
  if (request.peer_uid != -1 && request.peer_pid == ::getpid()) return false;  // a caller may not make this agent its own caller
  return static_cast<AmLinks*>(self)->owner_.admits(request.peer_uid == -1 ? request.peer : std::string(), request.peer_uid);
}

// ---- links

uint32_t AmLinks::add(Link link) {
  const auto free = std::find_if(links_.begin(), links_.end(), [](const Link& each) { return !each.used; });
  const auto index = static_cast<uint32_t>(free - links_.begin());
  if (free == links_.end()) links_.emplace_back();
  links_[index] = std::move(link);
  links_[index].users = 1;
  links_[index].used = true;
  return index;
}

Links::Id AmLinks::open(const std::string& target) {
  for (uint32_t index = 0; index < links_.size(); ++index) {
    Link& link = links_[index];
    if (!link.used || link.target != target || link.lost || (endpoint_->is_mapped(index) && !endpoint_->is_open(index))) continue;
    ++link.users;
    return Id{index};
  }
  const uint32_t index = add({.target = target});
  if (const Status begun = endpoint_->start_map(index, target, tag_, {.timeout = kConnectTime}); !begun) {
    failures_.emplace_back(index, failure_of(begun.error()));
  }
  return Id{index};
}

Links::Id AmLinks::open_back(uint64_t source) {
  const auto found = std::find_if(links_.begin(), links_.end(), [source](const Link& link) { return link.used && link.source == source; });
  if (found != links_.end()) {
    ++found->users;
    return Id{static_cast<uint32_t>(found - links_.begin())};
  }
  const uint32_t index = add({.source = source});
  const auto tag = tags_.find(source);
  if (!endpoint_->map_back(index, source, tag == tags_.end() ? am::kAnyTag : tag->second)) {
    failures_.emplace_back(index, TaskFailure{Reason::lost, "the caller has ended"});
  }
  return Id{index};
}

void AmLinks::close(Id id) {
  Link& link = links_[static_cast<uint32_t>(id)];
  --link.users;
  link.idle_at = 0;
}

bool AmLinks::send(Id id, uint64_t key, const TaskRecord& record) {
  const auto index = static_cast<uint32_t>(id);
  const am::Words words(key, static_cast<uint32_t>(record.type), record.a, record.b);
  if (!endpoint_->is_open(index)) return false;
  const am::Outcome outcome = endpoint_->request_now(index, kHandler, record.payload, words);
  blocked_ = blocked_ || outcome == am::Outcome::not_sent;
  return outcome == am::Outcome::sent;
}

// ---- arrivals

// A peer can have no more here than its credits allow.
void AmLinks::arrive(am::Token& token, void* self) {
  if (token.arguments().size() != kWords) return;
  const uint32_t type = token.argument(2);
  if (type == 0 || type > kRecordTypeMax || token.payload().size() > kRecordMax) return;
  Arrival arrival;
  arrival.from = {.source = token.source(), .host = std::string(token.source_host()), .user = token.source_user()};
  arrival.key = token.wide(0);
  arrival.record = {.type = static_cast<RecordType>(type), .a = token.argument(3), .b = token.argument(4)};
  arrival.bytes.assign(token.payload().begin(), token.payload().end());
  AmLinks& links = *static_cast<AmLinks*>(self);
  links.tags_[arrival.from.source] = token.tag();
  if (links.tags_.size() > kTagsMax) links.tags_.erase(links.tags_.begin());  // the caller that came first
  links.arrived_.push_back(std::move(arrival));
}

void AmLinks::come_back(am::Endpoint&, const am::Returned& returned, void* self) {
  if (returned.index == am::kNoIndex) return;
  const bool secret = returned.status == am::ReturnStatus::bad_tag;
  static_cast<AmLinks*>(self)->failures_.emplace_back(
      returned.index, secret ? TaskFailure{Reason::not_permitted, "its agent wants another secret"}
                             : TaskFailure{Reason::lost, "its agent has ended, or its network interface is lost"});
}

void AmLinks::lose(uint32_t index, const TaskFailure& why) {
  if (index >= links_.size() || !links_[index].used || links_[index].lost) return;
  links_[index].lost = true;
  if (links_[index].users != 0) owner_.lost(Id{index}, why);
}

// A channel that could not be opened is no work for the endpoint.
bool AmLinks::arm(Nanoseconds& limit) {
  if (blocked_) limit = std::min(limit, kNap);
  if (!endpoint_->arm(limit) || !arrived_.empty() || !failures_.empty()) return false;
  for (uint32_t index = 0; index < links_.size(); ++index) {
    const Link& link = links_[index];
    if (link.users != 0 && !link.lost && endpoint_->map_failure(index) != nullptr) return false;
  }
  return true;
}

void AmLinks::poll(Nanoseconds now) {
  blocked_ = false;
  endpoint_->poll();
  for (const Arrival& arrival : std::exchange(arrived_, {})) {
    TaskRecord record = arrival.record;
    record.payload = arrival.bytes;
    owner_.receive(arrival.from, arrival.key, record);
  }
  for (const auto& [index, why] : std::exchange(failures_, {})) lose(index, why);
  for (uint32_t index = 0; index < links_.size(); ++index) {
    Link& link = links_[index];
    if (!link.used) continue;
    if (endpoint_->is_mapped(index)) {
      if (!endpoint_->is_open(index)) lose(index, {Reason::lost, "its agent has ended, or its network interface is lost"});
    } else if (const Error* const error = endpoint_->map_failure(index)) {
      lose(index, failure_of(*error));
    }
    if (link.users != 0) continue;
    if (link.idle_at == 0) link.idle_at = now;
    if (!link.lost && (link.source != 0 || now < link.idle_at + kIdleMax)) continue;
    if (endpoint_->in_use(index)) static_cast<void>(endpoint_->unmap(index));
    link = {};
  }
}

}  // namespace unet::rpc
