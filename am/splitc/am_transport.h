// am_transport.h - the ranks of a job by Active Messages: translation r leads to rank r; used by Node.
#pragma once

#include <array>
#include <cstdlib>
#include <memory>

#include "am/endpoint.h"
#include "am/splitc/job.h"
#include "am/splitc/transport.h"
#include "unet/context.h"

namespace unet::splitc {

class AmTransport final : public Transport {
 public:
  // Opens the NI, makes the memory and binds the rank's name. Errors: those of Context::open(), Endpoint::expose() and Endpoint::bind(),
  // with what this rank was about.
  static Result<std::unique_ptr<AmTransport>> open(const Job& job);
  ~AmTransport() override = default;

  // Makes a channel to each other rank, which must come within a minute. Errors: those of Endpoint::map().
  Status connect() override;

  Rank rank() const noexcept override { return job_.rank; }
  uint32_t size() const noexcept override { return job_.size; }
  MutableBytes memory() const noexcept override { return memory_; }
  MutableBytes memory_of(Rank rank) noexcept override;
  bool is_near(Rank rank) const noexcept override { return rank == job_.rank || endpoint_->is_local(rank); }
  void set_receiver(Receiver& receiver) noexcept override { receiver_ = &receiver; }

  void request(Rank to, uint8_t operation, Words words) override;
  void request_medium(Rank to, uint8_t operation, Bytes payload, Words words) override;
  void request_long(Rank to, uint8_t operation, uint64_t offset, Bytes payload, Words words) override;
  void request_get(Rank from, uint8_t operation, uint64_t offset, MutableBytes memory, Words words) override;

  uint32_t poll() override { return endpoint_->poll(); }
  void wait(Nanoseconds limit) override { endpoint_->wait(limit, 0); }
  Nanoseconds now() const noexcept override { return clock_.now(); }
  bool is_gone(Rank rank) noexcept override { return rank != job_.rank && !endpoint_->is_open(rank); }
  void finish() override;
  [[noreturn]] void end_job(const std::string& text) override;

  // Messages of processes that are no ranks of this job.
  uint64_t strangers() const noexcept { return strangers_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  struct Handled {       // what a handler is for
    AmTransport* transport;
    uint8_t operation;
  };
  AmTransport(const Job& job, Context context) : job_(job), context_(std::move(context)) {}
  Status make_endpoint();
  Status make_memory();
  Status map_one(Rank rank);
  static void arrive(am::Token& token, void* context);
  static void come_back(am::Endpoint& endpoint, const am::Returned& returned, void* context);
  void sent(am::Outcome outcome, Rank to);

  const Job job_;
  Clock clock_;
  Context context_;
  std::array<Handled, kOperationsMax> handled_{};
  Receiver* receiver_ = nullptr;
  uint64_t strangers_ = 0;
  std::unique_ptr<std::byte, Free> own_memory_;  // Path::messages; else the endpoint's
  MutableBytes memory_;
  std::unique_ptr<am::Endpoint> endpoint_;
};

}  // namespace unet::splitc
