// nic.h - unetctl nic: the network cards on the PCI bus. Each belongs to a driver of the kernel, or to one that hands it to a unetd.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "unet/base/result.h"

namespace unet::unetctl {

struct Nic {
  std::string address;               // "0000:03:00.0"
  std::string id;                    // vendor and device: "8086:10d3"
  std::string driver;                // empty: none
  std::string iommu_group;           // empty: no IOMMU protects memory from it
  int numa_node = -1;                // -1: the machine has one node, or does not tell
  std::vector<std::string> interfaces;  // of the kernel; the fields below are those of the first
  bool up = false;                   // set up by the administrator: this machine may use it
  std::string link;                  // "up 1000 Mbit/s", "down"; empty: the kernel does not know
  unsigned queues = 0;               // to receive
  std::string offloads;              // "rx-csum tx-csum sg tso"
  std::string user;                  // the process that has it open: "unetd 4711"
};

// How a card is handed over: by VFIO with an IOMMU, by VFIO without one, or by UIO.
enum class HandOver { vfio, noiommu, uio };

struct NicOptions {
  std::string card;  // a PCI address, or the name of its interface
  HandOver how = HandOver::vfio;
};

// The cards of the machine with /sys, /proc and /dev below `root`, by address.
std::vector<Nic> find_nics(const std::filesystem::path& root = "/");

std::string show_nics(const std::vector<Nic>& nics, bool as_json);

// Takes a card from the kernel's driver, for a unetd; gives it back. Both need root. Nothing is stored: after a crash the same call gives a
// card back. They return a sentence that says what the card is now. Errors: not_found; already_exists if something uses the card;
// unavailable if there is no such driver, or it does not take the card; not_permitted.
Result<std::string> take_nic(const NicOptions& options, const std::filesystem::path& root = "/");
Result<std::string> give_nic(const std::string& card, const std::filesystem::path& root = "/");

}  // namespace unet::unetctl
