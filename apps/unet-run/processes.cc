// processes.cc - fork, exec, wait, and forwarding of signals.
#include "apps/unet-run/processes.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "apps/descendants.h"
#include "ni/service/names.h"
#include "unet/base/time.h"

namespace unet::run {
namespace {

constexpr Nanoseconds kTermTime = 2 * kSecond;
constexpr std::array kForwarded{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

sigset_t waited_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kForwarded) sigaddset(&set, signal);
  sigaddset(&set, SIGCHLD);
  return set;
}

struct Child {
  const Options& options;
  uint32_t rank;
  pid_t parent;
  int gate, errors;
  const LabelledOutput::Ends& output;  // invalid descriptors: inherits ours
};

[[noreturn]] void give_up(int errors) {
  const int error = errno;
  static_cast<void>(!write(errors, &error, sizeof error));
  _exit(127);
}

// Runs in the child, between fork and exec.
[[noreturn]] void become_program(const Child& child, const std::string& socket) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != child.parent) _exit(127);  // the parent died before prctl() took effect
  const std::vector<uint32_t>& cores = child.options.cores;
  if (!cores.empty()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cores[child.rank % cores.size()], &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) give_up(child.errors);
  }
  if (child.rank != 0) {  // several readers of one input would each get a part of it
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0) give_up(child.errors);
  }
  const LabelledOutput::Ends& output = child.output;
  if (output.out.valid() && dup2(output.out.get(), STDOUT_FILENO) < 0) give_up(child.errors);
  if (output.errors.valid() && dup2(output.errors.get(), STDERR_FILENO) < 0) give_up(child.errors);
  setenv("UNET_NI", ("unix:" + socket).c_str(), 1);
  setenv("UNET_RANK", std::to_string(child.rank).c_str(), 1);
  setenv("UNET_SIZE", std::to_string(child.options.size).c_str(), 1);
  unsetenv("UNET_JOB_HOSTS");  // left from a job started by hand: all ranks of this one are here
  std::vector<char*> arguments;
  for (const std::string& argument : child.options.program) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  char byte = 0;
  while (read(child.gate, &byte, 1) < 0 && errno == EINTR) {
  }
  signal(SIGXFSZ, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execvp(arguments[0], arguments.data());
  give_up(child.errors);
}

}  // namespace

Result<Processes> Processes::start(const Options& options, const std::string& socket, LabelledOutput* output, pid_t janitor) {
  signal(SIGXFSZ, SIG_IGN);  // a rank that asks for more memory than ulimit -f allows gets an error instead
  apps::adopt_descendants();
  const sigset_t set = waited_signals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  int gate[2], errors[2];
  if (pipe2(gate, O_CLOEXEC) != 0 || pipe2(errors, O_CLOEXEC) != 0) return fail_errno("pipe", errno);
  const Descriptor gate_out(gate[0]), errors_in(errors[1]);
  Processes all;
  all.gate_ = Descriptor(gate[1]);
  all.errors_ = Descriptor(errors[0]);
  all.program_ = options.program[0];
  all.janitor_ = janitor;
  const pid_t parent = getpid();
  for (uint32_t rank = 0; rank < options.size; ++rank) {
    LabelledOutput::Ends ends;
    if (output != nullptr) {
      Result<LabelledOutput::Ends> added = output->add();
      if (!added) return tl::unexpected(added.error());
      ends = std::move(*added);
    }
    const pid_t pid = fork();
    if (pid < 0) return fail_errno("fork", errno);
    if (pid == 0) {
      all.gate_.reset();
      become_program({options, rank, parent, gate_out.get(), errors_in.get(), ends}, socket);
    }
    all.processes_.push_back({pid, rank, true});
    ++all.running_;
  }
  return all;
}

Status Processes::release() {
  gate_.reset();
  // The other end closes when every child has executed its program.
  int error = 0;
  ssize_t n = 0;
  do {
    n = read(errors_.get(), &error, sizeof error);
  } while (n < 0 && errno == EINTR);
  if (n != sizeof error) return {};
  return fail(Errc::invalid_argument, "cannot start " + service::in_quotes(program_) + ": " +
                                          std::error_code(error, std::system_category()).message());
}

Processes::~Processes() {
  signal_all(SIGKILL);
  for (const Process& process : processes_) {
    if (process.running) waitpid(process.pid, nullptr, 0);
  }
  if (!processes_.empty()) apps::end_descendants(janitor_);
}

void Processes::signal_all(int signal) noexcept {
  for (const Process& process : processes_) {
    if (process.running) kill(process.pid, signal);
  }
}

void Processes::note_end(pid_t pid, int status) {
  for (Process& process : processes_) {
    if (process.pid != pid || !process.running) continue;
    process.running = false;
    --running_;
    const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (code == 0 || first_failure_ != 0) return;
    first_failure_ = code;
    if (WIFSIGNALED(status)) {
      std::fprintf(stderr, "unet-run: rank %u was ended by signal %d\n", process.rank, WTERMSIG(status));
    } else {
      std::fprintf(stderr, "unet-run: rank %u failed with status %d\n", process.rank, code);
    }
    signal_all(SIGTERM);
  }
}

int Processes::wait() {
  const sigset_t set = waited_signals();
  Nanoseconds kill_at = 0;
  while (running_ > 0) {
    timespec limit{.tv_sec = 0, .tv_nsec = 200'000'000};
    const int signal = sigtimedwait(&set, nullptr, &limit);
    if (signal > 0 && signal != SIGCHLD) {
      signal_all(signal);
      if (first_failure_ == 0 && signal != SIGUSR1 && signal != SIGUSR2) first_failure_ = 128 + signal;
    }
    int status = 0;
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) note_end(pid, status);
    if (first_failure_ != 0 && kill_at == 0) kill_at = monotonic_now() + kTermTime;
    if (kill_at != 0 && monotonic_now() >= kill_at) signal_all(SIGKILL);
  }
  return first_failure_;
}

}  // namespace unet::run
