// journal_sink_test.cc - records as the journal gets them, and when unetd sends them.
#include "apps/unetd/journal_sink.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>

#include <spdlog/spdlog.h>

#include "unet/mapping.h"

namespace unet::unetd::journal_sink_test {
namespace {

// A field as the protocol has it.
std::string field(const std::string& name, const std::string& value) {
  std::string length(8, '\0');
  length[0] = static_cast<char>(value.size());
  return name + "\n" + length + value + "\n";
}

const std::string kPath = "/tmp/unet-journal-test-" + std::to_string(getpid());

Descriptor listen_at(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  Descriptor journal(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  REQUIRE(bind(journal.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return journal;
}

}  // namespace

TEST_CASE("a record has the fields, the priority, and the message in one piece") {
  CHECK(journal_sink(kPath, {}) == nullptr);
  const Descriptor journal = listen_at(kPath);
  spdlog::logger logger("unetd", journal_sink(kPath, {{"UNET_HOST", "alpha"}}));
  unlink(kPath.c_str());
  logger.warn("two\nlines");
  std::array<char, 256> got{};
  const ssize_t length = recv(journal.get(), got.data(), got.size(), MSG_DONTWAIT);
  REQUIRE(length > 0);
  CHECK(std::string(got.data(), static_cast<size_t>(length)) ==
        field("UNET_HOST", "alpha") + field("PRIORITY", "4") + field("MESSAGE", "two\nlines"));
}

TEST_CASE("a journal that does not read never blocks, and standard error gets the lines when the journal has ended") {
  Descriptor journal = listen_at(kPath);
  spdlog::logger logger("unetd", journal_sink(kPath, {}));
  unlink(kPath.c_str());
  for (int i = 0; i < 5000; ++i) logger.info("unread");
  journal.reset();
  int pipes[2];
  REQUIRE(pipe2(pipes, O_CLOEXEC) == 0);
  const Descriptor reader(pipes[0]), writer(pipes[1]), standard_error(dup(STDERR_FILENO));
  dup2(writer.get(), STDERR_FILENO);
  logger.warn("two\nlines");
  dup2(standard_error.get(), STDERR_FILENO);
  std::array<char, 256> got{};
  REQUIRE(read(reader.get(), got.data(), got.size()) > 0);
  CHECK(std::string(got.data()) == "two\nlines\n");
}

TEST_CASE("records are sent only if standard error leads to the journal") {
  struct stat status {};
  REQUIRE(fstat(STDERR_FILENO, &status) == 0);
  unsetenv("JOURNAL_STREAM");
  CHECK(!logs_to_journal());
  setenv("JOURNAL_STREAM", (std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino)).c_str(), 1);
  CHECK(logs_to_journal());
  setenv("JOURNAL_STREAM", "1:2", 1);
  CHECK(!logs_to_journal());
  unsetenv("JOURNAL_STREAM");
}

}  // namespace unet::unetd::journal_sink_test
