// task_secret.cc - reads and hashes the secret.
#include "apps/task_secret.h"

#include <sys/random.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "unet/base/keyed_hash.h"

namespace unet::apps {
namespace {

constexpr size_t kLeast = 16, kMost = 64;  // bytes
constexpr HashKey kKey{0x756e65742d746173, 0x6b20736563726574};  // only a constant: the secret is in the words

}  // namespace

Result<uint64_t> read_task_secret(const std::string& file) {
  struct stat found {};
  if (stat(file.c_str(), &found) != 0) return fail_errno("stat(" + file + ")", errno);
  if ((found.st_mode & 077) != 0) return fail(Errc::invalid_argument, file + ": other users may read the secret: chmod 600 " + file);
  std::ifstream from(file);
  std::string line;
  std::getline(from, line);
  if (line.size() < kLeast || line.size() > kMost) {
    return fail(Errc::invalid_argument, file + ": the first line has to have 16 to 64 characters, such as those of: openssl rand -hex 16");
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
