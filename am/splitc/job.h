// job.h - the rank of a process in its job, and the options of its memory, from the environment that unet-run or the user sets; used by
// AmTransport. Under another launcher Launcher provides them (launcher.h).
//
//   UNET_RANK, UNET_SIZE         set by unet-run; without them the process is a job of one on the NI that Context::open() finds
//   UNET_JOB                     tells jobs on one NI apart: a word (default: "job"); unet-run gives each job an NI of its own
//   UNET_JOB_HOSTS               the NIs' hosts in order of rank, each with how many ranks it has: "alpha:2,beta" (default: all on one NI)
//   UNET_JOB_KEY                 32 hexadecimal digits, the job's secret: ranks of other hosts prove by it that they belong to the job
//   UNET_SPLITC_MEMORY           bytes of spread memory per rank; K, M, G are powers of 1024 (default: 256M)
//   UNET_SPLITC_PATH             "direct" (default: where the peer is on the same NI) or "messages" (everywhere)
//   UNET_SPLITC_PATH             "direct" (default: where the peer is on the same NI) or "messages" (everywhere)
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "am/splitc/global.h"
#include "am/splitc/key.h"
#include "unet/base/result.h"

namespace unet::splitc {

enum class Path : uint8_t { direct, messages };

struct Job {
  Rank rank = 0;
  uint32_t size = 1;
  std::string name = "job";
  std::vector<std::string> hosts;              // each rank's host, as its NI calls it; empty: all ranks are on one NI
  Key key;                                     // used if the ranks are on several hosts
  std::string ni;                              // as Context::open() takes it; empty: from the environment
  uint64_t memory = uint64_t{256} << 20;       // bytes of a rank's spread memory
  Path path = Path::direct;

  // Errors: invalid_argument, with the variable and its allowed values.
  static Result<Job> from_environment();
  // Checks that the memory can exist, once the number and hosts of ranks are known. Errors: out_of_memory, if it surely cannot (room.h).
  Status fits_here() const;
  // Returns the name that rank `of` binds.
  std::string endpoint_name(Rank of) const { return "splitc/" + name + "/" + std::to_string(of); }
  // Returns the name that it binds for ranks of other hosts.
  std::string distant_name(Rank of) const { return endpoint_name(of) + "/distant"; }
  // Returns the name by which this rank reaches `other`.
  std::string target(Rank other) const;
  bool is_elsewhere(Rank other) const noexcept { return !hosts.empty() && hosts[other] != hosts[rank]; }
  // Returns which other rank has this name, for which the NI vouches; nothing if none has.
  std::optional<Rank> rank_named(std::string_view target) const;
  // Returns the tag of requests to `of` from other hosts. A process that a rank takes for another rank learns one tag, which does not tell
  // the others.
  uint64_t tag_of(Rank of) const noexcept { return sip_hash(key, of); }
  // Returns true if a rank is on another host than this one.
  bool spans_hosts() const noexcept;
  // Returns true if ranks are on that host, and it is not this one.
  bool has_ranks_at(std::string_view host) const noexcept;
};

// Parses a size: "64M" is 64 * 2^20.
Result<uint64_t> parse_bytes(std::string_view text);

// Ends all ranks of a job that a launcher other than unet-run has started.
class JobEnder {
 public:
  // The job's exit status becomes `status` if the launcher allows it. Returns at the latest when the launcher has been told.
  virtual void end_all(int status, const std::string& text) noexcept = 0;

 protected:
  ~JobEnder() = default;
};

}  // namespace unet::splitc
