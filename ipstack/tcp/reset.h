// reset.h - the reset for a segment of no connection (RFC 9293, 3.10.7.1 and 3.5.2); used by the stack and Connection.
#pragma once

#include <optional>

#include "unet/wire/tcp.h"

namespace unet::tcp {

// nullopt if the segment is a reset: a reset is never answered.
std::optional<ip::TcpFields> reset_for(const ip::TcpView& segment) noexcept;

}  // namespace unet::tcp
