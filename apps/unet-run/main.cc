// main.cc - unet-run: a private network interface and N processes that use it. It ends with them and leaves nothing behind.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <thread>
#include <vector>

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "apps/open_ports.h"
#include "apps/standard_descriptors.h"
#include "apps/unet-run/options.h"
#include "apps/unet-run/output.h"
#include "apps/unet-run/processes.h"
#include "apps/unet-run/remote.h"
#include "apps/unet-run/temp_directory.h"
#include "ni/service/ip_config.h"
#include "ni/service/ni.h"

namespace unet::run {
namespace {

constexpr int kFailure = 1;

int refuse(const Error& error) {
  std::fprintf(stderr, "unet-run: %s\n", error.text.c_str());
  return kFailure;
}

// Programs of libfabric find U-Net's provider: it is in a build directory beside this program, or installed below the same prefix.
void announce_provider() {
  std::error_code ignored;
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const std::filesystem::path& each : {here / "../../fabric", here / ".." / UNET_PROVIDER_DIR}) {
    if (!std::filesystem::exists(each / "libunet-fi.so", ignored)) continue;
    ::setenv("FI_PROVIDER_PATH", std::filesystem::canonical(each, ignored).c_str(), 0);  // the user's own value stays
    return;
  }
}

// The library of a Split-C program finds the machine in its environment. Other programs run as one process.
int simulate(const Options& options) {
  ::setenv("UNET_SPLITC_MACHINE", options.simulate.c_str(), 1);
  ::setenv("UNET_SIZE", std::to_string(options.size).c_str(), 1);
  ::setenv("UNET_RANK", "0", 1);
  std::vector<char*> words;
  for (const std::string& each : options.program) words.push_back(const_cast<char*>(each.c_str()));
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  return refuse({Errc::not_found, options.program[0] + ": " + std::generic_category().message(errno)});
}

// Forks the processes first: no fork may follow once the network interface has threads. The programs begin when it listens.
int run(Options& options) {
  Result<TempDirectory> directory = TempDirectory::create();
  if (!directory) return refuse(directory.error());
  options.config.ni.socket = directory->socket();
  announce_provider();
  LabelledOutput output;  // destroyed last: the end of the processes closes the pipes that it reads
  Result<Processes> processes = Processes::start(options, directory->socket(), options.label ? &output : nullptr, directory->janitor());
  if (!processes) return refuse(processes.error());

  Result<std::vector<std::unique_ptr<Driver>>> drivers =
      apps::open_ports(options.config.ports, service::ports_with_ip(options.config.ni.engine.ip.ports));
  if (!drivers) return refuse(drivers.error());
  Result<std::unique_ptr<service::Ni>> ni = service::Ni::create(options.config.ni, std::move(*drivers));
  if (!ni) return refuse(ni.error());
  std::thread ni_thread([&ni] {
    if (Status status = (*ni)->run(); !status) std::fprintf(stderr, "unet-run: %s\n", status.error().text.c_str());
  });

  int code = 0;
  if (Status status = options.label ? output.start() : Status{}; !status) {
    code = refuse(status.error());
  } else if (status = processes->release(); status) {
    code = processes->wait();
  } else {
    code = refuse(status.error());
  }
  (*ni)->request_stop();
  ni_thread.join();
  return code;
}

}  // namespace
}  // namespace unet::run

int main(int argc, char** argv) {
  unet::apps::hold_standard_descriptors();
  unet::run::ParsedOptions parsed = unet::run::parse_options(argc, argv);
  if (!parsed.options) return parsed.status;
  spdlog::set_default_logger(spdlog::stderr_color_mt("unet-run"));
  spdlog::set_level(spdlog::level::warn);
  if (!parsed.options->simulate.empty()) return unet::run::simulate(*parsed.options);
  if (!parsed.options->remote.hosts.empty()) return unet::run::run_remote(*parsed.options);
  return unet::run::run(*parsed.options);
}
