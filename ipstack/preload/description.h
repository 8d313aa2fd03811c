// description.h - sockets as text, for another process that makes its own of them; used by forks.cc and passing.cc under the lock.
//
// The text comes from the process that passed the socket or started the program, so every field is checked. The group in it gives the right
// to share the port.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ipstack/preload/file.h"

namespace unet::preload {

// A stream that is or was connected, in this process's stack. A stream that is only bound may still become a listener.
bool is_connection(const File& file) noexcept;

// Whether a descriptor stays open at exec.
bool stays_open(int fd) noexcept;

// The addresses of a socket in the stack.
File::Pair names_of(const File& file);

// Describes a listener or a datagram socket that is in the stack or inherited.
std::string describe(const File& file);
// Describes an inherited socket from its known state, before it is adopted.
std::string describe(const File& file, const File::Inherited& left);
// Returns an inherited socket without a descriptor. nullptr: the text is invalid.
std::unique_ptr<File> read_description(std::string_view text);

// The names of a connection, and its socket's domain: at most 93 bytes, as a Unix socket's name has little room.
struct Names {
  int domain;
  File::Pair pair;
};
std::string describe_names(const Names& names);
std::optional<Names> read_names(std::string_view text);

}  // namespace unet::preload
