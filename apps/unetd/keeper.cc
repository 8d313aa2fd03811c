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

#include <algorithm>
#include <array>
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
constexpr Nanoseconds kSpareAfter = 50 * kMillisecond;  // one is ready: applications have the cores first
constexpr Nanoseconds kSpareAgain = 10 * kSecond;       // after one that ended

// What network interfaces are started from: the file stays open, so that what has worked can be started again, whatever is put in its
// place.
struct Program {
  std::string path;
  Descriptor file;
  dev_t device = 0;
  ino_t inode = 0;

  static Program at(const std::string& path) {
    Program program{.path = path, .file = Descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC))};
    struct stat st {};
    if (program.file.valid() && fstat(program.file.get(), &st) == 0) {
      program.device = st.st_dev;
      program.inode = st.st_ino;
    }
    return program;
  }
  Program again() const {
    return {.path = path, .file = Descriptor(fcntl(file.get(), F_DUPFD_CLOEXEC, 3)), .device = device, .inode = inode};
  }
  bool is(const Program& other) const { return file.valid() && device == other.device && inode == other.inode; }
};

// A network interface.
struct Child {
  pid_t pid = -1;
  std::unique_ptr<JournalLink> link;
  Program program;
  bool candidate = false;   // of an upgrade
  std::string failure;      // what we ended it for; empty: we did not
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
  Result<Child> start(Program program, bool by_path);
  [[noreturn]] void become(const Program& program, bool by_path, int link);
  void wait();
  void on_time(Nanoseconds now);
  void on_signals();
  void on_end(pid_t pid, int status);
  void on_active_end(int status);
  void on_link(Child& child);
  void drain(Child& child);
  void on_order(Child& child, const JournalItem& item);
  void on_hello(Child& child, const JournalItem& item);
  void on_ready(Child& child);
  void on_upgrade(const JournalItem& item);
  void end_candidate(const std::string& why);
  void tell_upgrade(const std::string& refusal);
  void tell_outcome();
  void hand_over();
  void replace();
  void give_all(Child& child);
  void start_spare();
  void end_spare();
  void on_spare_end(const std::string& why);
  bool can_fall_back(const Child& child) const;
  void fall_back(const Child& failed, const std::string& why);
  bool too_many_faults(const Child& child, int status);
  static void kill_child(Child& child, std::string why);
  void remove_socket();
  void give_up(const std::string& why);
  void end(int status) { exit_status_ = exit_status_ ? exit_status_ : std::optional<int>(status); }
  Nanoseconds patience() const { return options_.config.takeover; }

  const Options& options_;
  std::string program_;            // where to look for the next
  Program good_;                   // the last that served
  std::vector<std::string> arguments_;
  sigset_t signals_before_{};
  Descriptor signals_;
  service::JournalStore store_;
  Child active_;
  std::optional<Child> next_;
  std::optional<Child> spare_;     // has loaded, and waits until the active one ends
  bool spare_by_path_ = true;      // false: from the file of the one that serves, as what is at the path did not come up
  std::vector<pid_t> leaving_;
  uint32_t format_ = service::kJournalFormat;  // of what is kept
  std::optional<std::string> outcome_;  // of the last upgrade: why it was refused; empty: it was not
  bool announced_ = false;
  bool stopping_ = false;          // a signal said so
  bool told_to_keep_nothing_ = false;
  Nanoseconds deadline_ = ~Nanoseconds{0};  // for the one that must become ready
  Nanoseconds next_by_ = ~Nanoseconds{0};   // when the candidate must have said hello
  Nanoseconds again_ = ~Nanoseconds{0};     // start it then
  Nanoseconds spare_at_ = ~Nanoseconds{0};  // likewise
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
  Result<Child> first = start(Program::at(program_), true);
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
  if (spare_) end_child(spare_->pid);
  end_child(active_.pid);
  for (const pid_t pid : leaving_) end_child(pid);
  return *exit_status_;
}

Result<Child> Keeper::start(Program program, bool by_path) {
  auto pair = JournalLink::make_pair();
  if (!pair) return tl::unexpected(pair.error());
  Child child;
  child.link = std::make_unique<JournalLink>(std::move(pair->first));
  if (Status status = child.link->set_patience(patience()); !status) return tl::unexpected(status.error());
  child.pid = fork();
  if (child.pid < 0) return fail_errno("fork", errno);
  if (child.pid == 0) become(program, by_path, pair->second.get());
  child.program = std::move(program);
  return child;
}

void Keeper::become(const Program& program, bool by_path, int link) {
  sigprocmask(SIG_SETMASK, &signals_before_, nullptr);
  signal(SIGPIPE, SIG_DFL);
  const int inherited = fcntl(link, F_DUPFD, 3);  // without close-on-exec
  std::vector<std::string> arguments = arguments_;
  arguments.push_back("--keeper-fd=" + std::to_string(inherited));
  std::vector<char*> pointers;
  for (std::string& each : arguments) pointers.push_back(each.data());
  pointers.push_back(nullptr);
  if (!by_path) execveat(program.file.get(), "", pointers.data(), environ, AT_EMPTY_PATH);
  execv(program.path.c_str(), pointers.data());
  _exit(kCannotExecute);
}

void Keeper::wait() {
  std::array<pollfd, 4> wanted{pollfd{signals_.get(), POLLIN, 0},
                               pollfd{active_.link ? active_.link->descriptor() : -1, POLLIN, 0},
                               pollfd{next_ && next_->link ? next_->link->descriptor() : -1, POLLIN, 0},
                               pollfd{spare_ && spare_->link ? spare_->link->descriptor() : -1, POLLIN, 0}};
  const Nanoseconds now = monotonic_now(), until = std::min({deadline_, again_, next_by_, spare_at_});
  const Nanoseconds left = until > now ? until - now : 0;
  const int timeout = until == ~Nanoseconds{0} ? -1 : static_cast<int>(std::min(left / kMillisecond + 1, Nanoseconds{60'000}));
  if (::poll(wanted.data(), wanted.size(), timeout) < 0 && errno != EINTR) return give_up("poll failed");
  // What a child has written comes before its end.
  if (next_ && wanted[2].revents != 0) on_link(*next_);
  if (spare_ && wanted[3].revents != 0) on_link(*spare_);
  if (active_.link && wanted[1].revents != 0) on_link(active_);
  if (wanted[0].revents != 0) on_signals();
  if (!exit_status_) on_time(monotonic_now());
}

void Keeper::on_time(Nanoseconds now) {
  if (now >= next_by_) end_candidate("the new unetd did not come up in " + std::to_string(patience() / kSecond) + " s");
  if (now >= deadline_ && !stopping_ && next_ && active_.pid > 0) {
    deadline_ = now + patience();
    kill_child(active_, "did not let go");
  } else if (now >= deadline_ && !stopping_ && active_.candidate && active_.pid > 0 && can_fall_back(active_)) {
    deadline_ = now + patience();
    kill_child(active_, "was not ready in " + std::to_string(patience() / kSecond) + " s");
  } else if (now >= deadline_) {
    return give_up("no network interface came up in time");
  }
  if (now >= again_) {
    again_ = ~Nanoseconds{0};
    replace();
  }
  if (now >= spare_at_) start_spare();
}

void Keeper::kill_child(Child& child, std::string why) {
  if (child.failure.empty()) child.failure = std::move(why);
  if (child.pid > 0) ::kill(child.pid, SIGKILL);
}

void Keeper::on_signals() {
  signalfd_siginfo info{};
  while (read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGHUP) {
      if (active_.ready && active_.pid > 0) ::kill(active_.pid, SIGHUP);
    } else if (info.ssi_signo != SIGCHLD) {
      stopping_ = true;
      end_spare();
      // One that is not ready has not told anybody anything, and cannot.
      if (!active_.ready || active_.released || active_.pid <= 0) return give_up("stopped while no network interface was there");
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
    return end_candidate("the new unetd (" + next_->program.path + ") " + how(status) + " before it could take over: its log says why");
  }
  if (spare_ && pid == spare_->pid) {
    spare_->pid = -1;
    return on_spare_end(how(status));
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
  const Child ended = std::exchange(active_, Child{});
  const std::string what = ended.failure.empty() ? how(status) : ended.failure;
  if (ended.ready) deadline_ = monotonic_now() + patience();
  spdlog::warn("the network interface {}; {} records are kept for the next", what, store_.size());
  if (can_fall_back(ended)) return fall_back(ended, what);
  if (too_many_faults(ended, status)) return give_up("the network interface failed " + std::to_string(kFaultsMax) + " times");
  if (next_) return hand_over();
  if (ended.ready) return replace();
  again_ = monotonic_now() + kAgain;
}

// Another program than the one that has served is there to be tried once.
bool Keeper::can_fall_back(const Child& child) const { return !child.ready && good_.file.valid() && !child.program.is(good_); }

void Keeper::fall_back(const Child& failed, const std::string& why) {
  spdlog::error("{} {}: the unetd before it goes on", failed.program.path, why);
  if (failed.candidate) {
    outcome_ = "the new unetd (" + failed.program.path + ") " + why + " when it took over, and the one before goes on: its log says why";
  }
  if (failed.candidate || failed.program.path == program_) deadline_ = monotonic_now() + patience();
  program_ = good_.path;
  Result<Child> child = start(good_.again(), false);
  if (!child) {
    spdlog::error("{}", child.error().text);
    again_ = monotonic_now() + kAgain;
    return;
  }
  active_ = std::move(*child);
}

// Whoever kills it has a reason. What it does to itself, or what a client makes it do, it may do again at once; what we end it for, too.
bool Keeper::too_many_faults(const Child& child, int status) {
  if (child.released) return false;  // as it was told to
  if (child.failure.empty() && WIFSIGNALED(status) && (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGTERM)) return false;
  const Nanoseconds now = monotonic_now();
  if (now - first_fault_ > kFaultsTime) {
    first_fault_ = now;
    faults_ = 0;
  }
  return ++faults_ >= kFaultsMax;
}

void Keeper::replace() {
  if (spare_) {
    active_ = std::move(*spare_);
    spare_.reset();
    if (active_.greeted) give_all(active_);
    return;
  }
  Program program = Program::at(program_);
  const bool there = program.file.valid() || !good_.file.valid();
  if (!there) return fall_back({.program = std::move(program)}, "is not there any more");
  Result<Child> child = start(std::move(program), true);
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
  next_by_ = ~Nanoseconds{0};
  if (active_.greeted) give_all(active_);  // or when it says hello
}

void Keeper::give_all(Child& child) {
  if (std::exchange(child.has_all, true)) return;
  if (Status status = store_.send_all(*child.link); !status) kill_child(child, status.error().text);
}

// ---- one that stands by

void Keeper::start_spare() {
  spare_at_ = ~Nanoseconds{0};
  if (!options_.config.standby || spare_ || next_ || stopping_ || !active_.ready) return;
  Result<Child> child = spare_by_path_ ? start(Program::at(program_), true) : start(good_.again(), false);
  if (!child) return on_spare_end(child.error().text);
  spare_ = std::move(*child);
}

void Keeper::end_spare() {
  spare_at_ = ~Nanoseconds{0};
  if (!spare_) return;
  if (spare_->pid > 0) {
    ::kill(spare_->pid, SIGKILL);
    ::waitpid(spare_->pid, nullptr, 0);
  }
  spare_.reset();
}

// Without one, taking over takes as long as loading.
void Keeper::on_spare_end(const std::string& why) {
  const bool came_up = spare_ && spare_->greeted;
  end_spare();
  spdlog::warn("the network interface that stands by {}", why);
  const bool other = !came_up && std::exchange(spare_by_path_, false) && good_.file.valid();
  spare_at_ = monotonic_now() + (other ? kSpareAfter : kSpareAgain);
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
      kill_child(child, "was ended, as it wrote what is no journal");
      child.link.reset();
      return;
    }
    for (const JournalItem& order : orders) on_order(child, order);
  }
}

void Keeper::on_link(Child& child) {
  // One that is not in charge yet has nothing to say but hello.
  const bool spare = spare_ && &child == &*spare_;
  if (spare || (next_ && &child == &*next_)) {
    std::vector<JournalItem> items;
    bool last = false;
    const JournalLink::Received received = child.link->receive(items, last);
    if (received == JournalLink::Received::items && items.size() == 1 && items[0].op == JournalOp::hello) return on_hello(child, items[0]);
    if (received == JournalLink::Received::closed) child.link.reset();  // its end will tell
    else if (received != JournalLink::Received::nothing && spare) {
      on_spare_end("wrote what is no journal");
    } else if (received != JournalLink::Received::nothing) {
      end_candidate("the new unetd (" + child.program.path + ") wrote what is no journal");
    }
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
  if (child.greeted || !item.read(hello)) return kill_child(child, "was ended, as it said hello in a way that is not known");
  child.greeted = true;
  hello.version[sizeof hello.version - 1] = '\0';
  const bool upgrade = next_ && &child == &*next_, spare = spare_ && &child == &*spare_;
  if (store_.size() != 0 && hello.format != format_) {
    const std::string why = "unetd " + service::quoted(hello.version) + " writes journals of format " + std::to_string(hello.format) +
                            ", and cannot go on with one of format " + std::to_string(format_) +
                            ": drain and stop the network interface, then start the new one (unetctl drain --wait)";
    if (upgrade) return end_candidate(why);
    if (spare) return on_spare_end("is of another release: " + why);
    return can_fall_back(child) ? kill_child(child, "is of another release: " + why) : give_up(why);
  }
  if (spare) return;
  if (store_.size() == 0) format_ = hello.format;
  if (upgrade) {
    next_by_ = ~Nanoseconds{0};
    deadline_ = monotonic_now() + patience();
    if (!active_.link) return;  // it has ended, which is about to be seen
    Status status = active_.link->add(JournalOp::release, {});
    if (status) status = active_.link->send(true);
    if (!status) kill_child(active_, status.error().text);
    return;
  }
  give_all(child);
}

void Keeper::on_ready(Child& child) {
  child.ready = true;
  if (!stopping_) deadline_ = ~Nanoseconds{0};
  if (child.candidate) outcome_ = std::string();
  good_ = child.program.again();
  program_ = good_.path;
  if (spare_ && !spare_->program.is(good_)) end_spare();
  spare_by_path_ = true;
  spare_at_ = monotonic_now() + kSpareAfter;
  tell_outcome();
  if (!std::exchange(announced_, true)) announce_ready(options_.config.ni.socket, options_.ready_fd);
}

void Keeper::on_upgrade(const JournalItem& item) {
  const std::string wanted(reinterpret_cast<const char*>(item.value.data()), item.value.size());
  const std::string path = wanted.empty() ? program_ : wanted;
  outcome_.reset();
  const bool has_less_rights = options_.account && options_.account->user != geteuid();
  if (!wanted.empty() && has_less_rights) {
    return tell_upgrade("the keeper has rights that the network interface has not, and runs no program but " + program_ +
                        ": put the new one there, and upgrade without naming it");
  }
  if (path.front() != '/') return tell_upgrade(service::quoted(path) + " is not a program: give its whole path");
  if (access(path.c_str(), X_OK) != 0) return tell_upgrade(service::quoted(path) + " is not a program: " + std::strerror(errno));
  if (next_ || stopping_) return tell_upgrade("another upgrade or a stop is under way");
  end_spare();
  Result<Child> child = start(Program::at(path), true);
  if (!child) return tell_upgrade(child.error().text);
  next_ = std::move(*child);
  next_->candidate = true;
  next_by_ = monotonic_now() + patience();
}

// One that has not taken over; the network interface that serves goes on.
void Keeper::end_candidate(const std::string& why) {
  if (next_->pid > 0) {
    ::kill(next_->pid, SIGKILL);
    ::waitpid(next_->pid, nullptr, 0);
  }
  next_.reset();
  next_by_ = ~Nanoseconds{0};
  if (active_.pid > 0 && active_.ready && !stopping_) deadline_ = ~Nanoseconds{0};
  spare_at_ = monotonic_now() + kSpareAfter;
  tell_upgrade(why);
}

void Keeper::tell_upgrade(const std::string& refusal) {
  outcome_ = refusal;
  tell_outcome();
}

// Whoever serves answers to whoever asked for the upgrade; the next one, if it did not come to that.
void Keeper::tell_outcome() {
  if (!outcome_ || !active_.ready || !active_.link || active_.pid <= 0) return;
  const Bytes why = as_bytes(outcome_->data(), std::min(outcome_->size(), JournalLink::kValueMax));
  Status status = active_.link->add(outcome_->empty() ? JournalOp::upgraded : JournalOp::refused, {}, why);
  if (status) status = active_.link->send(true);
  if (!status) spdlog::debug("the outcome of an upgrade: {}", status.error().text);  // the next one is told
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
  kill_child(active_, why);
  store_.clear();
  end(stopping_ ? 0 : kFailure);
}

}  // namespace

int run_keeper(const Options& options, std::vector<std::string> arguments) {
  return Keeper(options, std::move(arguments)).run();
}

}  // namespace unet::unetd
