// datagrams.cc - datagram sockets that several processes have, each at the same port in a stack of its own. Whoever reads gets what comes:
//
// The process that bound the port (the owner) says by its links whose claims take new flows. While its own program reads, it alone; else
// all who do. What comes to the owner all the same it hands, in portions, to those who ask for it as their programs read and find nothing;
// what comes to another, and nobody reads there for a while, that one's helper gives back. So does a process that closes the socket or
// ends. Only what a process has that is killed is lost.
#include <algorithm>
#include <cstring>

#include "ipstack/preload/relays.h"

namespace unet::preload {
namespace {

using sockets::DatagramQueue;

constexpr int kAtOnce = 16;  // to one process that asks

// As those say whose socket it is.
File::Part part_of(const File& file) noexcept {
  File::Part part = File::Part::all;
  for (const File::Origin& each : file.origins) {
    if (each.link->fd >= 0) part = std::min(part, each.part);
  }
  return part;
}

template <typename Head>
bool send_datagram(int link, const Head& head, const DatagramQueue::Datagram& datagram) noexcept {
  const std::span<std::byte> memory = link_memory();
  const DatagramHead behind{.from = datagram.from, .to = datagram.to, .segment = datagram.segment};
  const size_t size = sizeof head + sizeof behind + datagram.payload.size();
  if (size > memory.size()) return false;
  std::memcpy(memory.data(), &head, sizeof head);
  std::memcpy(memory.data() + sizeof head, &behind, sizeof behind);
  if (!datagram.payload.empty()) std::memcpy(memory.data() + sizeof head + sizeof behind, datagram.payload.data(), datagram.payload.size());
  return send_by_link(link, memory.data(), size);
}

}  // namespace

// This process's program reads, as far as is known.
bool Relays::is_read_here(const File& file) const noexcept { return file.serves && !file.fds.empty(); }

bool Relays::is_waited_for(const File& file) const noexcept {
  const auto waits = [](const Registration* each) { return (each->asked() & EPOLLIN) != 0 && each->set->is_waited_for(); };
  if (file.signals_of >= 0) return true;
  return std::any_of(file.sleepers.begin(), file.sleepers.end(), [&](const Sleeper* each) { return each != &sleeper_; }) ||
         std::any_of(file.registrations.begin(), file.registrations.end(), waits);
}

void Relays::settle(File& file) {
  if (file.is_stream() || !file.is_ours()) return;
  const size_t others = served_by(file);
  const File::Part mine = part_of(file);
  const bool reads = is_read_here(file);
  const File::Part theirs = reads ? File::Part::rest : others > 1 ? std::min(mine, File::Part::share) : mine;
  for (const Link& link : links_) {
    for (const Held& each : link.held) {
      if (each.file != &file || !each.serves) continue;
      const HandedMessage said{.kind = HandedMessage::Kind::part, .socket = each.socket, .part = static_cast<uint32_t>(theirs)};
      static_cast<void>(send_by_link(link.fd, &said, sizeof said));
    }
  }
  const bool takes = mine != File::Part::rest && (reads || others == 0);
  static_cast<void>(Host::get().sockets().stack().set_accepts_new_flows(file.socket, takes));
  if (Ancestors::origin_of(file) != nullptr) watch(file);
}

void Relays::settle_all() {
  const Table& table = Host::get().table();
  for (int fd = 0; fd < table.end(); ++fd) {
    if (File* const file = table.file(fd); file != nullptr && !file->origins.empty()) settle(*file);
  }
}

bool Relays::hand_datagrams(const Link& link, Held& held) {
  sockets::Stack& stack = Host::get().sockets().stack();
  const int socket = held.file->socket;
  const HandedMessage head{.kind = HandedMessage::Kind::datagram, .socket = held.socket};
  int handed = 0;
  for (; handed < kAtOnce; ++handed) {
    const auto next = stack.oldest(socket);
    if (!next || !send_datagram(link.fd, head, *next)) break;
    stack.drop_oldest(socket);
  }
  if (handed != 0) held.wants = false;
  return handed != 0;
}

void Relays::give_back(File& file) {
  const File::Origin* const origin = Ancestors::origin_of(file);
  if (!file.is_ours() || origin == nullptr) return;
  sockets::Stack& stack = Host::get().sockets().stack();
  const LinkMessage head{.kind = LinkMessage::Kind::datagram, .socket = origin->socket};
  while (const auto next = stack.oldest(file.socket)) {
    if (!send_datagram(origin->link->fd, head, *next)) return;
    stack.drop_oldest(file.socket);
  }
}

void Relays::take_in(File& file, std::span<const std::byte> behind) {
  DatagramHead head;
  if (file.is_stream() || !file.is_ours() || behind.size() < sizeof head) return;
  std::memcpy(&head, behind.data(), sizeof head);
  Host& host = Host::get();
  static_cast<void>(host.sockets().stack().hand(file.socket, {head.from, head.to, head.segment, behind.subspan(sizeof head)}));
  Host::tell(file);
}

// What was on its way to the other process when that closed the socket comes back behind its word of that.
File* Relays::closed_there(const Link& link, int socket) noexcept {
  const auto at = std::find_if(link.closed.begin(), link.closed.end(), [=](const Held& each) { return each.socket == socket; });
  return at == link.closed.end() ? nullptr : at->file;
}

void Relays::forget_closed(const File& file) noexcept {
  for (Link& each : links_) std::erase_if(each.closed, [&](const Held& one) { return one.file == &file; });
  for (Link& each : born_) std::erase_if(each.closed, [&](const Held& one) { return one.file == &file; });
}

void Relays::send_back(const UpLink& link, int socket, std::span<const std::byte> behind) noexcept {
  static_assert(sizeof(LinkMessage) <= sizeof(HandedMessage));
  const LinkMessage head{.kind = LinkMessage::Kind::datagram, .socket = socket};
  const std::span<std::byte> memory = link_memory();
  std::memmove(memory.data() + sizeof head, behind.data(), behind.size());
  std::memcpy(memory.data(), &head, sizeof head);
  static_cast<void>(send_by_link(link.fd, memory.data(), sizeof head + behind.size()));
}

// Of sockets that came from elsewhere: what nobody here accepts or reads is another's, unless there is none. True: some may be given back
// later.
bool Relays::give_up() {
  Host& host = Host::get();
  if (host.ancestors().all().empty()) return false;
  bool later = false;
  for (int fd = 0; fd < host.table().end(); ++fd) {
    File* const file = host.table().file(fd);
    if (file == nullptr || !file->is_ours() || Ancestors::origin_of(*file) == nullptr) continue;
    if (file->is_stream()) {
      later = (file->wanted && give_up_connection(*file)) || later;
      continue;
    }
    if (part_of(*file) == File::Part::all) continue;
    if ((host.events(*file) & EPOLLIN) == 0 || is_waited_for(*file)) file->unserved_since = 0;
    else if (file->unserved_since == 0) file->unserved_since = host.now(), later = true;
    else if (host.now() - file->unserved_since < kOursFor) later = true;
    else give_back(*file);
  }
  return later;
}

}  // namespace unet::preload
