// main.cc - unet-sockets: executes the given program with the sockets library preloaded.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "apps/standard_descriptors.h"
#include "apps/unet-sockets/linkage.h"
#include "apps/unet-sockets/options.h"
#include "unet/context.h"

namespace unet::wrapper {
namespace {

constexpr int kFailure = 1, kCannotRun = 126, kNotFound = 127;
constexpr const char* kLibrary = "libunet_sockets.so";

// The library is in the same build directory as this program, or in the same installation, wherever that was moved to.
std::string find_library() {
  std::error_code ignored;
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  const std::filesystem::path installed = here / ".." / UNET_SOCKETS_LIBRARY_DIR;
  for (const std::filesystem::path& each : {here / "../../ipstack/preload" / kLibrary, installed / kLibrary}) {
    if (std::filesystem::exists(each, ignored)) return std::filesystem::canonical(each, ignored).string();
  }
  return {};
}

void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

// A library that the user preloads comes behind U-Net's.
void preload(const std::string& library) {
  const char* const others = std::getenv("LD_PRELOAD");
  set("LD_PRELOAD", others == nullptr || *others == 0 ? library : library + ":" + others);
}

int run(Options options) {
  if (const auto why = options.kernel ? std::nullopt : kernel_alone(options.program.front())) {
    std::fprintf(stderr, "unet-sockets: %s: its sockets would be the kernel's (--kernel starts it all the same)\n", why->c_str());
    return kCannotRun;
  }
  if (options.preloaded.empty()) options.preloaded = find_library();
  if (options.preloaded.empty() || ::access(options.preloaded.c_str(), R_OK) != 0) {
    std::fprintf(stderr, "unet-sockets: no library %s: build it, or name it with --library\n",
                 options.preloaded.empty() ? kLibrary : options.preloaded.c_str());
    return kFailure;
  }
  // Without an NI the program must not start: its sockets would silently be the kernel's.
  if (!options.ni.empty()) set("UNET_NI", options.ni);
  {
    const auto context = Context::open({}, "unet-sockets");
    if (!context) {
      std::fprintf(stderr, "unet-sockets: %s\n", context.error().text.c_str());
      return kFailure;
    }
  }
  if (!options.rules.empty()) set("UNET_SOCKETS_RULES", options.rules);
  if (options.spin_us) set("UNET_SOCKETS_SPIN_US", std::to_string(*options.spin_us));
  if (options.log) set("UNET_SOCKETS_LOG", "1");
  preload(options.preloaded);
  std::vector<char*> arguments;
  for (std::string& each : options.program) arguments.push_back(each.data());
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  const int error = errno;
  std::fprintf(stderr, "unet-sockets: %s: %s\n", arguments[0], std::strerror(error));
  return error == ENOENT ? kNotFound : kCannotRun;
}

}  // namespace
}  // namespace unet::wrapper

int main(int argc, char** argv) {
  unet::apps::hold_standard_descriptors();
  unet::wrapper::ParsedOptions parsed = unet::wrapper::parse_options(argc, argv);
  return parsed.options ? unet::wrapper::run(std::move(*parsed.options)) : parsed.status;
}
