// parent_channels.cc - messages to and from the parent side.
#include "ipstack/preload/shared/parent_channels.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ipstack/preload/real.h"
#include "ipstack/preload/runtime.h"
#include "ipstack/preload/shared/socket_proxies.h"

namespace unet::preload {
namespace {

constexpr size_t kPendingMost = 64;     // connections of a listener; an honest parent sends one per request

}  // namespace

ParentChannel::~ParentChannel() { renew(-1); }

void ParentChannel::renew(int end) noexcept {
  if (fd >= 0) real().close(fd);
  fd = end;
  Runtime::get().own_descriptors().update();
}

bool ParentChannel::send(ParentMessage::Kind kind, int socket, int descriptor, bool may_wait) const noexcept {
  const ParentMessage said{.kind = kind, .socket = socket};
  return fd >= 0 && send_on(fd, &said, sizeof said, descriptor, may_wait);
}

std::shared_ptr<ParentChannel> ParentChannels::add(int fd, bool to_parent) {
  std::erase_if(channels_, [](const auto& each) { return each.expired(); });
  if (channels_.size() >= (to_parent ? kMost : kMost - 1)) {
    tell_user("unet-sockets: sockets of more than %zu processes or passed listeners: some that were %s cannot be used\n", kMost - 1,
              to_parent ? "inherited" : "passed");
    real().close(fd);
    return nullptr;
  }
  auto channel = std::make_shared<ParentChannel>(fd);
  channels_.push_back(channel);
  Runtime::get().own_descriptors().update();
  return channel;
}

std::vector<std::shared_ptr<ParentChannel>> ParentChannels::all() const {
  std::vector<std::shared_ptr<ParentChannel>> found;
  for (const auto& each : channels_) {
    if (auto channel = each.lock(); channel != nullptr && channel->fd >= 0) found.push_back(std::move(channel));
  }
  return found;
}

std::vector<ParentChannels::Forked> ParentChannels::fork() const {
  std::vector<Forked> made;
  for (auto& each : all()) {
    int ends[2];
    if (!make_channel(ends)) continue;
    const bool sent = each->send(ParentMessage::Kind::fork, -1, ends[0]);
    real().close(ends[0]);
    if (sent) made.push_back({std::move(each), ends[1]});
    else real().close(ends[1]);
  }
  return made;
}

void ParentChannels::append(std::vector<pollfd>& to) const {
  for (const auto& each : all()) to.push_back({.fd = each->fd, .events = POLLIN, .revents = 0});
}

void ParentChannels::process() {
  for (const auto& each : all()) {
    if (process(each)) continue;
    each->renew(-1);
    Runtime::get().proxies().update_all_claims();  // what that process reported about datagrams no longer holds
  }
}

void ParentChannels::end() {
  for (const auto& each : all()) {
    real().shutdown(each->fd, SHUT_RD);  // messages that are not sent by now stay with the sender
    while (process(each)) {}
  }
}

// False: the channel has ended.
bool ParentChannels::process(const std::shared_ptr<ParentChannel>& channel) {
  const std::span<std::byte> memory = message_memory();
  for (int i = 0; i < kMessagesAtOnce; ++i) {
    int fd = -1;
    const ssize_t got = receive_on(channel->fd, memory.data(), memory.size(), fd);
    if (got <= 0) return got == -EAGAIN || got == -EINTR;
    handle(channel, memory.first(static_cast<size_t>(got)), fd);
  }
  return true;
}

// Takes over the descriptor. An invalid message changes nothing.
void ParentChannels::handle(const std::shared_ptr<ParentChannel>& channel, std::span<const std::byte> message, int fd) {
  ChildMessage handed;
  const bool whole = message.size() >= sizeof handed;
  if (whole) std::memcpy(&handed, message.data(), sizeof handed);
  if (whole && handed.kind >= ChildMessage::Kind::movable) return handle_move(*channel, handed, fd);
  if (whole && handed.kind == ChildMessage::Kind::wanted) handle_want(*channel, handed.socket);
  else if (whole && handed.kind != ChildMessage::Kind::connection) handle_datagrams(*channel, handed, message.subspan(sizeof handed));
  if (fd < 0) return;
  File* const listener = whole && handed.kind == ChildMessage::Kind::connection ? find(*channel, handed.socket) : nullptr;
  const File::PendingAccept accept{.fd = fd, .names = {handed.local, handed.remote}, .from = {channel, handed.connection}};
  if (listener == nullptr || !listener->listens || listener->draining || listener->pending_accepts.size() == kPendingMost) {
    return refuse(accept);
  }
  listener->pending_accepts.push_back(accept);
  Runtime::get().notify_and_signal(*listener, true);
  if (listener->wanted) Runtime::get().proxies().handle_arrival(*listener);
}

void ParentChannels::handle_want(const ParentChannel& channel, int socket) {
  File* const listener = find(channel, socket, false);
  if (listener != nullptr && listener->is_stream()) Runtime::get().proxies().handle_want(*listener);
}

void ParentChannels::handle_move(ParentChannel& channel, const ChildMessage& handed, int fd) {
  const bool moved = handed.kind == ChildMessage::Kind::moved;
  const bool awaited = handed.socket == channel.awaited && !channel.answer.came && moved == (fd >= 0);
  if (awaited) channel.answer = {.came = true, .movable = handed.kind == ChildMessage::Kind::movable, .memory = fd};
  else if (fd >= 0) real().close(fd);
}

bool ParentChannels::ask(ParentMessage::Kind kind, const File::Origin& origin, int descriptor) noexcept {
  const MoveMessage message{.said = {.kind = kind, .socket = origin.socket}, .until = monotonic_now() + kMovesWithin};
  return origin.channel->fd >= 0 && send_on(origin.channel->fd, &message, sizeof message, descriptor, true);
}

ParentChannel::Answer ParentChannels::await_move(const File::Origin& origin) {
  ParentChannel& channel = *origin.channel;
  const Nanoseconds until = monotonic_now() + kMovesWithin;
  channel.awaited = origin.socket;
  channel.answer = {};
  while (!channel.answer.came && channel.fd >= 0) {
    const Nanoseconds now = monotonic_now();
    pollfd end{.fd = channel.fd, .events = POLLIN, .revents = 0};
    const int wait_ms = now >= until ? 0 : static_cast<int>((until - now) / kMillisecond) + 1;
    if (real().poll(&end, 1, wait_ms) == 0) break;
    if (!process(origin.channel)) channel.renew(-1);
  }
  channel.awaited = -1;
  return channel.answer;
}

void ParentChannels::handle_datagrams(const ParentChannel& channel, const ChildMessage& handed, std::span<const std::byte> behind) {
  File* const file = find(channel, handed.socket);
  const bool has_it = file != nullptr && !file->is_stream() && file->in_stack();
  if (handed.kind == ChildMessage::Kind::datagram) {
    if (!has_it) return SocketProxies::send_back(channel, handed.socket, behind);  // the program has stopped reading since it asked
    file->asked = false;
    SocketProxies::take_in(*file, behind);
    return;
  }
  if (!has_it) return;
  for (File::Origin& each : file->origins) {
    if (each.channel.get() == &channel) each.part = static_cast<File::Part>(std::min(handed.part, static_cast<uint32_t>(File::Part::all)));
  }
  Runtime::get().proxies().update_claims(*file);
}

File* ParentChannels::find(const ParentChannel& channel, int socket, bool served) noexcept {
  const Table& table = Runtime::get().table();
  for (int fd = 0; fd < table.end(); ++fd) {
    File* const file = table.file(fd);
    if (file == nullptr || !file->is_joined() || (served && !file->receives)) continue;
    const auto is_it = [&](const File::Origin& each) { return each.channel.get() == &channel && each.socket == socket; };
    if (std::any_of(file->origins.begin(), file->origins.end(), is_it)) return file;
  }
  return nullptr;
}

const File::Origin* ParentChannels::origin_of(const File& file) noexcept {
  const auto at = std::find_if(file.origins.begin(), file.origins.end(), [](const File::Origin& each) { return each.channel->fd >= 0; });
  return at == file.origins.end() ? nullptr : &*at;
}

void ParentChannels::send_to_all(const File& file, ParentMessage::Kind kind) noexcept {
  for (const File::Origin& each : file.origins) {
    if (each.channel != nullptr) static_cast<void>(each.channel->send(kind, each.socket));
  }
}

void ParentChannels::give_back(File& listener) noexcept {
  Runtime& runtime = Runtime::get();
  while (!listener.pending_accepts.empty()) {
    const File::PendingAccept last = std::move(listener.pending_accepts.back());
    listener.pending_accepts.pop_back();
    if (last.own != nullptr) runtime.reset(*last.own);
    else refuse(last);
  }
}

void ParentChannels::refuse(const File::PendingAccept& handed) noexcept {
  real().close(handed.fd);  // the process that would carry its bytes sees the end
  if (handed.from.socket < 0) static_cast<void>(answer(handed, ParentMessage::Kind::refused));
}

bool ParentChannels::answer(const File::PendingAccept& handed, ParentMessage::Kind kind) noexcept {
  const File::Origin& from = handed.from;
  if (from.channel == nullptr || from.channel->send(kind, from.socket)) return true;
  // A process that does not read its messages would hold the connection for ever. Closing the channel tells it.
  if (from.socket < 0) from.channel->renew(-1);
  return false;
}

}  // namespace unet::preload
