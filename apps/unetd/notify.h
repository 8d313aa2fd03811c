// notify.h - tells a service manager how unetd is doing, by the protocol of sd_notify(3); used by main() and the supervisor.
#pragma once

#include <string>
#include <string_view>

namespace unet::unetd {

// Tells whoever waits that clients may connect to `socket`: a line, the service manager, and a byte into `ready_fd` (closed then), if
// that is one.
void announce_ready(const std::string& socket, int ready_fd);

// Sends `state` ("READY=1", "STOPPING=1") to the socket that $NOTIFY_SOCKET names; without one, does nothing. Never blocks. What goes
// wrong is the manager's to notice: it waits for the message with a time-out of its own.
void notify_manager(std::string_view state) noexcept;

}  // namespace unet::unetd
