// supervisor.cc - the supervisor's processes, signals and time: a journal for each child, and a reaction to its end.
//
// It trusts its children to write a journal and to request upgrades, and nothing else: it never interprets the journal, and never waits for
// a child. It keeps its privileges, because the next NI needs them to open wires. It therefore runs only its own program, unless NIs have
// all of its privileges anyway. Then it also runs one that no other user could have changed.
#include "apps/unetd/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "apps/unetd/supervisor_machine.h"
#include "apps/unetd/notify.h"
#include "ni/service/log.h"
#include "unet/base/time.h"

namespace unet::unetd {
namespace {

using service::JournalLink;

constexpr int kFailure = 1;
constexpr int kCannotExecute = 127;
constexpr uint32_t kFaultsMax = 5;                    // NI failures without an outside cause, within
constexpr Nanoseconds kFaultsTime = 60 * kSecond;
constexpr Nanoseconds kAgain = 50 * kMillisecond;     // delay after an NI that did not come up
constexpr Nanoseconds kEndTime = 20 * kSecond;        // for a child that was told to stop
constexpr Nanoseconds kLastTime = 5 * kSecond;        // for children killed at the end, which the kernel may still hold
constexpr Nanoseconds kSpareAgain = 10 * kSecond;     // delay after a standby NI that ended

std::string how(int status) {
  if (WIFSIGNALED(status)) return "was killed by signal " + std::to_string(WTERMSIG(status));
  return "ended with status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

Status Supervisor::set_up() {
  sigset_t mask;
  sigemptyset(&mask);
  for (const int each : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) sigaddset(&mask, each);
  sigprocmask(SIG_BLOCK, &mask, &signals_before_);
  signals_ = Descriptor(signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_.valid()) return fail_errno("signalfd", errno);
  signal(SIGPIPE, SIG_IGN);
  if (options_.ready_fd >= 0) fcntl(options_.ready_fd, F_SETFD, FD_CLOEXEC);
  Result<Child> first = start(Origin::at(program_, false), Reads::anew);
  if (!first) return tl::unexpected(first.error());
  active_ = std::move(*first);
  return {};
}

int Supervisor::run() {
  if (Status status = set_up(); !status) {
    service::log::error("{}", status.error().text);
    return kFailure;
  }
  while (!exit_status_) wait();
  if (announced_) notify_manager("STOPPING=1");
  end_children();
  return *exit_status_;
}

void Supervisor::end_children() {
  if (next_) let_go_of(*next_);
  if (spare_) let_go_of(*spare_);
  let_go_of(active_);
  for (const pid_t pid : leaving_) ::kill(pid, SIGKILL);
  const Nanoseconds until = monotonic_now() + kLastTime;
  for (;;) {
    signalfd_siginfo info{};
    while (read(signals_.get(), &info, sizeof info) == sizeof info) {}
    std::erase_if(leaving_, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) != 0; });
    const Nanoseconds now = monotonic_now();
    if (leaving_.empty() || now >= until) return;
    pollfd ended{.fd = signals_.get(), .events = POLLIN, .revents = 0};
    ::poll(&ended, 1, static_cast<int>((until - now) / kMillisecond) + 1);
  }
}

Result<Child> Supervisor::start(Origin origin, Reads reads) {
  if (reads == Reads::anew) {
    Result<Descriptor> configuration = copy_of_configuration(options_.config_file);
    if (!configuration) return tl::unexpected(configuration.error());
    origin.configuration = std::move(*configuration);
  }
  auto pair = JournalLink::make_pair();
  if (!pair) return tl::unexpected(pair.error());
  Child child;
  child.link = std::make_unique<JournalLink>(std::move(pair->first));
  child.pid = fork();
  if (child.pid < 0) return fail_errno("fork", errno);
  if (child.pid == 0) become(origin, reads, pair->second.get());
  child.origin = std::move(origin);
  return child;
}

void Supervisor::become(const Origin& origin, Reads reads, int link) {
  sigprocmask(SIG_SETMASK, &signals_before_, nullptr);
  signal(SIGPIPE, SIG_DFL);
  const auto inherited = [](int descriptor) { return std::to_string(fcntl(descriptor, F_DUPFD, 3)); };  // without close-on-exec
  std::vector<std::string> arguments = arguments_;
  arguments.push_back("--keeper-fd=" + inherited(link));
  if (origin.configuration.valid()) arguments.push_back("--config-fd=" + inherited(origin.configuration.get()));
  if (reads == Reads::as_before) arguments.push_back("--inherit-policy");
  origin.execute(std::move(arguments));
  _exit(kCannotExecute);
}

// The program at the path now, with the configuration of the last NI that served. No program, if it may not be executed.
Origin Supervisor::newest() {
  Origin origin = Origin::at(program_, named_);
  if (Status status = origin.check(); !status) {
    service::log::warn("{}", status.error().text);
    origin.file.reset();
  }
  origin.configuration = good_.again().configuration;
  return origin;
}

void Supervisor::wait() {
  const auto look_at = [](const Child* child) {
    const auto events = static_cast<short>(POLLIN | (child != nullptr && child->full ? POLLOUT : 0));
    return pollfd{.fd = child != nullptr && child->link ? child->link->descriptor() : -1, .events = events, .revents = 0};
  };
  std::array<pollfd, 4> wanted{pollfd{signals_.get(), POLLIN, 0}, look_at(&active_), look_at(next_ ? &*next_ : nullptr),
                               look_at(spare_ ? &*spare_ : nullptr)};
  const Nanoseconds now = monotonic_now(), until = std::min({deadline_, again_, next_by_, spare_at_, tell_at_});
  const Nanoseconds left = until > now ? until - now : 0;
  const int timeout = until == ~Nanoseconds{0} ? -1 : static_cast<int>(std::min(left / kMillisecond + 1, Nanoseconds{60'000}));
  if (::poll(wanted.data(), wanted.size(), timeout) < 0 && errno != EINTR) return give_up("poll failed");
  // Read a child's packets before handling its end.
  if (next_ && wanted[2].revents != 0) on_link(*next_);
  if (spare_ && wanted[3].revents != 0) on_link(*spare_);
  if (active_.link && wanted[1].revents != 0) on_link(active_);
  if (wanted[0].revents != 0) on_signals();
  if (!exit_status_) on_time(monotonic_now());
}

void Supervisor::on_time(Nanoseconds now) {
  if (now >= next_by_) end_candidate("the new unetd did not come up in " + std::to_string(patience() / kSecond) + " s");
  if (now >= deadline_) on_deadline(now);
  if (exit_status_) return;
  if (now >= tell_at_) {
    tell_at_ = ~Nanoseconds{0};
    push_on(active_);
  }
  if (now >= again_) {
    again_ = ~Nanoseconds{0};
    replace();
  }
  if (now >= spare_at_) start_spare();
}

// Kills, once, a process that blocks progress; gives up if nothing is left to try.
void Supervisor::on_deadline(Nanoseconds now) {
  if (stopping_) return give_up("the network interface did not stop in " + std::to_string(kEndTime / kSecond) + " s");
  const bool lets_go = next_ || active_.told_release;
  const bool in_the_way = active_.pid > 0 && active_.failure.empty() && (lets_go || can_fall_back(active_));
  if (!in_the_way) return give_up("no network interface came up in time");
  deadline_ = now + patience();
  kill_child(active_, lets_go ? "did not let go" : "was not ready in " + std::to_string(patience() / kSecond) + " s");
}

// Kills the child without waiting for it: it may stay in the kernel for long.
void Supervisor::let_go_of(Child& child) {
  if (child.pid <= 0) return;
  ::kill(child.pid, SIGKILL);
  leaving_.push_back(std::exchange(child.pid, -1));
}

void Supervisor::kill_child(Child& child, std::string why) {
  if (child.failure.empty()) child.failure = std::move(why);
  if (child.pid > 0) ::kill(child.pid, SIGKILL);
}

void Supervisor::on_signals() {
  signalfd_siginfo info{};
  while (read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGHUP) on_reload();
    else if (info.ssi_signo != SIGCHLD) on_stop();
    if (exit_status_) return;
  }
  int status = 0;
  for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) on_end(pid, status);
}

// A candidate that has not said hello is ended. If it has, the serving NI may have let go already: SIGTERM goes to the one that serves
// then.
void Supervisor::on_stop() {
  stopping_ = true;
  end_spare();
  if (next_ && !next_->greeted) end_candidate("the network interface is being stopped");
  // An NI that is not ready has no clients to notify.
  if (!active_.ready || active_.pid <= 0) return give_up("stopped while no network interface was there");
  ::kill(active_.pid, SIGTERM);
  deadline_ = monotonic_now() + kEndTime;
}

void Supervisor::on_reload() {
  const bool serves = active_.ready && active_.pid > 0;
  if (serves) ::kill(active_.pid, SIGHUP);
  reload_asked_ = !serves || next_;  // the serving NI may have let go by now
}

void Supervisor::on_end(pid_t pid, int status) {
  if (pid == active_.pid) {
    active_.pid = -1;
    return on_active_end(status);
  }
  if (next_ && pid == next_->pid) {
    next_->pid = -1;
    return end_candidate("the new unetd (" + next_->origin.path + ") " + how(status) + " before it could take over: its log says why");
  }
  if (spare_ && pid == spare_->pid) {
    spare_->pid = -1;
    return on_spare_end(how(status));
  }
  std::erase(leaving_, pid);
}

void Supervisor::on_active_end(int status) {
  // Its packets stay readable, but no process that inherited its end can write more.
  if (active_.link) shutdown(active_.link->descriptor(), SHUT_RD);
  drain(active_);
  store_.forget_pending();
  if (told_to_keep_nothing_ || exit_status_) return end(WIFEXITED(status) ? WEXITSTATUS(status) : kFailure);
  if (active_.released && next_) return hand_over();
  if (stopping_) return give_up("the network interface " + how(status) + " before it had stopped");
  if (!announced_) {
    remove_control_socket();
    return end(WIFEXITED(status) ? WEXITSTATUS(status) : kFailure);  // its log says why
  }
  const Child ended = std::exchange(active_, Child{});
  const std::string what = ended.failure.empty() ? how(status) : ended.failure;
  if (ended.ready) deadline_ = monotonic_now() + patience();
  service::log::warn("the network interface {}; {} records are kept for the next", what, store_.size());
  if (can_fall_back(ended)) return fall_back(ended, what);
  if (too_many_faults(ended, status)) return give_up("the network interface failed " + std::to_string(kFaultsMax) + " times");
  if (next_) return hand_over();
  if (ended.ready) return replace();
  again_ = monotonic_now() + kAgain;
}

// A fall-back is tried once, and only from another program or another configuration than the one that served.
bool Supervisor::can_fall_back(const Child& child) const {
  return !child.ready && good_.valid() && (child.candidate || !child.origin.same_program(good_));
}

void Supervisor::fall_back(const Child& failed, const std::string& why) {
  service::log::error("{} {}: the unetd before it goes on", failed.origin.path, why);
  if (failed.candidate) {
    outcome_ = "the new unetd (" + failed.origin.path + ") " + why + " when it took over, and the one before goes on: its log says why";
  }
  if (!std::exchange(fell_back_, true)) deadline_ = monotonic_now() + patience();
  program_ = good_.path;
  named_ = good_.named;
  Result<Child> child = start(good_.again(), Reads::as_before);
  if (!child) {
    service::log::error("{}", child.error().text);
    again_ = monotonic_now() + kAgain;
    return;
  }
  active_ = std::move(*child);
}

// A kill from outside does not count. A crash may recur at once, by itself or by a client; so may the fault for which we killed it.
bool Supervisor::too_many_faults(const Child& child, int status) {
  if (child.released) return false;  // it ended as ordered
  if (child.failure.empty() && WIFSIGNALED(status) && (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGTERM)) return false;
  const Nanoseconds now = monotonic_now();
  if (now - first_fault_ > kFaultsTime) {
    first_fault_ = now;
    faults_ = 0;
  }
  return ++faults_ >= kFaultsMax;
}

void Supervisor::replace() {
  if (spare_) {
    active_ = std::move(*spare_);
    spare_.reset();
    if (active_.greeted) give_all(active_);
    return;
  }
  Origin origin = newest();
  if (!origin.valid() && good_.valid()) return fall_back({.origin = std::move(origin)}, "cannot be started any more");
  Result<Child> child = start(std::move(origin), Reads::as_before);
  if (!child) {
    service::log::error("{}", child.error().text);
    again_ = monotonic_now() + kAgain;
    return;
  }
  active_ = std::move(*child);
}

// The old NI has let go: the next one gets the journal.
void Supervisor::hand_over() {
  if (active_.pid > 0) leaving_.push_back(active_.pid);
  active_ = std::move(*next_);
  next_.reset();
  next_by_ = ~Nanoseconds{0};
  if (active_.greeted) give_all(active_);  // else when it says hello
}

// ---- the standby NI

void Supervisor::start_spare() {
  spare_at_ = ~Nanoseconds{0};
  if (!options_.config.standby || spare_ || next_ || stopping_ || !active_.ready) return;
  Result<Child> child = start(spare_by_path_ ? newest() : good_.again(), Reads::as_before);
  if (!child) return on_spare_end(child.error().text);
  spare_ = std::move(*child);
}

void Supervisor::end_spare() {
  spare_at_ = ~Nanoseconds{0};
  if (!spare_) return;
  let_go_of(*spare_);
  spare_.reset();
}

// Without a standby NI, a takeover includes the time to load one.
void Supervisor::on_spare_end(const std::string& why) {
  const bool came_up = spare_ && spare_->greeted;
  end_spare();
  service::log::warn("the network interface that stands by {}", why);
  const bool other = !came_up && std::exchange(spare_by_path_, false) && good_.valid();
  spare_at_ = monotonic_now() + (other ? kSpareAfter : kSpareAgain);
}

void Supervisor::remove_control_socket() {
  const std::string& path = options_.config.ni.socket;
  if (!socket_file_ && store_.descriptor_of({service::JournalKind::ni, 0, 0}, 1) >= 0) socket_file_ = socket_file_at(path);
  if (socket_file_) remove_socket(options_.account, path, *socket_file_);
}

// Clients learn of the end from their closed connections.
void Supervisor::give_up(const std::string& why) {
  service::log::error("{}: every client is let go", why);
  remove_control_socket();
  kill_child(active_, why);
  store_.clear();
  end(stopping_ ? 0 : kFailure);
}

int run_supervisor(const Options& options, std::vector<std::string> arguments) {
  return Supervisor(options, std::move(arguments)).run();
}

}  // namespace unet::unetd
