// report.h - what unetcat prints on standard error: peers, progress, totals, digests, and why it fails; used by main.cc.
#pragma once

#include "apps/unetcat/options.h"
#include "apps/unetcat/transfer.h"

namespace unet::unetcat {

class Report {
 public:
  Report(const Transfer& transfer, const Options& options);
  void begin();
  // Prints what is due.
  void look();
  // Prints how the transfer ended; returns whether it went well.
  bool end();
  // Returns when look() has to be called next.
  Nanoseconds due() const noexcept { return due_; }

 private:
  void print_progress(const char* end);

  const Transfer& transfer_;
  const Options& options_;
  bool terminal_;
  bool told_peer_ = false, told_progress_ = false;
  Nanoseconds due_ = kNever;
  uint64_t bytes_ = 0;  // when progress was printed last
};

}  // namespace unet::unetcat
