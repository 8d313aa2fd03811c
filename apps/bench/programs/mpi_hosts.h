// mpi_hosts.h - two network namespaces as hosts of an MPI job of two ranks, one in each; used by mpi.cc.
//
// mpirun runs in the first one. It starts its daemon of the second one by a script that enters that namespace. One veth pair has its
// offloads, and carries what Open MPI sends by TCP. The other one is for AF_XDP alone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/bench/machine/netns.h"
#include "unet/base/result.h"

namespace unet::bench {

class MpiHosts {
 public:
  static Result<std::unique_ptr<MpiHosts>> create();
  MpiHosts(const MpiHosts&) = delete;
  MpiHosts& operator=(const MpiHosts&) = delete;
  ~MpiHosts();

  // What stands before the command: it runs in the first namespace.
  std::vector<std::string> enter_first() const { return {"ip", "netns", "exec", spaces_.name_a()}; }
  // Options of mpirun.
  std::vector<std::string> options() const;
  // What stands before the program of a rank: it gives the rank a network interface of its own, on AF_XDP.
  std::vector<std::string> choose_ni() const;

 private:
  MpiHosts(NamespacePair spaces, Veth cable, Veth wire) noexcept;
  Status write_agent();

  NamespacePair spaces_;
  Veth cable_, wire_;
  std::string agent_;  // the script; empty: none was made
};

}  // namespace unet::bench
