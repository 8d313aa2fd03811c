// ancestors.cc - what comes by links, and what is said.
#include "ipstack/preload/ancestors.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ipstack/preload/runtime.h"
#include "ipstack/preload/real.h"
#include "ipstack/preload/socket_proxies.h"

namespace unet::preload {
namespace {

constexpr int kMessagesAtOnce = 64;     // of a link, before another's turn
constexpr size_t kWaitingMost = 64;     // of a listener; who keeps to what links.h says sends one when it was asked

}  // namespace

UpLink::~UpLink() { renew(-1); }

void UpLink::renew(int end) noexcept {
  if (fd >= 0) real().close(fd);
  fd = end;
  Runtime::get().protect();
}

bool UpLink::say(LinkMessage::Kind kind, int socket, int descriptor, bool may_wait) const noexcept {
  const LinkMessage said{.kind = kind, .socket = socket};
  return fd >= 0 && send_by_link(fd, &said, sizeof said, descriptor, may_wait);
}

std::shared_ptr<UpLink> Ancestors::add(int fd, bool to_parent) {
  std::erase_if(links_, [](const auto& each) { return each.expired(); });
  if (links_.size() >= (to_parent ? kMost : kMost - 1)) {
    tell_user("unet-sockets: sockets of more than %zu processes or passed listeners: some that were %s cannot be used\n", kMost - 1,
              to_parent ? "inherited" : "passed");
    real().close(fd);
    return nullptr;
  }
  auto link = std::make_shared<UpLink>(fd);
  links_.push_back(link);
  Runtime::get().protect();
  return link;
}

std::vector<std::shared_ptr<UpLink>> Ancestors::all() const {
  std::vector<std::shared_ptr<UpLink>> found;
  for (const auto& each : links_) {
    if (auto link = each.lock(); link != nullptr && link->fd >= 0) found.push_back(std::move(link));
  }
  return found;
}

void Ancestors::append(std::vector<pollfd>& to) const {
  for (const auto& each : all()) to.push_back({.fd = each->fd, .events = POLLIN, .revents = 0});
}

void Ancestors::serve() {
  for (const auto& each : all()) {
    if (serve(each)) continue;
    each->renew(-1);
    Runtime::get().proxies().settle_all();  // what that one said of datagrams is no longer true
  }
}

void Ancestors::end() {
  for (const auto& each : all()) {
    real().shutdown(each->fd, SHUT_RD);  // what is not sent by now stays there
    while (serve(each)) {}
  }
}

// False: it is at its end.
bool Ancestors::serve(const std::shared_ptr<UpLink>& link) {
  const std::span<std::byte> memory = link_memory();
  for (int i = 0; i < kMessagesAtOnce; ++i) {
    int fd = -1;
    const ssize_t got = receive_by_link(link->fd, memory.data(), memory.size(), fd);
    if (got <= 0) return got == -EAGAIN || got == -EINTR;
    hear(link, memory.first(static_cast<size_t>(got)), fd);
  }
  return true;
}

// The descriptor is this function's. What makes no sense changes nothing.
void Ancestors::hear(const std::shared_ptr<UpLink>& link, std::span<const std::byte> message, int fd) {
  HandedMessage handed;
  const bool whole = message.size() >= sizeof handed;
  if (whole) std::memcpy(&handed, message.data(), sizeof handed);
  if (whole && handed.kind >= HandedMessage::Kind::movable) return hear_of_move(*link, handed, fd);
  if (whole && handed.kind == HandedMessage::Kind::wanted) hear_of_want(*link, handed.socket);
  else if (whole && handed.kind != HandedMessage::Kind::connection) hear_of_datagrams(*link, handed, message.subspan(sizeof handed));
  if (fd < 0) return;
  File* const listener = whole && handed.kind == HandedMessage::Kind::connection ? find(*link, handed.socket) : nullptr;
  const File::Waiting waiting{.fd = fd, .names = {handed.local, handed.remote}, .from = {link, handed.connection}};
  if (listener == nullptr || !listener->listens || listener->leaves || listener->waiting.size() == kWaitingMost) return refuse(waiting);
  listener->waiting.push_back(waiting);
  Runtime::get().tell_owner_too(*listener, true);
  if (listener->wanted) Runtime::get().proxies().note_arrival(*listener);
}

void Ancestors::hear_of_want(const UpLink& link, int socket) {
  File* const listener = find(link, socket, false);
  if (listener != nullptr && listener->is_stream()) Runtime::get().proxies().note_want(*listener);
}

void Ancestors::hear_of_move(UpLink& link, const HandedMessage& handed, int fd) {
  const bool moved = handed.kind == HandedMessage::Kind::moved;
  const bool awaited = handed.socket == link.awaited && !link.answer.came && moved == (fd >= 0);
  if (awaited) link.answer = {.came = true, .movable = handed.kind == HandedMessage::Kind::movable, .memory = fd};
  else if (fd >= 0) real().close(fd);
}

bool Ancestors::ask(LinkMessage::Kind kind, const File::Origin& origin, int descriptor) noexcept {
  const MoveMessage message{.said = {.kind = kind, .socket = origin.socket}, .until = monotonic_now() + kMovesWithin};
  return origin.link->fd >= 0 && send_by_link(origin.link->fd, &message, sizeof message, descriptor, true);
}

UpLink::Answer Ancestors::await_move(const File::Origin& origin) {
  UpLink& link = *origin.link;
  const Nanoseconds until = monotonic_now() + kMovesWithin;
  link.awaited = origin.socket;
  link.answer = {};
  while (!link.answer.came && link.fd >= 0) {
    const Nanoseconds now = monotonic_now();
    pollfd end{.fd = link.fd, .events = POLLIN, .revents = 0};
    const int wait_ms = now >= until ? 0 : static_cast<int>((until - now) / kMillisecond) + 1;
    if (real().poll(&end, 1, wait_ms) == 0) break;
    if (!serve(origin.link)) link.renew(-1);
  }
  link.awaited = -1;
  return link.answer;
}

void Ancestors::hear_of_datagrams(const UpLink& link, const HandedMessage& handed, std::span<const std::byte> behind) {
  File* const file = find(link, handed.socket);
  const bool has_it = file != nullptr && !file->is_stream() && file->in_stack();
  if (handed.kind == HandedMessage::Kind::datagram) {
    if (!has_it) return SocketProxies::send_back(link, handed.socket, behind);  // nobody reads here since it asked for it
    file->asked = false;
    SocketProxies::take_in(*file, behind);
    return;
  }
  if (!has_it) return;
  for (File::Origin& each : file->origins) {
    if (each.link.get() == &link) each.part = static_cast<File::Part>(std::min(handed.part, static_cast<uint32_t>(File::Part::all)));
  }
  Runtime::get().proxies().settle(*file);
}

File* Ancestors::find(const UpLink& link, int socket, bool served) noexcept {
  const Table& table = Runtime::get().table();
  for (int fd = 0; fd < table.end(); ++fd) {
    File* const file = table.file(fd);
    if (file == nullptr || !file->is_joined() || (served && !file->serves)) continue;
    const auto is_it = [&](const File::Origin& each) { return each.link.get() == &link && each.socket == socket; };
    if (std::any_of(file->origins.begin(), file->origins.end(), is_it)) return file;
  }
  return nullptr;
}

const File::Origin* Ancestors::origin_of(const File& file) noexcept {
  const auto at = std::find_if(file.origins.begin(), file.origins.end(), [](const File::Origin& each) { return each.link->fd >= 0; });
  return at == file.origins.end() ? nullptr : &*at;
}

void Ancestors::say_all(const File& file, LinkMessage::Kind kind) noexcept {
  for (const File::Origin& each : file.origins) {
    if (each.link != nullptr) static_cast<void>(each.link->say(kind, each.socket));
  }
}

void Ancestors::give_back(File& listener) noexcept {
  Runtime& runtime = Runtime::get();
  while (!listener.waiting.empty()) {
    const File::Waiting last = std::move(listener.waiting.back());
    listener.waiting.pop_back();
    if (last.own != nullptr) runtime.reset(*last.own);
    else refuse(last);
  }
}

void Ancestors::refuse(const File::Waiting& handed) noexcept {
  real().close(handed.fd);  // which tells who would carry its bytes
  if (handed.from.socket < 0) static_cast<void>(answer(handed, LinkMessage::Kind::refused));
}

bool Ancestors::answer(const File::Waiting& handed, LinkMessage::Kind kind) noexcept {
  const File::Origin& from = handed.from;
  if (from.link == nullptr || from.link->say(kind, from.socket)) return true;
  // Whoever has much unread would keep what he does not carry for ever: of the link's end he hears.
  if (from.socket < 0) from.link->renew(-1);
  return false;
}

}  // namespace unet::preload
