// supervisor_origin.cc - checks and executes files through descriptors, so that a file cannot be exchanged in between.
#include "apps/unetd/supervisor_origin.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "ni/service/memory.h"
#include "ni/service/names.h"
#include "ni/service/toml_reader.h"

namespace unet::unetd {
namespace {

Descriptor another(const Descriptor& descriptor) { return Descriptor(fcntl(descriptor.get(), F_DUPFD_CLOEXEC, 3)); }

}  // namespace

// O_PATH: opening cannot block, and a program need not be readable.
Origin Origin::at(const std::string& path, bool named) {
  Origin origin{.path = path, .file = Descriptor(open(path.c_str(), O_PATH | O_CLOEXEC)), .configuration = {}, .named = named,
                .by_path = !named};
  struct stat st {};
  if (origin.valid() && fstat(origin.file.get(), &st) == 0) {
    origin.device = st.st_dev;
    origin.inode = st.st_ino;
  }
  return origin;
}

Origin Origin::again() const {
  return {.path = path, .file = another(file), .device = device, .inode = inode, .configuration = another(configuration),
          .named = named, .by_path = false};
}

Status Origin::check() const {
  const auto wrong = [&](const std::string& why) {
    return fail(Errc::invalid_argument, service::in_quotes(path) + " is not a program" + why);
  };
  struct stat st {};
  if (path.empty() || path.front() != '/') return wrong(": give its whole path");
  if (!valid() || fstat(file.get(), &st) != 0) return wrong(": it is not there, or not to be reached");
  if (!S_ISREG(st.st_mode)) return wrong(": it is not a regular file");
  if ((st.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH)) == 0) return wrong(": nobody may execute it");
  if (!named) return {};
  if (st.st_uid != 0 && st.st_uid != geteuid()) {
    return wrong(" that the supervisor may run: it belongs to user " + std::to_string(st.st_uid) + ", and neither to root nor to user " +
                 std::to_string(geteuid()) + ", who runs the supervisor");
  }
  if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return wrong(" that the supervisor may run: others than its owner can write it (chmod go-w)");
  }
  return {};
}

void Origin::execute(std::vector<std::string> arguments) const {
  std::vector<char*> pointers;
  for (std::string& each : arguments) pointers.push_back(each.data());
  pointers.push_back(nullptr);
  if (by_path) {
    execv(path.c_str(), pointers.data());
    return;
  }
  execveat(file.get(), "", pointers.data(), environ, AT_EMPTY_PATH);
  if (errno != ENOENT) return;
  // A script's interpreter opens the file again through the same descriptor.
  fcntl(file.get(), F_SETFD, 0);
  execveat(file.get(), "", pointers.data(), environ, AT_EMPTY_PATH);
}

std::string path_of(const std::string& name) {
  std::array<char, 4096> path{};
  if (name.find('/') == std::string::npos) {
    const ssize_t n = readlink("/proc/self/exe", path.data(), path.size() - 1);
    return n > 0 ? std::string(path.data(), static_cast<size_t>(n)) : name;
  }
  if (name[0] == '/' || getcwd(path.data(), path.size()) == nullptr) return name;
  return std::string(path.data()) + "/" + name;
}

Result<Descriptor> copy_of_configuration(const std::string& file) {
  if (file.empty()) return Descriptor();
  const Result<std::string> text = service::read_text_file(file);
  if (!text) return tl::unexpected(text.error());
  return service::create_text("unetd-configuration", *text);
}

}  // namespace unet::unetd
