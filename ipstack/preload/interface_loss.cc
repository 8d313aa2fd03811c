// interface_loss.cc - ends connections when the network interface goes, and binds the other sockets again when it is back.
#include "ipstack/preload/interface_loss.h"

#include <cerrno>
#include <utility>

#include "ipstack/preload/description.h"
#include "ipstack/preload/runtime.h"
#include "ipstack/preload/shared/adoption.h"

namespace unet::preload {
namespace {

constexpr Nanoseconds kTryEvery = kSecond / 2;
// A process that listens only for its children would get their connections, so the children bind first.
constexpr Nanoseconds kOthersFirst = 2 * kSecond;

}  // namespace

void InterfaceLoss::follow() {
  if (Runtime::get().lost_interface()) end_stack();
  // A call of the program may have opened a stack before, for a socket of its own.
  if (!Runtime::get().is_open() || is_awaited()) come_back();
}

void InterfaceLoss::end_stack() {
  Runtime& runtime = Runtime::get();
  for (File* const file : runtime.table().by_socket()) {
    if (file == nullptr) continue;
    sockets::Address local, remote;
    sockets::Stack& stack = runtime.stack();
    static_cast<void>(stack.local_address(file->socket, local));
    static_cast<void>(stack.remote_address(file->socket, remote));
    const bool connection = is_connection(*file);
    file->lost = connection && !file->kernel;
    file->error = file->lost ? ECONNRESET : 0;
    if (!connection && !file->draining) {
      file->inherited = {.listens = file->listens, .backlog = file->backlog, .local = local, .remote = remote,
                         .group = stack.group_of(file->socket)};
      waiting_.push_back(file);
    }
    file->socket = -1;
    runtime.notify_and_signal(*file, connection);
    if (!connection) file->signalled = File::kUnconnected;
  }
  runtime.end_stack(&sockets::EndpointStack::forget);
}

// Opens a stack if it is time to try, and binds the waiting sockets.
void InterfaceLoss::come_back() {
  Runtime& runtime = Runtime::get();
  if (runtime.now() - tried_at_ < kTryEvery) return;
  tried_at_ = runtime.now();
  if (runtime.open() < 0) return;
  for (File* const each : std::exchange(waiting_, {})) {
    const bool early = each->listens && !each->receives && runtime.now() - opened_at_ < kOthersFirst;
    if (each->inherited && (early || !Adoption::adopt(*each))) waiting_.push_back(each);
  }
}

}  // namespace unet::preload
