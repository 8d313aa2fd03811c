// task_secret.cc - reads and hashes the secret.
#include "apps/task_secret.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "unet/base/keyed_hash.h"
#include "unet/mapping.h"

namespace unet::apps {
namespace {

constexpr size_t kLeast = 16, kMost = 64;  // bytes
constexpr HashKey kKey{0x756e65742d746173, 0x6b20736563726574};  // only a constant: the secret is in the words

}  // namespace

Result<uint64_t> read_task_secret(const std::string& file) {
  const auto wrong = [&file](const std::string& text) { return fail(Errc::invalid_argument, file + ": " + text); };
  const Descriptor from(open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!from.valid() && errno == ELOOP) return wrong("the secret is a symbolic link: name the file that it leads to");
  if (!from.valid()) return fail_errno("open(" + file + ")", errno);
  struct stat found {};
  if (fstat(from.get(), &found) != 0) return fail_errno("stat(" + file + ")", errno);
  if (!S_ISREG(found.st_mode)) return wrong("the secret is no regular file: write it to one");
  if (found.st_uid != 0 && found.st_uid != geteuid()) {
    return wrong("another user owns the secret: chown " + std::to_string(geteuid()) + ' ' + file);
  }
  if ((found.st_mode & 077) != 0) return wrong("other users may use the secret: chmod 600 " + file);
  std::array<char, kMost + 1> text{};
  const ssize_t size = read(from.get(), text.data(), text.size());
  if (size < 0) return fail_errno("read(" + file + ")", errno);
  std::string_view line(text.data(), static_cast<size_t>(size));
  line = line.substr(0, line.find('\n'));
  if (line.size() < kLeast || line.size() > kMost) {
    return wrong("the first line has to have 16 to 64 characters, such as those of: openssl rand -hex 16");
  }
  std::array<uint64_t, kMost / sizeof(uint64_t)> words{};
  std::memcpy(words.data(), line.data(), line.size());
  return keyed_hash(kKey, words) | 2;  // not 0 and not 1, which are tags with a meaning
}

uint64_t random_key() {
  uint64_t key = 0;
  while (getrandom(&key, sizeof key, 0) != sizeof key) {
  }
  return key;
}

}  // namespace unet::apps
