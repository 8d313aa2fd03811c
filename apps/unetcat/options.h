// options.h - the command line of unetcat.
#pragma once

#include <optional>
#include <string>

#include "unet/base/time.h"

namespace unet::unetcat {

struct Options {
  bool listen = false, keep = false;             // -l and -k
  bool send_only = false, receive_only = false;
  bool verbose = false, hash = false;
  std::string name;                              // to bind, or NAME[@HOST] to connect to
  std::string ni;                                // as Context::open() takes it
  Nanoseconds wait = kNever;                     // for a peer
  uint64_t bytes = ~uint64_t{0};                 // of standard input, at most
};

struct ParsedOptions {
  std::optional<Options> options;  // empty: exit at once with `status`
  int status = 0;
};

// Prints what is wrong on stderr, in one line.
ParsedOptions parse_options(int argc, char** argv);

}  // namespace unet::unetcat
