// places.cc - cables, network interfaces, and the addresses on them.
#include "apps/bench/programs/places.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "apps/bench/machine/command.h"

namespace unet::bench {

namespace {

constexpr const char* kOfNamespace = "/proc/sys/net/ipv4/tcp_congestion_control";
constexpr const char* kAllowed = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

std::string line_of(const char* file) {
  std::string line;
  std::getline(std::ifstream(file), line);
  return line;
}

// Sets cubic for new connections in that namespace, and returns whether it is set.
Result<bool> set_cubic(const std::string& network) {
  auto scope = NamespaceScope::enter(network);
  if (!scope) return tl::unexpected(scope.error());
  std::ofstream(kOfNamespace) << "cubic\n";
  return line_of(kOfNamespace) == "cubic";
}

// A namespace inherits the host's algorithm, which may be bbr: over a veth pair it has a third of cubic's bandwidth. An algorithm that the
// host does not allow to all processes cannot be set in its namespaces either, so it is allowed while this sets it.
Status use_cubic(const std::string& network) {
  auto is_set = set_cubic(network);
  const std::string allowed = line_of(kAllowed);
  if (is_set && !*is_set && !allowed.empty()) {
    std::ofstream(kAllowed) << allowed << " cubic\n";
    is_set = set_cubic(network);
    std::ofstream(kAllowed) << allowed << "\n";
  }
  if (!is_set) return tl::unexpected(is_set.error());
  if (!*is_set) return fail(Errc::unavailable, std::string("the kernel's TCP cannot have cubic in a namespace; see ") + kAllowed);
  return {};
}

Result<std::string> find_wrapper() {
  const char* const named = std::getenv("UNET_SOCKETS_WRAPPER");
  const std::string found = named != nullptr ? named : find_program("unet-sockets", "unet-sockets");
  if (found.find('/') != std::string::npos || !path_of(found).empty()) return found;
  return fail(Errc::unavailable, "there is no unet-sockets; build it, or name it in the environment variable UNET_SOCKETS_WRAPPER");
}

}  // namespace

Result<const ProgramPlace*> ProgramPlaces::find(const std::string& path) {
  auto found = places_.find(path);
  if (found == places_.end()) found = places_.emplace(path, make(path)).first;
  if (!found->second) return tl::unexpected(found->second.error());
  return &*found->second;
}

Result<ProgramPlace> ProgramPlaces::make(const std::string& path) {
  auto pair = namespaces();
  if (!pair) return tl::unexpected(pair.error());
  const ChildPlace at_a{.network = (*pair)->name_a(), .core = cores_.a};
  if (path == kProgramsLoopback) return ProgramPlace{"127.0.0.1", {.network = at_a.network, .core = cores_.b}, at_a, {}};
  if (path == kProgramsLocal) return make_local();
  if (path != kProgramsVeth) {
    const bool own = path == kProgramsOwnToKernel || path == kProgramsOwnFromKernel;
    return make_on_cable(path == kProgramsFromKernel || path == kProgramsOwnFromKernel, own);
  }
  auto veth = (*pair)->add_veth({});
  if (!veth) return tl::unexpected(veth.error());
  return ProgramPlace{veth->address_b, {.network = (*pair)->name_b(), .core = cores_.b}, at_a, {}};
}

// Both are applications of one network interface, in a namespace in which the kernel does not have its address.
Result<ProgramPlace> ProgramPlaces::make_local() {
  auto wrapper = find_wrapper();
  if (!wrapper) return tl::unexpected(wrapper.error());
  auto daemon = Daemon::start_with_ip(third_core(cores_), Daemon::Clients::of_all_users);
  if (!daemon) return tl::unexpected(daemon.error());
  daemons_.push_back(std::move(*daemon));
  const std::string ni = daemons_.back().ni(), network = namespaces_->name_a();
  return ProgramPlace{Daemon::kIpAddress,
                      {.network = network, .core = cores_.b, .wrapper = *wrapper, .ni = ni},
                      {.network = network, .core = cores_.a, .wrapper = *wrapper, .ni = ni},
                      {daemons_.back().process()}};
}

Result<ProgramPlace> ProgramPlaces::make_on_cable(bool ours_serve, bool own) {
  auto wrapper = find_wrapper();
  if (!wrapper) return tl::unexpected(wrapper.error());
  auto veth = namespaces_->add_veth({});
  if (!veth) return tl::unexpected(veth.error());
  const std::string our_network = ours_serve ? namespaces_->name_b() : namespaces_->name_a();
  const std::string interface = ours_serve ? veth->interface_b : veth->interface_a;
  // The kernel at our end loses its address: packets that reach it by mistake are dropped.
  auto flushed = run_command({"ip", "-n", our_network, "address", "flush", "dev", interface});
  if (!flushed) return tl::unexpected(flushed.error());
  const std::string ours = veth->address_a.substr(0, veth->address_a.rfind('.')) + ".77";
  const std::string port = "packet:iface=" + interface;
  ProgramPlace place{ours_serve ? ours : veth->address_b,
                     {.network = namespaces_->name_b(), .core = cores_.b},
                     {.network = namespaces_->name_a(), .core = cores_.a},
                     {}, own};
  ChildPlace& our_side = ours_serve ? place.server : place.client;
  our_side.wrapper = *wrapper;
  if (own) {
    setenv("UNET_EMBEDDED_LIBRARY", find_program("embedded", "libunet_embedded.so").c_str(), 0);
    our_side.ni = "embedded:" + port + ";ip=0=" + ours + "/24,unprobed";
    return place;
  }
  auto scope = NamespaceScope::enter(our_network);
  if (!scope) return tl::unexpected(scope.error());
  const char* const mark = ours_serve ? "-serves" : "-calls";
  auto daemon = Daemon::start_on_wire(third_core(cores_), Daemon::Clients::of_all_users, mark, port, ours);
  if (!daemon) return tl::unexpected(daemon.error());
  daemons_.push_back(std::move(*daemon));
  place.services = {daemons_.back().process()};
  our_side.ni = daemons_.back().ni();
  return place;
}

Result<NamespacePair*> ProgramPlaces::namespaces() {
  if (namespaces_) return &*namespaces_;
  auto pair = NamespacePair::create();
  if (!pair) return tl::unexpected(pair.error());
  for (const std::string& name : {pair->name_a(), pair->name_b()}) {
    if (auto set = use_cubic(name); !set) return tl::unexpected(set.error());
  }
  namespaces_.emplace(std::move(*pair));
  return &*namespaces_;
}

}  // namespace unet::bench
