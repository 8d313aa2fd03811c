// notify.h - reports unetd's state to a service manager, by the protocol of sd_notify(3); used by main() and the supervisor.
#pragma once

#include <string>
#include <string_view>

namespace unet::unetd {

// Announces that clients may connect to `socket`: prints a line, notifies the service manager, and writes a byte to `ready_fd`, if valid,
// which it then closes.
void announce_ready(const std::string& socket, int ready_fd);

// Sends `state` ("READY=1", "STOPPING=1") to the socket that $NOTIFY_SOCKET names; without one, does nothing. Never blocks, and reports no
// error: the manager waits for the message with a time-out of its own.
void notify_manager(std::string_view state) noexcept;

}  // namespace unet::unetd
