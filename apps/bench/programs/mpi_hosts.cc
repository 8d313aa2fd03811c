// mpi_hosts.cc - the namespaces, their cables, and the script that mpirun calls in place of ssh.
#include "apps/bench/programs/mpi_hosts.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "apps/bench/machine/command.h"
#include "apps/bench/machine/stale_names.h"

namespace unet::bench {

namespace {

constexpr const char* kPrefix = "unet-bench";

// Those of killed runs. A script has the name of the namespace that it enters.
void remove_stale_agents() {
  const auto owner = [](const std::string& name) { return owner_of_namespace(name, kPrefix); };
  for (const std::string& name : stale_names("/tmp", owner)) unlink(("/tmp/" + name).c_str());
}

}  // namespace

MpiHosts::MpiHosts(NamespacePair spaces, Veth cable, Veth wire) noexcept
    : spaces_(std::move(spaces)), cable_(std::move(cable)), wire_(std::move(wire)) {}

MpiHosts::~MpiHosts() {
  if (!agent_.empty()) unlink(agent_.c_str());
}

Result<std::unique_ptr<MpiHosts>> MpiHosts::create() {
  remove_stale_agents();
  auto spaces = NamespacePair::create(kPrefix);
  if (!spaces) return tl::unexpected(spaces.error());
  auto cable = spaces->add_veth({});
  auto wire = cable ? spaces->add_veth({.offloads = false}) : cable;
  if (!wire) return tl::unexpected(wire.error());
  std::unique_ptr<MpiHosts> hosts(new MpiHosts(std::move(*spaces), std::move(*cable), std::move(*wire)));
  if (auto written = hosts->write_agent(); !written) return tl::unexpected(written.error());
  return hosts;
}

// Writes the script that mpirun calls as it would call ssh: with the name of a host, and the words of a command for the shell there.
Status MpiHosts::write_agent() {
  const std::string path = "/tmp/" + spaces_.name_b();
  std::FILE* const out = std::fopen(path.c_str(), "wxe");  // x: fails if another user has made that file
  if (out == nullptr) return fail_errno("fopen(" + path + ")", errno);
  agent_ = path;
  std::fprintf(out, "#!/bin/sh\nshift\nexec ip netns exec %s sh -c \"$*\"\n", spaces_.name_b().c_str());
  const bool executable = fchmod(fileno(out), 0700) == 0;
  // A full disk shows here: the script is shorter than the buffer.
  const bool written = std::fclose(out) == 0;
  return executable && written ? Status{} : Status(fail_errno("the script for mpirun (" + path + ") cannot be written", errno));
}

std::vector<std::string> MpiHosts::options() const {
  const std::string network = cable_.address_a + "/24";
  return {"--host", cable_.address_a + "," + cable_.address_b, "--mca", "plm_rsh_agent", agent_, "--mca",
          "oob_tcp_if_include", network, "--mca", "btl_tcp_if_include", network};
}

std::vector<std::string> MpiHosts::choose_ni() const {
  const auto choice = [](const std::string& interface, const std::string& host) {
    return "ni='embedded:xdp:iface=" + interface + ";host=" + host + "'";
  };
  const std::string choose = "case $OMPI_COMM_WORLD_RANK in 0) " + choice(wire_.interface_a, "a") + ";; *) " +
                             choice(wire_.interface_b, "b") + ";; esac";
  return {"env", "UNET_EMBEDDED_LIBRARY=" + find_program("embedded", "libunet_embedded.so"), "sh", "-c",
          choose + "; UNET_NI=$ni exec \"$@\"", "rank"};
}

}  // namespace unet::bench
