// notify.h - tells a service manager how unetd is doing, by the protocol of sd_notify(3); used by main() alone.
#pragma once

#include <string_view>

namespace unet::unetd {

// Sends `state` ("READY=1", "STOPPING=1") to the socket that $NOTIFY_SOCKET names; without one, does nothing. Never blocks. What goes
// wrong is the manager's to notice: it waits for the message with a time-out of its own.
void notify_manager(std::string_view state) noexcept;

}  // namespace unet::unetd
