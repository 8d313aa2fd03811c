// gam.cc - GAM 1.1 (am.h beside it) on the C ABI of Active Messages.
//
// Translation r leads to rank r. A process tags its requests with its rank plus 2, so each message names its sender. The segment of a
// process is all of its memory, so a store is a long request and a get is a get.
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "am/am.h"
#include "am/compat/gam/am.h"
#include "am/compat/gam/words.h"
#include "am/program_image.h"
#include "unet/base/time.h"

int AM_errno = 0;

namespace {

using unet::kMillisecond;
using unet::kSecond;
using unet::monotonic_now;
using unet::am::ProgramImage;
using namespace unet::am::gam;  // NOLINT

constexpr uintptr_t kLowest = 4096;                       // no object lies below
constexpr uint64_t kMemory = (uint64_t{1} << 47) - kLowest;  // bytes that addresses of a process reach
constexpr int kSizeMax = 4096;                            // ranks
// Programs reserve this size, and count up to it by doubling or times the number of processes: a larger one overflows their int. Stores may
// be larger.
constexpr int kUsualMax = 16 * 1024 * 1024;
constexpr unet::Nanoseconds kStartTime = 60 * kSecond;    // how long a process waits for another to start
constexpr unet::Nanoseconds kLookEvery = 100 * kMillisecond;  // time between checks whether the awaited processes live
constexpr int64_t kNap = 10'000'000;
constexpr int64_t kHour = 3'600'000'000'000;
constexpr int64_t kFlushTime = 5'000'000'000;
constexpr uint64_t kUnknown = ~uint64_t{0};
constexpr uint64_t kFirstTag = 2;                         // rank 0's tag: 0 and 1 have another meaning

enum : unsigned { kCall = 1, kCallDouble = 2, kStored = 3, kGot = 4, kHere = 5, kGo = 6, kPing = 7, kWhere = 8, kThere = 9 };  // handlers

using Call0 = void (*)(vnn_t);
using Call1 = void (*)(vnn_t, long);
using Call2 = void (*)(vnn_t, long, long);
using Call3 = void (*)(vnn_t, long, long, long);
using Call4 = void (*)(vnn_t, long, long, long, long);
using CallDouble = void (*)(vnn_t, long, long, double);
using CallMemory = void (*)(vnn_t, void*, int, void*);

// The request of the handler that runs.
struct Current {
  vnn_t source;
  unet_am_token* token;   // nullptr: a request to ourselves
  bool is_request;
  bool replied = false;
  unsigned kind = 0;      // kind of the reply to ourselves
  Words reply{};
};

struct Job {
  ProgramImage image;
  unet_context* context = nullptr;
  unet_am_bundle* bundle = nullptr;
  unet_am_endpoint* endpoint = nullptr;
  const char* suffix = "";              // end of the endpoints' names
  int rank = 0, size = 1;
  Current* current = nullptr;
  bool in_endfunc = false;
  std::vector<bool> gone;               // by rank
  std::vector<uint64_t> bases;          // by rank: the program's load address there; kUnknown
  std::array<std::vector<bool>, 2> here;  // by rank: the processes that have come to each meeting, start and end
  int meetings = 0;                     // meetings so far
};
Job* job = nullptr;

int fail(int error) noexcept {
  AM_errno = error;
  return -1;
}

// Sets `current` to the request of the running handler, for its own lifetime.
class Running {
 public:
  explicit Running(Current& current) noexcept : before_(std::exchange(job->current, &current)) {}
  ~Running() { job->current = before_; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  Current* const before_;
};

// ---- calls of the program's functions. An exception ends the program: the frames above may be C.

void call_memory(uintptr_t function, vnn_t source, void* memory, int bytes, void* argument) noexcept {
  reinterpret_cast<CallMemory>(function)(source, memory, bytes, argument);
}

void call_longs(uintptr_t function, vnn_t source, const uint32_t* words, unsigned count) noexcept {
  std::array<long, 4> a{};
  for (unsigned i = 0; i < count; ++i) a[i] = static_cast<long>(wide(words + 2 * i));
  switch (count) {
    case 0: return reinterpret_cast<Call0>(function)(source);
    case 1: return reinterpret_cast<Call1>(function)(source, a[0]);
    case 2: return reinterpret_cast<Call2>(function)(source, a[0], a[1]);
    case 3: return reinterpret_cast<Call3>(function)(source, a[0], a[1], a[2]);
    default: return reinterpret_cast<Call4>(function)(source, a[0], a[1], a[2], a[3]);
  }
}

void call(unsigned kind, vnn_t source, const uint32_t* words, unsigned count) noexcept {
  const uintptr_t function = count % 2 == 1 && count <= 9 ? job->image.function_at(words[0]) : 0;
  if (function == 0) return;  // a peer of our kind sends none such
  if (kind == kCall) return call_longs(function, source, words + 1, count / 2);
  if (count != 7) return;
  double value = 0;
  const uint64_t bits = wide(words + 5);
  std::memcpy(&value, &bits, sizeof value);
  reinterpret_cast<CallDouble>(function)(source, static_cast<long>(wide(words + 1)), static_cast<long>(wide(words + 3)), value);
}

// Returns the rank that sent a message; -1: no process of the job.
vnn_t source_of(const unet_am_token* token) noexcept {
  const uint64_t rank = unet_am_is_request(token) ? unet_am_message_tag(token) - kFirstTag : unet_am_index(token);
  return rank < static_cast<uint64_t>(job->size) ? static_cast<vnn_t>(rank) : -1;
}

template <unsigned kKind>
void on_call(unet_am_token* token, void*) {
  const vnn_t source = source_of(token);
  if (source < 0) return;
  Current current{.source = source, .token = token, .is_request = unet_am_is_request(token) != 0};
  const Running running(current);
  unsigned count = 0;
  const uint32_t* words = unet_am_arguments(token, &count);
  call(kKind, source, words, count);
}

// Runs the handler of a store that has arrived, or of a get that is complete.
void on_memory(unet_am_token* token, void*) {
  const vnn_t source = source_of(token);
  unsigned count = 0;
  const uint32_t* words = unet_am_arguments(token, &count);
  const uintptr_t function = count == 3 ? job->image.function_at(words[0]) : 0;
  if (source < 0 || function == 0) return;  // the call named no handler
  Current current{.source = source, .token = token, .is_request = unet_am_is_request(token) != 0};
  const Running running(current);
  size_t length = 0;
  void* const payload = unet_am_payload(token, &length);
  call_memory(function, source, payload, static_cast<int>(length), reinterpret_cast<void*>(wide(words + 1)));
}

void on_here(unet_am_token* token, void*) {
  const uint32_t meeting = unet_am_arguments(token, nullptr)[0];
  const vnn_t source = source_of(token);
  if (meeting < job->here.size() && source >= 0) job->here[meeting][static_cast<size_t>(source)] = true;
}
void on_go(unet_am_token*, void*) { ++job->meetings; }
void on_ping(unet_am_token*, void*) {}

void on_where(unet_am_token* token, void*) {
  const uint64_t base = job->image.base();
  const std::array<uint32_t, 2> words{static_cast<uint32_t>(base), static_cast<uint32_t>(base >> 32)};
  unet_am_reply_short(token, kThere, words.data(), words.size());
}
void on_there(unet_am_token* token, void*) {
  if (const vnn_t source = source_of(token); source >= 0) job->bases[static_cast<size_t>(source)] = wide(unet_am_arguments(token, nullptr));
}

void on_returned(unet_am_endpoint*, const unet_am_returned* returned, void*) {
  if (returned->status != UNET_AM_UNREACHABLE && returned->status != UNET_AM_BAD_ENDPOINT) return;
  if (returned->index < job->gone.size()) job->gone[returned->index] = true;
}

// ---- reaching others

std::string name_of(int rank) noexcept {  // some thirty characters: without memory for them the program ends
  char text[64];
  std::snprintf(text, sizeof text, "gam/%016llx/%d%s", static_cast<unsigned long long>(job->image.fingerprint()), rank, job->suffix);
  return text;
}

// Asks a process for the load address of its program.
int learn_base(vnn_t rank) {
  if (unet_am_request_short(job->endpoint, static_cast<uint32_t>(rank), kWhere, nullptr, 0) != 0) return fail(EHOSTUNREACH);
  while (job->bases[static_cast<size_t>(rank)] == kUnknown) {
    if (job->gone[static_cast<size_t>(rank)]) return fail(EHOSTUNREACH);
    unet_am_wait(job->bundle, kNap, UNET_SPIN_DEFAULT);
  }
  return 0;
}

// Opens the channel to a process, which must poll for that. Waits for one that has not started yet.
int reach(vnn_t rank) {
  const auto index = static_cast<uint32_t>(rank);
  if (__builtin_expect(job->bases[index] != kUnknown, 1)) return 0;
  unet_connect_options options{};
  options.size = sizeof options;
  options.timeout_ns = kHour;
  const std::string name = name_of(rank);
  for (const unet::Nanoseconds start = monotonic_now(); monotonic_now() - start < kStartTime;) {
    const int mapped = unet_am_map(job->endpoint, index, name.c_str(), kFirstTag + static_cast<uint64_t>(job->rank), &options);
    if (mapped == 0) return learn_base(rank);
    if (mapped != UNET_ENOTFOUND || job->meetings != 0) return fail(EHOSTUNREACH);
    unet_am_wait(job->bundle, kNap, 0);
  }
  return fail(ETIMEDOUT);
}

int sent(int result) noexcept {
  if (result == 0) return 0;
  return fail(result == UNET_AM_ERETURNED ? EHOSTUNREACH : EPERM);
}

// Returns the error of a request to `dest`, or 0.
int check(vnn_t dest) noexcept {
  if (job == nullptr) return fail(ENOTCONN);
  if (job->current != nullptr || job->in_endfunc) return fail(EPERM);
  return dest < 0 || dest >= job->size ? fail(EINVAL) : 0;
}

int polled(int result) noexcept {
  if (result == 0) unet_am_poll(job->bundle);
  return result;
}

void run_own_reply(const Current& request) {
  Current reply{.source = job->rank, .token = nullptr, .is_request = false};
  const Running running(reply);
  call(request.kind, job->rank, request.reply.words.data(), request.reply.count);
}

// A request to ourselves: its handler runs at once, then that of its reply.
void run_own(unsigned kind, const Words& words) {
  Current current{.source = job->rank, .token = nullptr, .is_request = true};
  const Running running(current);
  call(kind, job->rank, words.words.data(), words.count);
  if (current.replied) run_own_reply(current);
}

int request(unsigned kind, vnn_t dest, uintptr_t function, Words words) {
  if (check(dest) < 0) return -1;
  words.words[0] = job->image.place_of(function);
  if (words.words[0] == 0) return fail(EINVAL);
  if (dest == job->rank) {
    run_own(kind, words);
    return polled(0);
  }
  if (reach(dest) < 0) return -1;
  return polled(sent(unet_am_request_short(job->endpoint, static_cast<uint32_t>(dest), kind, words.words.data(), words.count)));
}

int reply(unsigned kind, vnn_t dest, uintptr_t function, Words words) {
  if (job == nullptr) return fail(ENOTCONN);
  Current* const current = job->current;
  if (current == nullptr || !current->is_request || current->replied || dest != current->source) return fail(EPERM);
  words.words[0] = job->image.place_of(function);
  if (words.words[0] == 0) return fail(EINVAL);
  current->replied = true;
  if (current->token == nullptr) {
    current->kind = kind;
    current->reply = words;
    return 0;
  }
  return sent(unet_am_reply_short(current->token, kind, words.words.data(), words.count));
}

template <typename Function>
uintptr_t address(Function* function) noexcept {
  return reinterpret_cast<uintptr_t>(function);
}

// ---- memory

// Checks a store or get, and returns its words.
int check_memory(vnn_t peer, const void* local, const void* remote, int bytes, handler_mem_t handler, void* arg, Words& words) {
  if (check(peer) < 0) return -1;
  const auto from = reinterpret_cast<uintptr_t>(remote);
  if (bytes < 0 || local == nullptr || from < kLowest || from - kLowest > kMemory) return fail(EINVAL);
  words = longs(reinterpret_cast<uintptr_t>(arg));
  if (handler == nullptr) return 0;
  words.words[0] = job->image.place_of(address(handler));
  return words.words[0] == 0 ? fail(EINVAL) : 0;
}

// A store or get within this process.
int copy_own(void* to, const void* from, int bytes, handler_mem_t handler, void* arg, bool is_request) {
  std::memmove(to, from, static_cast<size_t>(bytes));
  if (handler != nullptr) {
    Current current{.source = job->rank, .token = nullptr, .is_request = is_request};
    const Running running(current);
    call_memory(address(handler), job->rank, to, bytes, arg);
    if (current.replied) run_own_reply(current);
  }
  return polled(0);
}

// Returns a place in the segment of a peer that has been reached. The address of a program variable means the peer's own variable.
uint64_t offset_of(vnn_t peer, const void* remote) noexcept {
  auto place = reinterpret_cast<uintptr_t>(remote);
  if (job->image.holds(place)) place += job->bases[static_cast<size_t>(peer)] - job->image.base();
  return place - kLowest;
}

struct End {
  handler_mem_t function;
  vnn_t dest;
  void* lva;
  int bytes;
  void* arg;
};

void run_end(const End& end) {
  if (end.function == nullptr) return;
  job->in_endfunc = true;
  call_memory(address(end.function), end.dest, end.lva, end.bytes, end.arg);
  job->in_endfunc = false;
}

void on_done(unet_am_endpoint*, void* end) {
  const std::unique_ptr<End> owned(static_cast<End*>(end));
  run_end(*owned);
}

// ---- meetings: each process continues when all have come or are gone

void wait_for_others() { unet_am_wait(job->bundle, kNap, UNET_SPIN_DEFAULT); }

// If the process is gone, this request is returned and notes that. A channel without a credit brings that news itself.
void ping(int rank) {
  const auto index = static_cast<uint32_t>(rank);
  if (job->gone[index]) return;
  if (reach(rank) < 0) job->gone[index] = true;
  if (unet_am_has_credit(job->endpoint, index)) unet_am_request_short(job->endpoint, index, kPing, nullptr, 0);
}

// Returns whether each other process has come or is gone. It may have done both.
bool all_met(const std::vector<bool>& here) noexcept {
  for (size_t rank = 1; rank < here.size(); ++rank) {
    if (!here[rank] && !job->gone[rank]) return false;
  }
  return true;
}

int lead(int meeting) {
  const std::vector<bool>& here = job->here[static_cast<size_t>(meeting)];
  const unet::Nanoseconds start = monotonic_now();
  unet::Nanoseconds looked = 0;
  while (!all_met(here)) {
    wait_for_others();
    const unet::Nanoseconds time = monotonic_now();
    if (meeting == 0 && time - start > kStartTime) return fail(ETIMEDOUT);
    if (meeting == 0 || time - looked < kLookEvery) continue;
    looked = time;
    for (int rank = 1; rank < job->size; ++rank) ping(rank);
  }
  for (int rank = 1; rank < job->size; ++rank) {
    if (job->gone[static_cast<size_t>(rank)] || reach(rank) < 0) continue;
    unet_am_request_short(job->endpoint, static_cast<uint32_t>(rank), kGo, nullptr, 0);
  }
  ++job->meetings;
  return 0;
}

int follow(int meeting) {
  if (reach(0) < 0) return -1;
  const auto argument = static_cast<uint32_t>(meeting);
  if (unet_am_request_short(job->endpoint, 0, kHere, &argument, 1) != 0) return fail(EHOSTUNREACH);
  unet::Nanoseconds looked = monotonic_now();
  while (job->meetings <= meeting) {
    if (job->gone[0]) return fail(EHOSTUNREACH);
    wait_for_others();
    if (monotonic_now() - looked < kLookEvery) continue;
    looked = monotonic_now();
    ping(0);
  }
  return 0;
}

int meet(int meeting) { return job->rank == 0 ? lead(meeting) : follow(meeting); }

// Waits until all that we sent is handled: the answer to a later question proves it. No process leaves before that.
void settle() {
  unet_am_flush(job->endpoint, kHour);
  for (int rank = 0; rank < job->size; ++rank) {
    const auto index = static_cast<uint32_t>(rank);
    if (rank == job->rank || job->gone[index] || job->bases[index] == kUnknown) continue;
    job->bases[index] = kUnknown;
    if (learn_base(rank) < 0) job->gone[index] = true;
  }
}

// ---- life

bool number_from(const char* variable, int most, int& number) noexcept {
  const char* const text = ::secure_getenv(variable);
  if (text == nullptr) return true;
  const std::string_view whole(text);
  const auto [end, error] = std::from_chars(whole.data(), whole.data() + whole.size(), number);
  return error == std::errc() && end == whole.data() + whole.size() && number >= 0 && number <= most;
}

int make_endpoint(unet_am_bundle*& bundle, unet_am_endpoint*& endpoint) {
  unet_am_options options{};
  options.size = sizeof options;
  options.same_user_only = 1;  // also for mapped processes: any user may have bound their names
  if (unet_am_bundle_create(0, &bundle) < 0 || unet_am_endpoint_create(job->context, bundle, &options, &endpoint) < 0) {
    return fail(EHOSTUNREACH);
  }
  unet_am_set_handler_counted(endpoint, kHere, 1, on_here, nullptr);
  unet_am_set_handler_counted(endpoint, kGo, 0, on_go, nullptr);
  unet_am_set_handler_counted(endpoint, kPing, 0, on_ping, nullptr);
  unet_am_set_handler_counted(endpoint, kWhere, 0, on_where, nullptr);
  unet_am_set_handler_counted(endpoint, kThere, 2, on_there, nullptr);
  unet_am_set_error_handler(endpoint, on_returned, nullptr);
  return unet_am_bind(endpoint, name_of(job->rank).c_str()) < 0 ? fail(EADDRINUSE) : 0;
}

// Resets our knowledge of the other processes.
void forget_others() {
  job->gone.assign(static_cast<size_t>(job->size), false);
  job->bases.assign(static_cast<size_t>(job->size), kUnknown);
  job->bases[static_cast<size_t>(job->rank)] = job->image.base();
}

// Uses an endpoint of its own: the program's handlers may run only after am_enable(), and others may leave the meeting before us.
int meet_to_start() {
  unet_am_bundle* bundle = nullptr;
  unet_am_endpoint* endpoint = nullptr;
  job->suffix = "/start";
  int met = make_endpoint(bundle, endpoint);
  std::swap(bundle, job->bundle);
  std::swap(endpoint, job->endpoint);
  if (met == 0) met = meet(0);
  std::swap(bundle, job->bundle);
  unet_am_bundle_destroy(bundle);
  job->endpoint = endpoint;
  job->suffix = "";
  forget_others();
  return met;
}

void end_job() {
  unet_am_bundle_destroy(job->bundle);
  unet_context_close(job->context);
  delete job;
  job = nullptr;
}

// Returns the variable by which a launcher says that this process is one of several. Without UNET_SIZE each would be a job of its own.
const char* launched_by() noexcept {
  if (secure_getenv("UNET_SIZE") != nullptr) return nullptr;
  for (const char* name : {"SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const char* const text = secure_getenv(name); text != nullptr && std::atoi(text) > 1) return name;
  }
  return nullptr;
}

int begin_job() {
  if (const char* const launcher = launched_by(); launcher != nullptr) {
    std::fprintf(stderr, "am_enable: %s is set, but no launcher other than unet-run starts programs for GAM: unet-run -n 4 -- program\n",
                 launcher);
    return fail(ENOTSUP);
  }
  if (!number_from("UNET_RANK", kSizeMax, job->rank) || !number_from("UNET_SIZE", kSizeMax, job->size)) return fail(EINVAL);
  if (job->rank >= job->size) return fail(EINVAL);
  forget_others();
  for (auto& each : job->here) each.assign(static_cast<size_t>(job->size), false);
  if (unet_context_open(nullptr, nullptr, &job->context) < 0) return fail(EHOSTUNREACH);
  if (make_endpoint(job->bundle, job->endpoint) < 0) return -1;
  unet_am_set_handler(job->endpoint, kCall, on_call<kCall>, nullptr);
  unet_am_set_handler(job->endpoint, kCallDouble, on_call<kCallDouble>, nullptr);
  unet_am_set_handler(job->endpoint, kStored, on_memory, nullptr);
  unet_am_set_handler(job->endpoint, kGot, on_memory, nullptr);
  unet_am_set_segment(job->endpoint, reinterpret_cast<void*>(kLowest), kMemory);
  return meet_to_start();
}

// Runs begin_job(). C programs cannot handle exceptions.
int begin_new_job() noexcept {
  try {
    job = new Job;
    return begin_job();
  } catch (const std::exception&) {
    return fail(ENOMEM);
  }
}

}  // namespace

extern "C" {

int am_enable(...) {
  if (job != nullptr) return 0;
  if (begin_new_job() == 0) return 0;
  if (job != nullptr) end_job();
  return -1;
}

int am_disable(void) {
  if (job == nullptr) return fail(ENOTCONN);
  if (job->current != nullptr || job->in_endfunc) return fail(EPERM);
  settle();
  const int met = meet(1);
  unet_am_flush(job->endpoint, kFlushTime);
  end_job();
  return met;
}

int am_my_proc(void) { return job == nullptr ? fail(ENOTCONN) : job->rank; }
int am_procs(void) { return job == nullptr ? fail(ENOTCONN) : job->size; }
int am_max_size(void) { return kUsualMax; }

int am_poll(void) {
  if (job == nullptr) return fail(ENOTCONN);
  if (job->current == nullptr && !job->in_endfunc) unet_am_poll(job->bundle);
  return 0;
}

int am_request_0(vnn_t dest, handler_0_t handler) { return request(kCall, dest, address(handler), {}); }
int am_request_1(vnn_t dest, handler_1_t handler, long a0) { return request(kCall, dest, address(handler), longs(a0)); }
int am_request_2(vnn_t dest, handler_2_t handler, long a0, long a1) { return request(kCall, dest, address(handler), longs(a0, a1)); }
int am_request_3(vnn_t dest, handler_3_t handler, long a0, long a1, long a2) {
  return request(kCall, dest, address(handler), longs(a0, a1, a2));
}
int am_request_4(vnn_t dest, handler_4_t handler, long a0, long a1, long a2, long a3) {
  return request(kCall, dest, address(handler), longs(a0, a1, a2, a3));
}
int am_request_df(vnn_t dest, handler_df_t handler, long a0, long a1, double a2) {
  return request(kCallDouble, dest, address(handler), with_double(a0, a1, a2));
}

int am_reply_0(vnn_t dest, handler_0_t handler) { return reply(kCall, dest, address(handler), {}); }
int am_reply_1(vnn_t dest, handler_1_t handler, long a0) { return reply(kCall, dest, address(handler), longs(a0)); }
int am_reply_2(vnn_t dest, handler_2_t handler, long a0, long a1) { return reply(kCall, dest, address(handler), longs(a0, a1)); }
int am_reply_3(vnn_t dest, handler_3_t handler, long a0, long a1, long a2) {
  return reply(kCall, dest, address(handler), longs(a0, a1, a2));
}
int am_reply_4(vnn_t dest, handler_4_t handler, long a0, long a1, long a2, long a3) {
  return reply(kCall, dest, address(handler), longs(a0, a1, a2, a3));
}
int am_reply_df(vnn_t dest, handler_df_t handler, long a0, long a1, double a2) {
  return reply(kCallDouble, dest, address(handler), with_double(a0, a1, a2));
}

int am_store(vnn_t dest, void* lva, void* rva, int nbytes, handler_mem_t handler, void* arg) {
  Words words;
  if (check_memory(dest, lva, rva, nbytes, handler, arg, words) < 0) return -1;
  if (dest == job->rank) return copy_own(rva, lva, nbytes, handler, arg, true);
  if (reach(dest) < 0) return -1;
  return polled(sent(unet_am_request_long(job->endpoint, static_cast<uint32_t>(dest), kStored, offset_of(dest, rva), lva,
                                          static_cast<size_t>(nbytes), words.words.data(), words.count)));
}

int am_store_async(vnn_t dest, void* lva, void* rva, int nbytes, handler_mem_t handler, void* arg, handler_mem_t endfunc, void* earg) {
  Words words;
  if (check_memory(dest, lva, rva, nbytes, handler, arg, words) < 0) return -1;
  const End end{endfunc, dest, lva, nbytes, earg};
  if (dest == job->rank) {
    copy_own(rva, lva, nbytes, handler, arg, true);
    run_end(end);
    return 0;
  }
  if (reach(dest) < 0) return -1;
  std::unique_ptr<End> call(new (std::nothrow) End(end));
  if (call == nullptr) return fail(ENOMEM);
  int result = 0;
  // GAM knows no answer like "not sent", so wait and try again.
  while ((result = unet_am_request_long_async(job->endpoint, static_cast<uint32_t>(dest), kStored, offset_of(dest, rva), lva,
                                              static_cast<size_t>(nbytes), words.words.data(), words.count, on_done, call.get())) ==
         UNET_AM_ENOTSENT) {
    wait_for_others();
  }
  if (result == 0) static_cast<void>(call.release());
  return sent(result);
}

int am_get(vnn_t source, void* rva, void* lva, int nbytes, handler_mem_t handler, void* arg) {
  Words words;
  if (check_memory(source, lva, rva, nbytes, handler, arg, words) < 0) return -1;
  if (source == job->rank) return copy_own(lva, rva, nbytes, handler, arg, false);
  if (reach(source) < 0) return -1;
  return polled(sent(unet_am_get(job->endpoint, static_cast<uint32_t>(source), kGot, offset_of(source, rva), lva,
                                 static_cast<size_t>(nbytes), words.words.data(), words.count)));
}

}  // extern "C"
