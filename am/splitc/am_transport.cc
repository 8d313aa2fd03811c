// am_transport.cc - finding ranks by name, and sending Active Messages to them.
#include "am/splitc/am_transport.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace unet::splitc {
namespace {

static_assert(kMediumBytesMax <= am::kMediumMax && kWordsMax <= am::kArgumentsMax && kAnswerWordsMax <= am::kArgumentsMax);

constexpr Nanoseconds kStartTime = 60 * kSecond;      // how long a rank waits for the others to start
constexpr Nanoseconds kNap = 2 * kMillisecond;        // time between two attempts to reach another rank
constexpr Nanoseconds kFlushTime = 5 * kSecond;
constexpr int kFailure = 1;
constexpr size_t kMemoryAlignment = 4096;             // of spread memory that this process allocates itself

tl::unexpected<Error> in_words(const Error& error, const std::string& what) { return fail(error.code, what + ": " + error.text); }

}  // namespace

// ---- the start

Result<std::unique_ptr<AmTransport>> AmTransport::open(const Job& job, JobEnder* ender) {
  auto context = Context::open(job.ni);
  if (!context) return in_words(context.error(), "the network interface");
  return open(job, std::move(*context), ender);
}

Result<std::unique_ptr<AmTransport>> AmTransport::open(const Job& job, Context context, JobEnder* ender) {
  std::unique_ptr<AmTransport> transport(new AmTransport(job, std::move(context), ender));
  if (const Status made = transport->make_endpoints(); !made) return tl::unexpected(made.error());
  return transport;
}

// Makes the memory before the names, so that a peer that maps us finds it.
Status AmTransport::make_endpoints() {
  auto endpoint = am::Endpoint::create(context_, {.admit = is_rank_here, .admit_context = this, .same_user_only = true});
  if (!endpoint) return in_words(endpoint.error(), "an endpoint");
  endpoint_ = std::move(*endpoint);
  by_rank_.assign(job_.size, endpoint_.get());
  install_handlers(*endpoint_, handled_, sources_);
  if (const Status made = make_memory(); !made) return in_words(made.error(), std::to_string(job_.memory) + " bytes of spread memory");
  if (job_.spans_hosts()) {
    if (const Status made = make_distant(); !made) return in_words(made.error(), "an endpoint for ranks of other hosts");
  }
  const Status bound = endpoint_->bind(job_.endpoint_name(job_.rank));
  return bound ? Status{} : in_words(bound.error(), "the name of rank " + std::to_string(job_.rank));
}

Status AmTransport::make_distant() {
  auto bundle = am::Bundle::create(am::Threads::one);
  if (!bundle) return tl::unexpected(bundle.error());
  bundle_ = std::move(*bundle);
  const am::Options options{.admit = has_ranks_there, .admit_context = this, .same_user_only = true, .other_hosts = true};
  auto endpoint = am::Endpoint::create(context_, options);
  if (!endpoint) return tl::unexpected(endpoint.error());
  distant_ = std::move(*endpoint);
  for (am::Endpoint* const each : {endpoint_.get(), distant_.get()}) {
    if (const Status added = bundle_->add(*each); !added) return added;
  }
  install_handlers(*distant_, distant_handled_, distant_sources_);
  distant_->require_tag_bits(job_.tag_of(job_.rank), ~am::Tag{0});
  for (Rank rank = 0; rank < job_.size; ++rank) {
    if (job_.is_elsewhere(rank)) by_rank_[rank] = distant_.get();
  }
  if (const Status set = distant_->set_segment(memory_); !set) return set;
  return distant_->bind(job_.distant_name(job_.rank));
}

void AmTransport::install_handlers(am::Endpoint& endpoint, HandledOfEndpoint& handled, Sources& sources) {
  for (uint8_t operation = 1; operation < kOperationsMax; ++operation) {
    handled[operation] = {this, &sources, operation};
    endpoint.set_handler(operation, arrive, &handled[operation]);
  }
  endpoint.set_error_handler(come_back, this);
}

Status AmTransport::make_memory() {
  if (job_.path == Path::messages) {
    size_t room = job_.memory + kMemoryAlignment;
    void* start = std::calloc(room, 1);  // pages appear at first use
    if (start == nullptr) return fail(Errc::out_of_memory, "there is not so much");
    own_memory_.reset(static_cast<std::byte*>(start));
    memory_ = {static_cast<std::byte*>(std::align(kMemoryAlignment, job_.memory, start, room)), job_.memory};
    return endpoint_->set_segment(memory_);
  }
  auto memory = endpoint_->expose(job_.memory);
  if (!memory) return tl::unexpected(memory.error());
  memory_ = *memory;
  return {};
}

Status AmTransport::connect() {
  const Nanoseconds start = clock_.now();
  for (uint32_t distance = 1; distance < job_.size; ++distance) {
    const Rank rank = (job_.rank + distance) % job_.size;
    if (const Status mapped = map_one(rank, start); !mapped) return in_words(mapped.error(), "rank " + std::to_string(rank));
  }
  return {};
}

// Accepts a process of this user that has bound another rank's name, as the NI reports. Only one process can have a name, and each rank
// binds before it connects. Others may not even send, because a message can run a function.
bool AmTransport::is_rank_here(const ConnectionRequest& request, void* context) {
  return static_cast<const AmTransport*>(context)->job_.rank_named(request.peer).has_value();
}

// Accepts processes of other hosts of the job; the NI knows only their host. Their messages must also prove the job's key. Processes of
// this host have no business at this endpoint.
bool AmTransport::has_ranks_there(const ConnectionRequest& request, void* context) {
  return request.peer_uid == -1 && static_cast<const AmTransport*>(context)->job_.has_ranks_at(request.peer);
}

// Retries while the rank has not started, does not poll, or has no place for one more channel.
Status AmTransport::map_one(Rank rank, Nanoseconds start) {
  const std::string name = job_.target(rank);
  const am::Tag tag = job_.is_elsewhere(rank) ? job_.tag_of(rank) : am::kAnyTag;
  while (true) {
    Status mapped = by_rank_[rank]->map(rank, name, tag);
    if (mapped || clock_.now() - start > kStartTime) return mapped;
    const Errc why = mapped.error().code;
    if (why != Errc::not_found && why != Errc::timed_out && why != Errc::refused) return mapped;
    wait(kNap);
  }
}

MutableBytes AmTransport::memory_of(Rank rank) noexcept {
  if (rank == job_.rank) return memory_;
  if (job_.path == Path::messages || by_rank_[rank] != endpoint_.get()) return {};
  const MutableBytes memory = endpoint_->peer_segment(rank);
  return memory.size() == memory_.size() ? memory : MutableBytes();
}

// ---- messages

// The name is safe to use: on this NI the process was accepted by it; from another host the process claims it, but the NI knows the host.
void AmTransport::Sources::look_up(const am::Token& token, const Job& job) {
  if (token.source() >= ranks_.size()) ranks_.resize(token.source() + 1, kUnknown);
  ranks_[token.source()] = job.rank_named(token.source_name()).value_or(kStranger);
}

void AmTransport::arrive(am::Token& token, void* context) {
  const Handled& handled = *static_cast<Handled*>(context);
  AmTransport& self = *handled.transport;
  const bool is_request = token.is_request();
  const Rank from = is_request ? handled.sources->rank_of(token, self.job_) : token.index();
  if (from >= self.job_.size || self.receiver_ == nullptr) {
    ++self.strangers_;
    return;
  }
  Answer answer;
  self.receiver_->handle({.from = from, .operation = handled.operation, .is_request = is_request,
                          .words = token.arguments(), .payload = token.payload()},
                         answer);
  if (answer.operation != 0 && is_request) token.reply_short(answer.operation, {answer.words.data(), answer.count});
}

void AmTransport::come_back(am::Endpoint&, const am::Returned& returned, void* context) {
  AmTransport& self = *static_cast<AmTransport*>(context);
  if (self.receiver_ == nullptr) return;
  const bool gone = returned.status == am::ReturnStatus::unreachable || returned.status == am::ReturnStatus::bad_entry;
  const std::string what = gone ? "is gone" : "takes no message: " + std::string(to_string(returned.status));
  self.receiver_->come_back(returned.index, returned.handler, what);
}

// A returned request has been reported already.
bool AmTransport::sent(am::Outcome outcome, Rank to) {
  if (__builtin_expect(outcome == am::Outcome::bad_call, 0)) {
    end_job("a request to rank " + std::to_string(to) + " from a function that runs while a message is handled");
  }
  return true;
}

bool AmTransport::request(Rank to, uint8_t operation, Words words) {
  am::Endpoint& endpoint = *by_rank_[to];
  return endpoint.has_credit(to) && sent(endpoint.request_short(to, operation, words), to);
}
bool AmTransport::request_medium(Rank to, uint8_t operation, Bytes payload, Words words) {
  am::Endpoint& endpoint = *by_rank_[to];
  return endpoint.has_credit(to) && sent(endpoint.request_medium(to, operation, payload, words), to);
}
bool AmTransport::request_long(Rank to, uint8_t operation, uint64_t offset, Bytes payload, Words words) {
  am::Endpoint& endpoint = *by_rank_[to];
  return endpoint.has_credit(to) && sent(endpoint.request_long(to, operation, offset, payload, words), to);
}
bool AmTransport::request_get(Rank from, uint8_t operation, uint64_t offset, MutableBytes memory, Words words) {
  am::Endpoint& endpoint = *by_rank_[from];
  return endpoint.has_credit(from) && sent(endpoint.get(from, operation, offset, memory, words), from);
}

void AmTransport::wait(Nanoseconds limit) {
  if (distant_ == nullptr) {
    endpoint_->wait(limit, 0);
  } else {
    bundle_->wait(limit, 0);
  }
}

bool AmTransport::is_settled() noexcept {
  if (!endpoint_->flush(0) || (distant_ != nullptr && !distant_->flush(0))) return false;
  for (Rank rank = 0; rank < job_.size; ++rank) {
    const am::Flow* const flow = by_rank_[rank]->flow(rank);
    if (flow != nullptr && flow->unhandled() != 0) return false;
  }
  return true;
}

// ---- the end

void AmTransport::finish() {
  endpoint_->flush(kFlushTime);
  if (distant_ != nullptr) distant_->flush(kFlushTime);
}

// The program that started the other ranks ends them, or they see that this one is gone. The NI cleans up after a process that ends.
void AmTransport::end_job(const std::string& text) {
  std::fprintf(stderr, "splitc: rank %u of %u: %s\n", job_.rank, job_.size, text.c_str());
  std::fflush(nullptr);
  if (ender_ != nullptr) ender_->end_all(kFailure, text);
  std::_Exit(kFailure);
}

}  // namespace unet::splitc
