// datagram_cork.cc - one datagram of what several calls send: MSG_MORE and UDP_CORK.
//
// The first call says the destination and options. A datagram that has become too long or cannot be sent is lost as a whole, as in Linux.
#include <cerrno>

#include "ipstack/sockets/datagrams.h"

namespace unet::sockets {

// Adds to what there is. If there is no room for the whole then this call has not been.
int64_t Datagrams::gather(uint32_t index, Bytes data, bool more) {
  Socket& socket = core_.sockets[index];
  std::unique_ptr<Gathered>& gathered = socket.datagram->gathered;
  const int error = socket.error != 0 ? socket.take_error() : socket.shut_write ? EPIPE : 0;
  const size_t before = gathered->bytes.size();
  const bool ipv4 = gathered->route.to.host.is_ipv4(), too_long = before + data.size() > length_max(ipv4);
  if (ipv4 && data.size() > 0xFFFF) return -EMSGSIZE;  // by itself, which spares what was before
  if (error != 0 || too_long) {
    gathered.reset();
    return error != 0 ? -error : -EMSGSIZE;
  }
  gathered->bytes.insert(gathered->bytes.end(), data.begin(), data.end());
  if (more) return static_cast<int64_t>(data.size());
  const int64_t sent = send_gathered(index);
  if (sent == -EAGAIN) gathered->bytes.resize(before);
  return sent < 0 ? sent : static_cast<int64_t>(data.size());
}

// -EAGAIN: it is still there.
int64_t Datagrams::send_gathered(uint32_t index) {
  std::unique_ptr<Gathered>& gathered = core_.sockets[index].datagram->gathered;
  const int64_t sent = send_one(index, gathered->bytes, gathered->route);
  if (sent != -EAGAIN) gathered.reset();
  return sent;
}

// No call returns the result; without room it is sent when there is room.
void Datagrams::uncork(uint32_t index) {
  Gathered* const gathered = core_.sockets[index].datagram->gathered.get();
  if (gathered == nullptr) return;
  gathered->due = true;
  static_cast<void>(send_gathered(index));
}

}  // namespace unet::sockets
