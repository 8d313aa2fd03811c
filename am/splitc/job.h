// job.h - who a process is in its job, and how it wants its memory: from the environment that unet-run makes, or the user; used by
// AmTransport. Under another launcher Launcher says who it is (launcher.h).
//
//   UNET_RANK, UNET_SIZE         set by unet-run; without them the process is a job of one on the NI that Context::open() finds
//   UNET_JOB                     tells jobs on one NI apart: a word (default: "job"); unet-run gives each job an NI of its own
//   UNET_JOB_HOSTS               the NIs' hosts in order of rank, each with how many ranks it has: "alpha:2,beta" (default: all on one NI)
//   UNET_JOB_KEY                 32 hexadecimal digits that nobody else knows: what ranks of other hosts are known by
//   UNET_SPLITC_MEMORY           bytes of spread memory per rank; K, M, G are powers of 1024 (default: 256M)
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
  std::vector<std::string> hosts;              // of the ranks' NIs, as these call themselves; empty: all are on one
  Key key;                                     // if they are on several
  std::string ni;                              // as Context::open() takes it; empty: what the environment says
  uint64_t memory = uint64_t{256} << 20;       // bytes of a rank's spread memory
  Path path = Path::direct;

  // Errors: invalid_argument, with the variable and what it may be.
  static Result<Job> from_environment();
  // Once it is known how many ranks there are, and where. Errors: out_of_memory, if there surely is not so much (room.h).
  Status fits_here() const;
  // By what name rank `of` binds.
  std::string endpoint_name(Rank of) const { return "splitc/" + name + "/" + std::to_string(of); }
  // And for ranks of other hosts.
  std::string distant_name(Rank of) const { return endpoint_name(of) + "/distant"; }
  // By what name it is reached from here.
  std::string target(Rank other) const;
  bool is_elsewhere(Rank other) const noexcept { return !hosts.empty() && hosts[other] != hosts[rank]; }
  // The other way round: which other rank that is, by a name that the NI vouches for; nothing if none is called so.
  std::optional<Rank> rank_named(std::string_view target) const;
  // What the tags of requests to `of` are, if they come from another host. Whoever is taken for one rank, and so told its tag, knows that
  // of no other.
  uint64_t tag_of(Rank of) const noexcept { return sip_hash(key, of); }
  // Some ranks are on another host than this one.
  bool spans_hosts() const noexcept;
  // Ranks that are on that host, and not on this one.
  bool has_ranks_at(std::string_view host) const noexcept;
};

// "64M" is 64 * 2^20.
Result<uint64_t> parse_bytes(std::string_view text);

// Ends all ranks of a job that another launcher than unet-run has started.
class JobEnder {
 public:
  // The job's exit status is `status`, if the launcher lets it. Returns at the latest when that has been told.
  virtual void end_all(int status, const std::string& text) noexcept = 0;

 protected:
  ~JobEnder() = default;
};

}  // namespace unet::splitc
