// am_transport.cc - ranks find each other by name; what they send is Active Messages.
#include "am/splitc/am_transport.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace unet::splitc {
namespace {

static_assert(kMediumBytesMax <= am::kMediumMax && kWordsMax <= am::kArgumentsMax && kAnswerWordsMax <= am::kArgumentsMax);

constexpr am::Tag kFirstTag = 2;                      // rank 0's requests: 0 and 1 mean something else
constexpr Nanoseconds kStartTime = 60 * kSecond;      // that one rank waits for another to come
constexpr Nanoseconds kNap = 2 * kMillisecond;        // between two looks whether it has
constexpr Nanoseconds kFlushTime = 5 * kSecond;
constexpr int kFailure = 1;
constexpr size_t kMemoryAlignment = 4096;             // of spread memory that the endpoint has not made

tl::unexpected<Error> in_words(const Error& error, const std::string& what) { return fail(error.code, what + ": " + error.text); }

}  // namespace

// ---- the start

Result<std::unique_ptr<AmTransport>> AmTransport::open(const Job& job) {
  auto context = Context::open(job.ni);
  if (!context) return in_words(context.error(), "the network interface");
  std::unique_ptr<AmTransport> transport(new AmTransport(job, std::move(*context)));
  if (const Status made = transport->make_endpoint(); !made) return tl::unexpected(made.error());
  return transport;
}

// The memory is there before the name is: whoever maps us finds it.
Status AmTransport::make_endpoint() {
  am::Options options;
  options.same_user_only = true;
  auto endpoint = am::Endpoint::create(context_, options);
  if (!endpoint) return in_words(endpoint.error(), "an endpoint");
  endpoint_ = std::move(*endpoint);
  for (uint8_t operation = 1; operation < kOperationsMax; ++operation) {
    handled_[operation] = {this, operation};
    endpoint_->set_handler(operation, arrive, &handled_[operation]);
  }
  endpoint_->set_error_handler(come_back, this);
  if (const Status made = make_memory(); !made) return in_words(made.error(), std::to_string(job_.memory) + " bytes of spread memory");
  const Status bound = endpoint_->bind(job_.endpoint_name(job_.rank));
  return bound ? Status{} : in_words(bound.error(), "the name of rank " + std::to_string(job_.rank));
}

Status AmTransport::make_memory() {
  if (job_.path == Path::messages) {
    size_t room = job_.memory + kMemoryAlignment;
    void* start = std::calloc(room, 1);  // not touched before it is used
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
  for (uint32_t distance = 1; distance < job_.size; ++distance) {
    const Rank rank = (job_.rank + distance) % job_.size;
    if (const Status mapped = map_one(rank); !mapped) return in_words(mapped.error(), "rank " + std::to_string(rank));
  }
  return {};
}

// It may not have come yet, or not be looking.
Status AmTransport::map_one(Rank rank) {
  const std::string name = job_.endpoint_name(rank);
  for (const Nanoseconds start = clock_.now();;) {
    Status mapped = endpoint_->map(rank, name, kFirstTag + job_.rank);
    if (mapped || clock_.now() - start > kStartTime) return mapped;
    if (mapped.error().code != Errc::not_found && mapped.error().code != Errc::timed_out) return mapped;
    endpoint_->wait(kNap, 0);
  }
}

MutableBytes AmTransport::memory_of(Rank rank) noexcept {
  if (rank == job_.rank) return memory_;
  if (job_.path == Path::messages) return {};
  const MutableBytes memory = endpoint_->peer_segment(rank);
  return memory.size() == memory_.size() ? memory : MutableBytes();
}

// ---- messages

void AmTransport::arrive(am::Token& token, void* context) {
  const Handled& handled = *static_cast<Handled*>(context);
  AmTransport& self = *handled.transport;
  const bool is_request = token.is_request();
  const uint64_t from = is_request ? token.tag() - kFirstTag : token.index();
  if (from >= self.job_.size || self.receiver_ == nullptr) {
    ++self.strangers_;
    return;
  }
  Answer answer;
  self.receiver_->handle({.from = static_cast<Rank>(from), .operation = handled.operation, .is_request = is_request,
                          .words = token.arguments(), .payload = token.payload()},
                         answer);
  if (answer.operation != 0 && is_request) token.reply_short(answer.operation, {answer.words.data(), answer.count});
}

void AmTransport::come_back(am::Endpoint&, const am::Returned& returned, void* context) {
  AmTransport& self = *static_cast<AmTransport*>(context);
  if (self.receiver_ == nullptr) return;
  const bool gone = returned.status == am::ReturnStatus::unreachable || returned.status == am::ReturnStatus::bad_entry;
  self.receiver_->come_back(returned.index, gone ? "is gone" : "takes no message: " + std::string(to_string(returned.status)));
}

// What came back has been told of already.
void AmTransport::sent(am::Outcome outcome, Rank to) {
  if (__builtin_expect(outcome == am::Outcome::bad_call, 0)) {
    end_job("a request to rank " + std::to_string(to) + " from a function that runs while a message is handled");
  }
}

void AmTransport::request(Rank to, uint8_t operation, Words words) { sent(endpoint_->request_short(to, operation, words), to); }
void AmTransport::request_medium(Rank to, uint8_t operation, Bytes payload, Words words) {
  sent(endpoint_->request_medium(to, operation, payload, words), to);
}
void AmTransport::request_long(Rank to, uint8_t operation, uint64_t offset, Bytes payload, Words words) {
  sent(endpoint_->request_long(to, operation, offset, payload, words), to);
}
void AmTransport::request_get(Rank from, uint8_t operation, uint64_t offset, MutableBytes memory, Words words) {
  sent(endpoint_->get(from, operation, offset, memory, words), from);
}

// ---- the end

void AmTransport::finish() { endpoint_->flush(kFlushTime); }

// The others are ended by who started them. Nothing is cleaned up here: the NI does that for whoever dies.
void AmTransport::end_job(const std::string& text) {
  std::fprintf(stderr, "splitc: rank %u of %u: %s\n", job_.rank, job_.size, text.c_str());
  std::fflush(nullptr);
  std::_Exit(kFailure);
}

}  // namespace unet::splitc
