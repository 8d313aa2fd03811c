// job_directory.cc - writes files that did not exist, and compares their check sums.
#include "apps/unet-agent/job_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

namespace unet::agent {
namespace {

// Opens a directory that is no link, after it has got the mode that a removal needs.
Descriptor open_directory(int parent, const char* name) noexcept {
  static_cast<void>(fchmodat(parent, name, 0700, 0));
  return Descriptor(openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

// Removes the files of a directory, and returns the names of its directories.
std::vector<std::string> remove_files(int directory) {
  std::vector<std::string> directories;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(fdopendir(openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), closedir);
  while (const dirent* const entry = entries ? readdir(entries.get()) : nullptr) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != ".." && unlinkat(directory, entry->d_name, 0) != 0) directories.emplace_back(name);
  }
  return directories;
}

}  // namespace

// Moves the directories of each directory to the top, and removes it then.
void remove_directory(const std::string& path) noexcept {
  const Descriptor top = open_directory(AT_FDCWD, path.c_str());
  uint64_t moved = 0;
  for (bool progress = top.valid(); progress;) {
    progress = false;
    for (const std::string& name : remove_files(top.get())) {
      const Descriptor directory = open_directory(top.get(), name.c_str());
      if (!directory.valid()) continue;
      for (const std::string& below : remove_files(directory.get())) {
        static_cast<void>(fchmodat(directory.get(), below.c_str(), 0700, 0));  // the kernel changes its parent in it
        std::string to;
        do {
          to = "unet-removed-" + std::to_string(++moved);
        } while (renameat(directory.get(), below.c_str(), top.get(), to.c_str()) != 0 && (errno == ENOTEMPTY || errno == EEXIST));
      }
      progress |= unlinkat(top.get(), name.c_str(), AT_REMOVEDIR) == 0;
    }
  }
  ::remove(path.c_str());
}

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
  if (!path_.empty()) remove_directory(path_);
}

}  // namespace unet::agent
