// nic_test.cc - cards in a tree of files in place of /sys, /proc and /dev. tests/system/vm.py has cards that change their driver.
#include "apps/unetctl/nic.h"

#include <stdlib.h>

#include <catch2/catch.hpp>

#include <fstream>
#include <nlohmann/json.hpp>

namespace unet::unetctl::nic_test {
namespace {

using Catch::Matchers::Contains;
namespace fs = std::filesystem;

struct FakeBus {
  fs::path root;
  FakeBus() {
    std::string name = fs::temp_directory_path() / "unet-nic-XXXXXX";
    root = mkdtemp(name.data());
    file("sys/bus/pci/drivers_probe", "");
  }
  ~FakeBus() { fs::remove_all(root); }

  void file(const std::string& path, const std::string& text) {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text << "\n";
  }
  std::string text(const std::string& path) {
    std::ifstream file(root / path);
    std::string line;
    std::getline(file, line);
    return line;
  }
  void link(const std::string& path, const std::string& target) {
    fs::create_directories((root / path).parent_path());
    fs::create_symlink(target, root / path);
  }
  // A card, or a device of another class. An empty driver or group: it has none.
  std::string device(const std::string& address, const std::string& kind, const std::string& driver, const std::string& group) {
    const std::string path = "sys/bus/pci/devices/" + address;
    file(path + "/class", kind);
    file(path + "/vendor", "0x8086");
    file(path + "/device", "0x10d3");
    file(path + "/numa_node", "-1");
    file(path + "/driver_override", "(null)");
    fs::create_directories(root / "sys/bus/pci/drivers" / driver);
    if (!driver.empty()) link(path + "/driver", "../../../../bus/pci/drivers/" + driver);
    if (!group.empty()) link(path + "/iommu_group", "../../../../kernel/iommu_groups/" + group);
    if (!group.empty()) file("sys/kernel/iommu_groups/" + group + "/devices/" + address, "");
    return path;
  }
  void interface(const std::string& card, const std::string& name, const std::string& flags) {
    file(card + "/net/" + name + "/mtu", "1500");
    file("sys/class/net/" + name + "/flags", flags);
    file("sys/class/net/" + name + "/operstate", flags == "0x1003" ? "up" : "down");
    file("sys/class/net/" + name + "/speed", "1000");
    file("sys/class/net/" + name + "/queues/rx-0/rps_cpus", "0");
    file("sys/class/net/" + name + "/queues/tx-0/xps_cpus", "0");
  }
  std::string refusal(const NicOptions& options) {
    const Result<std::string> taken = take_nic(options, root);
    return taken ? "taken" : taken.error().text;
  }
};

constexpr const char* kEthernet = "0x020000";

}  // namespace

TEST_CASE("unetctl nic list has each network card with its driver, interface and process") {
  FakeBus bus;
  bus.interface(bus.device("0000:00:03.0", kEthernet, "e1000e", "4"), "eth1", "0x1003");
  bus.device("0000:00:04.0", kEthernet, "vfio-pci", "5");
  bus.device("0000:00:05.0", "0x010000", "ahci", "6");  // a disk
  bus.file("proc/17/comm", "unetd");
  bus.link("proc/17/fd/9", "/dev/vfio/5");
  const auto list = nlohmann::json::parse(show_nics(find_nics(bus.root), true));
  REQUIRE(list.size() == 2);
  CHECK(list[0]["interfaces"][0] == "eth1");
  CHECK(list[0]["link"] == "up 1000 Mbit/s");
  CHECK(list[0]["queues"] == 1);
  CHECK(list[0]["device"] == "8086:10d3");
  CHECK(list[1]["driver"] == "vfio-pci");
  CHECK(list[1]["used_by"] == "unetd 17");
  CHECK_THAT(show_nics({}, false), Contains("no network card"));
  CHECK_THAT(give_nic("00:04.0", bus.root).error().text, Contains("unetd 17") && Contains("end it first"));
  CHECK_THAT(*give_nic("eth1", bus.root), Contains("is the kernel's: e1000e, interface eth1"));
}

TEST_CASE("unetctl nic take says why it takes no card") {
  FakeBus bus;
  const std::string shared = bus.device("0000:00:03.0", kEthernet, "e1000e", "4");
  bus.device("0000:00:03.1", "0x010000", "ahci", "4");
  CHECK_THAT(bus.refusal({.card = "eth9"}), Contains("no network card 'eth9'") && Contains("nic list"));
  CHECK_THAT(bus.refusal({.card = "0000:00:03.0"}), Contains("group 4 with 0000:00:03.1 (driver ahci)"));
  bus.interface(shared, "eth1", "0x1003");
  CHECK_THAT(bus.refusal({.card = "eth1"}), Contains("eth1 is up") && Contains("ip link set eth1 down"));
  bus.device("0000:00:04.0", kEthernet, "", "");
  CHECK_THAT(bus.refusal({.card = "00:04.0"}), Contains("no IOMMU") && Contains("--driver noiommu"));
  CHECK_THAT(bus.refusal({.card = "00:04.0", .how = HandOver::noiommu}), Contains("CONFIG_VFIO_NOIOMMU") && Contains("--driver uio"));
}

TEST_CASE("a card that no driver takes stays with the kernel's choice") {
  FakeBus bus;
  bus.device("0000:00:04.0", kEthernet, "", "7");
  bus.file("sys/bus/pci/drivers/vfio-pci/new_id", "");
  CHECK_THAT(bus.refusal({.card = "0000:00:04.0"}), Contains("vfio-pci does not take 0000:00:04.0"));
  CHECK(bus.text("sys/bus/pci/drivers_probe") == "0000:00:04.0");
  CHECK(bus.text("sys/bus/pci/devices/0000:00:04.0/driver_override").empty());
}

}  // namespace unet::unetctl::nic_test
