// description_test.cc - sockets in words, there and back, and words that describe none.
#include "ipstack/preload/description.h"

#include <catch2/catch.hpp>
#include <climits>
#include <vector>

namespace unet::preload {
namespace {

sockets::Address at(const char* host, uint16_t port) { return {*ip::parse_address(host), port}; }

std::string listener() {
  File file(AF_INET6, SOCK_STREAM);
  file.listens = true;
  file.backlog = 511;
  file.nonblocking = true;
  return describe(file, {.local = at("fd00::1", 8080), .group = 77});
}

std::string datagrams() {
  File file(AF_INET, SOCK_DGRAM);
  file.kernel = false;
  return describe(file, {.local = at("10.0.0.1", 53), .remote = at("10.0.0.2", 4000), .group = UINT64_MAX});
}

std::string joined(const std::vector<std::string>& fields) {
  std::string text;
  for (const std::string& each : fields) text += (text.empty() ? "" : ",") + each;
  return text;
}

// A listener's fields: IPv6, stream, backlog, group, the kernel's too, non-blocking, local port and address, remote port and address.
const std::vector<std::string> kFields = {"0", "1", "5", "7", "1", "0", "80", "10.0.0.1", "0", "::"};

std::string with(size_t field, const std::string& value) {
  auto fields = kFields;
  fields[field] = value;
  return joined(fields);
}

TEST_CASE("a listener is what it was") {
  const auto file = read_description(listener());
  REQUIRE(file != nullptr);
  CHECK(file->domain == AF_INET6);
  CHECK(file->type == SOCK_STREAM);
  CHECK(file->listens);
  CHECK(file->backlog == 511);
  CHECK(file->bound);
  CHECK(file->kernel);
  CHECK(file->nonblocking);
  CHECK_FALSE(file->in_stack());
  CHECK(file->fds.empty());
  REQUIRE(file->inherited);
  CHECK(file->inherited->listens);
  CHECK_FALSE(file->inherited->connected);
  CHECK(file->inherited->backlog == 511);
  CHECK(file->inherited->local == at("fd00::1", 8080));
  CHECK(file->inherited->remote == sockets::Address{});
  CHECK(file->inherited->group == 77);
}

TEST_CASE("a datagram socket is what it was") {
  const auto file = read_description(datagrams());
  REQUIRE(file != nullptr);
  CHECK(file->domain == AF_INET);
  CHECK(file->type == SOCK_DGRAM);
  CHECK_FALSE(file->listens);
  CHECK_FALSE(file->kernel);
  CHECK_FALSE(file->nonblocking);
  REQUIRE(file->inherited);
  CHECK_FALSE(file->inherited->listens);
  CHECK(file->inherited->local == at("10.0.0.1", 53));
  CHECK(file->inherited->remote == at("10.0.0.2", 4000));
  CHECK(file->inherited->group == UINT64_MAX);
}

TEST_CASE("a listener that said it wants no backlog is one still") {
  File file(AF_INET, SOCK_STREAM);
  file.listens = true;
  for (const int backlog : {0, -1, INT_MIN, 1, INT_MAX}) {
    file.backlog = backlog;
    const auto read = read_description(describe(file, {}));
    REQUIRE(read != nullptr);
    CHECK(read->listens);
    CHECK(read->backlog == std::max(backlog, 1));
  }
}

TEST_CASE("an IPv6 socket may have addresses of IPv4") {
  File file(AF_INET6, SOCK_DGRAM);
  const auto read = read_description(describe(file, {.local = at("10.0.0.1", 1), .remote = at("::ffff:10.0.0.2", 65535)}));
  REQUIRE(read != nullptr);
  CHECK(read->inherited->local == at("10.0.0.1", 1));
  CHECK(read->inherited->remote == at("10.0.0.2", 65535));
}

TEST_CASE("a part of a description describes nothing, nor does more than one") {
  for (const std::string& whole : {listener(), datagrams()}) {
    const size_t last = whole.rfind(',');  // what is cut out of the last field may be another address
    for (size_t length = 0; length <= last + 1; ++length) CHECK(read_description(whole.substr(0, length)) == nullptr);
    for (const char* const more : {",", ",0", " ", ";", "\n", "x"}) CHECK(read_description(whole + more) == nullptr);
    CHECK(read_description(whole + std::string(1, '\0')) == nullptr);
    CHECK(read_description("," + whole) == nullptr);
    CHECK(read_description(whole + "," + whole) == nullptr);
  }
}

TEST_CASE("fields that are wrong") {
  REQUIRE(read_description(joined(kFields)) != nullptr);
  for (size_t i = 0; i < kFields.size(); ++i) {
    for (const char* const bad : {"", " ", "-1", "+1", " 1", "1 ", "0x1", "1e3", "1.0", "x", "18446744073709551616",
                                "99999999999999999999999"}) {
      CAPTURE(i, bad);
      CHECK(read_description(with(i, bad)) == nullptr);
    }
  }
  for (const size_t yes_or_no : {0, 1, 4, 5}) CHECK(read_description(with(yes_or_no, "2")) == nullptr);
  CHECK(read_description(with(2, "2147483648")) == nullptr);
  for (const size_t port : {6, 8}) CHECK(read_description(with(port, "65536")) == nullptr);
  for (const size_t host : {7, 9}) {
    for (const char* const bad : {"10.0.0", "10.0.0.256", "10.0.0.1/24", "[::1]", "fd00::g", "localhost", "1:2:3:4:5:6:7:8:9"}) {
      CHECK(read_description(with(host, bad)) == nullptr);
    }
    CHECK(read_description(with(host, std::string("10.0.0.1\0.2", 11))) == nullptr);
  }
}

TEST_CASE("addresses and kinds that do not go together") {
  for (const size_t host : {7, 9}) CHECK(read_description(with(host, "fd00::1")) == nullptr);  // of an IPv4 socket
  CHECK(read_description(with(1, "0")) == nullptr);                                            // datagrams that listen
}

TEST_CASE("names of a connection") {
  const Names longest{AF_INET6, {at("2001:db8:1111:2222:3333:4444:5555:6666", 65535), at("2001:db8:7777:8888:9999:aaaa:bbbb:cccc", 65535)}};
  const Names mapped{AF_INET6, {at("10.0.0.1", 1), at("10.0.0.2", 2)}}, four{AF_INET, {at("10.0.0.1", 80), at("10.0.0.2", 40000)}};
  for (const Names& each : {longest, mapped, four}) {
    const std::string text = describe_names(each);
    CHECK(text.size() <= 93);
    const auto read = read_names(text);
    REQUIRE(read);
    CHECK(read->domain == each.domain);
    CHECK(read->pair.local == each.pair.local);
    CHECK(read->pair.remote == each.pair.remote);
    for (size_t length = 0; length <= text.rfind(','); ++length) CHECK_FALSE(read_names(text.substr(0, length)));
    CHECK_FALSE(read_names(text + ",1"));
    CHECK_FALSE(read_names(text + std::string(1, '\0')));
  }
  for (const char* const bad : {"", ",,,,", "2,1,10.0.0.1,2,10.0.0.2", "0,65536,10.0.0.1,2,10.0.0.2", "0,1,fd00::1,2,10.0.0.2",
                              "0,1,10.0.0.1,2,fd00::2"}) {
    CHECK_FALSE(read_names(bad));
  }
}

}  // namespace
}  // namespace unet::preload
