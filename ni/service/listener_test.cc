// listener_test.cc - the listening socket: private, guarded, replaced when stale, removed at the end.
#include "ni/service/listener.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <cstring>
#include <utility>

namespace unet::service::listener_test {
namespace {

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("the listening socket: private, guarded, replaced when stale, removed at the end") {
  const std::string directory = "/tmp/unet-listener-test-" + std::to_string(getpid());
  REQUIRE(mkdir(directory.c_str(), 0700) == 0);
  const std::string path = directory + "/s";
  {
    const auto first = Listener::open(path, "");
    REQUIRE(first);
    struct stat st {};
    REQUIRE(lstat(path.c_str(), &st) == 0);
    CHECK((st.st_mode & 0777) == 0600);
    const auto second = Listener::open(path, "");
    REQUIRE_FALSE(second);
    CHECK(second.error().code == Errc::already_exists);
    CHECK(contains(second.error().text, "is running at"));
  }
  CHECK(access(path.c_str(), F_OK) != 0);
  {
    // An NI that died: its socket is there, and no process listens.
    const Descriptor dead(socket(AF_UNIX, SOCK_SEQPACKET, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    REQUIRE(::bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  }
  CHECK(access(path.c_str(), F_OK) == 0);
  {
    const auto again = Listener::open(path, "");
    CHECK(again);
  }
  // A file that is not a socket is not removed.
  const Descriptor file(open(path.c_str(), O_CREAT | O_WRONLY, 0600));
  const auto refused = Listener::open(path, "");
  REQUIRE_FALSE(refused);
  CHECK(contains(refused.error().text, "is not a socket"));
  CHECK(access(path.c_str(), F_OK) == 0);
  unlink(path.c_str());
  const auto group = Listener::open(path, "no-such-group-here");
  REQUIRE_FALSE(group);
  CHECK(contains(group.error().text, "no group"));
  CHECK_FALSE(Listener::open(directory + "/" + std::string(120, 'x'), ""));
  CHECK_FALSE(Listener::open(directory + "/missing/s", ""));
  CHECK(rmdir(directory.c_str()) == 0);
}

TEST_CASE("of a socket that another left nothing is believed: it listens, for packets, and does not block from here on") {
  const std::string directory = "/tmp/unet-listener-test-" + std::to_string(getpid());
  REQUIRE(mkdir(directory.c_str(), 0700) == 0);
  const std::string path = directory + "/s";
  const auto bound = [&](int type) {
    unlink(path.c_str());
    Descriptor socket(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    return socket;
  };
  const auto refused = [&](Descriptor socket) {
    const auto inherited = Listener::inherit(path, std::move(socket));
    return !inherited && inherited.error().code == Errc::protocol;
  };
  CHECK(refused(bound(SOCK_SEQPACKET)));
  CHECK(refused(bound(SOCK_DGRAM)));
  Descriptor stream = bound(SOCK_STREAM);
  REQUIRE(listen(stream.get(), 1) == 0);
  CHECK(refused(std::move(stream)));
  {
    Descriptor good = bound(SOCK_SEQPACKET);
    REQUIRE(listen(good.get(), 1) == 0);
    auto inherited = Listener::inherit(path, std::move(good));
    REQUIRE(inherited);
    REQUIRE((fcntl(inherited->descriptor(), F_GETFL) & O_NONBLOCK) != 0);  // accept() would wait
    CHECK_FALSE(inherited->accept());
  }
  CHECK(access(path.c_str(), F_OK) != 0);
  CHECK(rmdir(directory.c_str()) == 0);
}

}  // namespace unet::service::listener_test
