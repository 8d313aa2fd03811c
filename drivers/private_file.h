// private_file.h - opens a file for frames, which are private data of users; used by capture, trace, pcap and unetctl.
//
// Root writes such files, and another user may have prepared the path: a link to a third user's file, or a file to read the frames from.
// Links and files of other users are therefore refused. Devices are allowed, because /dev/null stores nothing.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "unet/base/result.h"

namespace unet::drivers {

// A regular file gets mode 0600, and with `replace` is emptied. `flags` are further flags of open(). The caller owns the descriptor.
inline Result<int> open_private_file(const std::string& path, int flags, bool replace) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | flags, 0600);
  const int error = errno;
  if (file < 0 && error == ELOOP) return fail(Errc::not_permitted, path + ": it is a symbolic link: name the file itself");
  if (file < 0 && error == ENXIO) return fail(Errc::unavailable, path + ": this FIFO has no reader: start one first");
  if (file < 0) return fail(Errc::unavailable, path + ": " + std::generic_category().message(error));
  const auto refuse = [&](const char* why) {
    close(file);
    return fail(Errc::not_permitted, path + ": " + why);
  };
  struct stat status{};
  if (fstat(file, &status) != 0) return refuse("its owner is unknown");
  if (S_ISCHR(status.st_mode)) return file;
  if (status.st_uid != geteuid()) return refuse("it belongs to another user, which could read the frames");
  if (!S_ISREG(status.st_mode)) return file;
  if (status.st_nlink > 1) return refuse("the file has a second name (a hard link): remove it, or name a new file");
  if (fchmod(file, 0600) != 0 || (replace && ftruncate(file, 0) != 0)) return refuse("it cannot be emptied, or made private");
  return file;
}

}  // namespace unet::drivers
