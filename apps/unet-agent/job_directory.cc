// job_directory.cc - writes files that did not exist, and compares their check sums.
#include "apps/unet-agent/job_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

namespace unet::agent {

Status JobDirectory::make() {
  if (options_.job.files.empty() && !options_.job.directory.empty()) return {};
  if (mkdir(options_.directory.c_str(), 0700) != 0) return fail_errno("mkdir(" + options_.directory + ")", errno);
  path_ = options_.directory;
  return open_next();
}

Status JobDirectory::open_next() {
  open_.reset();
  written_ = 0;
  crc_ = kCrc32cStart;
  sum_.clear();
  if (complete()) return {};
  const rpc::JobFile& file = options_.job.files[file_];
  const std::string path = path_ + '/' + file.name;
  open_ = Descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, file.executable ? 0700 : 0600));
  if (!open_.valid()) return fail_errno("open(" + path + ")", errno);
  return {};
}

Status JobDirectory::write(Bytes bytes) {
  while (!bytes.empty()) {
    if (complete()) return fail(Errc::protocol, "more bytes came than the files have");
    const rpc::JobFile& file = options_.job.files[file_];
    Bytes part = bytes.first(std::min<uint64_t>(bytes.size(), file.bytes - written_));
    bytes = bytes.subspan(part.size());
    written_ += part.size();
    crc_ = crc32c(crc_, part.data(), part.size());
    while (!part.empty()) {
      const ssize_t size = ::write(open_.get(), part.data(), part.size());
      if (size < 0 && errno == EINTR) continue;
      if (size < 0) return fail_errno("write(" + path_ + '/' + file.name + ")", errno);
      part = part.subspan(static_cast<size_t>(size));
    }
    while (written_ == file.bytes && sum_.size() < sizeof(be32) && !bytes.empty()) {
      sum_.push_back(static_cast<char>(bytes.front()));
      bytes = bytes.subspan(1);
    }
    if (sum_.size() < sizeof(be32)) continue;
    if (read_as<be32>(reinterpret_cast<const std::byte*>(sum_.data())) != ~crc_) {
      return fail(Errc::protocol, "file " + file.name + " came damaged: its check sum is wrong");
    }
    ++file_;
    if (const Status opened = open_next(); !opened) return opened;
  }
  return {};
}

void JobDirectory::remove() noexcept {
  open_.reset();
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace unet::agent
