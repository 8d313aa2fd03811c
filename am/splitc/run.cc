// run.cc - runs a program as one rank of its job.
#include <cstdio>
#include <cstdlib>

#include "am/splitc/am_transport.h"
#include "am/splitc/job.h"
#include "am/splitc/launcher.h"
#include "am/splitc/simulation.h"
#include "am/splitc/splitc.h"

namespace unet::splitc {
namespace {

constexpr int kFailure = 1;

// The launcher knows better than variables, which may be left from a job that was started by hand.
void forget_environment() {
  for (const char* const name : {"UNET_SIZE", "UNET_RANK", "UNET_JOB_HOSTS", "UNET_JOB_KEY"}) unsetenv(name);
}

Result<std::unique_ptr<Node>> start_rank(const Job& job, Launcher* launcher) {
  if (const Status fit = job.fits_here(); !fit) return tl::unexpected(fit.error());
  auto transport = AmTransport::open(job, launcher);
  if (!transport) return tl::unexpected(transport.error());
  return Node::start(std::move(*transport));
}

Result<std::unique_ptr<Node>> start(Launcher* launcher) {
  if (launcher != nullptr) forget_environment();
  Result<Job> job = Job::from_environment();
  if (!job) return tl::unexpected(job.error());
  if (launcher != nullptr) {
    if (const Status joined = launcher->join(*job); !joined) return tl::unexpected(joined.error());
  }
  auto node = start_rank(*job, launcher);
  if (node) return node;
  const std::string who = "rank " + std::to_string(job->rank) + " of " + std::to_string(job->size);
  return fail(node.error().code, who + ": start: " + node.error().text);
}

int complain(const Error& error) {
  std::fprintf(stderr, "splitc: %s\n", error.text.c_str());
  return kFailure;
}

// A rank that fails ends the others instead of waiting for them. unet-run does that by itself. Other launchers may not, so they are told.
int fail_all(Launcher* launcher, int status) {
  if (launcher == nullptr) return status;
  std::fflush(nullptr);  // the launcher may kill this process before it flushes
  launcher->end_all(status, "a rank has failed with status " + std::to_string(status));
  return status;
}

int run_program(Launcher* launcher, int argc, char** argv, int (*program)(int argc, char** argv)) {
  const Result<std::unique_ptr<Node>> node = start(launcher);
  if (!node) return fail_all(launcher, complain(node.error()));
  current_node = node->get();
  const int status = program(argc, argv);
  if (status != 0) {
    fail_all(launcher, status);  // before others see that this rank is gone: their status would become the job's
  } else {
    (*node)->finish();
  }
  current_node = nullptr;
  return status;
}

// UNET_SPLITC_MACHINE: all ranks run in this process, and their network is simulated.
int run_simulated(const char* machine_text, int argc, char** argv, int (*program)(int argc, char** argv)) {
  const Result<Machine> machine = parse_machine(machine_text);
  if (!machine) return complain(machine.error());
  const Result<Job> job = Job::from_environment();
  if (!job) return complain(job.error());
  if (job->rank != 0) {
    return complain({Errc::invalid_argument, "UNET_SPLITC_MACHINE: one process simulates all ranks; start it by unet-run --simulate"});
  }
  return simulate(*machine, job->size, job->memory, argc, argv, program);
}

// A program with strict checks records destinations of gets. A library without them would never clear those.
int refuse_strict() {
  std::fputs("splitc: this program is compiled with UNET_SPLITC_STRICT, and the library without: take one that is built for debugging\n",
             stderr);
  return kFailure;
}

}  // namespace

int detail::run(int argc, char** argv, int (*program)(int argc, char** argv), bool strict) {
  if (strict && !kStrict) return refuse_strict();
  if (const char* const machine = secure_getenv("UNET_SPLITC_MACHINE")) return run_simulated(machine, argc, argv, program);
  const Result<std::unique_ptr<Launcher>> launcher = Launcher::find();
  if (!launcher) return complain(launcher.error());
  const int status = run_program(launcher->get(), argc, argv, program);
  if (status == 0 && *launcher != nullptr) (*launcher)->leave();
  return status;
}

}  // namespace unet::splitc
