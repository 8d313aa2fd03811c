// service_wires.cc - what wires say beside their frames: lines for the log, and changes of the interfaces under them.
#include <sys/epoll.h>

#include <cerrno>

#include "ni/service/log.h"
#include "ni/service/service.h"

namespace unet::service {

Status Service::watch_wires() {
  for (size_t port = 0; port < ports_.size(); ++port) {
    const WireState* const state = ports_[port].state.get();
    if (state == nullptr || state->descriptor() < 0) continue;
    epoll_event event{.events = EPOLLIN, .data = {.u64 = kPortKeys + port}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, state->descriptor(), &event) != 0) return fail_errno("epoll_ctl", errno);
  }
  return {};
}

void Service::poll_wires() {
  for (PortInfo& port : ports_) {
    if (port.state == nullptr) continue;
    if (port.state->has_lines()) {
      for (const std::string& line : port.state->take_lines()) log::warn("{}", line);
    }
    const uint32_t changes = port.state->changes();
    if (changes == port.state_changes) continue;
    port.state_changes = changes;
    tell_ip_changed();
  }
}

// Each asks for the configuration anew.
void Service::tell_ip_changed() {
  for (const auto& [id, endpoint] : endpoints_) {
    if (!endpoint->ip_channel || endpoint->detaching) continue;
    auto event = zeroed<control::IpChanged>();
    event.header = {.op = control::Op::ip_changed, .endpoint = id, .cookie = 0};
    send_packet(*client_at(endpoint->client), event);
  }
}

uint32_t Service::mtu_now(uint32_t port) const noexcept {
  const PortInfo& info = ports_[port];
  return info.state == nullptr ? info.mtu : info.state->mtu_of(info.mtu);
}

bool Service::is_up(uint32_t port) const noexcept { return ports_[port].state == nullptr || ports_[port].state->is_up(); }

std::string Service::link_text(uint32_t port) const {
  const WireState* const state = ports_[port].state.get();
  if (state == nullptr || state->descriptor() < 0) return "-";
  return state->index() == 0 ? "gone" : !state->is_up() ? "down" : state->has_carrier() ? "up" : "no carrier";
}

}  // namespace unet::service
