// job_directory.h - the private directory of a job, and the files that the launcher brings into it; used by Runner.
#pragma once

#include <string>

#include "apps/unet-agent/runner.h"
#include "unet/base/bytes.h"
#include "unet/base/crc32c.h"
#include "unet/base/result.h"

namespace unet::agent {

// Removes a directory with all in it, also directories with modes that forbid their owner to do so. Needs few descriptors and little stack,
// however deep they are.
void remove_directory(const std::string& path) noexcept;

class JobDirectory {
 public:
  explicit JobDirectory(const RunnerOptions& options) : options_(options) {}

  // Makes it with mode 0700, unless the job brings no file and the tasks have another directory.
  Status make();
  // Takes the next bytes of the files (rpc::RecordType::data). Errors: those of the file system, and a wrong check sum.
  Status write(Bytes bytes);
  bool complete() const noexcept { return file_ == options_.job.files.size(); }
  void remove() noexcept;
  // Empty: there is none.
  const std::string& path() const noexcept { return path_; }

 private:
  Status open_next();

  const RunnerOptions& options_;
  std::string path_;
  size_t file_ = 0;             // the one that is written
  Descriptor open_;
  uint64_t written_ = 0;        // bytes of it
  uint32_t crc_ = kCrc32cStart;
  std::string sum_;             // what has come of its check sum
};

}  // namespace unet::agent
