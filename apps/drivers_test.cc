// drivers_test.cc - driver specifications: the drivers they make, and the error for each malformed one.
#include "apps/drivers.h"

#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "apps/open_ports.h"
#include "apps/spec_values.h"
#include "unet/test_process.h"

using namespace unet;
using namespace unet::apps;

namespace {

std::string refusal(const std::string& specification) {
  auto driver = make_driver(specification);
  REQUIRE_FALSE(driver);
  const std::string& text = driver.error().text;
  INFO(text);
  CHECK(text.find('\n') == std::string::npos);
  CHECK(text.size() < 700);
  return text;
}

}  // namespace

// The first test, because it needs a process without an EAL.
TEST_CASE("nothing is asked for again when DPDK's environment has failed to start") {
  ChildProcess child([]() -> int {
    // No descriptor is free for EAL. (Too little memory would do as well, but not with AddressSanitizer.)
    const int next = dup(STDERR_FILENO);
    const rlimit limit{static_cast<rlim_t>(next + 1), static_cast<rlim_t>(next + 1)};
    if (next < 0 || setrlimit(RLIMIT_NOFILE, &limit) != 0) return 100;
    int asked = 0;
    const auto busy = [&]() -> OpenedPorts {
      ++asked;
      return fail(Errc::unavailable, "busy");
    };
    if (!can_open_later() || make_driver("dpdk:net_null0,hugepages=never,memory=192")) return 101;
    const bool opened = open_when_free(busy, 600 * kSecond, [](const Error&) {}).has_value();
    return opened || can_open_later() ? 102 : asked;
  });
  CHECK(child.wait() == 1);
}

TEST_CASE("numbers with units") {
  CHECK(*parse_probability("0.25") == 0.25);
  CHECK(*parse_probability("50%") == 0.5);
  CHECK(*parse_probability("0") == 0);
  CHECK(*parse_probability("100%") == 1);
  for (const char* bad : {"", "1.01", "101%", "-1", "x", "1 %", "nan", "1%%"}) CHECK_FALSE(parse_probability(bad));
  CHECK(*parse_duration("500ns") == 500);
  CHECK(*parse_duration("10us") == 10'000);
  CHECK(*parse_duration("1.5ms") == 1'500'000);
  CHECK(*parse_duration("2s") == 2 * kSecond);
  CHECK(*parse_duration("0") == 0);
  for (const char* bad : {"", "5", "1h", "-1us", "us", "1e3us", "2000s", "inf"}) CHECK_FALSE(parse_duration(bad));
  CHECK(*parse_rate("1G") == 1'000'000'000);
  CHECK(*parse_rate("64k") == 64'000);
  CHECK(*parse_rate("2.5M") == 2'500'000);
  for (const char* bad : {"", "0", "1T", "G", "-1", "1001G"}) CHECK_FALSE(parse_rate(bad));
  CHECK(*parse_bytes("64k") == 65536);
  CHECK(*parse_bytes("1.5M") == 3 << 19);
  CHECK(*parse_bytes("7") == 7);
  for (const char* bad : {"", "0", "1K", "1 k", "-1", "2000G"}) CHECK_FALSE(parse_bytes(bad));
  CHECK(*parse_count("12", 0, 12) == 12);
  for (const char* bad : {"", "13", "1x", "-1", "99999999999999999999999"}) CHECK_FALSE(parse_count(bad, 0, 12));
}

TEST_CASE("an NI without a wire") {
  for (const char* text : {"", "none", "  none "}) {
    auto driver = make_driver(text);
    REQUIRE(driver);
    CHECK(*driver == nullptr);
  }
}

TEST_CASE("a loop with a wrapper carries a frame") {
  auto driver = make_driver("faulty:delay=10us,direction=rx,seed=3 / faulty:loss=0% / dpdk:net_ring0,hugepages=never,memory=64");
  REQUIRE(driver);
  Driver& d = **driver;
  CHECK(d.description().starts_with("faulty (seed 3) over faulty (seed 1) over dpdk:net_ring0"));
  TransmitFrame frame;
  REQUIRE(d.allocate({&frame, 1}) == 1);
  for (uint32_t i = 0; i < 60; ++i) frame.data[i] = static_cast<std::byte>(i);
  frame.length = 60;
  REQUIRE(d.transmit({&frame, 1}, 1000) == 1);
  ReceivedFrame received;
  CHECK(d.receive({&received, 1}, 1000) == 0);
  CHECK(d.next_event() == 11'000);
  REQUIRE(d.receive({&received, 1}, 11'000) == 1);
  CHECK(received.length == 60);
  CHECK(received.data[59] == std::byte{59});
  d.release({&received, 1});
}

TEST_CASE("a wire of files, with a wrapper") {
  const std::string file = "/tmp/unet-test-" + std::to_string(getpid()) + ".pcap";
  auto driver = make_driver("faulty:loss=100% / pcap:write=" + file + ",address=02:11:22:33:44:5f,mtu=900");
  REQUIRE(driver);
  CHECK((*driver)->capabilities().address == MacAddress{2, 0x11, 0x22, 0x33, 0x44, 0x5f});
  CHECK((*driver)->capabilities().mtu == 900);
  driver->reset();
  CHECK(make_driver("pcap:read=" + file + ",timed=yes"));
  unlink(file.c_str());
}

TEST_CASE("a wire with a capture inside a wrapper") {
  auto driver = make_driver(
      "faulty:loss=1% / trace / capture:file=/dev/null,filter=ether[12:2] == 0x88b5,snap=64,limit=1G / pcap:write=/dev/null");
  REQUIRE(driver);
  CHECK((*driver)->description().starts_with("faulty (seed 1) over trace to stderr over capture to /dev/null over pcap:write="));
}

TEST_CASE("a wire for a network that routes only IP, in a VLAN") {
  auto driver = make_driver(
      "udp:address=fd00:1::2/64,gateway=fd00:1::1,peers=fd00:2::2+fd00:3::2,neighbour=fd00:1::9@02:00:00:00:00:09,port=900,hops=9 / "
      "vlan:id=7,priority=2 / pcap:write=/dev/null");
  REQUIRE(driver);
  CHECK((*driver)->description().starts_with("udp from fd00:1::2/64 port 900 by fd00:1::1, mtu 1448, over vlan 7 over pcap:write="));
  CHECK((*driver)->capabilities().mtu == 1500 - 4 - 48);
}

TEST_CASE("wrappers that keep nothing in one place go around each queue") {
  auto driver = make_driver("udp:address=10.0.1.2/24,ports=8 / vlan:id=7 / dpdk:net_null0,queues=2,hugepages=never,memory=64");
  REQUIRE(driver);
  CHECK((*driver)->queues() == 2);
  const auto others = (*driver)->take_queues();
  REQUIRE(others.size() == 1);
  CHECK(others[0]->description() == (*driver)->description());
  CHECK(others[0]->description().starts_with("udp from 10.0.1.2/24 port 849 to 856, mtu 1468, over vlan 7 over dpdk:net_null0"));
}

TEST_CASE("each malformed specification is told what is allowed") {
  using Catch::Contains;
  CHECK_THAT(refusal("dpkd:net_ring0"), Contains("no wire 'dpkd'") && Contains("dpdk:DEVICE"));
  CHECK_THAT(refusal("dpdk"), Contains("needs a device"));
  CHECK_THAT(refusal("dpdk:"), Contains("needs a device"));
  CHECK_THAT(refusal("none:x"), Contains("takes no options"));
  CHECK_THAT(refusal("faulty:loss=1%"), Contains("a wire has to follow"));
  CHECK_THAT(refusal("faulty:loss=1% / none"), Contains("a wrapper needs a wire"));
  CHECK_THAT(refusal("faulty:loss=2 / none"), Contains("loss: '2' is not a probability"));
  CHECK_THAT(refusal("faulty:los=2 / none"), Contains("'los' is not an option; allowed: loss"));
  CHECK_THAT(refusal("faulty:delay=5us-1us / none"), Contains("smaller"));
  CHECK_THAT(refusal("faulty:delay=5 / none"), Contains("ns, us, ms or s"));
  CHECK_THAT(refusal("faulty:direction=up / none"), Contains("rx, tx or both"));
  CHECK_THAT(refusal("faulty:rate=fast / none"), Contains("k, M or G"));
  CHECK_THAT(refusal("none / dpdk:net_ring0"), Contains("only wrappers"));
  CHECK_THAT(refusal("dpdk:net_ring0,queues=0"), Contains("queues: '0' is not a whole number from 1 to 8"));
  CHECK_THAT(refusal("dpdk:net_ring0,queues=9"), Contains("queues: '9'"));
  for (const char* wrapper : {"faulty:loss=1%", "capture:file=/dev/null", "trace"}) {
    CHECK_THAT(refusal(std::string(wrapper) + " / dpdk:net_null0,queues=2,hugepages=never,memory=64"),
               Contains("needs a wire with one queue, and this one has 2"));
  }
  CHECK_THAT(refusal("udp:address=10.0.1.2/24,ports=65 / none"), Contains("ports: '65' is not a whole number from 1 to 64"));
  CHECK_THAT(refusal("dpdk:net_ring0,mtu=100"), Contains("mtu: '100'") && Contains("256 to 9600"));
  CHECK_THAT(refusal("dpdk:net_ring0,hugepages=maybe"), Contains("auto, always or never"));
  CHECK_THAT(refusal("dpdk:net_ring0,wait_link=5"), Contains("wait_link"));
  CHECK_THAT(refusal("dpdk:eth0"), Contains("not a DPDK port") && Contains("net_memif0"));
  CHECK_THAT(refusal("trace"), Contains("a wire has to follow"));
  CHECK_THAT(refusal("trace:to=x / none"), Contains("'to' is not an option; allowed: file"));
  CHECK_THAT(refusal("trace:file= / none"), Contains("leave it out"));
  CHECK_THAT(refusal("trace:file=/no/such/file / pcap:write=/dev/null"), Contains("/no/such/file: No such file"));
  CHECK_THAT(refusal("capture:file=x"), Contains("a wire has to follow"));
  CHECK_THAT(refusal("capture:limit=1M / none"), Contains("needs a file"));
  CHECK_THAT(refusal("capture:file=x,snap=1 / none"), Contains("snap: '1'") && Contains("14 to 65535"));
  CHECK_THAT(refusal("capture:file=x,buffer=3M / none"), Contains("256k"));
  CHECK_THAT(refusal("capture:file=x,limit=all / none"), Contains("k, M or G"));
  CHECK_THAT(refusal("capture:out.pcapng / none"), Contains("'out.pcapng' is not an option; allowed: file filter"));
  CHECK_THAT(refusal("capture:file=/no/such/file / pcap:write=/dev/null"), Contains("/no/such/file: No such file"));
  CHECK_THAT(refusal("capture:file=/dev/null,filter=ether of mine / pcap:write=/dev/null"),
             Contains("syntax error") && Contains("man pcap-filter"));
  CHECK_THAT(refusal("udp:address=10.0.1.2/24"), Contains("a wire has to follow"));
  CHECK_THAT(refusal("udp:mtu=1400 / none"), Contains("udp: needs an address"));
  CHECK_THAT(refusal("udp:address=10.0.1.2 / none"), Contains("prefix"));
  CHECK_THAT(refusal("udp:address=10.0.1.2/33 / none"), Contains("1 to 32"));
  CHECK_THAT(refusal("udp:address=10.0.1.2/24,peers=10.0.1.3+beta / none"), Contains("'beta' is no IP address"));
  CHECK_THAT(refusal("udp:address=10.0.1.2/24,neighbour=10.0.1.3@02:00 / none"), Contains("IP@MAC"));
  CHECK_THAT(refusal("udp:address=10.0.1.2/24,neighbour=10.0.1.3 / none"), Contains("IP@MAC"));
  CHECK_THAT(refusal("udp:address=10.0.1.2/24,gate=10.0.1.1 / none"), Contains("allowed: address gateway"));
  CHECK_THAT(refusal("udp:address=10.0.1.2/24,peers=10.0.2.2 / pcap:write=/dev/null"), Contains("needs gateway="));
  CHECK_THAT(refusal("vlan:id=7"), Contains("a wire has to follow"));
  CHECK_THAT(refusal("vlan / none"), Contains("vlan: needs a number"));
  CHECK_THAT(refusal("vlan:id=4095 / none"), Contains("1 to 4094"));
  CHECK_THAT(refusal("vlan:id=7,priority=8 / none"), Contains("0 to 7"));
  CHECK_THAT(refusal("vlan:7 / none"), Contains("allowed: id priority"));
  CHECK_THAT(refusal("pcap"), Contains("needs iface=INTERFACE") && Contains("read=FILE"));
  CHECK_THAT(refusal("pcap:iface=unet-not-there"), Contains("no such network interface") && Contains("ip link"));
  CHECK_THAT(refusal("pcap:iface=lo"), Contains("loopback"));
  CHECK_THAT(refusal("pcap:iface=lo,read=x"), Contains("mtu= alone"));
  CHECK_THAT(refusal("pcap:iface=lo,timed=yes"), Contains("mtu= alone"));
  CHECK_THAT(refusal("pcap:read=x,timed=maybe"), Contains("yes or no"));
  CHECK_THAT(refusal("pcap:read=x,address=03:00:00:00:00:01"), Contains("not a station's address"));
  CHECK_THAT(refusal("pcap:read=x,address=zz:00:00:00:00:01"), Contains("not a station's address"));
  CHECK_THAT(refusal("pcap:iface=lo,mtu=1"), Contains("mtu: '1'") && Contains("256 to 9600"));
  CHECK_THAT(refusal("xdp:"), Contains("needs iface="));
  CHECK_THAT(refusal("xdp:iface=lo,queue=1"), Contains("'queue' is not an option; allowed: iface"));
  CHECK_THAT(refusal("xdp:iface=lo"), Contains("loopback"));
  CHECK_THAT(refusal("pcap:if=lo"), Contains("'if' is not an option; allowed: iface"));
  CHECK_THAT(refusal("dpdk:net_af_packet,iface=lo"), Contains("not a DPDK port"));
  CHECK_THAT(refusal(std::string(20000, 'x')), Contains("16000 characters"));
}

TEST_CASE("the help names every wire and wrapper option") {
  const std::string help = driver_help();
  for (const char* word : {"none", "dpdk:", "net_memif0", "net_af_xdp0", "net_af_packet0", "net_tap0", "mtu=", "wait_link=",
                           "hugepages=", "faulty:", "loss=", "duplicate=", "reorder=", "corrupt=", "bits=", "delay=", "rate=", "hold=",
                           "seed=", "direction=", "xdp:iface=", "busy_budget=", "pcap:iface=", "pcap:read=", "write=", "timed=", "address=",
                           "udp:address=", "gateway=", "peers=", "neighbour=", "hops=", "port=", "vlan:id=", "priority=",
                           "capture:file=", "filter=", "snap=", "limit=", "buffer=", "trace[:file="}) {
    CHECK_THAT(help, Catch::Contains(word));
  }
}

TEST_CASE("a wire that somebody has is asked for again, until it is free or patience ends; any other error is final at once") {
  int asked = 0;
  std::vector<std::string> told;
  const auto tell = [&](const Error& error) { told.push_back(error.text); };
  const auto answers = [&](Errc code, int times) {
    asked = 0;
    told.clear();
    return [&asked, code, times]() -> OpenedPorts {
      if (++asked > times) return OpenedPorts(std::vector<std::unique_ptr<Driver>>());
      return fail(code, "attempt " + std::to_string(asked));
    };
  };
  for (const Errc busy : {Errc::already_exists, Errc::system, Errc::not_found, Errc::unavailable}) {
    CHECK(open_when_free(answers(busy, 3), 600 * kSecond, tell));
    CHECK(asked == 4);
    CHECK(told == std::vector<std::string>{"attempt 1"});
  }
  for (const Errc lasting : {Errc::invalid_argument, Errc::not_permitted, Errc::out_of_memory, Errc::disconnected}) {
    CHECK_FALSE(open_when_free(answers(lasting, 3), 600 * kSecond, tell));
    CHECK(asked == 1);
    CHECK(told.empty());
  }
  const auto ports = open_when_free(answers(Errc::already_exists, 1 << 30), 50 * kMillisecond, tell);
  REQUIRE_FALSE(ports);
  CHECK(ports.error().text == "attempt " + std::to_string(asked));  // the last reason
}
