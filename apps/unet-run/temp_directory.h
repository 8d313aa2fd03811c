// temp_directory.h - a private directory that disappears with this process, however it ends.
#pragma once

#include <sys/types.h>

#include <string>

#include "unet/base/result.h"
#include "unet/mapping.h"

namespace unet::run {

// Made with mode 0700 under $TMPDIR or /tmp. A small child process (the janitor) waits for the end of this process. Then it removes the
// directory with its socket, so that even kill -9 leaves nothing behind.
class TempDirectory {
 public:
  // Forks, so call it before the first thread starts.
  static Result<TempDirectory> create();
  TempDirectory(TempDirectory&&) = default;
  TempDirectory& operator=(TempDirectory&&) = delete;
  ~TempDirectory();  // waits until the janitor has removed the directory

  std::string socket() const { return path_ + "/ni.sock"; }
  pid_t janitor() const noexcept { return janitor_; }

 private:
  TempDirectory(std::string path, Descriptor alive, pid_t janitor)
      : path_(std::move(path)), alive_(std::move(alive)), janitor_(janitor) {}

  std::string path_;
  Descriptor alive_;  // the janitor reads the other end; end of file means that we are gone
  pid_t janitor_;
};

}  // namespace unet::run
