// host_lost.cc - the network interface goes while the program runs, and perhaps comes back: connections end as if this host had been reset,
// listeners and datagram sockets are bound again.
#include <algorithm>
#include <cerrno>

#include "ipstack/preload/forks.h"
#include "ipstack/preload/host.h"

namespace unet::preload {
namespace {

constexpr Nanoseconds kTryEvery = kSecond / 2;

}  // namespace

int64_t Host::gone(File& file, bool sends) noexcept {
  if (!file.lost) return -EBADF;
  if (const int error = std::exchange(file.error, 0); error != 0) return -error;
  return sends ? -EPIPE : 0;
}

void Host::lose_interface() {
  for (size_t i = 0; i < by_socket_.size(); ++i) {
    File* const file = by_socket_[i];
    if (file == nullptr) continue;
    const bool connection = file->is_stream() && !file->listens;
    sockets::Address local, remote;
    sockets::Stack& stack = sockets_->stack();
    static_cast<void>(stack.local_address(file->socket, local));
    static_cast<void>(stack.remote_address(file->socket, remote));
    file->lost = connection && !file->kernel;
    file->error = file->lost ? ECONNRESET : 0;
    if (!connection) {
      file->inherited = {.listens = file->listens, .backlog = file->backlog, .local = local, .remote = remote,
                         .group = stack.group_of(file->socket)};
      waiting_back_.push_back(file);
    }
    file->socket = -1;
    for (Registration* each : file->registrations) each->set->mark(*each);
    for (Sleeper* each : file->sleepers) each->wake();
  }
  by_socket_.clear();
  sockets::Sockets::leave(std::move(sockets_));
  context_.reset();
  endpoint_fd_ = -1;
  watcher_ = nullptr;
  protect();
}

// True: there is one, and what was bound is bound again.
bool Host::come_back() {
  if (now() - tried_at_ < kTryEvery) return false;
  tried_at_ = now();
  if (!open()) return false;
  for (File* const each : std::exchange(waiting_back_, {})) {
    if (each->inherited && !Forks::adopt(*each)) waiting_back_.push_back(each);
  }
  return true;
}

}  // namespace unet::preload
