// task_secret_test.cc - files of a secret: the right one, and each wrong one with what to do about it.
#include "apps/task_secret.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include <catch2/catch.hpp>

namespace unet::apps::task_secret_test {
namespace {

class Directory {
 public:
  Directory() { REQUIRE(mkdtemp(path_) != nullptr); }
  ~Directory() {
    unlink(link().c_str());
    unlink(file().c_str());
    rmdir(path_);
  }
  std::string file() const { return std::string(path_) + "/secret"; }
  std::string link() const { return std::string(path_) + "/link"; }
  void write(const std::string& text, mode_t mode = 0600) const {
    std::ofstream(file()) << text;
    REQUIRE(chmod(file().c_str(), mode) == 0);
  }

 private:
  char path_[26] = "/tmp/unet-secret-XXXXXX";
};

void require_refusal(const std::string& file, const std::string& part) {
  const Result<uint64_t> secret = read_task_secret(file);
  REQUIRE_FALSE(secret);
  CHECK_THAT(secret.error().text, Catch::Contains(part));
}

}  // namespace

TEST_CASE("the first line of a file is the secret") {
  const Directory directory;
  directory.write("0123456789abcdef\nmore\n");
  const Result<uint64_t> secret = read_task_secret(directory.file());
  REQUIRE(secret);
  directory.write("0123456789abcdef");
  CHECK(read_task_secret(directory.file()) == *secret);
  directory.write("0123456789abcdeg");
  CHECK(read_task_secret(directory.file()) != *secret);
  directory.write(std::string(64, 'x'), 0400);
  CHECK(read_task_secret(directory.file()));
}

TEST_CASE("a file that is no good secret is refused, with what to do") {
  const Directory directory;
  require_refusal(directory.file(), "No such file");
  require_refusal("/tmp", "no regular file");
  for (const char* const text : {"", "\n0123456789abcdef\n", "0123456789abcde\n"}) {
    directory.write(text);
    require_refusal(directory.file(), "openssl rand -hex 16");
  }
  directory.write(std::string(65, 'x'));
  require_refusal(directory.file(), "16 to 64 characters");
  for (const mode_t mode : {0640, 0602, 0601}) {
    directory.write("0123456789abcdef\n", mode);
    require_refusal(directory.file(), "chmod 600 " + directory.file());
  }
  directory.write("0123456789abcdef\n");
  REQUIRE(symlink(directory.file().c_str(), directory.link().c_str()) == 0);
  require_refusal(directory.link(), "symbolic link");
  if (geteuid() != 0) return;  // only root can give a file away
  REQUIRE(chown(directory.file().c_str(), 1, 1) == 0);
  require_refusal(directory.file(), "chown 0 " + directory.file());
}

}  // namespace unet::apps::task_secret_test
