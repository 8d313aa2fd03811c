// description.h - sockets as text, for another process that makes its own of them; used by forks.cc and passing.cc under the lock.
//
// The text is from the process that passed the socket or began the program: it is checked, and the group says whether its port may be
// had.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ipstack/preload/file.h"

namespace unet::preload {

// A connection of this process's stack, or what is left of one; not what is bound only, which may be a listener yet.
bool is_connection(const File& file) noexcept;

// exec() does not close it.
bool stays_open(int fd) noexcept;

// The addresses of a socket of ours.
File::Pair names_of(const File& file);

// A listener or a datagram socket that is ours, or was inherited.
std::string describe(const File& file);
// Describes an inherited socket from its known state, before it is adopted.
std::string describe(const File& file, const File::Inherited& left);
// A socket that is inherited, by no descriptor yet. nullptr: it does not describe one.
std::unique_ptr<File> read_description(std::string_view text);

// The names of a connection, and its socket's domain: at most 93 bytes, as a Unix socket's name has little room.
struct Names {
  int domain;
  File::Pair pair;
};
std::string describe_names(const Names& names);
std::optional<Names> read_names(std::string_view text);

}  // namespace unet::preload
