// task_environment.cc - variables in the order of their weight: a later one replaces an earlier one.
#include "apps/unet-agent/task_environment.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace unet::agent {
namespace {

std::string variable(std::string_view name, std::string_view value) { return std::string(name) + '=' + std::string(value); }

}  // namespace

std::vector<std::string> task_environment(const RunnerOptions& options, uint32_t rank, const std::string& directory) {
  std::vector<std::string> all;
  const auto set = [&all](std::string each) {
    const std::string name = each.substr(0, each.find('=') + 1);
    std::erase_if(all, [&](const std::string& other) { return other.starts_with(name); });
    all.push_back(std::move(each));
  };
  for (const char* const name : {"PATH", "LANG", "TZ", "TMPDIR"}) {
    if (const char* const value = std::getenv(name)) set(variable(name, value));
  }
  set(variable("HOME", options.home));
  set(variable("USER", options.name));
  set(variable("LOGNAME", options.name));
  for (const std::string& each : options.job.environment) set(each);
  std::string hosts;
  for (const rpc::JobHost& host : options.job.hosts) {
    hosts += (hosts.empty() ? "" : ",") + host.name + (host.tasks == 1 ? "" : ":" + std::to_string(host.tasks));
  }
  set(variable("UNET_NI", options.ni));
  set(variable("UNET_RANK", std::to_string(rank)));
  set(variable("UNET_SIZE", std::to_string(options.job.tasks())));
  set(variable("UNET_JOB", "job-" + options.job.secret.substr(0, 8)));
  set(variable("UNET_JOB_HOSTS", hosts));
  set(variable("UNET_JOB_KEY", options.job.secret));
  if (!directory.empty()) set(variable("UNET_JOB_DIRECTORY", directory));
  return all;
}

}  // namespace unet::agent
