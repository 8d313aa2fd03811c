// report.cc - one line per event. On a terminal progress overwrites its line.
#include "apps/unetcat/report.h"

#include <unistd.h>

#include <cinttypes>
#include <cstdio>

namespace unet::unetcat {

Report::Report(const Transfer& transfer, const Options& options)
    : transfer_(transfer), options_(options), terminal_(::isatty(STDERR_FILENO) != 0) {}

void Report::begin() {
  told_peer_ = told_progress_ = false;
  due_ = kNever;
  bytes_ = 0;
  if (options_.verbose) std::fprintf(stderr, "unetcat: %s %s\n", options_.listen ? "listening at" : "calling", options_.name.c_str());
}

void Report::look() {
  if (!options_.verbose || !transfer_.open()) return;
  if (!told_peer_) {
    told_peer_ = true;
    due_ = transfer_.began() + kSecond;
    std::fprintf(stderr, "unetcat: connected to %s\n", transfer_.peer().c_str());
  }
  if (monotonic_now() < due_) return;
  due_ += kSecond;
  print_progress(terminal_ ? "\r" : "\n");
  told_progress_ = true;
}

void Report::print_progress(const char* end) {
  const uint64_t bytes = transfer_.sent().count() + transfer_.received().count();
  std::fprintf(stderr, "unetcat: %" PRIu64 " bytes sent, %" PRIu64 " received, %.1f MB/s%s", transfer_.sent().count(),
               transfer_.received().count(), static_cast<double>(bytes - bytes_) / 1e6, end);
  bytes_ = bytes;
}

bool Report::end() {
  if (told_progress_ && terminal_) std::fputc('\n', stderr);
  if (!transfer_.failure().empty()) {
    std::fprintf(stderr, "unetcat: %s\n", transfer_.failure().c_str());
    return false;
  }
  if (options_.hash) {
    std::fprintf(stderr, "unetcat: sent crc32c %08x, received crc32c %08x\n", transfer_.sent().crc32c(), transfer_.received().crc32c());
  }
  if (options_.verbose) {
    const double time = static_cast<double>(monotonic_now() - transfer_.began()) / 1e9;
    const uint64_t bytes = transfer_.sent().count() + transfer_.received().count();
    std::fprintf(stderr, "unetcat: %" PRIu64 " bytes sent, %" PRIu64 " received in %.3f s, %.1f MB/s\n", transfer_.sent().count(),
                 transfer_.received().count(), time, static_cast<double>(bytes) / 1e6 / time);
  }
  return true;
}

}  // namespace unet::unetcat
