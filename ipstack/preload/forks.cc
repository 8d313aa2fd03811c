// forks.cc - a child begins with what its parent had open, but without its stack.
#include "ipstack/preload/forks.h"

#include <unistd.h>

#include <charconv>
#include <cstring>
#include <string>

#include "ipstack/preload/calls.h"
#include "ipstack/preload/description.h"
#include "ipstack/preload/host.h"
#include "ipstack/preload/placement.h"
#include "ipstack/preload/relays.h"

namespace unet::preload {
namespace {

// Of the fork that is under way: the parent's end of a link, and the child's.
int link_ends[2] = {-1, -1};

std::vector<File*> connections(std::span<File* const> all) {
  std::vector<File*> found;
  for (File* const each : all) {
    if (each != nullptr && is_connection(*each)) found.push_back(each);
  }
  return found;
}

}  // namespace

// ---- fork

void Forks::before() noexcept {
  Host& host = Host::get();
  host.lock();
  if (!host.is_open() || connections(host.by_socket_).empty()) return;
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, link_ends) != 0) link_ends[0] = link_ends[1] = -1;
}

void Forks::in_parent() noexcept {
  Host& host = Host::get();
  if (link_ends[0] >= 0) {
    real().close(link_ends[1]);
    host.relays().add_link(link_ends[0], connections(host.by_socket_));
    link_ends[0] = link_ends[1] = -1;
    host.kick_helper();
  }
  host.unlock();
}

void Forks::in_child() noexcept {
  Host& host = Host::get();
  host.process_ = ::getpid();
  Host::this_thread().renew();
  if (link_ends[1] >= 0) {
    real().close(link_ends[0]);
    if (host.parent_link_ >= 0) real().close(host.parent_link_);
    host.parent_link_ = link_ends[1];
    link_ends[0] = link_ends[1] = -1;
  }
  if (host.sockets_ != nullptr) leave_stack(host);
  host.protect();
  if (host.relays_ != nullptr) host.relays_->forget();
  host.relays_.reset();
  for (int fd = 0; fd < host.table_.end(); ++fd) {
    if (auto* const set = host.table_.as<EpollSet>(fd, Entry::Kind::epoll)) set->sleepers.clear();
  }
  host.unlock();
}

void Forks::leave_stack(Host& host) {
  for (size_t i = 0; i < host.by_socket_.size(); ++i) {
    File* const file = host.by_socket_[i];
    if (file == nullptr) continue;
    file->sleepers.clear();
    file->holds = 0;
    File::Inherited left{.socket = file->socket, .listens = file->listens, .connected = is_connection(*file), .backlog = file->backlog};
    const File::Pair names = names_of(*file);
    left.local = names.local;
    left.remote = names.remote;
    left.group = host.sockets_->stack().group_of(file->socket);
    file->inherited = left;
    file->socket = -1;
  }
  host.by_socket_.clear();
  sockets::Sockets::leave(std::move(host.sockets_));
  host.context_.reset();
  host.endpoint_fd_ = -1;
  host.watcher_ = nullptr;
  host.armed_ = false;
  host.helper_rests_ = false;
  if (host.helper_event_ >= 0) real().close(host.helper_event_);
  host.helper_event_ = -1;
  host.helper_runs_ = false;
}

bool Forks::adopt(File& file) {
  const bool done = file.inherited->connected ? take(file, LinkMessage::Kind::take) : join(file);
  if (done) file.inherited.reset();
  return done;
}

void Forks::prepare_user_change() {
  Host& host = Host::get();
  if (Host::inside() || !host.is_own_process()) return;
  const Host::Guard guard;
  if (host.is_open()) return;
  for (int fd = 0; fd < host.table().end(); ++fd) {
    const File* const file = host.table().file(fd);
    if (file == nullptr || !file->inherited || file->inherited->connected) continue;
    static_cast<void>(host.open());
    return;
  }
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
  if (left.listens) {
    file.serves = false;
    host.serve(file);
  }
  if (!file.is_stream() && !left.remote.host.is_unspecified()) static_cast<void>(stack.connect(file.socket, left.remote));
  return true;
}

bool Forks::take(File& file, LinkMessage::Kind kind) {
  Host& host = Host::get();
  int ends[2];
  if (host.parent_link_ < 0 || ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
  LinkMessage said{.kind = kind, .socket = file.inherited->socket};
  iovec data{.iov_base = &said, .iov_len = sizeof said};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &ends[1], sizeof(int));
  const bool sent = real().sendmsg(host.parent_link_, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof said);
  real().close(ends[1]);
  if (sent) {
    become_pair(file, ends[0], file.inherited->local, file.inherited->remote);
    file.pair->socket = file.inherited->socket;
  }
  real().close(ends[0]);
  return sent;
}

void Forks::disclaim(const File& file) noexcept {
  Host& host = Host::get();
  if (!file.inherited->connected || host.parent_link_ < 0) return;
  const LinkMessage said{.kind = LinkMessage::Kind::close, .socket = file.inherited->socket};
  static_cast<void>(!real().send(host.parent_link_, &said, sizeof said, MSG_NOSIGNAL | MSG_DONTWAIT));
}

void Forks::tell_end(const File& file) noexcept {
  Host& host = Host::get();
  if (file.pair->socket < 0 || host.parent_link_ < 0) return;
  const LinkMessage said{.kind = LinkMessage::Kind::end, .socket = file.pair->socket};
  static_cast<void>(!real().send(host.parent_link_, &said, sizeof said, MSG_NOSIGNAL | MSG_DONTWAIT));
}

// ---- exec

std::string Forks::prepare_exec() {
  Host& host = Host::get();
  std::string text;
  for (int fd = 0; fd < host.table().end(); ++fd) {
    File* const file = host.table().file(fd);
    if (file == nullptr || !stays_open(fd)) continue;
    if (file->inherited && file->inherited->connected) {
      if (take(*file, LinkMessage::Kind::take_unused)) file->inherited.reset();
      continue;
    }
    if (!file->is_ours() && !file->inherited) continue;
    if (is_connection(*file)) continue;
    text += (text.empty() ? "" : ";") + std::to_string(fd) + "," + describe(*file);
  }
  return text.empty() ? text : std::string(kVariable) + "=" + text;
}

void Forks::read_left() {
  const char* const variable = ::getenv(kVariable);
  if (variable == nullptr) return;
  const std::string whole = variable;
  ::unsetenv(kVariable);
  std::string_view text = whole;
  while (!text.empty()) {
    const size_t end = std::min(text.find(';'), text.size());
    std::string_view each = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    int fd = -1;
    const auto [at, error] = std::from_chars(each.data(), each.data() + each.size(), fd);
    if (error != std::errc{} || at == each.data() + each.size() || *at != ',') return;
    each.remove_prefix(static_cast<size_t>(at - each.data()) + 1);
    auto file = read_description(each);
    if (file == nullptr || fd < 0 || fd >= Table::kMax) return;
    Host::get().table().put(fd, *file.release());
  }
}

}  // namespace unet::preload
