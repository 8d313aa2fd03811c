// job.h - who a process is in its job, and how it wants its memory: from the environment that unet-run makes; used by AmTransport.
//
//   UNET_RANK, UNET_SIZE         set by unet-run; without them the process is a job of one on the NI that Context::open() finds
//   UNET_JOB                     tells jobs on one NI apart: a word (default: "job"); unet-run gives each job an NI of its own
//   UNET_SPLITC_MEMORY           bytes of spread memory per rank; K, M, G are powers of 1024 (default: 256M)
//   UNET_SPLITC_PATH             "direct" (default: where the peer is on the same NI) or "messages" (everywhere)
#pragma once

#include <string>

#include "am/splitc/global.h"
#include "unet/base/result.h"

namespace unet::splitc {

enum class Path : uint8_t { direct, messages };

struct Job {
  Rank rank = 0;
  uint32_t size = 1;
  std::string name = "job";
  std::string ni;                              // as Context::open() takes it; empty: what the environment says
  uint64_t memory = uint64_t{256} << 20;       // bytes of a rank's spread memory
  Path path = Path::direct;

  // Errors: invalid_argument, with the variable and what it may be.
  static Result<Job> from_environment();
  // By what name rank `rank` is found.
  std::string endpoint_name(Rank rank) const { return "splitc/" + name + "/" + std::to_string(rank); }
};

// "64M" is 64 * 2^20.
Result<uint64_t> parse_bytes(std::string_view text);

}  // namespace unet::splitc
