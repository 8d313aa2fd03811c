// port_sockets.cc - lists of sockets by port, and the choice of one of them.
#include "ipstack/sockets/port_sockets.h"

namespace unet::sockets {

void ListeningSockets::link(uint32_t index) noexcept {
  uint32_t& first = first_[sockets_[index].local.port];
  sockets_[index].listening->next = first;
  first = index;
}

void ListeningSockets::unlink(uint32_t index) noexcept {
  uint32_t* at = &first_[sockets_[index].local.port];
  while (*at != index) at = &sockets_[*at].listening->next;
  *at = sockets_[index].listening->next;
}

uint32_t ListeningSockets::choose(const Address& local, uint32_t choice) const noexcept {
  const uint32_t first = first_[local.port];
  const auto fits = [&](const Socket& socket) {
    const bool family = local.host.is_ipv4() ? !socket.only_ipv6 : socket.ipv6;
    return family && (socket.local.host.is_unspecified() || socket.local.host == local.host);
  };
  if (first == kNone || sockets_[first].listening->next == kNone) return first != kNone && fits(sockets_[first]) ? first : kNone;
  uint32_t count = 0, takers = 0;
  for (uint32_t i = first; i != kNone; i = sockets_[i].listening->next) {
    count += fits(sockets_[i]) ? 1 : 0;
    takers += fits(sockets_[i]) && !sockets_[i].passes ? 1 : 0;
  }
  if (count == 0) return kNone;
  uint32_t before = choice % (takers != 0 ? takers : count);
  for (uint32_t i = first;; i = sockets_[i].listening->next) {
    if (fits(sockets_[i]) && (takers == 0 || !sockets_[i].passes) && before-- == 0) return i;
  }
}

uint32_t ListeningSockets::choose_in_turn(const Address& local) noexcept {
  const uint32_t first = first_[local.port];
  return first == kNone ? kNone : choose(local, sockets_[first].listening->turns++);
}

void ListeningSockets::end_early(Socket& socket) noexcept {
  socket.early = false;
  // An accepted connection does not know its listener: there may be several at the port, or a new one.
  uint32_t listener = socket.listener != kNone ? socket.listener : first_[socket.local.port];
  while (listener != kNone && sockets_[listener].listening->early == 0) listener = sockets_[listener].listening->next;
  if (listener != kNone) --sockets_[listener].listening->early;
}

void DatagramSockets::link(uint32_t index) noexcept {
  change();
  uint32_t& first = first_[sockets_[index].local.port];
  sockets_[index].datagram->next = first;
  first = index;
}

void DatagramSockets::unlink(uint32_t index) noexcept {
  change();
  uint32_t* at = &first_[sockets_[index].local.port];
  while (*at != kNone && *at != index) at = &sockets_[*at].datagram->next;
  if (*at == index) *at = sockets_[index].datagram->next;
}

uint32_t DatagramSockets::find(const Address& local, const Address& remote) const noexcept {
  const auto rank_of = [&](const Socket& socket) {
    if (!(local.host.is_ipv4() ? !socket.only_ipv6 : socket.ipv6)) return -1;
    if (socket.connected && socket.remote != remote) return -1;
    const bool any = socket.local.host.is_unspecified();
    if (!any && socket.local.host != local.host) return -1;
    return (socket.connected ? 4 : 0) + (any ? 0 : 2) + (socket.passes ? 0 : 1);
  };
  uint32_t found = kNone, alike = 0;
  int best = -1;
  for (uint32_t i = first_[local.port]; i != kNone; i = sockets_[i].datagram->next) {
    const int rank = rank_of(sockets_[i]);
    if (rank == best && rank >= 0 && sockets_[i].shares && sockets_[found].shares) ++alike;
    if (rank <= best) continue;
    best = rank;
    found = i;
    alike = 0;
  }
  if (alike == 0) return found;
  uint32_t behind = flows_.hash(local, remote) % (alike + 1);
  while (behind != 0) {
    found = sockets_[found].datagram->next;
    if (rank_of(sockets_[found]) == best && sockets_[found].shares) --behind;
  }
  return found;
}

}  // namespace unet::sockets
