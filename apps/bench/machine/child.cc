// child.cc - fork, namespace, core, exec; output into memory; the end of a whole process group.
#include "apps/bench/machine/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>

#include "apps/bench/machine/cores.h"
#include "apps/bench/machine/end_signals.h"
#include "apps/bench/machine/netns.h"

namespace unet::bench {

namespace {

constexpr Nanoseconds kChildStopTime = 3 * kSecond;
constexpr useconds_t kLookUs = 2000;
constexpr size_t kSaidMax = 600;  // of its output in an error
constexpr int kCannotRun = 127;

[[noreturn]] void become(const std::vector<std::string>& command, const ChildPlace& place, int output) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  setpgid(0, 0);  // with its own processes; and a terminal's SIGINT is not for it
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(null, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  const auto refuse = [](const Error& why) {
    dprintf(STDERR_FILENO, "%s\n", why.text.c_str());
    _exit(kCannotRun);
  };
  if (const Status pinned = pin_to_core(place.core); !pinned) refuse(pinned.error());
  if (!place.network.empty()) {
    auto scope = NamespaceScope::enter(place.network);
    if (!scope) refuse(scope.error());
    // exec() keeps the namespace that this leaves only when it is destroyed.
    static const NamespaceScope kept = std::move(*scope);
  }
  if (!place.ni.empty()) setenv("UNET_NI", place.ni.c_str(), 1);
  std::vector<char*> arguments;
  if (!place.wrapper.empty()) arguments.push_back(const_cast<char*>(place.wrapper.c_str()));
  for (const std::string& each : command) arguments.push_back(const_cast<char*>(each.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  dprintf(STDERR_FILENO, "cannot run %s\n", arguments[0]);
  _exit(kCannotRun);
}

void add_descendants(int process, std::vector<int>& all) {
  all.push_back(process);
  const std::string name = std::to_string(process);
  std::ifstream children("/proc/" + name + "/task/" + name + "/children");  // a server's first thread starts its workers
  for (int child = 0; children >> child;) add_descendants(child, all);
}

// Without reaping: the process keeps its number, and its group, until it is waited for.
bool has_ended(pid_t process) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

Nanoseconds of(const timeval& time) {
  return static_cast<Nanoseconds>(time.tv_sec) * kSecond + static_cast<Nanoseconds>(time.tv_usec) * kMicrosecond;
}

}  // namespace

Result<Child> Child::start(const std::vector<std::string>& command, const ChildPlace& place) {
  const int output = memfd_create("output", MFD_CLOEXEC);
  if (output < 0) return fail_errno("memfd_create", errno);
  fcntl(output, F_SETFL, O_APPEND);
  const pid_t process = fork();
  if (process == 0) become(command, place, output);
  if (process > 0) return Child(process, output, command[0]);
  const int error = errno;
  close(output);
  return fail_errno("fork", error);
}

Child::Child(Child&& other) noexcept : process_(other.process_), output_(other.output_), name_(std::move(other.name_)) {
  other.process_ = 0;
  other.output_ = -1;
}

Child::~Child() {
  if (process_ > 0) {
    kill(-process_, SIGTERM);
    for (const Nanoseconds until = monotonic_now() + kChildStopTime; !has_ended(process_) && monotonic_now() < until;) usleep(kLookUs);
    kill(-process_, SIGKILL);  // with what it has left, if anything
    while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) continue;
  }
  if (output_ >= 0) close(output_);
}

std::string Child::said() const {
  struct stat status {};
  if (fstat(output_, &status) != 0) return "";
  std::string text(static_cast<size_t>(status.st_size), '\0');
  const ssize_t n = pread(output_, text.data(), text.size(), 0);
  text.resize(n < 0 ? 0 : static_cast<size_t>(n));
  return text;
}

Error Child::failure(const std::string& what) const {
  std::string last = said();
  if (last.size() > kSaidMax) last.erase(0, last.size() - kSaidMax);
  while (!last.empty() && last.back() == '\n') last.pop_back();
  return {Errc::unavailable, name_ + " " + what + (last.empty() ? "" : ": " + last)};
}

Status Child::await(const std::string& phrase, Nanoseconds patience) {
  for (const Nanoseconds until = monotonic_now() + patience; said().find(phrase) == std::string::npos; usleep(kLookUs)) {
    if (has_ended(process_)) return tl::unexpected(failure("ended"));
    if (end_wanted()) return fail(Errc::disconnected, "interrupted");
    if (monotonic_now() > until) return tl::unexpected(failure("does not get ready"));
  }
  return {};
}

Result<Child::End> Child::finish(Nanoseconds patience) {
  for (const Nanoseconds until = monotonic_now() + patience; !has_ended(process_); usleep(kLookUs)) {
    if (end_wanted()) return fail(Errc::disconnected, "interrupted");
    if (monotonic_now() > until) return tl::unexpected(failure("does not end"));
  }
  int status = 0;
  rusage used{};
  while (wait4(process_, &status, 0, &used) < 0 && errno == EINTR) continue;
  process_ = 0;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return tl::unexpected(failure("failed"));
  return End{said(), of(used.ru_utime) + of(used.ru_stime)};
}

std::vector<int> Child::processes() const {
  std::vector<int> all;
  add_descendants(process_, all);
  return all;
}

}  // namespace unet::bench
