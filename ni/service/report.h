// report.h - the JSON document that unetctl shows, with all that one user may see of the NI; the service writes it a part at a time.
//
// A report has an entry for each endpoint, channel and name, so one is as long as its user makes it. The service therefore writes it in
// parts of a packet each. A part costs a bounded time, and between two of them the service serves other clients. A change between two parts
// may appear in the report not at all, wholly, or half.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace unet::service {

class Service;

// The user that asks.
struct Reader {
  uint64_t owner = 0;  // owner_of()
  uid_t user = 0;
  bool all = false;    // root and the NI's own user see everything
};

class Report {
 public:
  explicit Report(Reader reader) : reader_(reader) {}

  // The next `room` bytes at most. It may be empty before the end.
  std::string next(const Service& service, size_t room);
  bool done() const noexcept { return section_ == kEnd && text_.empty(); }
  // How many next() has returned.
  uint32_t parts() const noexcept { return parts_; }

 private:
  friend class ReportBuilder;
  static constexpr size_t kEnd = ~size_t{0};

  Reader reader_;
  uint32_t parts_ = 0;
  size_t section_ = 0;
  bool begun_ = false;         // the section's list has an entry
  uint64_t at_ = 0;            // the section's next entry is the first with at least this number,
  uint64_t within_ = 0;        // and at least this number within it,
  std::string behind_;         // or the first behind this name
  std::string text_;           // written, and not returned yet
};

}  // namespace unet::service
