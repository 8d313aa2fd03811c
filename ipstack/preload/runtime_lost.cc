// runtime_lost.cc - the NI goes while the program runs, and perhaps comes back: connections end as if this host had been reset,
// listeners and datagram sockets are bound again.
#include <algorithm>
#include <cerrno>

#include "ipstack/preload/description.h"
#include "ipstack/preload/runtime.h"
#include "ipstack/preload/shared/forks.h"

namespace unet::preload {
namespace {

constexpr Nanoseconds kTryEvery = kSecond / 2;
// A process that only holds a listener would get what its children are to have, and they never: so they come back first.
constexpr Nanoseconds kOthersFirst = 2 * kSecond;

}  // namespace

int64_t Runtime::gone(File& file, bool sends) noexcept {
  if (!file.lost) return file.waits_back() ? -ENETDOWN : -EBADF;
  if (const int error = std::exchange(file.error, 0); error != 0) return -error;
  return sends ? -EPIPE : 0;
}

void Runtime::defer_error(File& file, int64_t error) noexcept {
  if (error >= 0 || error == -EAGAIN || error == -EINTR) return;
  if (file.in_stack()) stack().return_error(file.socket, static_cast<int>(-error));
  else if (file.lost && error != -EPIPE) file.error = static_cast<int>(-error);
}

void Runtime::lose_interface() {
  for (File* const file : table_.by_socket()) {
    if (file == nullptr) continue;
    sockets::Address local, remote;
    sockets::Stack& stack = endpoint_stack_->stack();
    static_cast<void>(stack.local_address(file->socket, local));
    static_cast<void>(stack.remote_address(file->socket, remote));
    const bool connection = is_connection(*file);
    file->lost = connection && !file->kernel;
    file->error = file->lost ? ECONNRESET : 0;
    if (!connection && !file->draining) {
      file->inherited = {.listens = file->listens, .backlog = file->backlog, .local = local, .remote = remote,
                         .group = stack.group_of(file->socket)};
      waiting_back_.push_back(file);
    }
    file->socket = -1;
    notify_and_signal(*file, connection);
    if (!connection) file->signalled = File::kUnconnected;
  }
  table_.forget_sockets();
  ni_.remember(endpoint_stack_->network().configuration());
  poller_.detach();
  sockets::EndpointStack::forget(std::move(endpoint_stack_));
  ni_.close();
  own_descriptors_.update();
}

// If there is one, what was bound is bound again.
void Runtime::come_back() {
  if (now() - tried_at_ < kTryEvery) return;
  tried_at_ = now();
  if (open() < 0) return;
  for (File* const each : std::exchange(waiting_back_, {})) {
    const bool early = each->listens && !each->receives && now() - opened_at_ < kOthersFirst;
    if (each->inherited && (early || !Forks::adopt(*each))) waiting_back_.push_back(each);
  }
}

}  // namespace unet::preload
