// ports.cc - link states of the wires.
#include "ni/service/ports.h"

#include <sys/epoll.h>

#include <cerrno>

#include "ni/service/log.h"

namespace unet::service {

Status Ports::watch(int epoll, uint64_t key) const {
  for (size_t port = 0; port < ports_.size(); ++port) {
    const WireState* const state = ports_[port].state.get();
    if (state == nullptr || state->descriptor() < 0) continue;
    epoll_event event{.events = EPOLLIN, .data = {.u64 = key + port}};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, state->descriptor(), &event) != 0) return fail_errno("epoll_ctl", errno);
  }
  return {};
}

bool Ports::poll() {
  bool changed = false;
  for (PortInfo& port : ports_) {
    if (port.state == nullptr) continue;
    if (port.state->has_lines()) {
      for (const std::string& line : port.state->take_lines()) log::warn("{}", line);
    }
    const uint32_t changes = port.state->changes();
    changed = changed || changes != port.state_changes;
    port.state_changes = changes;
  }
  return changed;
}

uint32_t Ports::mtu_now(uint32_t port) const noexcept {
  const PortInfo& info = ports_[port];
  return info.state == nullptr ? info.mtu : info.state->mtu_of(info.mtu);
}

bool Ports::is_up(uint32_t port) const noexcept { return ports_[port].state == nullptr || ports_[port].state->is_up(); }

std::string Ports::link_text(uint32_t port) const {
  const WireState* const state = ports_[port].state.get();
  if (state == nullptr || state->descriptor() < 0) return "-";
  return state->index() == 0 ? "gone" : !state->is_up() ? "down" : state->has_carrier() ? "up" : "no carrier";
}

}  // namespace unet::service
