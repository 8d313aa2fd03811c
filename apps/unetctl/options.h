// options.h - the command line of unetctl: one command, its options, and the socket.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "apps/unetctl/capture.h"
#include "apps/unetctl/nic.h"
#include "apps/unetctl/rates.h"
#include "apps/unetctl/sockets.h"

namespace unet::unetctl {

constexpr double kIntervalMin = 0.1, kIntervalMax = 3600;  // seconds

struct TopOptions {
  double interval = 1;            // seconds
  Sort sort = Sort::messages;
  std::optional<uint32_t> count;  // tables to print, plain; none: until the user ends it
};

struct DrainOptions {
  bool undo = false;
  bool wait = false;   // until no endpoint is left
  double timeout = 0;  // seconds to wait at most; 0: no limit
};

struct Options {
  enum class Command { show, top, stats, sockets, doctor, policy_reload, drain, capture_start, capture_stop, upgrade,
                       nic_list, nic_take, nic_give };
  Command command = Command::show;
  std::string socket;
  std::string view;      // show: one of view_names(), or "all"
  bool as_json = false;  // show, doctor, nic_list
  double watch = 0;      // show: seconds between; 0: once
  TopOptions top;
  SocketsOptions sockets;
  DrainOptions drain;
  CaptureOptions capture;
  uint32_t capture_number = 0;  // capture_stop
  NicOptions nic;        // nic_take; nic_give has its card
  std::string program;   // upgrade: the new program; empty: the one that was started
  bool prometheus = false, openmetrics = false;  // stats: as text of this format, else JSON
};

struct ParsedOptions {
  std::optional<Options> options;  // none: exit at once with `status`
  int status = 0;
};

// Prints errors on stderr, in one line.
ParsedOptions parse_options(int argc, char** argv);

}  // namespace unet::unetctl
