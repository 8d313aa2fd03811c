// datagrams.cc - datagram sockets that several processes have, each at the same port in a stack of its own. The process that reads gets the
// datagrams.
//
// The process that bound the port (the owner) says by its channels which claims take new flows: its own while its program reads, else
// those of all processes that read. The owner sends other arrivals, in portions, to processes that read and find nothing. The helper of a
// child gives back datagrams that its program does not read for a while. A process that closes the socket or ends gives them back, too.
// Only the datagrams of a killed process are lost.
#include <algorithm>
#include <cstring>

#include "ipstack/preload/shared/socket_proxies.h"

namespace unet::preload {
namespace {

using sockets::DatagramQueue;

constexpr int kAtOnce = 16;  // datagrams sent to a waiting process at once

// The smallest part that an owner of the socket allows.
File::Part part_of(const File& file) noexcept {
  File::Part part = File::Part::all;
  for (const File::Origin& each : file.origins) {
    if (each.channel->fd >= 0) part = std::min(part, each.part);
  }
  return part;
}

template <typename Head>
bool send_datagram(int channel, const Head& head, const DatagramQueue::Datagram& datagram) noexcept {
  const std::span<std::byte> memory = message_memory();
  const DatagramHead behind{.from = datagram.from, .to = datagram.to, .segment = datagram.segment};
  const size_t size = sizeof head + sizeof behind + datagram.payload.size();
  if (size > memory.size()) return false;
  std::memcpy(memory.data(), &head, sizeof head);
  std::memcpy(memory.data() + sizeof head, &behind, sizeof behind);
  if (!datagram.payload.empty()) std::memcpy(memory.data() + sizeof head + sizeof behind, datagram.payload.data(), datagram.payload.size());
  return send_on(channel, memory.data(), size);
}

}  // namespace

// Whether this process's program reads, as far as is known.
bool SocketProxies::is_read_here(const File& file) const noexcept { return file.receives && !file.fds.empty(); }

bool SocketProxies::is_waited_for(const File& file) const noexcept {
  const auto waits = [](const Registration* each) { return (each->asked() & EPOLLIN) != 0 && each->set->is_waited_for(); };
  if (file.async_fd >= 0) return true;
  return std::any_of(file.sleepers.begin(), file.sleepers.end(), [&](const Sleeper* each) { return each != &sleeper_; }) ||
         std::any_of(file.registrations.begin(), file.registrations.end(), waits);
}

void SocketProxies::update_claims(File& file) {
  if (file.is_stream() || !file.in_stack()) return;
  const size_t others = served_by(file);
  const File::Part mine = part_of(file);
  const bool reads = is_read_here(file);
  const File::Part theirs = reads ? File::Part::none : others > 1 ? std::min(mine, File::Part::share) : mine;
  for (const ChildChannel& channel : channels_) {
    for (const Held& each : channel.held) {
      if (each.file != &file || !each.receives) continue;
      const ChildMessage said{.kind = ChildMessage::Kind::part, .socket = each.socket, .part = static_cast<uint32_t>(theirs)};
      static_cast<void>(send_on(channel.fd, &said, sizeof said));
    }
  }
  const bool takes = mine != File::Part::none && (reads || others == 0);
  static_cast<void>(Runtime::get().stack().set_accepts_new_flows(file.socket, takes));
  if (ParentChannels::origin_of(file) != nullptr) watch(file);
}

void SocketProxies::update_all_claims() {
  const Table& table = Runtime::get().table();
  for (int fd = 0; fd < table.end(); ++fd) {
    if (File* const file = table.file(fd); file != nullptr && !file->origins.empty()) update_claims(*file);
  }
}

bool SocketProxies::hand_datagrams(const ChildChannel& channel, Held& held) {
  sockets::Datagrams& datagrams = Runtime::get().stack().datagrams();
  const int socket = held.file->socket;
  const ChildMessage head{.kind = ChildMessage::Kind::datagram, .socket = held.socket};
  int handed = 0;
  for (; handed < kAtOnce; ++handed) {
    const auto next = datagrams.oldest(socket);
    if (!next || !send_datagram(channel.fd, head, *next)) break;
    datagrams.drop_oldest(socket);
  }
  if (handed != 0) held.wants = false;
  return handed != 0;
}

void SocketProxies::give_back(File& file) {
  const File::Origin* const origin = ParentChannels::origin_of(file);
  if (!file.in_stack() || origin == nullptr) return;
  sockets::Datagrams& datagrams = Runtime::get().stack().datagrams();
  const ParentMessage head{.kind = ParentMessage::Kind::datagram, .socket = origin->socket};
  while (const auto next = datagrams.oldest(file.socket)) {
    if (!send_datagram(origin->channel->fd, head, *next)) return;
    datagrams.drop_oldest(file.socket);
  }
}

void SocketProxies::take_in(File& file, std::span<const std::byte> behind) {
  DatagramHead head;
  if (file.is_stream() || !file.in_stack() || behind.size() < sizeof head) return;
  std::memcpy(&head, behind.data(), sizeof head);
  sockets::Datagrams& datagrams = Runtime::get().stack().datagrams();
  static_cast<void>(datagrams.hand(file.socket, {head.from, head.to, head.segment, behind.subspan(sizeof head)}));
  Runtime::notify(file);
}

// The socket of a closed channel entry: datagrams that were on their way to the other process come back behind its close.
File* SocketProxies::closed_there(const ChildChannel& channel, int socket) noexcept {
  const auto at = std::find_if(channel.closed.begin(), channel.closed.end(), [=](const Held& each) { return each.socket == socket; });
  return at == channel.closed.end() ? nullptr : at->file;
}

void SocketProxies::forget_closed(const File& file) noexcept {
  for (ChildChannel& each : channels_) std::erase_if(each.closed, [&](const Held& one) { return one.file == &file; });
  for (ChildChannel& each : new_channels_) std::erase_if(each.closed, [&](const Held& one) { return one.file == &file; });
}

void SocketProxies::send_back(const ParentChannel& channel, int socket, std::span<const std::byte> behind) noexcept {
  static_assert(sizeof(ParentMessage) <= sizeof(ChildMessage));
  const ParentMessage head{.kind = ParentMessage::Kind::datagram, .socket = socket};
  const std::span<std::byte> memory = message_memory();
  std::memmove(memory.data() + sizeof head, behind.data(), behind.size());
  std::memcpy(memory.data(), &head, sizeof head);
  static_cast<void>(send_on(channel.fd, memory.data(), sizeof head + behind.size()));
}

// Gives back arrivals at inherited and passed sockets that this program does not accept or read. True: some may be given back
// later.
bool SocketProxies::give_up() {
  Runtime& runtime = Runtime::get();
  if (runtime.parents().all().empty()) return false;
  bool later = false;
  for (int fd = 0; fd < runtime.table().end(); ++fd) {
    File* const file = runtime.table().file(fd);
    if (file == nullptr || !file->in_stack() || ParentChannels::origin_of(*file) == nullptr) continue;
    if (file->is_stream()) {
      later = (file->wanted && give_up_connection(*file)) || later;
      continue;
    }
    if (part_of(*file) == File::Part::all) continue;
    if ((runtime.events(*file) & EPOLLIN) == 0 || is_waited_for(*file)) file->unserved_since = 0;
    else if (file->unserved_since == 0) file->unserved_since = runtime.now(), later = true;
    else if (runtime.now() - file->unserved_since < kOursFor) later = true;
    else give_back(*file);
  }
  return later;
}

}  // namespace unet::preload
