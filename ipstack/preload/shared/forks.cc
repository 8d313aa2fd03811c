// forks.cc - sockets across fork() and exec(): a child has its parent's sockets, but not the stack.
#include "ipstack/preload/shared/forks.h"

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
#include "ipstack/preload/identity.h"
#include "ipstack/preload/last_thread.h"
#include "ipstack/preload/runtime.h"
#include "ipstack/preload/shared/socket_proxies.h"
#include "ipstack/preload/signals.h"
#include "ipstack/preload/socket_routing.h"
#include "unet/connection.h"

namespace unet::preload {
namespace {

// A channel of this process, and the end of a new channel for a child, to the same process.
struct ForkedChannel {
  std::shared_ptr<ParentChannel> channel;
  int end = -1;
};

// For the fork under way: sockets that the child inherits, the two ends of its channel to this process, and its other channels.
std::vector<File*> inherited;
int channel_ends[2] = {-1, -1};
std::vector<ForkedChannel> forked_channels;
// Why leave_orphan() calls fork() in this thread. The handlers of fork() then only take the lock.
enum class OrphanFor : uint8_t { none, exec, end };
thread_local OrphanFor orphan_for = OrphanFor::none;
bool orphan_is_needed = false;
// For exec(): channel ends that the new program inherits.
std::vector<int> left_ends;

// Whether a child may need this process for the socket.
bool is_left(const File& file) {
  return is_connection(file) || file.listens || (file.in_stack() && names_of(file).local.port != 0);
}

// Connections that are not accepted stay with the parent.
void forget_pending_accepts(File& file) {
  for (const File::PendingAccept& each : file.pending_accepts) {
    if (each.fd >= 0) real().close(each.fd);
  }
  file.pending_accepts.clear();
}

// Forgets waiting threads: a child has only the thread that forked.
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

std::vector<ForkedChannel> fork_channels(const ParentChannels& parents) {
  std::vector<ForkedChannel> all;
  for (auto& each : parents.all()) {
    int ends[2];
    if (!make_channel(ends)) continue;
    const bool sent = each->send(ParentMessage::Kind::fork, -1, ends[0]);
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
  Runtime& runtime = Runtime::get();
  runtime.enter();
  orphan_is_needed = orphan_for != OrphanFor::none && needs_orphan(runtime);
  if (orphan_for == OrphanFor::none || (orphan_for == OrphanFor::exec && orphan_is_needed)) begin(runtime);
}

// Collects what the child inherits, and makes its channels.
void Forks::begin(Runtime& runtime) {
  for (File* const each : runtime.table().by_socket()) {
    if (each != nullptr && !each->fds.empty() && is_left(*each)) inherited.push_back(each);
  }
  for (int fd = 0; fd < runtime.table().end(); ++fd) {
    if (File* const file = runtime.table().file(fd); file != nullptr && file->pair) file->in_other_process = true;
  }
  may_move = runtime.proxies_ == nullptr || runtime.proxies_->may_let_go();
  if (inherited.empty() || !make_channel(channel_ends)) channel_ends[0] = channel_ends[1] = -1;
  forked_channels = fork_channels(runtime.parents_);
}

void Forks::in_parent() noexcept {
  if (orphan_for == OrphanFor::none) go_on_as_parent(Runtime::get());
}

void Forks::go_on_as_parent(Runtime& runtime) {
  if (channel_ends[0] >= 0) {
    real().close(channel_ends[1]);
    runtime.proxies().add_channel(channel_ends[0], inherited);
    runtime.poller().kick_helper();
  }
  for (const ForkedChannel& each : forked_channels) real().close(each.end);
  channel_ends[0] = channel_ends[1] = -1;
  inherited.clear();
  forked_channels.clear();
  runtime.leave();
}

void Forks::in_child() noexcept {
  if (orphan_for != OrphanFor::none) return;
  Runtime& runtime = Runtime::get();
  runtime.lock_.begin_process();
  LastThread::watch_first();
  Runtime::this_thread().renew();
  forget_proxies(runtime);
  runtime.poller().forget_sleepers();
  for (int fd = 0; fd < runtime.table().end(); ++fd) {
    if (auto* const set = runtime.table().as<EpollSet>(fd, Entry::Kind::epoll)) forget_threads(*set);
    if (File* const file = runtime.table().file(fd)) forget_threads(*file);  // also files that wait for a network interface
  }
  for (File* const file : runtime.table().by_socket()) {
    if (file != nullptr) forget_threads(*file);
  }
  go_on_as_child(runtime);
}

void Forks::forget_proxies(Runtime& runtime) {
  if (runtime.proxies_ != nullptr) runtime.proxies_->forget();
  runtime.proxies_.reset();
}

// Continues with the stack in another process.
void Forks::go_on_as_child(Runtime& runtime) {
  for (const auto& each : runtime.parents_.all()) {
    const auto is_it = [&](const ForkedChannel& one) { return one.channel == each; };
    const auto own = std::find_if(forked_channels.begin(), forked_channels.end(), is_it);
    each->renew(own == forked_channels.end() ? -1 : own->end);
  }
  forked_channels.clear();
  inherited.clear();
  for (const int each : left_ends) real().close(each);
  left_ends.clear();
  std::shared_ptr<ParentChannel> parent;
  if (channel_ends[1] >= 0) {
    real().close(channel_ends[0]);
    parent = runtime.parents_.add(channel_ends[1], true);
    channel_ends[0] = channel_ends[1] = -1;
  }
  runtime.interface_loss().forget_all();
  runtime.reception().forget_all();
  runtime.ni_.forget_reserve();
  forget_proxies(runtime);
  if (runtime.endpoint_stack_ != nullptr) leave_stack(runtime, parent);
  runtime.poller().leave_helper();  // there may be a helper without a stack while the network interface is away
  runtime.own_descriptors().update();
  for (int fd = 0; fd < runtime.table().end(); ++fd) {
    if (auto* const set = runtime.table().as<EpollSet>(fd, Entry::Kind::epoll)) set->inherited = set->has_members_in_stack();
    if (File* const file = runtime.table().file(fd)) forget_pending_accepts(*file);
  }
  runtime.poller().wake_sleepers();  // threads of a program for which exec() failed
  runtime.leave();
}

void Forks::leave_stack(Runtime& runtime, const std::shared_ptr<ParentChannel>& parent) {
  for (size_t i = 0; i < runtime.table().by_socket().size(); ++i) {
    File* const file = runtime.table().by_socket()[i];
    if (file == nullptr) continue;
    Runtime::notify(*file);  // if exec() fails, calls of other threads find that the stack has moved
    forget_pending_accepts(*file);
    file->receives = file->asked = file->draining = file->wanted = false;
    file->unserved_since = file->busy_since = 0;
    if (file->fds.empty()) {  // only another process has it, through the parent's helper
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
    left.group = runtime.stack().group_of(file->socket);
    left.claimed = runtime.stack().moves().claimed_at(file->socket);
    if (left.connected) left.options = runtime.stack().moves().options(file->socket);
    file->inherited = left;
    const int socket = std::exchange(file->socket, -1);
    for (File::Origin& each : file->origins) each.part = File::Part::rest;  // the owner's value was for the parent's claim
    if (parent != nullptr && stays) file->origins.push_back({parent, socket});
  }
  runtime.end_stack(&sockets::EndpointStack::leave);
}

bool Forks::adopt(File& file, bool moves) {
  const auto kind = moves && file.inherited->connected && may_receive(file) ? ParentMessage::Kind::move : ParentMessage::Kind::take;
  const bool done = file.inherited->connected ? take(file, kind) : join(file);
  if (!done) Runtime::get().close_socket(file);
  if (done) file.inherited.reset();
  return done;
}

// Opens the child's own listener or datagram socket at its parent's port.
bool Forks::join(File& file) {
  const File::Inherited& left = *file.inherited;
  Runtime& runtime = Runtime::get();
  if (open_in_stack(file) < 0) return false;
  sockets::Stack& stack = runtime.stack();
  const bool bound = left.local.port == 0 || left.group == 0 || stack.bind_shared(file.socket, left.local, left.group) == 0;
  if (!bound || (left.listens && stack.listen(file.socket, left.backlog) != 0)) {
    runtime.close_socket(file);
    return false;
  }
  if (left.listens) static_cast<void>(stack.set_accepts_new_flows(file.socket, file.receives));
  if (!file.is_stream()) runtime.proxies().update_claims(file);
  if (file.receives) runtime.reception().begin(file);
  if (!file.is_stream() && !left.remote.host.is_unspecified()) static_cast<void>(stack.connect(file.socket, left.remote));
  return true;
}

bool Forks::take(File& file, ParentMessage::Kind kind) {
  int ends[2];
  if (file.origins.empty() || ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
  for (int& each : ends) each = out_of_the_way(each);  // moves it away from low numbers, which other threads may close and open
  const File::Origin& origin = file.origins.front();
  const bool asks = kind == ParentMessage::Kind::move;
  const bool sent = asks ? ParentChannels::ask(kind, origin, ends[1]) : origin.channel->send(kind, origin.socket, ends[1], true);
  real().close(ends[1]);
  const int memory = sent && asks ? await_stream(file) : -1;
  const bool received = memory >= 0 && receive(file, memory);
  if (memory >= 0) real().close(memory);
  if (!received) Runtime::get().close_socket(file);
  if (sent && !received) become_pair(file, ends[0], file.inherited->local, file.inherited->remote);
  real().close(ends[0]);
  return sent;
}

// ---- exec

namespace {

// Returns "@CHANNEL,SOCKET" for each channel to an owner of the socket.
std::string describe_origins(const File& file, std::span<const ForkedChannel> channels) {
  std::string text;
  for (const File::Origin& each : file.origins) {
    const auto is_it = [&](const ForkedChannel& one) { return one.channel == each.channel; };
    const auto channel = std::find_if(channels.begin(), channels.end(), is_it);
    if (channel != channels.end()) text += "@" + std::to_string(channel->end) + "," + std::to_string(each.socket);
  }
  return text;
}

// Sockets that exec() does not close. Connections that are not pairs by now are lost.
std::vector<std::pair<int, File*>> files_left(Table& table) {
  std::vector<std::pair<int, File*>> left;
  for (int fd = 0; fd < table.end(); ++fd) {
    File* const file = table.file(fd);
    if (file != nullptr && (file->in_stack() || file->inherited) && stays_open(fd) && verify(fd)) left.emplace_back(fd, file);
  }
  return left;
}

// Closes, at their owners, sockets of these channels that the next program does not get.
void disclaim_others(Table& table, std::span<const ForkedChannel> channels, std::span<const std::pair<int, File*>> left) {
  for (int fd = 0; fd < table.end(); ++fd) {
    const File* const file = table.file(fd);
    const auto is_it = [&](const auto& each) { return each.second == file; };
    if (file == nullptr || file->pair || std::any_of(left.begin(), left.end(), is_it)) continue;
    for (const File::Origin& each : file->origins) {
      const ParentMessage said{.kind = ParentMessage::Kind::close, .socket = each.socket};
      for (const ForkedChannel& channel : channels) {
        if (channel.channel == each.channel) static_cast<void>(send_on(channel.end, &said, sizeof said));
      }
    }
  }
}

// Takes "FIRST,SECOND" from the beginning of the text, up to the next '@'.
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
  Runtime& runtime = Runtime::get();
  std::vector<File*> joined;  // sockets of this process, which goes on
  std::vector<std::pair<int, File*>> left = files_left(runtime.table());
  for (const auto& [fd, file] : left) {
    if (file->inherited && file->inherited->connected && take(*file, ParentMessage::Kind::take_unused)) file->inherited.reset();
    if (stays && file->in_stack() && file->is_joined()) joined.push_back(file);
  }
  std::erase_if(left, [](const auto& each) {
    return is_connection(*each.second) || (!each.second->in_stack() && !each.second->inherited);
  });
  std::vector<ForkedChannel> channels;
  const auto came_by_channel = [](const auto& each) { return !each.second->origins.empty(); };
  if (std::any_of(left.begin(), left.end(), came_by_channel)) channels = fork_channels(runtime.parents_);
  disclaim_others(runtime.table(), channels, left);
  int ends[2] = {-1, -1};
  if (!joined.empty() && make_channel(ends)) runtime.proxies().add_channel(ends[0], joined);
  if (ends[1] >= 0) left_ends.push_back(ends[1]);
  for (const ForkedChannel& each : channels) left_ends.push_back(each.end);
  for (const int each : left_ends) real().fcntl(each, F_SETFD, 0);
  std::string text;
  for (const auto& [fd, file] : left) {
    if (file->inherited && file->inherited->connected) continue;
    text += (text.empty() ? "" : ";") + std::to_string(fd) + "," + describe(*file) + describe_origins(*file, channels);
    if (ends[1] >= 0 && file->in_stack() && file->is_joined()) text += "@" + std::to_string(ends[1]) + "," + std::to_string(file->socket);
  }
  return text.empty() ? text : std::string(kVariable) + "=" + text;
}

// ---- orphan processes

namespace {

constexpr Nanoseconds kEndsWithin = kSecond / 2;  // an orphan process waits for slower peers

bool is_pending(int signal) noexcept {
  sigset_t pending;
  return ::sigpending(&pending) == 0 && ::sigismember(&pending, signal) == 1;
}

// Hides the child from the program: takes its SIGCHLD away, unless another child may have caused it. All signals are blocked.
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

bool Forks::may_leave_orphan(const Runtime& runtime) noexcept {
  return runtime.is_open() && !runtime.endpoint_stack_->network().endpoint().is_embedded();
}

bool Forks::carries_for_others(Runtime& runtime) {
  runtime.process_channels();
  return runtime.proxies_ != nullptr && runtime.proxies_->is_needed();
}

// At exec(), streams with unfinished work end, or stay open for the new program. Both need a stack.
bool Forks::needs_orphan(Runtime& runtime) {
  return may_leave_orphan(runtime) && (carries_for_others(runtime) || !runtime.stack().idle());
}

void Forks::close_own(Runtime& runtime) {
  {
    const Runtime::Guard guard;
    if (!may_leave_orphan(runtime) || carries_for_others(runtime)) return;
  }
  forget_program(runtime);
  const Runtime::Guard guard;
  if (!runtime.is_open()) return;
  for (File* const file : runtime.table().by_socket()) {  // sockets that calls of other threads still hold
    if (file != nullptr) runtime.close_socket(*file);
  }
  static_cast<void>(runtime.endpoint_stack().await_ends(kEndsWithin));
}

// The orphan is a grandchild, which the next program does not know. It takes the part of a fork's parent, and this process that of the
// child. The first fork() runs the program's handlers, without our lock as always. The second one, _Fork(), runs none.
bool Forks::leave_orphan(bool goes_on) {
  Runtime& runtime = Runtime::get();
  int told[2];
  {
    const Runtime::Guard guard;
    if (!needs_orphan(runtime) || ::pipe2(told, O_CLOEXEC) != 0) return false;
    for (int& each : told) each = out_of_the_way(each);
  }
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const bool was_pending = is_pending(SIGCHLD);
  orphan_for = goes_on ? OrphanFor::exec : OrphanFor::end;
  const pid_t between = ::fork();
  if (between == 0) {
    if (orphan_is_needed) {
      close_program(runtime, told[1]);
      if (::_Fork() == 0) run_orphan(runtime, told[1]);
    }
    real()._exit(EXIT_SUCCESS);
  }
  orphan_for = OrphanFor::none;
  real().close(told[1]);
  char byte = 0;
  const bool left = between > 0 && real().read(told[0], &byte, 1) == 1;
  if (between > 0) take_end_of(between, was_pending);
  real().close(told[0]);
  if (left) runtime.endpoint_stack().network().endpoint().connection().pass_to(0);
  if (goes_on && left) go_on_as_child(runtime);
  else if (goes_on && orphan_is_needed) go_on_as_parent(runtime);
  else if (!left) runtime.leave();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return left;
}

// In an orphan: closes the program's descriptors before the program ends or is replaced, as file locks and pipes must end with it.
void Forks::close_program(Runtime& runtime, int told) {
  std::vector<int> own = runtime.own_descriptors().all_now();
  own.insert(own.end(), {told, channel_ends[0], channel_ends[1]});
  for (const ForkedChannel& each : forked_channels) own.push_back(each.end);
  std::sort(own.begin(), own.end());
  close_all_but(own, 0, ~0u, 0);
  // Occupies the standard descriptors, so that no descriptor of the library gets one of these numbers.
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) static_cast<void>(!::open("/dev/null", O_RDWR));
}

void Forks::run_orphan(Runtime& runtime, int told) {
  orphan_for = OrphanFor::none;
  signals_held = false;
  ::setsid();  // the orphan must not get signals for the program's terminal and group
  static_cast<void>(!::chdir("/"));
  ::prctl(PR_SET_NAME, "unet-sockets");
  runtime.lock_.begin_process();
  LastThread::watch_first();
  runtime.endpoint_stack().network().endpoint().connection().pass_to(::getpid());
  real().write(told, "", 1);
  real().close(told);
  runtime.orphan_.begin(runtime.now() + Runtime::kOthersWithin);
  runtime.poller().forget_sleepers();
  runtime.proxies().hold_alone(runtime.table().by_socket());
  go_on_as_parent(runtime);
  forget_program(runtime);
  runtime.help();
  runtime.finish();
  real()._exit(EXIT_SUCCESS);
  __builtin_unreachable();
}

// Ends all sockets that no other process has.
void Forks::forget_program(Runtime& runtime) {
  const Runtime::Guard guard;
  for (int fd = 0; fd < runtime.table().end(); ++fd) {
    if (auto* const set = runtime.table().as<EpollSet>(fd, Entry::Kind::epoll)) forget_threads(*set);
    if (Entry* const entry = runtime.table().take(fd)) runtime.let_go(*entry);
  }
  for (size_t i = 0; i < runtime.table().by_socket().size(); ++i) {  // files that only calls of the program's threads still held
    File* const file = runtime.table().by_socket()[i];
    if (file != nullptr && file->fds.empty() && file->holds == 0) runtime.let_go(*file);
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
  std::vector<std::shared_ptr<ParentChannel>> channels;
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
    read_origins(*file, each, channels);
    // The descriptors in the environment may have been closed since by the process that began the program, or be made up.
    if (is_socket(fd, file->domain, file->type)) Runtime::get().table().put(fd, *file.release());
    else ParentChannels::send_to_all(*file, ParentMessage::Kind::close);
  }
}

void Forks::read_origins(File& file, std::string_view text, std::vector<std::shared_ptr<ParentChannel>>& channels) {
  int end = -1, socket = -1;
  while (!text.empty() && take_numbers(text, end, socket)) {
    auto channel = std::find_if(channels.begin(), channels.end(), [&](const auto& each) { return each->fd == end; });
    if (channel == channels.end()) {
      auto made = is_socket(end, AF_UNIX, SOCK_SEQPACKET) ? Runtime::get().parents_.add(end) : nullptr;
      if (made == nullptr) return;
      real().fcntl(end, F_SETFD, FD_CLOEXEC);
      channel = channels.insert(channels.end(), std::move(made));
    }
    file.origins.push_back({*channel, socket});
  }
}

}  // namespace unet::preload
