// keeper.cc - fork, exec, a journal for each, and what to do when one ends.
//
// It trusts its children to write a journal and to ask for an upgrade, and nothing more: it never looks into what it holds. It keeps
// the rights it was started with, because the next network interface needs them to open wires; so it runs no program but the one it
// was started as, unless network interfaces have all of its rights anyway.
#include "apps/unetd/keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include <spdlog/spdlog.h>

#include "apps/unetd/notify.h"
#include "unet/base/time.h"
#include "unet/service/journal_store.h"
#include "unet/service/names.h"

namespace unet::unetd {
namespace {

using service::JournalItem;
using service::JournalLink;
using service::JournalOp;

constexpr int kFailure = 1;
constexpr int kCannotExecute = 127;
constexpr uint32_t kFaultsMax = 5;                    // ends that nobody from outside caused, within
constexpr Nanoseconds kFaultsTime = 60 * kSecond;
constexpr Nanoseconds kAgain = 50 * kMillisecond;     // after one that did not come up
constexpr Nanoseconds kEndTime = 20 * kSecond;        // for a child that was told to stop

// A network interface.
struct Child {
  pid_t pid = -1;
  std::unique_ptr<JournalLink> link;
  bool greeted = false;   // its hello came and was right
  bool has_all = false;   // what was kept was sent to it
  bool ready = false;
  bool released = false;  // it has closed its wires, and leaves
};

std::string path_of(const std::string& name) {
  std::array<char, 4096> path{};
  if (name.find('/') == std::string::npos) {
    const ssize_t n = readlink("/proc/self/exe", path.data(), path.size() - 1);
    return n > 0 ? std::string(path.data(), static_cast<size_t>(n)) : name;
  }
  if (name[0] == '/' || getcwd(path.data(), path.size()) == nullptr) return name;
  return std::string(path.data()) + "/" + name;
}

std::string how(int status) {
  if (WIFSIGNALED(status)) return "was killed by signal " + std::to_string(WTERMSIG(status));
  return "ended with status " + std::to_string(WEXITSTATUS(status));
}

class Keeper {
 public:
  Keeper(const Options& options, std::vector<std::string> arguments)
      : options_(options), program_(path_of(arguments.at(0))), arguments_(std::move(arguments)) {}
  int run();

 private:
  Status set_up();
  Result<Child> start(const std::string& program);
  [[noreturn]] void become(const std::string& program, int link);
  void wait();
  void on_signals();
  void on_end(pid_t pid, int status);
  void on_active_end(int status);
  void on_link(Child& child);
  void drain(Child& child);
  void on_order(Child& child, const JournalItem& item);
  void on_hello(Child& child, const JournalItem& item);
  void on_ready(Child& child);
  void on_upgrade(const JournalItem& item);
  void refuse_upgrade(const std::string& why);
  void hand_over();
  void replace();
  bool too_many_faults(int status);
  void remove_socket();
  void give_up(const std::string& why);
  void end(int status) { exit_status_ = exit_status_ ? exit_status_ : std::optional<int>(status); }
  Nanoseconds patience() const { return options_.config.takeover; }

  const Options& options_;
  std::string program_;
  std::string candidate_;          // of the upgrade under way
  std::vector<std::string> arguments_;
  sigset_t signals_before_{};
  Descriptor signals_;
  service::JournalStore store_;
  Child active_;
  std::optional<Child> next_;
  std::vector<pid_t> leaving_;
  uint32_t format_ = service::kJournalFormat;  // of what is kept
  bool announced_ = false;
  bool stopping_ = false;          // a signal said so
  bool told_to_keep_nothing_ = false;
  Nanoseconds deadline_ = ~Nanoseconds{0};  // for the one that must become ready
  Nanoseconds again_ = ~Nanoseconds{0};     // start it then
  uint32_t faults_ = 0;
  Nanoseconds first_fault_ = 0;
  std::optional<int> exit_status_;
};

Status Keeper::set_up() {
  sigset_t mask;
  sigemptyset(&mask);
  for (const int each : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) sigaddset(&mask, each);
  sigprocmask(SIG_BLOCK, &mask, &signals_before_);
  signals_ = Descriptor(signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_.valid()) return fail_errno("signalfd", errno);
  signal(SIGPIPE, SIG_IGN);
  if (options_.ready_fd >= 0) fcntl(options_.ready_fd, F_SETFD, FD_CLOEXEC);
  Result<Child> first = start(program_);
  if (!first) return tl::unexpected(first.error());
  active_ = std::move(*first);
  return {};
}

int Keeper::run() {
  if (Status status = set_up(); !status) {
    spdlog::error("{}", status.error().text);
    return kFailure;
  }
  while (!exit_status_) wait();
  if (announced_) notify_manager("STOPPING=1");
  const auto end_child = [](pid_t pid) {
    if (pid <= 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  };
  if (next_) end_child(next_->pid);
  end_child(active_.pid);
  for (const pid_t pid : leaving_) end_child(pid);
  return *exit_status_;
}

Result<Child> Keeper::start(const std::string& program) {
  auto pair = JournalLink::make_pair();
  if (!pair) return tl::unexpected(pair.error());
  Child child;
  child.link = std::make_unique<JournalLink>(std::move(pair->first));
  if (Status status = child.link->set_patience(patience()); !status) return tl::unexpected(status.error());
  child.pid = fork();
  if (child.pid < 0) return fail_errno("fork", errno);
  if (child.pid == 0) become(program, pair->second.get());
  return child;
}

void Keeper::become(const std::string& program, int link) {
  sigprocmask(SIG_SETMASK, &signals_before_, nullptr);
  signal(SIGPIPE, SIG_DFL);
  const int inherited = fcntl(link, F_DUPFD, 3);  // without close-on-exec
  std::vector<std::string> arguments = arguments_;
  arguments.push_back("--keeper-fd=" + std::to_string(inherited));
  std::vector<char*> pointers;
  for (std::string& each : arguments) pointers.push_back(each.data());
  pointers.push_back(nullptr);
  execv(program.c_str(), pointers.data());
  _exit(kCannotExecute);
}

void Keeper::wait() {
  std::array<pollfd, 3> wanted{pollfd{signals_.get(), POLLIN, 0},
                               pollfd{active_.link ? active_.link->descriptor() : -1, POLLIN, 0},
                               pollfd{next_ && next_->link ? next_->link->descriptor() : -1, POLLIN, 0}};
  const Nanoseconds now = monotonic_now(), until = std::min(deadline_, again_);
  const Nanoseconds left = until > now ? until - now : 0;
  const int timeout = until == ~Nanoseconds{0} ? -1 : static_cast<int>(std::min(left / kMillisecond + 1, Nanoseconds{60'000}));
  if (::poll(wanted.data(), wanted.size(), timeout) < 0 && errno != EINTR) return give_up("poll failed");
  // What a child has written comes before its end.
  if (next_ && wanted[2].revents != 0) on_link(*next_);
  if (active_.link && wanted[1].revents != 0) on_link(active_);
  if (wanted[0].revents != 0) on_signals();
  if (exit_status_) return;
  if (monotonic_now() >= deadline_) return give_up("no network interface came up in time");
  if (monotonic_now() >= again_) {
    again_ = ~Nanoseconds{0};
    replace();
  }
}

void Keeper::on_signals() {
  signalfd_siginfo info{};
  while (read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGHUP) {
      if (active_.ready) ::kill(active_.pid, SIGHUP);
    } else if (info.ssi_signo != SIGCHLD) {
      stopping_ = true;
      // One that is not ready has not told anybody anything, and cannot.
      if (!active_.ready || active_.released) return give_up("stopped while no network interface was there");
      ::kill(active_.pid, SIGTERM);
      deadline_ = monotonic_now() + kEndTime;
    }
  }
  int status = 0;
  for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) on_end(pid, status);
}

void Keeper::on_end(pid_t pid, int status) {
  if (pid == active_.pid) {
    active_.pid = -1;
    return on_active_end(status);
  }
  if (next_ && pid == next_->pid) {
    next_->pid = -1;
    next_.reset();
    return refuse_upgrade("the new unetd (" + candidate_ + ") " + how(status) + " before it could take over: its log says why");
  }
  std::erase(leaving_, pid);
}

void Keeper::on_active_end(int status) {
  drain(active_);
  store_.forget_pending();
  if (told_to_keep_nothing_ || exit_status_) return end(WIFEXITED(status) ? WEXITSTATUS(status) : kFailure);
  if (stopping_) return give_up("the network interface " + how(status) + " before it had stopped");
  if (!announced_) {
    remove_socket();
    return end(WIFEXITED(status) ? WEXITSTATUS(status) : kFailure);  // it has said why
  }
  if (active_.ready) deadline_ = monotonic_now() + patience();
  const bool was_ready = active_.ready;
  spdlog::warn("the network interface {}; {} records are kept for the next", how(status), store_.size());
  active_ = Child{};
  if (too_many_faults(status)) return give_up("the network interface failed " + std::to_string(kFaultsMax) + " times");
  if (next_) return hand_over();
  if (was_ready) return replace();
  again_ = monotonic_now() + kAgain;
}

// Whoever kills it has a reason. What it does to itself, or what a client makes it do, it may do again at once.
bool Keeper::too_many_faults(int status) {
  if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGTERM)) return false;
  const Nanoseconds now = monotonic_now();
  if (now - first_fault_ > kFaultsTime) {
    first_fault_ = now;
    faults_ = 0;
  }
  return ++faults_ >= kFaultsMax;
}

void Keeper::replace() {
  Result<Child> child = start(program_);
  if (!child) {
    spdlog::error("{}", child.error().text);
    again_ = monotonic_now() + kAgain;
    return;
  }
  active_ = std::move(*child);
}

// The one before has let go: the next has all of it from here on.
void Keeper::hand_over() {
  if (active_.pid > 0) leaving_.push_back(active_.pid);
  active_ = std::move(*next_);
  next_.reset();
  program_ = candidate_;
  if (!active_.greeted || active_.has_all) return;  // when it says hello
  active_.has_all = true;
  if (Status status = store_.send_all(*active_.link); !status) ::kill(active_.pid, SIGKILL);
}

void Keeper::drain(Child& child) {
  while (child.link) {
    std::vector<JournalItem> items, orders;
    bool last = false;
    const JournalLink::Received received = child.link->receive(items, last);
    if (received == JournalLink::Received::nothing || received == JournalLink::Received::closed) return;
    if (received == JournalLink::Received::broken || !store_.take(std::move(items), last, orders)) {
      spdlog::error("what the network interface writes is no journal: it is ended");
      store_.forget_pending();
      if (child.pid > 0) ::kill(child.pid, SIGKILL);
      child.link.reset();
      return;
    }
    for (const JournalItem& order : orders) on_order(child, order);
  }
}

void Keeper::on_link(Child& child) {
  // One that is not in charge yet has nothing to say but hello.
  if (next_ && &child == &*next_) {
    std::vector<JournalItem> items;
    bool last = false;
    const JournalLink::Received received = child.link->receive(items, last);
    if (received == JournalLink::Received::items && items.size() == 1 && items[0].op == JournalOp::hello) return on_hello(child, items[0]);
    if (received == JournalLink::Received::closed) child.link.reset();  // its end will tell
    else if (received != JournalLink::Received::nothing) ::kill(child.pid, SIGKILL);
    return;
  }
  drain(child);
  if (child.released && next_) return hand_over();
  if (!child.link) return;
  pollfd ended{.fd = child.link->descriptor(), .events = POLLIN, .revents = 0};
  if (::poll(&ended, 1, 0) == 1 && (ended.revents & POLLHUP) != 0) {
    drain(child);
    child.link.reset();  // its end will tell
  }
}

void Keeper::on_order(Child& child, const JournalItem& item) {
  switch (item.op) {
    case JournalOp::hello: return on_hello(child, item);
    case JournalOp::ready: return on_ready(child);
    case JournalOp::upgrade: return on_upgrade(item);
    case JournalOp::stop:
      told_to_keep_nothing_ = true;
      return store_.clear();
    case JournalOp::released:
      child.released = true;
      return;
    default: return;
  }
}

void Keeper::on_hello(Child& child, const JournalItem& item) {
  service::JournalHello hello{};
  if (child.greeted || !item.read(hello)) {
    ::kill(child.pid, SIGKILL);
    return;
  }
  child.greeted = true;
  hello.version[sizeof hello.version - 1] = '\0';
  const bool upgrade = next_ && &child == &*next_;
  if (store_.size() != 0 && hello.format != format_) {
    const std::string why = "unetd " + service::quoted(hello.version) + " writes journals of format " + std::to_string(hello.format) +
                            ", and cannot go on with one of format " + std::to_string(format_) +
                            ": drain and stop the network interface, then start the new one (unetctl drain --wait)";
    if (!upgrade) return give_up(why);
    ::kill(child.pid, SIGKILL);
    ::waitpid(child.pid, nullptr, 0);
    next_.reset();
    return refuse_upgrade(why);
  }
  if (store_.size() == 0) format_ = hello.format;
  if (upgrade) {
    deadline_ = monotonic_now() + patience();
    Status status = active_.link->add(JournalOp::release, {});
    if (status) status = active_.link->send(true);
    if (!status && active_.pid > 0) ::kill(active_.pid, SIGKILL);
    return;
  }
  child.has_all = true;
  if (Status status = store_.send_all(*child.link); !status) ::kill(child.pid, SIGKILL);
}

void Keeper::on_ready(Child& child) {
  child.ready = true;
  if (!stopping_) deadline_ = ~Nanoseconds{0};
  if (std::exchange(announced_, true)) return;
  std::printf("unetd ready at %s\n", options_.config.ni.socket.c_str());
  std::fflush(stdout);
  notify_manager("READY=1");
  if (options_.ready_fd < 0) return;
  const char byte = '\n';
  static_cast<void>(!write(options_.ready_fd, &byte, 1));
  close(options_.ready_fd);
}

void Keeper::on_upgrade(const JournalItem& item) {
  const std::string wanted(reinterpret_cast<const char*>(item.value.data()), item.value.size());
  candidate_ = wanted.empty() ? program_ : wanted;
  const bool has_less_rights = options_.account && options_.account->user != geteuid();
  if (!wanted.empty() && has_less_rights) {
    return refuse_upgrade("the keeper has rights that the network interface has not, and runs no program but " + program_ +
                          ": put the new one there, and upgrade without naming it");
  }
  if (candidate_.front() != '/' || access(candidate_.c_str(), X_OK) != 0) {
    return refuse_upgrade(service::quoted(candidate_) + " is not a program: " + std::strerror(errno));
  }
  if (next_ || stopping_) return refuse_upgrade("another upgrade or a stop is under way");
  Result<Child> child = start(candidate_);
  if (!child) return refuse_upgrade(child.error().text);
  next_ = std::move(*child);
}

void Keeper::refuse_upgrade(const std::string& why) {
  if (!active_.link || active_.pid <= 0) return;
  Status status = active_.link->add(JournalOp::refused, {}, as_bytes(why.data(), std::min(why.size(), JournalLink::kValueMax)));
  if (status) status = active_.link->send(true);
  if (!status) ::kill(active_.pid, SIGKILL);
}

void Keeper::remove_socket() {
  const std::string& path = options_.config.ni.socket;
  struct stat at {};
  if (store_.descriptor_of({service::JournalKind::ni, 0, 0}, 1) >= 0 && lstat(path.c_str(), &at) == 0 && S_ISSOCK(at.st_mode)) {
    unlink(path.c_str());
  }
}

// Clients learn from their connections that nobody is there.
void Keeper::give_up(const std::string& why) {
  spdlog::error("{}: every client is let go", why);
  remove_socket();
  if (active_.pid > 0) ::kill(active_.pid, SIGKILL);
  store_.clear();
  end(stopping_ ? 0 : kFailure);
}

}  // namespace

int run_keeper(const Options& options, std::vector<std::string> arguments) {
  return Keeper(options, std::move(arguments)).run();
}

}  // namespace unet::unetd
