// journal.cc - sends records to the supervisor, and receives those of the previous NI.
#include "ni/service/journal.h"

#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "unet/version.h"

namespace unet::service {

Result<std::unique_ptr<Journal>> Journal::open(Descriptor socket, const JournalOptions& options) {
  std::unique_ptr<Journal> journal(new Journal(std::move(socket)));
  rlimit limit{};
  size_t descriptors_max = options.descriptors_max;
  if (descriptors_max == 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0) descriptors_max = limit.rlim_cur;
  journal->descriptors_max_ = std::max(descriptors_max, 2 * kForOthers) - kForOthers;
  journal->records_max_ = options.records_max;
  JournalHello hello{.format = kJournalFormat, .user = options.user, .version = {}, .socket = {}};
  std::snprintf(hello.version, sizeof hello.version, "%s", unet_version());
  std::snprintf(hello.socket, sizeof hello.socket, "%s", options.listening_at.c_str());
  Status status = journal->link_.add(JournalOp::hello, {}, as_bytes(&hello, sizeof hello));
  if (status) status = journal->link_.send(true);
  if (!status) return tl::unexpected(status.error());
  return journal;
}

Status Journal::inherit() {
  for (bool last = false; !last;) {
    switch (link_.receive(inherited_, last)) {
      case JournalLink::Received::items:
        break;
      case JournalLink::Received::nothing: {
        pollfd wanted{.fd = link_.descriptor(), .events = POLLIN, .revents = 0};
        if (::poll(&wanted, 1, -1) < 0 && errno != EINTR) return fail_errno("poll", errno);
        break;
      }
      case JournalLink::Received::closed:
        return fail(Errc::disconnected, "the supervisor is gone");
      case JournalLink::Received::broken:
        return fail(Errc::protocol, "the supervisor sent something that is no journal");
    }
  }
  for (const JournalItem& item : inherited_) {
    if (item.op != JournalOp::put) return fail(Errc::protocol, "the supervisor sent an order with the journal");
    record_put(item.key, item.descriptors.size());
  }
  resumes_ = !inherited_.empty();
  return {};
}

int Journal::inherited_descriptor(JournalKind kind, size_t index) const noexcept {
  for (const JournalItem& item : inherited_) {
    if (item.key.kind == kind && index < item.descriptors.size()) return item.descriptors[index].get();
  }
  return -1;
}

void Journal::record_put(const JournalKey& key, size_t descriptors) {
  size_t& known = holds_[key];
  held_ += descriptors - known;
  known = descriptors;
}

void Journal::put_bytes(const JournalKey& key, Bytes value, std::span<const int> descriptors) {
  uncommitted_ = true;
  record_put(key, descriptors.size());
  check(link_.add(JournalOp::put, key, value, descriptors));
  if (!descriptors.empty()) check(link_.send(false));  // the caller may close them
}

void Journal::erase(JournalKind kind, uint32_t a, uint64_t b) {
  if (const auto at = holds_.find({kind, a, b}); at != holds_.end()) {
    held_ -= at->second;
    holds_.erase(at);
  }
  uncommitted_ = true;
  check(link_.add(JournalOp::erase, {kind, a, b}));
}

void Journal::order(JournalOp op, std::string_view text) {
  uncommitted_ = true;
  check(link_.add(op, {}, as_bytes(text.data(), text.size())));
}

void Journal::commit() {
  uncommitted_ = false;
  check(link_.send(true));
}

std::optional<JournalItem> Journal::next_order() {
  bool last = false;
  if (orders_.empty() && !lost_) {
    const JournalLink::Received received = link_.receive(orders_, last);
    lost_ = received == JournalLink::Received::closed || received == JournalLink::Received::broken;
  }
  if (orders_.empty()) return std::nullopt;
  JournalItem item = std::move(orders_.front());
  orders_.erase(orders_.begin());
  return item;
}

}  // namespace unet::service
