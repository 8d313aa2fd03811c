// places.h - the networks of a server and its client of `unet-bench run sockets`; programs.cc takes them in turn.
//
// The programs use our sockets (by unet-sockets) or the kernel's, on one host or at the ends of a cable of their own.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/bench/machine/child.h"
#include "apps/bench/machine/cores.h"
#include "apps/bench/machine/daemon.h"
#include "apps/bench/machine/netns.h"

namespace unet::bench {

constexpr const char* kProgramsLocal = "programs-local";
constexpr const char* kProgramsToKernel = "programs-to-kernel";
constexpr const char* kProgramsFromKernel = "programs-from-kernel";
constexpr const char* kProgramsOwnToKernel = "programs-own-to-kernel";      // with a network interface inside the program
constexpr const char* kProgramsOwnFromKernel = "programs-own-from-kernel";
constexpr const char* kProgramsLoopback = "programs-kernel-loopback";
constexpr const char* kProgramsVeth = "programs-kernel-veth";

struct ProgramPlace {
  std::string address;         // of the server
  ChildPlace server, client;
  std::vector<int> services;   // processes that serve it, such as unetd: their time counts, too
  bool one_process = false;    // a program's children would have no network interface
};

// Namespaces and network interfaces are made for the paths that are asked for, and removed with this.
class ProgramPlaces {
 public:
  explicit ProgramPlaces(CorePair cores) : cores_(cores) {}
  // Makes the place at the first call and returns it at the next ones; an error names the missing part.
  Result<const ProgramPlace*> find(const std::string& path);

 private:
  Result<ProgramPlace> make(const std::string& path);
  Result<ProgramPlace> make_local();
  // `ours_serve`: the server is on our sockets, not the client. `own`: the network interface is inside the program, not in unetd.
  Result<ProgramPlace> make_on_cable(bool ours_serve, bool own);
  Result<NamespacePair*> namespaces();

  const CorePair cores_;
  std::optional<NamespacePair> namespaces_;
  std::vector<Daemon> daemons_;
  std::map<std::string, Result<ProgramPlace>> places_;
};

}  // namespace unet::bench
