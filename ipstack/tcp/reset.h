// reset.h - the answer to a segment that belongs to no connection (RFC 9293, 3.10.7.1 and 3.5.2); used by the stack and Connection.
#pragma once

#include <optional>

#include "unet/wire/tcp.h"

namespace unet::tcp {

// Nothing answers a reset.
std::optional<ip::TcpFields> reset_for(const ip::TcpView& segment) noexcept;

}  // namespace unet::tcp
