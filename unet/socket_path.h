// socket_path.h - the default path of the control socket of a host's network interface; used by libunet and the programs.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "unet/base/result.h"

namespace unet {

// The path in the name of a network interface: "unix:PATH" or "PATH". An embedded one ("embedded:SPEC") has no socket: nullopt.
std::optional<std::string> socket_path_of(std::string_view ni);

// The default path: $UNET_NI, or its old name $UNET_SOCKET; else /run/unet/unet.sock for root; else $XDG_RUNTIME_DIR/unet/unet.sock; else
// /tmp/unet-UID/unet.sock. A program with more rights than its caller ignores the environment.
std::string default_socket_path();

// For the listening side. Creates the directory of a default path if it is missing (mode 0700, for root 0755), and gives it to `owner`, the
// user that root may switch to. Fails if another user owns the directory or could write to it: a socket there could be any user's.
Status make_socket_directory(std::string_view socket_path, uid_t owner);

// For the connecting side. Fails if `socket_path` is empty or too long, or if it is the default in /tmp and its directory belongs to
// another user.
Status check_socket_path(std::string_view socket_path);

}  // namespace unet
