// doctor.cc - a table of checks, each a function of the machine.
#include "apps/unetctl/doctor.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "apps/unetctl/interface.h"
#include "apps/unetctl/machine_files.h"
#include "apps/unetctl/table.h"
#include "unet/version.h"

namespace unet::unetctl {
namespace {

using State = Finding::State;
namespace fs = std::filesystem;

constexpr uint64_t kPacketMemoryMib = 256;  // what DPDK takes for its ports, unless a port says otherwise

// The rest of the line that begins so, without the blanks before it.
std::string rest_of_line(const fs::path& path, const std::string& begin) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(begin, 0) == 0) return line.substr(std::min(line.size(), line.find_first_not_of(" \t", begin.size())));
  }
  return {};
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// The number of cores in a list such as 0-3,8.
unsigned count_cores(const std::string& list) {
  unsigned count = 0;
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    unsigned first = 0, last = 0;
    const int numbers = std::sscanf(part.c_str(), "%u-%u", &first, &last);
    count += numbers == 2 ? last - first + 1 : static_cast<unsigned>(numbers == 1);
  }
  return count;
}

Finding cores(const Machine& machine) {
  const unsigned count = count_cores(rest_of_line(machine.root / "proc/self/status", "Cpus_allowed_list:"));
  if (count > 1) return {State::ok, std::to_string(count) + " cores", ""};
  return {State::slow, "one core: a process that polls takes it from its peer", "give the machine or the container a second core"};
}

Finding kernel(const Machine& machine) {
  const std::string release = first_line(machine.root / "proc/sys/kernel/osrelease");
  int major = 0, minor = 0;
  std::sscanf(release.c_str(), "%d.%d", &major, &minor);
  if (major > 5 || (major == 5 && minor >= 12)) return {State::ok, "Linux " + release, ""};
  return {State::missing, "Linux " + release + ": only 5.12 refuses a second owner of an interface", "apt install linux-image-amd64"};
}

Finding frequency(const Machine& machine) {
  const std::string governor = first_line(machine.root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  if (governor.empty()) return {State::ok, "not under this kernel's control", ""};
  if (governor == "performance") return {State::ok, "governor performance", ""};
  return {State::slow, "governor " + governor + ": the first messages after a pause are slow", "cpupower frequency-set -g performance"};
}

Finding clock(const Machine& machine) {
  const std::string source = first_line(machine.root / "sys/devices/system/clocksource/clocksource0/current_clocksource");
  if (source != "hpet" && source != "acpi_pm") return {State::ok, source, ""};
  return {State::slow, source + ": each look at the time is a system call", "boot with clocksource=tsc"};
}

Finding interrupts(const Machine& machine) {
  for (const std::string& process : names_in(machine.root / "proc")) {
    if (first_line(machine.root / "proc" / process / "comm") != "irqbalance") continue;
    return {State::slow, "irqbalance runs: it may move interrupts to cores that poll", "systemctl disable --now irqbalance"};
  }
  return {State::ok, "no irqbalance", ""};
}

Finding hugepages(const Machine& machine) {
  uint64_t free_mib = 0;
  const fs::path pages = machine.root / "sys/kernel/mm/hugepages";
  for (const std::string& size : names_in(pages)) {
    const uint64_t kib = std::strtoull(size.c_str() + std::string("hugepages-").size(), nullptr, 10);
    free_mib += std::strtoull(first_line(pages / size / "free_hugepages").c_str(), nullptr, 10) * kib / 1024;
  }
  const std::string found = std::to_string(free_mib) + " MiB are free";
  if (free_mib >= kPacketMemoryMib) return {State::ok, found, ""};
  return {State::slow, found + ": packet memory of DPDK's ports lies on small pages", "sysctl vm.nr_hugepages=256"};
}

Finding locked_memory(const Machine& machine) {
  const std::string limit = rest_of_line(machine.root / "proc/self/limits", "Max locked memory");
  const uint64_t bytes = limit.rfind("unlimited", 0) == 0 ? UINT64_MAX : std::strtoull(limit.c_str(), nullptr, 10);
  if (bytes >> 20 >= kPacketMemoryMib) return {State::ok, bytes == UINT64_MAX ? "no limit" : std::to_string(bytes >> 20) + " MiB", ""};
  return {State::missing, std::to_string(bytes >> 10) + " KiB may be locked: too little for AF_XDP",
          "ulimit -l unlimited (a service: LimitMEMLOCK=infinity)"};
}

Finding vfio(const Machine& machine) {
  const bool loaded = is_there(machine.root / "dev/vfio/vfio");
  if (!loaded) return {State::missing, "no /dev/vfio/vfio: no PCI device can be a wire", "modprobe vfio-pci"};
  if (!names_in(machine.root / "sys/kernel/iommu_groups").empty()) return {State::ok, "with an IOMMU", ""};
  return {State::missing, "no IOMMU: a card that is a wire can write to all memory", "boot with intel_iommu=on or amd_iommu=on"};
}

Finding capabilities(const Machine& machine) {
  struct Capability {
    unsigned bit;
    const char* name;
  };
  constexpr Capability kWanted[] = {{12, "net_admin"}, {13, "net_raw"}, {14, "ipc_lock"}, {39, "bpf"}};
  const uint64_t set = std::strtoull(rest_of_line(machine.root / "proc/self/status", "CapEff:").c_str(), nullptr, 16);
  std::string lacking;
  for (const Capability& each : kWanted) {
    if ((set >> each.bit & 1) == 0) lacking += std::string(lacking.empty() ? "" : ",") + "cap_" + each.name;
  }
  if (lacking.empty()) return {State::ok, "all that a unetd of this user needs", ""};
  return {State::missing, "this user lacks " + lacking + ": without them its unetd opens no interface, and no xdp: without cap_bpf",
          "setcap cap_net_admin,cap_net_raw,cap_ipc_lock,cap_bpf+ep $(command -v unetd)"};
}

Finding service(const Machine& machine) {
  Result<Interface> ni = Interface::open(machine.socket);
  if (!ni) return {State::missing, ni.error().text, "systemctl start unetd"};
  const Result<nlohmann::json> report = ni->report();
  if (!report) return {State::missing, report.error().text, "systemctl restart unetd"};
  const std::string release = report->at("ni").value("release", "");
  if (release == unet_version()) return {State::ok, "release " + release, ""};
  return {State::missing, "unetd is of release " + release + ", unetctl of " + unet_version(), "unetctl upgrade"};
}

struct Check {
  const char* name;
  Finding (*examine)(const Machine&);
};
constexpr Check kChecks[] = {
    {"service", service},
    {"cores", cores},
    {"kernel", kernel},
    {"capabilities", capabilities},
    {"locked memory", locked_memory},
    {"hugepages", hugepages},
    {"vfio", vfio},
    {"frequency", frequency},
    {"interrupts", interrupts},
    {"clock", clock},
};

const char* name_of(State state) { return state == State::ok ? "ok" : state == State::slow ? "slow" : "missing"; }

}  // namespace

std::vector<Finding> examine(const Machine& machine) {
  std::vector<Finding> findings;
  for (const Check& check : kChecks) {
    findings.push_back(check.examine(machine));
    findings.back().check = check.name;
  }
  return findings;
}

std::string show_findings(const std::vector<Finding>& findings, bool as_json) {
  nlohmann::json list = nlohmann::json::array();
  Table table({"CHECK", "STATE", "FOUND"});
  std::string remedies;
  for (const Finding& each : findings) {
    list.push_back({{"check", each.check}, {"state", name_of(each.state)}, {"found", each.found}, {"remedy", each.remedy}});
    table.add({each.check, name_of(each.state), each.found});
    if (each.state != State::ok) remedies += "  " + each.check + ": " + each.remedy + "\n";
  }
  if (as_json) return list.dump(2) + "\n";
  return table.text("") + (remedies.empty() ? "" : "\nWhat mends it:\n" + remedies);
}

}  // namespace unet::unetctl
