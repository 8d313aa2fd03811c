// adoption.cc - opens sockets in the stack of the process that inherited them; moves.cc has the move of a connection.
#include "ipstack/preload/shared/adoption.h"

#include <sys/socket.h>

#include "ipstack/preload/real.h"
#include "ipstack/preload/runtime.h"
#include "ipstack/preload/shared/socket_proxies.h"
#include "ipstack/preload/socket_routing.h"

namespace unet::preload {

bool Adoption::adopt(File& file, bool moves) {
  const auto kind = moves && file.inherited->connected && may_receive(file) ? ParentMessage::Kind::move : ParentMessage::Kind::take;
  const bool done = file.inherited->connected ? take(file, kind) : join(file);
  if (!done) Runtime::get().close_socket(file);
  if (done) file.inherited.reset();
  return done;
}

// Opens the child's own listener or datagram socket at its parent's port.
bool Adoption::join(File& file) {
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

bool Adoption::take(File& file, ParentMessage::Kind kind) {
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

}  // namespace unet::preload
