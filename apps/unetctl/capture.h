// capture.h - `unetctl capture start`: writes the frames of a running NI to a pcapng file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "unet/base/result.h"

namespace unet::unetctl {

struct CaptureOptions {
  std::string file;                   // "-": standard output
  std::string filter;                 // libpcap's language
  std::optional<uint32_t> port, endpoint, channel;
  uint32_t snap_length = 65535;
  uint32_t buffer = 4 << 20;          // bytes
  double seconds = 0;                 // limit of time; 0: none
  uint64_t count = 0;                 // frames; 0: no limit
  uint64_t limit = 0;                 // bytes of the file; 0: none
};

// Captures until Ctrl-C, SIGTERM, a limit, `unetctl capture stop`, or the end of the NI or of the endpoint. Prints the outcome on stderr.
// Errors: the NI's refusal, a wrong filter, a file that cannot be written.
Status capture(const std::string& socket, const CaptureOptions& options);

// Ends a capture that another process has started.
Status stop_capture(const std::string& socket, uint32_t number);

}  // namespace unet::unetctl
