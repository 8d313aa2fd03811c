// forks.cc - sockets across fork(): a child has its parent's sockets, but not the stack.
#include "ipstack/preload/shared/forks.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "ipstack/preload/description.h"
#include "ipstack/preload/last_thread.h"
#include "ipstack/preload/real.h"
#include "ipstack/preload/runtime.h"
#include "ipstack/preload/shared/adoption.h"
#include "ipstack/preload/shared/exec_sockets.h"
#include "ipstack/preload/shared/process_end.h"
#include "ipstack/preload/shared/socket_proxies.h"

namespace unet::preload {
namespace {

// For the fork under way: sockets that the child inherits, the two ends of its channel to this process, and its other channels.
std::vector<File*> inherited;
int channel_ends[2] = {-1, -1};
std::vector<ParentChannels::Forked> forked_channels;

bool moves_of_parent = true;               // Adoption::allow_moves() before the fork
thread_local bool forks_inside = false;  // Lock::inside() of the thread that forks

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

// A child has only the thread that forked.
void forget_threads(File& file) {
  file.sleepers.clear();
  file.holds = HeldByThread::of(file);
}

// Collects what the child inherits, and makes its channels.
void begin() {
  Runtime& runtime = Runtime::get();
  for (File* const each : runtime.table().by_socket()) {
    if (each != nullptr && !each->fds.empty() && is_left(*each)) inherited.push_back(each);
  }
  for (int fd = 0; fd < runtime.table().end(); ++fd) {
    if (File* const file = runtime.table().file(fd); file != nullptr && file->pair) file->in_other_process = true;
  }
  moves_of_parent = Adoption::allow_moves(runtime.is_alone() || runtime.proxies().may_let_go());
  if (inherited.empty() || !make_channel(channel_ends)) channel_ends[0] = channel_ends[1] = -1;
  forked_channels = runtime.parents().fork();
}

// The stack stays with another process. Sockets of this one are inherited from now on, and `parent` leads to that process.
void leave_stack(const std::shared_ptr<ParentChannel>& parent) {
  Runtime& runtime = Runtime::get();
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
    for (File::Origin& each : file->origins) each.part = File::Part::none;  // the owner's value was for the parent's claim
    if (parent != nullptr && stays) file->origins.push_back({parent, socket});
  }
  runtime.end_stack(&sockets::EndpointStack::leave);
}

}  // namespace

// A thread inside of the library forks in a handler of a fault, or at the end of the process. Parent and child leave the state as it is.
void Forks::before() noexcept {
  forks_inside = Lock::inside();
  if (forks_inside) return;
  Runtime::get().enter();
  if (Runtime::get().lock().is_own_process()) Runtime::get().poller().await_helper();  // a child of clone() has no helper
  if (!ProcessEnd::is_forking() || Runtime::get().end().prepare_fork()) begin();
}

void Forks::in_parent() noexcept {
  if (!forks_inside && !ProcessEnd::is_forking()) go_on_as_parent();
}

void Forks::go_on_as_parent() {
  Runtime& runtime = Runtime::get();
  if (channel_ends[0] >= 0) {
    real().close(channel_ends[1]);
    runtime.proxies().add_channel(channel_ends[0], inherited);
    runtime.poller().kick_helper();
  }
  for (const ParentChannels::Forked& each : forked_channels) real().close(each.end);
  channel_ends[0] = channel_ends[1] = -1;
  inherited.clear();
  forked_channels.clear();
  Adoption::allow_moves(moves_of_parent);
  runtime.leave();
}

void Forks::in_child() noexcept {
  if (forks_inside || ProcessEnd::is_forking()) return;
  Runtime& runtime = Runtime::get();
  runtime.lock().begin_process();
  LastThread::watch_first();
  Runtime::this_thread().renew();
  runtime.forget_duties();
  runtime.poller().forget_sleepers();
  for (int fd = 0; fd < runtime.table().end(); ++fd) {
    if (auto* const set = runtime.table().as<EpollSet>(fd, Entry::Kind::epoll)) set->forget_threads();
    if (File* const file = runtime.table().file(fd)) forget_threads(*file);  // also files that wait for a network interface
  }
  for (File* const file : runtime.table().by_socket()) {
    if (file != nullptr) forget_threads(*file);
  }
  go_on_as_child();
}

void Forks::go_on_as_child() {
  Runtime& runtime = Runtime::get();
  for (const auto& each : runtime.parents().all()) {
    const auto is_it = [&](const ParentChannels::Forked& one) { return one.channel == each; };
    const auto own = std::find_if(forked_channels.begin(), forked_channels.end(), is_it);
    each->renew(own == forked_channels.end() ? -1 : own->end);
  }
  forked_channels.clear();
  inherited.clear();
  ExecSockets::forget();
  std::shared_ptr<ParentChannel> parent;
  if (channel_ends[1] >= 0) {
    real().close(channel_ends[0]);
    parent = runtime.parents().add(channel_ends[1], true);
    channel_ends[0] = channel_ends[1] = -1;
  }
  runtime.forget_duties();
  if (runtime.is_open()) leave_stack(parent);
  runtime.poller().leave_helper();  // there may be a helper without a stack while the network interface is away
  runtime.own_descriptors().update();
  for (int fd = 0; fd < runtime.table().end(); ++fd) {
    if (auto* const set = runtime.table().as<EpollSet>(fd, Entry::Kind::epoll)) set->inherited = set->has_members_in_stack();
    if (File* const file = runtime.table().file(fd)) forget_pending_accepts(*file);
  }
  runtime.poller().wake_sleepers();  // threads of a program for which exec() failed
  runtime.leave();
}

void Forks::append(std::vector<int>& all) {
  all.insert(all.end(), {channel_ends[0], channel_ends[1]});
  for (const ParentChannels::Forked& each : forked_channels) all.push_back(each.end);
}

}  // namespace unet::preload
