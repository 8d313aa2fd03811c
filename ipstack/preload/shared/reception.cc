// reception.cc - begins and ends to receive from sockets that other processes may have, too.
#include "ipstack/preload/shared/reception.h"

#include <algorithm>
#include <utility>

#include "ipstack/preload/runtime.h"
#include "ipstack/preload/shared/socket_proxies.h"

namespace unet::preload {
namespace {

void accept_new_flows(const File& file, bool accepts) {
  static_cast<void>(Runtime::get().stack().set_accepts_new_flows(file.socket, accepts));
}

}  // namespace

void Reception::begin(File& file) {
  if (!file.is_stream()) return begin_reading(file);
  const bool begins = !std::exchange(file.receives, true);
  if (!file.in_stack()) return;
  if (begins) {
    forget(file);
    accept_new_flows(file, true);
    if (!file.origins.empty()) Runtime::get().poller().kick_helper();  // it may not know the channel yet
  }
  file.asked = true;
  ParentChannels::send_to_all(file, ParentMessage::Kind::want);
}

// For a datagram socket. Asks its owners while nothing is there.
void Reception::begin_reading(File& file) {
  Runtime& runtime = Runtime::get();
  const bool begins = !std::exchange(file.receives, true);
  if (!file.in_stack()) return;
  if (begins && !runtime.is_alone()) runtime.proxies().update_claims(file);
  if (file.origins.empty() || (runtime.events(file) & EPOLLIN) != 0) return;
  if (begins) runtime.poller().kick_helper();
  file.asked = true;
  ParentChannels::send_to_all(file, ParentMessage::Kind::want);
}

void Reception::stop(File& file) {
  if (!file.is_joined() || !file.in_stack() || !std::exchange(file.receives, false)) return;
  if (!file.is_stream()) return Runtime::get().proxies().update_claims(file);
  accept_new_flows(file, false);
}

void Reception::give_up(File& listener) {
  stop(listener);
  if (std::find(given_up_.begin(), given_up_.end(), &listener) == given_up_.end()) given_up_.push_back(&listener);
}

// A thread may wait for a listener by a set in a set, too.
void Reception::resume_given_up() {
  for (size_t i = 0; i < given_up_.size();) {
    File& listener = *given_up_[i];
    if (!listener.receives && Runtime::get().proxies().is_waited_for(listener)) start(listener);
    if (listener.receives) forget(listener);
    else ++i;
  }
}

void Reception::return_unread(File& file) {
  file.receives = false;
  accept_new_flows(file, false);
  Runtime::get().poll();
  SocketProxies::give_back(file);
}

void Reception::return_all_unread() {
  Runtime& runtime = Runtime::get();
  if (!runtime.is_open()) return;
  for (File* const each : runtime.table().by_socket()) {
    if (each == nullptr || each->is_stream()) continue;
    if (!runtime.is_alone()) stop(*each);
    if (!each->origins.empty()) return_unread(*each);
  }
  runtime.parents().process();
}

}  // namespace unet::preload
