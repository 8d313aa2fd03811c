// journal.h - a network interface's end of its journal: what it writes down so that the next one can go on; used by Service and Ni.
//
// Nothing leaves for a client before it counts in the journal, and no request is taken from a client's socket before what came of it
// has left (Service::commit_poll). So whenever the network interface is stopped, the one after it finds all of a request or nothing of it.
#pragma once

#include <sys/types.h>

#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ni/service/journal_link.h"
#include "unet/limits.h"

namespace unet::service {

// Of one journal.
constexpr size_t kJournalRecordsMax = 1u << 20;
// Records that clients ask for get a quarter at most. Each of them may bring one more for a connect that is under way, and two for packets
// that a client has not read.
constexpr size_t kJournalRecordsAsked = kJournalRecordsMax / 4;
// So a user with the largest quotas that there are can have them.
static_assert(kJournalRecordsAsked >= 3 * kClientsMax + 4 * kEndpointsMax + kEmulatedMax + kChannelsMax + kIpClaimsMax);

// What the supervisor is told of us, and bounds of what clients ask for.
struct JournalOptions {
  uid_t user = 0;               // the owner of the network interface
  std::string listening_at;
  size_t descriptors_max = 0;   // files that the supervisor and we may have open; 0: our own limit, which is the supervisor's, too
  size_t records_max = kJournalRecordsAsked;
};

class Journal {
 public:
  // `socket` leads to the supervisor.
  static Result<std::unique_ptr<Journal>> open(Descriptor socket, const JournalOptions& options = {});

  // Waits until the network interface before this one has gone, and takes what it had; nothing if this is the first. Once.
  // Errors: disconnected (the supervisor is gone), protocol.
  Status inherit();
  std::vector<JournalItem> take_inherited() noexcept { return std::move(inherited_); }
  bool resumes() const noexcept { return resumes_; }
  // A descriptor of a record that was inherited and not taken yet; -1 if there is none.
  int inherited_descriptor(JournalKind kind, size_t index) const noexcept;

  template <typename T>
  void put(JournalKind kind, uint32_t a, uint64_t b, const T& value, std::initializer_list<int> descriptors = {}) {
    static_assert(std::is_trivially_copyable_v<T>);
    put_bytes({kind, a, b}, as_bytes(&value, sizeof value), {descriptors.begin(), descriptors.size()});
  }
  void put_bytes(const JournalKey& key, Bytes value, std::span<const int> descriptors);
  void erase(JournalKind kind, uint32_t a, uint64_t b = 0);
  void order(JournalOp op, std::string_view text = {});
  // From here on all of that counts.
  void commit();

  // Something was written since the last commit().
  bool pending() const noexcept { return uncommitted_; }

  // The supervisor has room for so many more descriptors, and so has the next NI. Those of answers are soon given back: they may take
  // some more than what stays.
  bool has_room(size_t descriptors, bool soon_given_back = false) const noexcept {
    return held_ + descriptors <= (soon_given_back ? descriptors_max_ : descriptors_max_ - kForAnswers);
  }
  size_t descriptors_max() const noexcept { return descriptors_max_ - kForAnswers; }
  // Likewise, for another few records.
  bool has_room_for_records() const noexcept { return holds_.size() + kRecordsAtOnce <= records_max_; }
  size_t records_max() const noexcept { return records_max_; }

  // What the supervisor wants: release or refused.
  std::optional<JournalItem> next_order();
  // The supervisor is gone: nothing is kept any longer.
  bool lost() const noexcept { return lost_; }
  // Readable when there is an order, or when the supervisor is gone.
  int descriptor() const noexcept { return link_.descriptor(); }

 private:
  static constexpr size_t kForOthers = 96;   // open files of a supervisor, and of a network interface, that are in no journal
  static constexpr size_t kForAnswers = 32;
  static constexpr size_t kRecordsAtOnce = 4;  // of an endpoint
  explicit Journal(Descriptor socket) noexcept : link_(std::move(socket)) {}
  void record_put(const JournalKey& key, size_t descriptors);
  void check(const Status& status) noexcept { lost_ = lost_ || !status; }

  JournalLink link_;
  std::vector<JournalItem> inherited_;
  std::vector<JournalItem> orders_;
  std::map<JournalKey, size_t> holds_;  // how many descriptors each record has
  size_t held_ = 0;                     // all of those
  size_t descriptors_max_ = 0;
  size_t records_max_ = 0;
  bool resumes_ = false;
  bool uncommitted_ = false;
  bool lost_ = false;
};

}  // namespace unet::service
