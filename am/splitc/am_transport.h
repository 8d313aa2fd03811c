// am_transport.h - reaching the ranks of a job by Active Messages: translation r leads to rank r; used by Node.
//
// A job between hosts has a second endpoint at each rank, for the ranks of other hosts. It exposes no memory, so their network interfaces
// write nothing here by themselves. Their messages go through Active Messages, which deliver only those with the key. Peers may write the
// memory of the first endpoint, so it accepts only the job's ranks at this NI: processes of the same user with the ranks' names.
#pragma once

#include <array>
#include <cstdlib>
#include <memory>
#include <vector>

#include "am/bundle.h"
#include "am/endpoint.h"
#include "am/splitc/job.h"
#include "am/splitc/transport.h"
#include "unet/context.h"

namespace unet::splitc {

class AmTransport final : public Transport {
 public:
  // Opens the NI, makes the memory and binds the rank's name. `ender`, if not nullptr, ends the other ranks when this one ends the job; the
  // caller owns it. Errors: those of Context::open(), Endpoint::expose() and Endpoint::bind(), with what this rank was doing.
  static Result<std::unique_ptr<AmTransport>> open(const Job& job, JobEnder* ender = nullptr);
  // Does the same on an open NI.
  static Result<std::unique_ptr<AmTransport>> open(const Job& job, Context context, JobEnder* ender = nullptr);
  ~AmTransport() override = default;

  // Makes a channel to each other rank; all must start within a minute. Errors: those of Endpoint::map().
  Status connect() override;

  Rank rank() const noexcept override { return job_.rank; }
  uint32_t size() const noexcept override { return job_.size; }
  MutableBytes memory() const noexcept override { return memory_; }
  MutableBytes memory_of(Rank rank) noexcept override;
  bool is_near(Rank rank) const noexcept override { return rank == job_.rank || by_rank_[rank]->is_local(rank); }
  void set_receiver(Receiver& receiver) noexcept override { receiver_ = &receiver; }

  bool request(Rank to, uint8_t operation, Words words) override;
  bool request_medium(Rank to, uint8_t operation, Bytes payload, Words words) override;
  bool request_long(Rank to, uint8_t operation, uint64_t offset, Bytes payload, Words words) override;
  bool request_get(Rank from, uint8_t operation, uint64_t offset, MutableBytes memory, Words words) override;

  uint32_t poll() override { return distant_ == nullptr ? endpoint_->poll() : bundle_->poll(); }
  void wait(Nanoseconds limit) override;
  Nanoseconds now() const noexcept override { return clock_.now(); }
  bool is_gone(Rank rank) noexcept override { return rank != job_.rank && !by_rank_[rank]->is_open(rank); }
  void finish() override;
  [[noreturn]] void end_job(const std::string& text) override;

  // Returns true if the receivers have confirmed every request. Others then do not miss a rank that stops polling for a while.
  bool is_settled() noexcept;
  // Counts messages of processes that are no ranks of this job.
  uint64_t strangers() const noexcept { return strangers_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  // Finds the rank at the other end of a channel by its name, at its first message.
  class Sources {
   public:
    Rank rank_of(const am::Token& token, const Job& job) {
      const uint64_t source = token.source();
      if (__builtin_expect(source >= ranks_.size() || ranks_[source] == kUnknown, 0)) look_up(token, job);
      return ranks_[source];
    }
    static constexpr Rank kStranger = ~Rank{0};

   private:
    void look_up(const am::Token& token, const Job& job);
    static constexpr Rank kUnknown = kStranger - 1;
    std::vector<Rank> ranks_;  // by Token::source()
  };
  struct Handled {       // the context of a handler
    AmTransport* transport;
    Sources* sources;
    uint8_t operation;
  };
  using HandledOfEndpoint = std::array<Handled, kOperationsMax>;
  AmTransport(const Job& job, Context context, JobEnder* ender) : job_(job), context_(std::move(context)), ender_(ender) {}
  Status make_endpoints();
  Status make_distant();
  void install_handlers(am::Endpoint& endpoint, HandledOfEndpoint& handled, Sources& sources);
  Status make_memory();
  Status map_one(Rank rank, Nanoseconds start);
  static bool is_rank_here(const ConnectionRequest& request, void* context);
  static bool has_ranks_there(const ConnectionRequest& request, void* context);
  static void arrive(am::Token& token, void* context);
  static void come_back(am::Endpoint& endpoint, const am::Returned& returned, void* context);
  bool sent(am::Outcome outcome, Rank to);

  const Job job_;
  Clock clock_;
  Context context_;
  JobEnder* const ender_;
  Sources sources_, distant_sources_;
  HandledOfEndpoint handled_{}, distant_handled_{};
  Receiver* receiver_ = nullptr;
  uint64_t strangers_ = 0;
  std::unique_ptr<std::byte, Free> own_memory_;  // with Path::messages; otherwise the endpoint owns the memory
  MutableBytes memory_;
  std::unique_ptr<am::Bundle> bundle_;           // only with two endpoints
  std::unique_ptr<am::Endpoint> endpoint_;       // for the ranks of this NI
  std::unique_ptr<am::Endpoint> distant_;        // for the ranks of other hosts, if there are any
  std::vector<am::Endpoint*> by_rank_;           // the endpoint that leads to each rank
};

}  // namespace unet::splitc
