// session.cc - fork, commands, signals and deadlines.
#include "apps/bench/frame/session.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <new>

#include "apps/bench/machine/cpu_time.h"
#include "unet/base/check.h"
#include "unet/base/time.h"

namespace unet::bench {

namespace {

constexpr uint64_t kSliceAllowedMs = 30'000;    // a slice is made to last milliseconds
constexpr uint64_t kSetUpAllowedMs = 60'000;   // a DPDK port takes seconds to start
constexpr Nanoseconds kGrace = 10 * kSecond;   // for side B to notice that it was stopped
constexpr size_t kSamplesMax = 1 << 16;        // of one slice
constexpr suseconds_t kTickUs = 100'000;       // ends system calls that a stop found blocked

// Signal handlers find their process's session here; a handler has no other argument.
ControlBlock* signal_control = nullptr;
std::atomic<pid_t> signal_child{0};
std::atomic<Nanoseconds> signal_deadline{0};

void wake_side_b() noexcept {
  const pid_t child = signal_child.load(std::memory_order_relaxed);
  if (child > 0) kill(child, SIGALRM);
}

void on_interrupt(int) {
  const int saved = errno;
  signal_control->raise(StopReason::interrupted);
  wake_side_b();
  errno = saved;
}

void on_child(int) {
  const int saved = errno;
  siginfo_t info{};
  const pid_t child = signal_child.load(std::memory_order_relaxed);
  // Other children (`ip`) end too; WNOWAIT leaves the reaping to the owner.
  if (child > 0 && waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child) {
    signal_control->raise(StopReason::peer_gone);
  }
  errno = saved;
}

void on_tick(int) {
  const int saved = errno;
  const Nanoseconds deadline = signal_deadline.load(std::memory_order_relaxed);
  if (deadline != 0 && monotonic_now() > deadline) {
    signal_control->raise(StopReason::failed);
    wake_side_b();
  }
  errno = saved;
}

void handle(int signal_number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;  // no SA_RESTART: a blocked system call must return
  sigemptyset(&action.sa_mask);
  sigaction(signal_number, &action, nullptr);
}

void set_tick(suseconds_t period_us) {
  const itimerval timer{{0, period_us}, {0, period_us}};
  setitimer(ITIMER_REAL, &timer, nullptr);
}

Nanoseconds own_cpu_time() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<Nanoseconds>(time.tv_sec) * kSecond + static_cast<Nanoseconds>(time.tv_nsec);
}

std::string describe(const std::string& path, const std::string& text) { return path + ": " + text; }

}  // namespace

Session::Session(Paths paths, CorePair cores, ControlBlock* control)
    : paths_(std::move(paths)), environment_(cores), control_(control), refusals_(paths_.size()),
      set_up_(paths_.size()) {
  samples_.reserve(kSamplesMax);
}

Result<std::unique_ptr<Session>> Session::start(Paths paths, CorePair cores) {
  UNET_CHECK(signal_control == nullptr);
  void* page = mmap(nullptr, sizeof(ControlBlock), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return fail_errno("mmap of the control page", errno);
  std::unique_ptr<Session> session(new Session(std::move(paths), cores, new (page) ControlBlock));
  signal_control = session->control_;
  signal(SIGPIPE, SIG_IGN);
  handle(SIGINT, on_interrupt);
  handle(SIGTERM, on_interrupt);
  handle(SIGHUP, on_interrupt);
  handle(SIGCHLD, on_child);
  handle(SIGALRM, on_tick);
  cycles_per_second();  // calibrated before the fork: both sides agree
  remove_stale_namespaces();
  session->prepare_all();
  if (session->over()) return session;
  if (auto forked = session->fork_side_b(); !forked) return tl::unexpected(forked.error());
  for (size_t i = 0; i < session->paths_.size() && !session->over(); ++i) {
    if (!session->refusals_[i].empty()) continue;
    auto done = session->exchange({Order::set_up, static_cast<uint32_t>(i), 0, {}}, kSetUpAllowedMs);
    if (!done) session->refusals_[i] = done.error().text;
  }
  return session;
}

void Session::prepare_all() {
  for (size_t i = 0; i < paths_.size() && !over(); ++i) {
    if (auto prepared = paths_[i]->prepare(environment_); !prepared) refusals_[i] = prepared.error().text;
  }
}

RunContext Session::context_of(Side side) {
  return {side, *control_, StopFlag(*control_, environment_.cores().alone()), samples_};
}

Status Session::fork_side_b() {
  if (auto pinned = pin_to_core(environment_.cores().a); !pinned) return pinned;
  std::fflush(nullptr);
  const pid_t parent = getpid();
  child_ = fork();
  if (child_ < 0) {
    child_ = 0;
    return fail_errno("fork", errno);
  }
  run_delay_ = std::make_unique<RunDelay>();
  if (child_ > 0) {
    signal_child.store(child_, std::memory_order_relaxed);
    on_child(SIGCHLD);  // it may be gone already
    set_tick(kTickUs);
    return {};
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  signal(SIGINT, SIG_IGN);  // a terminal sends it to both; side A decides
  signal(SIGHUP, SIG_IGN);
  signal(SIGTERM, SIG_DFL);
  signal(SIGCHLD, SIG_DFL);
  set_tick(kTickUs);
  serve();
}

void Session::serve() {
  RunContext context = context_of(Side::b);
  if (auto pinned = pin_to_core(environment_.cores().b); !pinned) {
    std::fprintf(stderr, "unet-bench: %s\n", pinned.error().text.c_str());
    _exit(1);
  }
  for (uint64_t expected = 1;; ++expected) {
    // The core stays busy between slices: an idle one may be moved away by the host. Side A's death ends this (PDEATHSIG).
    while (control_->command_sequence.load(std::memory_order_acquire) != expected) context.stop.yield_if_alone();
    const Command command = control_->command;
    if (command.order == Order::quit) {
      tear_down_all(context);
      _exit(0);
    }
    execute(command, context);
    control_->outcome = own_outcome_;
    control_->done_sequence.store(expected, std::memory_order_release);
  }
}

void Session::execute(const Command& command, RunContext& context) {
  Path& path = *paths_[command.path];
  own_outcome_ = {};
  Status done;
  switch (command.order) {
    case Order::set_up:
      done = path.set_up(context, environment_);
      set_up_[command.path] = done.has_value();
      break;
    case Order::run: {
      const Nanoseconds waited = run_delay_->read(), used = own_cpu_time();
      own_outcome_ = path.run(command.slice, context);
      own_outcome_.cpu_ns = own_cpu_time() - used;
      own_outcome_.waited_ns = run_delay_->read() - waited;
      break;
    }
    case Order::resize: done = path.set_idle_endpoints(context, command.argument); break;
    case Order::quit: break;
  }
  if (!done) control_->fail(done.error().text);
}

Status Session::wait_for_side_b(uint64_t sequence) {
  const StopFlag stop(*control_, environment_.cores().alone());
  const auto done = [&] { return control_->done_sequence.load(std::memory_order_acquire) == sequence; };
  if (spin_until(stop, done)) return {};
  // Stopped: side B notices too, and says so; it is given a moment.
  const Nanoseconds patience = monotonic_now() + kGrace;
  while (!done()) {
    if (stop_reason() == StopReason::peer_gone) return fail(Errc::disconnected, over_text());
    if (monotonic_now() > patience) {
      control_->raise(StopReason::peer_gone);
      return fail(Errc::disconnected, over_text());
    }
    stop.yield_if_alone();
  }
  return {};
}

// Has both sides execute a command; allowed_ms until it is stopped.
Status Session::exchange(const Command& command, uint64_t allowed_ms) {
  StopReason earlier = StopReason::failed;
  control_->stop.compare_exchange_strong(earlier, StopReason::none, std::memory_order_relaxed);
  control_->error_taken.store(0, std::memory_order_relaxed);
  control_->sent.store(0, std::memory_order_relaxed);
  control_->progress.store(0, std::memory_order_relaxed);
  for (auto& settled : control_->settled) settled.store(0, std::memory_order_relaxed);
  control_->stage.store(StreamStage::none, std::memory_order_relaxed);
  control_->command = command;
  const uint64_t sequence = control_->command_sequence.load(std::memory_order_relaxed) + 1;
  signal_deadline.store(monotonic_now() + allowed_ms * kMillisecond, std::memory_order_relaxed);
  control_->command_sequence.store(sequence, std::memory_order_release);
  RunContext context = context_of(Side::a);
  execute(command, context);
  auto waited = wait_for_side_b(sequence);
  signal_deadline.store(0, std::memory_order_relaxed);
  if (!waited) return waited;
  if (over()) return fail(Errc::disconnected, over_text());
  if (stop_reason() == StopReason::none) return {};
  if (control_->error_taken.load(std::memory_order_acquire) == 2) return fail(Errc::unavailable, control_->error_text);
  return fail(Errc::timed_out, "made no progress within " + std::to_string(allowed_ms / 1000) + " s");
}

Result<Session::SliceResult> Session::run(size_t index, const Slice& slice) {
  UNET_CHECK(slice.batch > 0);
  UNET_CHECK(slice.workload != Workload::rtt || slice.iterations / slice.batch <= kSamplesMax);
  samples_.clear();
  const Nanoseconds start = monotonic_now();
  // Connections that stay: a millisecond for each is more than any needs.
  const uint64_t extra_ms = slice.workload == Workload::idle || slice.workload == Workload::many ? slice.iterations : 0;
  // A parked side B leaves its core to the path's own processes: theirs are the waits that count.
  const bool parked = paths_[index]->info().side_b_parked;
  const std::vector<int> services = parked ? paths_[index]->service_processes() : std::vector<int>{};
  const Nanoseconds services_waited = run_delay_of(services);
  auto done = exchange({Order::run, static_cast<uint32_t>(index), 0, slice}, kSliceAllowedMs + extra_ms);
  if (!done) {
    refusals_[index] = done.error().text;
    return fail(done.error().code, describe(paths_[index]->info().name, done.error().text));
  }
  Outcome outcome = own_outcome_;
  const bool streamed = slice.workload == Workload::bandwidth || slice.workload == Workload::rate || slice.workload == Workload::lossy;
  if (streamed && !parked) outcome.messages = control_->outcome.messages;
  const Nanoseconds other_waited = parked ? run_delay_of(services) - services_waited : control_->outcome.waited_ns;
  const Nanoseconds waited = std::max(own_outcome_.waited_ns, other_waited);
  return SliceResult{outcome, &samples_, monotonic_now() - start, waited, own_outcome_.cpu_ns, control_->outcome.cpu_ns};
}

Status Session::set_idle_endpoints(size_t index, uint32_t count) {
  return exchange({Order::resize, static_cast<uint32_t>(index), count, {}}, kSetUpAllowedMs);
}

std::string Session::over_text() const {
  switch (stop_reason()) {
    case StopReason::interrupted: return "interrupted";
    case StopReason::peer_gone: return "side B (the second measuring process) ended or hangs; the run cannot go on";
    case StopReason::none:
    case StopReason::failed: break;
  }
  return "";
}

void Session::tear_down_all(const RunContext& context) {
  for (size_t i = 0; i < paths_.size(); ++i) {
    if (set_up_[i]) paths_[i]->tear_down(context);
  }
}

void Session::end_side_b() {
  signal_child.store(0, std::memory_order_relaxed);
  control_->command.order = Order::quit;
  control_->command_sequence.fetch_add(1, std::memory_order_release);
  tear_down_all(context_of(Side::a));
  // One that has hung before is not waited for again.
  const Nanoseconds patience = stop_reason() == StopReason::peer_gone ? 0 : monotonic_now() + kGrace;
  int status = 0;
  while (waitpid(child_, &status, WNOHANG) == 0) {
    if (monotonic_now() > patience) {
      kill(child_, SIGKILL);
      waitpid(child_, &status, 0);
      break;
    }
    usleep(1000);
  }
}

Session::~Session() {
  if (child_ > 0) end_side_b();
  set_tick(0);
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  signal(SIGHUP, SIG_DFL);
  signal(SIGCHLD, SIG_DFL);
  signal(SIGALRM, SIG_DFL);
  signal_control = nullptr;
  munmap(control_, sizeof(ControlBlock));
}

}  // namespace unet::bench
