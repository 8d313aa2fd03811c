// launcher.cc - the part of a launcher that needs no PMIx.
#include "am/splitc/launcher.h"

#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "unet/limits.h"

namespace unet::splitc::detail {
namespace {

bool is_set(const char* name) noexcept {
  const char* const text = ::secure_getenv(name);
  return text != nullptr && *text != '\0';
}

}  // namespace

// A program that ignored these variables would be one of many jobs of one process each, without notice.
std::string launched_by_variable() {
  if (is_set("UNET_SIZE")) return {};
  for (const char* name : {"SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (is_set(name) && std::atoi(::secure_getenv(name)) > 1) return name;
  }
  return {};
}

bool launched_by_pmix() { return is_set("PMIX_NAMESPACE") && is_set("PMIX_RANK") && !is_set("UNET_SIZE"); }

std::string own_host() {
  if (is_set("UNET_HOST")) return ::secure_getenv("UNET_HOST");
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0 || host[0] == '\0') return "localhost";
  return std::string(host.data()).substr(0, kNameMax);
}

Result<std::string> random_digits(size_t count) {
  std::string bytes(count / 2, '\0'), digits;
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) return fail_errno("getrandom", errno);
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    digits += "0123456789abcdef"[byte >> 4];
    digits += "0123456789abcdef"[byte & 15];
  }
  return digits;
}

}  // namespace unet::splitc::detail
