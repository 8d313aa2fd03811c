// report.h - the JSON document that unetctl shows: what one user may see of the NI, a part at a time; used by the service.
//
// A report has an entry for each endpoint, channel and name, so one is as long as its user makes it. The service therefore writes it in
// parts of a packet each. A part costs a bounded time, and between two of them the service serves other clients.
// What changes between two parts may be in the report as it was, as it is, or half.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace unet::service {

class Service;

// Which user asks.
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
  uint64_t at_ = 0;            // the section's next entry has this number or a higher one,
  uint64_t within_ = 0;        // and within that this one,
  std::string behind_;         // or follows this name
  std::string text_;           // written, and not returned yet
};

}  // namespace unet::service
