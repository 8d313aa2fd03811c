// socket_path.h - where the control socket of a host's network interface is, unless somebody says otherwise; used by
// libunet and the programs.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "unet/base/result.h"

namespace unet {

// The path in the name of a network interface: "unix:PATH" or "PATH". None: an embedded one ("embedded:SPEC") has no socket.
std::optional<std::string> socket_path_of(std::string_view ni);

// That of $UNET_NI, or $UNET_SOCKET, its old name; else, as root, /run/unet/unet.sock; else $XDG_RUNTIME_DIR/unet/unet.sock; else
// /tmp/unet-UID/unet.sock. A program that has more rights than its caller does not look at the environment.
std::string default_socket_path();

// For the side that listens: makes the directory of a default path (mode 0700, as root 0755) if it is missing, and gives it to
// `owner`, whom root may be about to become. An error if somebody else owns it or could write into it: a socket there could be
// anybody's.
Status make_socket_directory(std::string_view socket_path, uid_t owner);

// For the side that connects: an error if `socket_path` cannot be one (empty, too long), or if it is the default in /tmp
// and its directory belongs to somebody else.
Status check_socket_path(std::string_view socket_path);

}  // namespace unet
