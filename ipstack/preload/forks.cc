// forks.cc - a child begins with what its parent had open, but without its stack.
#include "ipstack/preload/forks.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "ipstack/preload/calls.h"
#include "ipstack/preload/description.h"
#include "ipstack/preload/host.h"
#include "ipstack/preload/identity.h"
#include "ipstack/preload/last_thread.h"
#include "ipstack/preload/placement.h"
#include "ipstack/preload/relays.h"
#include "ipstack/preload/signals.h"
#include "unet/connection.h"

namespace unet::preload {
namespace {

// A link of ours, and the end of one that leads to the same process, for a child.
struct Divided {
  std::shared_ptr<UpLink> link;
  int end = -1;
};

// Of the fork that is under way: what the child inherits of our stack, the two ends of its link to it, and its other links.
std::vector<File*> inherited;
int link_ends[2] = {-1, -1};
std::vector<Divided> divided;
// What leave_keeper() is for, while this thread is in its fork(): then the handlers take the lock, and leave the rest to it.
enum class KeeperFor : uint8_t { nobody, exec, end };
thread_local KeeperFor keeper_for = KeeperFor::nobody;
bool keeper_is_needed = false;
// For a program that begins: ends that are left to it.
std::vector<int> left_ends;

// What a child may want of it is this process's.
bool is_left(const File& file) {
  return is_connection(file) || file.listens || (file.is_ours() && names_of(file).local.port != 0);
}

// What is not accepted is the parent's.
void forget_waiting(File& file) {
  for (const File::Waiting& each : file.waiting) {
    if (each.fd >= 0) real().close(each.fd);
  }
  file.waiting.clear();
}

// Only this thread is in the child.
void forget_threads(EpollSet& set) {
  set.sleepers.clear();
  set.pollers.clear();
  set.forget_kernel_waiters();
  set.holds = HeldByThread::of(set);
}
void forget_threads(File& file) {
  file.sleepers.clear();
  file.holds = HeldByThread::of(file);
}

std::vector<Divided> divide(const Ancestors& ancestors) {
  std::vector<Divided> all;
  for (auto& each : ancestors.all()) {
    int ends[2];
    if (!make_link(ends)) continue;
    const bool sent = each->say(LinkMessage::Kind::fork, -1, ends[0]);
    real().close(ends[0]);
    if (sent) all.push_back({std::move(each), ends[1]});
    else real().close(ends[1]);
  }
  return all;
}

}  // namespace

// ---- fork

bool Forks::may_move = true;

void Forks::before() noexcept {
  Host& host = Host::get();
  host.lock();
  keeper_is_needed = keeper_for != KeeperFor::nobody && needs_keeper(host);
  if (keeper_for == KeeperFor::nobody || (keeper_for == KeeperFor::exec && keeper_is_needed)) begin(host);
}

// What is for the child.
void Forks::begin(Host& host) {
  for (File* const each : host.by_socket_) {
    if (each != nullptr && !each->fds.empty() && is_left(*each)) inherited.push_back(each);
  }
  for (int fd = 0; fd < host.table_.end(); ++fd) {
    if (File* const file = host.table_.file(fd); file != nullptr && file->pair) file->divided = true;
  }
  may_move = host.relays_ == nullptr || host.relays_->may_let_go();
  if (inherited.empty() || !make_link(link_ends)) link_ends[0] = link_ends[1] = -1;
  divided = divide(host.ancestors_);
}

void Forks::in_parent() noexcept {
  if (keeper_for == KeeperFor::nobody) go_on_as_parent(Host::get());
}

void Forks::go_on_as_parent(Host& host) {
  if (link_ends[0] >= 0) {
    real().close(link_ends[1]);
    host.relays().add_link(link_ends[0], inherited);
    host.kick_helper();
  }
  for (const Divided& each : divided) real().close(each.end);
  link_ends[0] = link_ends[1] = -1;
  inherited.clear();
  divided.clear();
  host.unlock();
}

void Forks::in_child() noexcept {
  if (keeper_for != KeeperFor::nobody) return;
  Host& host = Host::get();
  host.process_ = ::getpid();
  LastThread::watch_first();
  Host::this_thread().renew();
  forget_relays(host);
  host.asleep_.clear();  // the parent's threads
  host.watcher_ = nullptr;
  for (int fd = 0; fd < host.table_.end(); ++fd) {
    if (auto* const set = host.table_.as<EpollSet>(fd, Entry::Kind::epoll)) forget_threads(*set);
    if (File* const file = host.table_.file(fd)) forget_threads(*file);  // also what waits for a network interface
  }
  for (File* const file : host.by_socket_) {
    if (file != nullptr) forget_threads(*file);
  }
  go_on_as_child(host);
}

void Forks::forget_relays(Host& host) {
  if (host.relays_ != nullptr) host.relays_->forget();
  host.relays_.reset();
}

// The stack is another process's.
void Forks::go_on_as_child(Host& host) {
  for (const auto& each : host.ancestors_.all()) {
    const auto own = std::find_if(divided.begin(), divided.end(), [&](const Divided& one) { return one.link == each; });
    each->renew(own == divided.end() ? -1 : own->end);
  }
  divided.clear();
  inherited.clear();
  for (const int each : left_ends) real().close(each);
  left_ends.clear();
  std::shared_ptr<UpLink> parent;
  if (link_ends[1] >= 0) {
    real().close(link_ends[0]);
    parent = host.ancestors_.add(link_ends[1], true);
    link_ends[0] = link_ends[1] = -1;
  }
  host.waiting_back_.clear();
  host.given_up_.clear();
  host.held_.reset();
  forget_relays(host);
  if (host.sockets_ != nullptr) leave_stack(host, parent);
  leave_helper(host);
  host.protect();
  for (int fd = 0; fd < host.table_.end(); ++fd) {
    if (auto* const set = host.table_.as<EpollSet>(fd, Entry::Kind::epoll)) set->inherited = set->has_ours();
    if (File* const file = host.table_.file(fd)) forget_waiting(*file);
  }
  for (Sleeper* const each : host.asleep_) each->wake();  // whose program could not be replaced
  host.unlock();
}

void Forks::leave_stack(Host& host, const std::shared_ptr<UpLink>& parent) {
  for (size_t i = 0; i < host.by_socket_.size(); ++i) {
    File* const file = host.by_socket_[i];
    if (file == nullptr) continue;
    Host::tell(*file);  // calls of other threads, if exec() fails, find that it is no longer here
    forget_waiting(*file);
    file->serves = file->asked = file->leaves = file->wanted = false;
    file->unserved_since = file->busy_since = 0;
    if (file->fds.empty()) {  // of another process, to which the parent's helper carries it
      EpollSet::forget(*file);
      file->socket = -1;
      if (file->holds == 0) delete file;
      continue;
    }
    const bool stays = is_left(*file);
    File::Inherited left{.listens = file->listens, .connected = is_connection(*file), .backlog = file->backlog};
    const File::Pair names = names_of(*file);
    left.local = names.local;
    left.remote = names.remote;
    left.group = host.sockets_->stack().group_of(file->socket);
    left.claimed = host.sockets_->stack().claimed_at(file->socket);
    if (left.connected) left.options = host.sockets_->stack().stream_options(file->socket);
    file->inherited = left;
    const int socket = std::exchange(file->socket, -1);
    for (File::Origin& each : file->origins) each.part = File::Part::rest;  // it is the parent's of whom that was said
    if (parent != nullptr && stays) file->origins.push_back({parent, socket});
  }
  host.by_socket_.clear();
  sockets::Sockets::leave(std::move(host.sockets_));
  host.context_.reset();
  host.endpoint_fd_ = -1;
  host.watcher_ = nullptr;
  host.armed_ = false;
}

// The thread is the parent's alone, whether there is a stack or the network interface is away.
void Forks::leave_helper(Host& host) noexcept {
  host.helper_rests_ = host.helper_takes_over_ = false;
  if (host.helper_event_ >= 0) real().close(host.helper_event_);
  host.helper_event_ = -1;
  host.helper_runs_ = false;
  ++host.helper_number_;
}

bool Forks::adopt(File& file, bool moves) {
  const auto kind = moves && file.inherited->connected && may_receive(file) ? LinkMessage::Kind::move : LinkMessage::Kind::take;
  const bool done = file.inherited->connected ? take(file, kind) : join(file);
  if (!done) Host::get().close_socket(file);
  if (done) file.inherited.reset();
  return done;
}

// The child's own listener or datagram socket at its parent's port.
bool Forks::join(File& file) {
  const File::Inherited& left = *file.inherited;
  Host& host = Host::get();
  if (begin_ours(file) < 0) return false;
  sockets::Stack& stack = host.sockets().stack();
  const bool bound = left.local.port == 0 || left.group == 0 || stack.bind_shared(file.socket, left.local, left.group) == 0;
  if (!bound || (left.listens && stack.listen(file.socket, left.backlog) != 0)) {
    host.close_socket(file);
    return false;
  }
  if (left.listens) static_cast<void>(stack.set_accepts_new_flows(file.socket, file.serves));
  if (!file.is_stream()) host.relays().settle(file);
  if (file.serves) host.begin_to_serve(file);
  if (!file.is_stream() && !left.remote.host.is_unspecified()) static_cast<void>(stack.connect(file.socket, left.remote));
  return true;
}

bool Forks::take(File& file, LinkMessage::Kind kind) {
  int ends[2];
  if (file.origins.empty() || ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
  for (int& each : ends) each = out_of_the_way(each);  // another thread may close and open what programs do
  const File::Origin& origin = file.origins.front();
  const bool asks = kind == LinkMessage::Kind::move;
  const bool sent = asks ? Ancestors::ask(kind, origin, ends[1]) : origin.link->say(kind, origin.socket, ends[1], true);
  real().close(ends[1]);
  const int memory = sent && asks ? await_stream(file) : -1;
  const bool received = memory >= 0 && receive(file, memory);
  if (memory >= 0) real().close(memory);
  if (!received) Host::get().close_socket(file);
  if (sent && !received) become_pair(file, ends[0], file.inherited->local, file.inherited->remote);
  real().close(ends[0]);
  return sent;
}

// ---- exec

namespace {

// "@LINK,SOCKET" for each link that leads to whose the socket is.
std::string describe_origins(const File& file, std::span<const Divided> links) {
  std::string text;
  for (const File::Origin& each : file.origins) {
    const auto link = std::find_if(links.begin(), links.end(), [&](const Divided& one) { return one.link == each.link; });
    if (link != links.end()) text += "@" + std::to_string(link->end) + "," + std::to_string(each.socket);
  }
  return text;
}

// What exec() does not close; connections that are not pairs by now are lost.
std::vector<std::pair<int, File*>> files_left(Table& table) {
  std::vector<std::pair<int, File*>> left;
  for (int fd = 0; fd < table.end(); ++fd) {
    File* const file = table.file(fd);
    if (file != nullptr && (file->is_ours() || file->inherited) && stays_open(fd) && verify(fd)) left.emplace_back(fd, file);
  }
  return left;
}

// What another process is not to have of what this one has by the same links.
void disclaim_others(Table& table, std::span<const Divided> links, std::span<const std::pair<int, File*>> left) {
  for (int fd = 0; fd < table.end(); ++fd) {
    const File* const file = table.file(fd);
    const auto is_it = [&](const auto& each) { return each.second == file; };
    if (file == nullptr || file->pair || std::any_of(left.begin(), left.end(), is_it)) continue;
    for (const File::Origin& each : file->origins) {
      const LinkMessage said{.kind = LinkMessage::Kind::close, .socket = each.socket};
      for (const Divided& link : links) {
        if (link.link == each.link) static_cast<void>(send_by_link(link.end, &said, sizeof said));
      }
    }
  }
}

// Two numbers with a comma between them, up to the next '@'; taken from the text.
bool take_numbers(std::string_view& text, int& first, int& second) {
  const std::string_view field = text.substr(0, text.find('@'));
  text.remove_prefix(std::min(field.size() + 1, text.size()));
  const char* const end = field.data() + field.size();
  const auto one = std::from_chars(field.data(), end, first);
  if (one.ec != std::errc{} || one.ptr == end || *one.ptr != ',') return false;
  const auto two = std::from_chars(one.ptr + 1, end, second);
  return two.ec == std::errc{} && two.ptr == end;
}

}  // namespace

std::string Forks::prepare_exec(bool stays) {
  Host& host = Host::get();
  std::vector<File*> joined;  // of this process, which goes on
  std::vector<std::pair<int, File*>> left = files_left(host.table());
  for (const auto& [fd, file] : left) {
    if (file->inherited && file->inherited->connected && take(*file, LinkMessage::Kind::take_unused)) file->inherited.reset();
    if (stays && file->is_ours() && file->is_joined()) joined.push_back(file);
  }
  std::erase_if(left, [](const auto& each) { return is_connection(*each.second) || (!each.second->is_ours() && !each.second->inherited); });
  std::vector<Divided> links;
  const auto came_by_link = [](const auto& each) { return !each.second->origins.empty(); };
  if (std::any_of(left.begin(), left.end(), came_by_link)) links = divide(host.ancestors_);
  disclaim_others(host.table(), links, left);
  int ends[2] = {-1, -1};
  if (!joined.empty() && make_link(ends)) host.relays().add_link(ends[0], joined);
  if (ends[1] >= 0) left_ends.push_back(ends[1]);
  for (const Divided& each : links) left_ends.push_back(each.end);
  for (const int each : left_ends) real().fcntl(each, F_SETFD, 0);
  std::string text;
  for (const auto& [fd, file] : left) {
    if (file->inherited && file->inherited->connected) continue;
    text += (text.empty() ? "" : ";") + std::to_string(fd) + "," + describe(*file) + describe_origins(*file, links);
    if (ends[1] >= 0 && file->is_ours() && file->is_joined()) text += "@" + std::to_string(ends[1]) + "," + std::to_string(file->socket);
  }
  return text.empty() ? text : std::string(kVariable) + "=" + text;
}

// ---- a keeper

namespace {

constexpr Nanoseconds kEndsWithin = kSecond / 2;  // what takes longer is a keeper's

bool is_pending(int signal) noexcept {
  sigset_t pending;
  return ::sigpending(&pending) == 0 && ::sigismember(&pending, signal) == 1;
}

// The program is to know nothing of the child: its signal is taken away, unless it may be another one's, too. All are held back.
void take_end_of(pid_t child, bool was_pending) noexcept {
  ::waitpid(child, nullptr, 0);
  if (was_pending) return;
  sigset_t one;
  ::sigemptyset(&one);
  ::sigaddset(&one, SIGCHLD);
  siginfo_t info{};
  constexpr timespec kNow{};
  if (::sigtimedwait(&one, &info, &kNow) != SIGCHLD) return;
  const bool other = info.si_pid != child;
  info.si_pid = 0;
  const bool waits = ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
  if (other || waits) ::kill(::getpid(), SIGCHLD);
}

}  // namespace

bool Forks::may_leave_keeper(const Host& host) noexcept {
  return host.is_open() && !host.sockets_->network().endpoint().is_embedded();
}

bool Forks::carries_for_others(Host& host) {
  host.hear();
  return host.relays_ != nullptr && host.relays_->is_needed();
}

// The streams that make the stack busy at exec() end there, or stay open for the new program. Either needs a stack.
bool Forks::needs_keeper(Host& host) {
  return may_leave_keeper(host) && (carries_for_others(host) || !host.sockets().stack().idle());
}

void Forks::close_own(Host& host) {
  {
    const Host::Guard guard;
    if (!may_leave_keeper(host) || carries_for_others(host)) return;
  }
  forget_program(host);
  const Host::Guard guard;
  if (!host.is_open()) return;
  for (size_t i = 0; i < host.by_socket_.size(); ++i) {  // what calls of other threads still hold
    if (host.by_socket_[i] != nullptr) host.close_socket(*host.by_socket_[i]);
  }
  static_cast<void>(host.sockets().await_ends(kEndsWithin));
}

// It is a child's child, of whom the program that comes does not know. It is as the parent of a fork, and this process as the child. The
// handlers of fork() that the program has run before ours, without our lock, as ever; of the second they need not hear.
bool Forks::leave_keeper(bool goes_on) {
  Host& host = Host::get();
  int told[2];
  {
    const Host::Guard guard;
    if (!needs_keeper(host) || ::pipe2(told, O_CLOEXEC) != 0) return false;
    for (int& each : told) each = out_of_the_way(each);
  }
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const bool was_pending = is_pending(SIGCHLD);
  keeper_for = goes_on ? KeeperFor::exec : KeeperFor::end;
  const pid_t between = ::fork();
  if (between == 0) {
    if (keeper_is_needed) {
      close_program(host, told[1]);
      if (::_Fork() == 0) keep(host, told[1]);
    }
    real()._exit(EXIT_SUCCESS);
  }
  keeper_for = KeeperFor::nobody;
  real().close(told[1]);
  char byte = 0;
  const bool left = between > 0 && real().read(told[0], &byte, 1) == 1;
  if (between > 0) take_end_of(between, was_pending);
  real().close(told[0]);
  if (left) host.sockets().network().endpoint().connection().pass_to(0);
  if (goes_on && left) go_on_as_child(host);
  else if (goes_on && keeper_is_needed) go_on_as_parent(host);
  else if (!left) host.unlock();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return left;
}

// Before its program is another, or has ended: locks and ends of pipes are not to be there any longer then.
void Forks::close_program(Host& host, int told) {
  std::vector<int> own = host.descriptors();
  own.insert(own.end(), {told, link_ends[0], link_ends[1]});
  for (const Divided& each : divided) own.push_back(each.end);
  std::sort(own.begin(), own.end());
  close_all_but(own, 0, ~0u, 0);
  // So that nothing of ours comes to lie there.
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) static_cast<void>(!::open("/dev/null", O_RDWR));
}

void Forks::keep(Host& host, int told) {
  keeper_for = KeeperFor::nobody;
  signals_held = false;
  ::setsid();  // what the program's terminal and group are told is not for it
  static_cast<void>(!::chdir("/"));
  ::prctl(PR_SET_NAME, "unet-sockets");
  host.process_ = ::getpid();
  LastThread::watch_first();
  host.sockets().network().endpoint().connection().pass_to(host.process_);
  real().write(told, "", 1);
  real().close(told);
  host.keeps_until_ = host.now() + Host::kOthersWithin;
  host.wanting_ = 0;
  host.asleep_.clear();
  host.watcher_ = nullptr;
  host.relays().hold_alone(host.by_socket_);
  go_on_as_parent(host);
  forget_program(host);
  host.help();
  host.finish();
  real()._exit(EXIT_SUCCESS);
  __builtin_unreachable();
}

// All that no other process has ends.
void Forks::forget_program(Host& host) {
  const Host::Guard guard;
  for (int fd = 0; fd < host.table_.end(); ++fd) {
    if (auto* const set = host.table_.as<EpollSet>(fd, Entry::Kind::epoll)) forget_threads(*set);
    if (Entry* const entry = host.table_.take(fd)) host.let_go(*entry);
  }
  for (size_t i = 0; i < host.by_socket_.size(); ++i) {  // what only calls of the program's threads still had
    File* const file = host.by_socket_[i];
    if (file != nullptr && file->fds.empty() && file->holds == 0) host.let_go(*file);
  }
}

void Forks::forget_exec() noexcept {
  for (const int each : left_ends) real().close(each);
  left_ends.clear();
}

void Forks::read_left() {
  const char* const variable = ::secure_getenv(kVariable);
  if (variable == nullptr) return;
  const std::string whole = variable;
  ::unsetenv(kVariable);
  std::vector<std::shared_ptr<UpLink>> links;
  std::string_view text = whole;
  while (!text.empty()) {
    std::string_view each = text.substr(0, text.find(';'));
    text.remove_prefix(std::min(each.size() + 1, text.size()));
    int fd = -1;
    const auto [at, error] = std::from_chars(each.data(), each.data() + each.size(), fd);
    if (error != std::errc{} || at == each.data() + each.size() || *at != ',') return;
    each.remove_prefix(static_cast<size_t>(at - each.data()) + 1);
    const std::string_view words = each.substr(0, each.find('@'));
    each.remove_prefix(std::min(words.size() + 1, each.size()));
    auto file = read_description(words);
    if (file == nullptr || fd < 0 || fd >= Table::kMax) return;
    read_origins(*file, each, links);
    // What the environment names may have been closed since by who began the program, or be made up.
    if (is_socket(fd, file->domain, file->type)) Host::get().table().put(fd, *file.release());
    else Ancestors::say_all(*file, LinkMessage::Kind::close);
  }
}

void Forks::read_origins(File& file, std::string_view text, std::vector<std::shared_ptr<UpLink>>& links) {
  int end = -1, socket = -1;
  while (!text.empty() && take_numbers(text, end, socket)) {
    auto link = std::find_if(links.begin(), links.end(), [&](const auto& each) { return each->fd == end; });
    if (link == links.end()) {
      auto made = is_socket(end, AF_UNIX, SOCK_SEQPACKET) ? Host::get().ancestors_.add(end) : nullptr;
      if (made == nullptr) return;
      real().fcntl(end, F_SETFD, FD_CLOEXEC);
      link = links.insert(links.end(), std::move(made));
    }
    file.origins.push_back({*link, socket});
  }
}

}  // namespace unet::preload
