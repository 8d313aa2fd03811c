// mpi_hosts.cc - namespaces, cables and the script.
#include "apps/bench/programs/mpi_hosts.h"

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <utility>

#include "apps/bench/machine/command.h"

namespace unet::bench {

MpiHosts::MpiHosts(NamespacePair spaces, Veth cable, Veth wire) noexcept
    : spaces_(std::move(spaces)), cable_(std::move(cable)), wire_(std::move(wire)) {}

MpiHosts::~MpiHosts() {
  if (directory_.empty()) return;
  std::error_code error;
  std::filesystem::remove_all(directory_, error);
}

Result<std::unique_ptr<MpiHosts>> MpiHosts::create() {
  auto spaces = NamespacePair::create();
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
  char directory[] = "/tmp/unet-bench-XXXXXX";
  if (::mkdtemp(directory) == nullptr) return fail_errno("mkdtemp(/tmp/unet-bench-XXXXXX)", errno);
  directory_ = directory;
  const std::string agent = directory_ + "/agent";
  std::ofstream(agent) << "#!/bin/sh\nshift\nexec ip netns exec " << spaces_.name_b() << " sh -c \"$*\"\n";
  std::error_code error;
  std::filesystem::permissions(agent, std::filesystem::perms::owner_all, error);
  return error ? fail(Errc::system, agent + ": " + error.message()) : Status{};
}

std::vector<std::string> MpiHosts::options() const {
  const std::string network = cable_.address_a + "/24";
  return {"--host", cable_.address_a + "," + cable_.address_b, "--mca", "plm_rsh_agent", directory_ + "/agent", "--mca",
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
