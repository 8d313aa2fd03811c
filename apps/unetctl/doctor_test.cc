// doctor_test.cc - a machine that has everything, and one that has nothing.
#include "apps/unetctl/doctor.h"

#include <stdlib.h>

#include <catch2/catch.hpp>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

namespace unet::unetctl::doctor_test {
namespace {

namespace fs = std::filesystem;

// A tree of files in place of /proc, /sys and /dev.
struct FakeRoot {
  fs::path path;
  explicit FakeRoot(const std::map<std::string, std::string>& files) {
    std::string name = fs::temp_directory_path() / "unet-doctor-XXXXXX";
    path = mkdtemp(name.data());
    for (const auto& [file, text] : files) {
      fs::create_directories((path / file).parent_path());
      std::ofstream(path / file) << text;
    }
  }
  ~FakeRoot() { fs::remove_all(path); }
  std::map<std::string, Finding> examined() const {
    std::map<std::string, Finding> found;
    for (const Finding& each : examine({.root = path, .socket = path / "none"})) found[each.check] = each;
    return found;
  }
};

const FakeRoot& good() {
  static const FakeRoot root({
      {"proc/self/status", "Name:\tunetctl\nCapEff:\t0000008000007000\nCpus_allowed_list:\t0-1,4\n"},
      {"proc/self/limits", "Max locked memory         unlimited            unlimited            bytes\n"},
      {"proc/sys/kernel/osrelease", "6.1.0-13-amd64\n"},
      {"proc/7/comm", "systemd\n"},
      {"dev/vfio/vfio", ""},
      {"sys/kernel/iommu_groups/0/type", ""},
      {"sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "128\n"},
      {"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n"},
      {"sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"},
  });
  return root;
}

const FakeRoot& bad() {
  static const FakeRoot root({
      {"proc/self/status", "CapEff:\t0000000000001000\nCpus_allowed_list:\t3\n"},
      {"proc/self/limits", "Max locked memory         8388608              8388608              bytes\n"},
      {"proc/sys/kernel/osrelease", "5.10.0\n"},
      {"proc/7/comm", "irqbalance\n"},
      {"sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "127\n"},
      {"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"},
      {"sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n"},
  });
  return root;
}

}  // namespace

TEST_CASE("a machine that has everything lacks only a unetd") {
  for (const auto& [check, finding] : good().examined()) {
    INFO(check << ": " << finding.found);
    CHECK((finding.state == Finding::State::ok) == (check != "service"));
    CHECK(finding.remedy.empty() == (check != "service"));
  }
  CHECK(good().examined().at("cores").found == "3 cores");
}

TEST_CASE("each check finds its fault and names what mends it") {
  const auto found = bad().examined();
  CHECK(found.size() == 10);
  for (const auto& [check, finding] : found) {
    INFO(check << ": " << finding.found);
    CHECK(finding.state != Finding::State::ok);
    CHECK_FALSE(finding.remedy.empty());
  }
  CHECK(found.at("capabilities").remedy == "setcap cap_net_admin,cap_net_raw,cap_ipc_lock,cap_bpf+ep $(command -v unetd)");
  CHECK(found.at("hugepages").found.rfind("254 MiB", 0) == 0);
  CHECK(found.at("locked memory").found.rfind("8192 KiB", 0) == 0);
}

TEST_CASE("a machine without any of these files is no error") { CHECK(FakeRoot({}).examined().size() == 10); }

TEST_CASE("as text and as JSON") {
  const std::vector<Finding> findings{{Finding::State::ok, "2 cores", "", "cores"}, {Finding::State::slow, "hpet", "boot", "clock"}};
  CHECK(show_findings(findings, false) ==
        "CHECK  STATE  FOUND\ncores  ok     2 cores\nclock  slow   hpet\n\nWhat mends it:\n  clock: boot\n");
  const auto json = nlohmann::json::parse(show_findings(findings, true));
  CHECK(json.at(1) == nlohmann::json{{"check", "clock"}, {"state", "slow"}, {"found", "hpet"}, {"remedy", "boot"}});
}

}  // namespace unet::unetctl::doctor_test
