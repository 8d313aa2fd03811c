// journal.h - a network interface's end of its journal, which has the state that the next NI needs; used by Service and Ni.
//
// No packet leaves for a client before the journal has it, and no request is taken from a client's socket before its answers have left
// (Service::commit_poll). Whenever the network interface is stopped, the next one finds all of a request or nothing of it.
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

// The most records of one journal.
constexpr size_t kJournalRecordsMax = 1u << 20;
// Clients' requests may make a quarter of the records. Each of these may add one record for a connect under way, and two for packets that a
// client has not read.
constexpr size_t kJournalRecordsAsked = kJournalRecordsMax / 4;
// A user with the largest possible quotas can have all of them.
static_assert(kJournalRecordsAsked >= 3 * kClientsMax + 4 * kEndpointsMax + kEmulatedMax + kChannelsMax + kIpClaimsMax);

// The NI's owner and socket, for the supervisor, and the limits for what clients may ask for.
struct JournalOptions {
  uid_t user = 0;               // the owner of the network interface
  std::string listening_at;
  size_t descriptors_max = 0;   // open files of the supervisor and of this NI; 0: this process's limit, which is the supervisor's, too
  size_t records_max = kJournalRecordsAsked;
};

class Journal {
 public:
  // `socket` leads to the supervisor.
  static Result<std::unique_ptr<Journal>> open(Descriptor socket, const JournalOptions& options = {});

  // Waits until the previous NI has ended, and receives its records; there are none for the first NI. Call it once. Errors: disconnected
  // (the supervisor is gone), protocol.
  Status inherit();
  std::vector<JournalItem> take_inherited() noexcept { return std::move(inherited_); }
  bool resumes() const noexcept { return resumes_; }
  // A descriptor of an inherited record, before take_inherited(); -1 if there is none.
  int inherited_descriptor(JournalKind kind, size_t index) const noexcept;

  template <typename T>
  void put(JournalKind kind, uint32_t a, uint64_t b, const T& value, std::initializer_list<int> descriptors = {}) {
    static_assert(std::is_trivially_copyable_v<T>);
    put_bytes({kind, a, b}, as_bytes(&value, sizeof value), {descriptors.begin(), descriptors.size()});
  }
  void put_bytes(const JournalKey& key, Bytes value, std::span<const int> descriptors);
  void erase(JournalKind kind, uint32_t a, uint64_t b = 0);
  void order(JournalOp op, std::string_view text = {});
  // Ends the step: all changes since the last commit() take effect together.
  void commit();

  // Whether changes were written since the last commit().
  bool pending() const noexcept { return uncommitted_; }

  // Whether the supervisor and the next NI have room for so many more descriptors. Descriptors of answers are soon closed
  // (`soon_given_back`), so they may use some that others may not.
  bool has_room(size_t descriptors, bool soon_given_back = false) const noexcept {
    return held_ + descriptors <= (soon_given_back ? descriptors_max_ : descriptors_max_ - kForAnswers);
  }
  size_t descriptors_max() const noexcept { return descriptors_max_ - kForAnswers; }
  // Whether the journal has room for the records of another request.
  bool has_room_for_records() const noexcept { return holds_.size() + kRecordsAtOnce <= records_max_; }
  size_t records_max() const noexcept { return records_max_; }

  // The next order of the supervisor: release or refused.
  std::optional<JournalItem> next_order();
  // The supervisor is gone, and nothing is recorded any longer.
  bool lost() const noexcept { return lost_; }
  // Readable when there is an order, or when the supervisor is gone.
  int descriptor() const noexcept { return link_.descriptor(); }

 private:
  static constexpr size_t kForOthers = 96;   // open files of a supervisor and of a network interface outside of the journal
  static constexpr size_t kForAnswers = 32;
  static constexpr size_t kRecordsAtOnce = 4;  // most records that one request makes
  explicit Journal(Descriptor socket) noexcept : link_(std::move(socket)) {}
  void record_put(const JournalKey& key, size_t descriptors);
  void check(const Status& status) noexcept { lost_ = lost_ || !status; }

  JournalLink link_;
  std::vector<JournalItem> inherited_;
  std::vector<JournalItem> orders_;
  std::map<JournalKey, size_t> holds_;  // number of descriptors of each record
  size_t held_ = 0;                     // sum of holds_
  size_t descriptors_max_ = 0;
  size_t records_max_ = 0;
  bool resumes_ = false;
  bool uncommitted_ = false;
  bool lost_ = false;
};

}  // namespace unet::service
