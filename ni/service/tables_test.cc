// tables_test.cc - names, tags and configuration values.
#include <catch2/catch.hpp>

#include <set>

#include "ni/service/config.h"
#include "ni/service/names.h"
#include "ni/service/tags.h"
#include "ni/service/toml_reader.h"

namespace unet::service::tables_test {

TEST_CASE("an endpoint has one name, a name one endpoint") {
  Names names;
  REQUIRE(names.bind("a", 1));
  CHECK(names.find("a") == 1u);
  CHECK(names.name_of(1) == "a");
  CHECK(names.bind("a", 2).error().code == Errc::already_exists);
  CHECK(names.bind("b", 1).error().code == Errc::already_exists);
  CHECK(names.bind("/a", 3).error().code == Errc::invalid_argument);
  CHECK(names.unbind(1) == "a");
  CHECK(names.unbind(1).empty());
  CHECK_FALSE(names.find("a"));
  CHECK(names.bind("a", 2));
  CHECK(names.all().size() == 1);
}

TEST_CASE("what a client calls itself cannot disturb a terminal") {
  CHECK(service::in_quotes("a\x1b[2Jb\n") == "'a?[2Jb?'");
  CHECK(service::in_quotes(std::string(200, 'x')).size() < 100);
}

TEST_CASE("tags: every index but 0, each once, reused late, with another generation") {
  TagTable tags(1);
  std::set<uint16_t> indices;
  std::vector<Tag> all;
  while (const auto tag = tags.allocate()) {
    indices.insert(TagTable::index_of(*tag));
    all.push_back(*tag);
  }
  CHECK(indices.size() == 65535);
  CHECK(indices.count(0) == 0);
  tags.release(all[100]);
  const auto again = tags.allocate();
  REQUIRE(again);
  CHECK(TagTable::index_of(*again) == TagTable::index_of(all[100]));
  CHECK(*again != all[100]);  // of this seed; of one in 65,536 it may be the same
  CHECK_FALSE(tags.allocate());

  TagTable fixed(2);
  CHECK(fixed.reserve(Tag{0x70005}));
  CHECK_FALSE(fixed.reserve(Tag{0x80005}));
  CHECK_FALSE(fixed.reserve(Tag{0x10000}));
  CHECK(fixed.used() == 1);
}

TEST_CASE("sizes") {
  CHECK(parse_bytes("0") == 0u);
  CHECK(parse_bytes("64K") == 65536u);
  CHECK(parse_bytes("256M") == 256u << 20);
  CHECK(parse_bytes("2GiB") == uint64_t{2} << 30);
  for (const char* wrong : {"", "K", "1k", "1 M", "-1", "1.5G", "99999999999999999999", "12M ", "0x10", "999999999999999G"}) {
    INFO(wrong);
    CHECK_FALSE(parse_bytes(wrong));
  }
}

TEST_CASE("peers") {
  const auto peer = parse_peer("beta=02:0a:00:00:00:FF@3");
  REQUIRE(peer);
  CHECK(peer->host == "beta");
  CHECK(peer->address.port == 3);
  CHECK(peer->address.mac == MacAddress{2, 10, 0, 0, 0, 255});
  CHECK(parse_peer("beta=02:00:00:00:00:01")->address.port == 0);
  for (const char* wrong : {"", "=", "beta", "beta=", "=02:00:00:00:00:01", "beta=02:00:00:00:00:01@", "beta=02:00:00:00:00:01@16",
                            "beta=02:00:00:00:00:01@-1", "beta=02-00-00-00-00-01", "beta=02:00:00:00:00:0g", "b c=02:00:00:00:00:01"}) {
    INFO(wrong);
    const auto refused = parse_peer(wrong);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == Errc::invalid_argument);
  }
}

TEST_CASE("the configuration file") {
  Config config = default_config();
  REQUIRE(parse_config(R"(
host = "alpha"
idle = "block"
spin_us = 7
core = 1
ports = ["none", "sim"]
[[peer]]
host = "beta"
mac = "02:00:00:00:00:02"
[[channel]]
endpoint = "control"
local_tag = 0x10001
remote_tag = 2
peer = "02:00:00:00:00:02"
port = 1
)", "c.toml", config));
  CHECK(config.ni.service.host == "alpha");
  CHECK(config.ni.idle == Idle::block);
  CHECK(config.ni.spin_time == 7 * kMicrosecond);
  CHECK(config.ni.cores == std::vector<uint32_t>{1});
  CHECK(config.ports == std::vector<std::string>{"none", "sim"});
  REQUIRE(config.ni.service.peers.size() == 1);
  REQUIRE(config.ni.service.channels.size() == 1);
  CHECK(config.ni.service.channels[0].local_tag == Tag{0x10001});
  CHECK(finish_config(config));

  Config example = default_config();
  CHECK(parse_config(example_config(), "example", example));
}

TEST_CASE("several engines in the configuration file") {
  const auto outcome = [](const std::string& text) {
    Config config = default_config();
    const std::string ports = "ports = [\"none\", \"sim\", \"sim\"]\n";
    if (Status status = parse_config(text + ports, "c.toml", config); !status) return status.error().text;
    if (Status status = finish_config(config); !status) return status.error().text;
    return std::to_string(config.ni.engines) + " " + std::to_string(config.ni.cores.size()) + " " +
           std::to_string(config.ni.port_engines.size());
  };
  CHECK(outcome("") == "1 0 0");
  CHECK(outcome("engines = 2\ncore = [3, 4]\nport_engines = [1, 0, 1]\n") == "2 2 3");
  CHECK(outcome("engines = 2\ncore = 3\n") == "2 1 0");
  CHECK(outcome("engines = 9\n").find("1 to 8") != std::string::npos);
  CHECK(outcome("core = [3, 4]\n").find("2 cores are named") != std::string::npos);
  CHECK(outcome("core = [3, \"x\"]\n").find("a list of such") != std::string::npos);
  CHECK(outcome("engines = 2\nport_engines = [0, 2]\n").find("no engine 2") != std::string::npos);
  CHECK(outcome("engines = 2\nport_engines = [0, 1, 1, 0]\n").find("port 3 does not exist") != std::string::npos);
  CHECK(outcome("engines = 2\ntakeover_s = 5\n").find("give up one of the two") != std::string::npos);
}

}  // namespace unet::service::tables_test
