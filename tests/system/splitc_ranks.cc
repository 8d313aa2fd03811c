// splitc_ranks.cc - Split-C's programs as one rank of a real job; started by unet-run (meson.build says with how many ranks).
//
//   splitc_ranks [NAME]        all programs of tests/splitc_programs.h, or one; !WAY: what ends a job (splitc_ends.py)
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/splitc_programs.h"

using namespace unet::splitc;

namespace {

// What the last rank does. The others must not wait for ever, nor go on.
int misbehave(std::string_view how) {
  barrier();
  if (how == "memory") all_spread_malloc<char>(procs(), uint64_t{1} << 30);
  if (my_proc() == procs() - 1) {
    if (how == "leave") std::_Exit(0);
    if (how == "kill") std::raise(SIGKILL);
    if (how == "fail") return 7;
    if (how == "step") all_store_sync();
    if (how == "bounds") write(Global<uint64_t>(0, uint64_t{1} << 40), 1);
  }
  barrier();
  std::printf("through\n");
  return 0;
}

int program(int argc, char** argv) {
  const std::string_view wanted = argc > 1 ? argv[1] : "";
  if (wanted.starts_with("!")) return misbehave(wanted.substr(1));
  for (const auto& [name, check] : programs::kAll) {
    if (!wanted.empty() && wanted != name) continue;
    check();
    if (my_proc() == 0) std::printf("%s: %u ranks\n", name, procs());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return run(argc, argv, program); }
