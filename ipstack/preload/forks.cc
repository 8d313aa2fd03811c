// forks.cc - a child begins with what its parent had open, but without its stack.
#include "ipstack/preload/forks.h"

#include <new>

#include "ipstack/preload/host.h"

namespace unet::preload {

void Forks::before() noexcept { Host::get().lock(); }

void Forks::in_parent() noexcept { Host::get().unlock(); }

void Forks::in_child() noexcept {
  Host& host = Host::get();
  if (host.sockets_ != nullptr) leave_stack(host);
  host.unlock();
}

void Forks::leave_stack(Host& host) {
  for (File* const file : host.by_socket_) {
    if (file == nullptr) continue;
    file->inherited = {.socket = file->socket, .listens = file->listens, .backlog = file->backlog};
    file->socket = -1;
    file->sleepers.clear();
  }
  host.by_socket_.clear();
  // The parent's stack is not to say anything from here: no destructor of it runs.
  static_cast<void>(host.sockets_.release());
  host.context_.reset();
  host.endpoint_fd_ = -1;
  host.watcher_ = nullptr;
  host.helper_rests_ = false;
  host.helper_event_ = -1;
}

}  // namespace unet::preload
