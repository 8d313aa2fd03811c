// fibers.cc - the operations of user-level threads between slices of a procedure call, beside those of kernel threads; side B does nothing.
//
// The operations are those of Bershad, Anderson, Lazowska and Levy, "User-Level Interprocess Communication", 1991, Table I.
#include "apps/bench/benchmarks/methods.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "am/rpc/fiber/sync.h"
#include "unet/base/check.h"

namespace unet::bench {

namespace {

constexpr const char* kCallPath = "limit-call";
constexpr const char* kFibersPath = "fibers";
constexpr double kOperationSliceNs = 3e5;
constexpr uint64_t kForks = 32;  // before they are joined, which is not timed

// Slice::condition.
enum Operation : uint32_t { kCall, kFork, kForkJoin, kYield, kAcquireRelease, kPingPong, kOperations };
constexpr std::array<const char*, kOperations> kOperationNames = {"procedure_call", "fork",            "fork_join",
                                                                  "yield",          "acquire_release", "pingpong"};

[[gnu::noinline]] void procedure() { asm volatile(""); }

struct Fibers {
  using Mutex = fiber::Mutex;
  using Condition = fiber::Condition;
  using Handle = fiber::Handle<void>;
  template <typename Function>
  static void fork(Handle& handle, Function& function) {
    handle = fiber::spawn([&function] { function(); });
    UNET_CHECK(handle);
  }
  static void join(Handle& handle) { handle.join(); }
  [[gnu::always_inline]] static void yield() { fiber::yield(); }
};

struct Threads {
  class Mutex {
   public:
    void lock() { pthread_mutex_lock(&mutex_); }
    void unlock() { pthread_mutex_unlock(&mutex_); }

   private:
    friend struct Threads;
    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  };
  class Condition {
   public:
    void wait(Mutex& mutex) { pthread_cond_wait(&condition_, &mutex.mutex_); }
    void notify_one() { pthread_cond_signal(&condition_); }

   private:
    pthread_cond_t condition_ = PTHREAD_COND_INITIALIZER;
  };
  using Handle = pthread_t;
  template <typename Function>
  static void fork(Handle& handle, Function& function) {
    const auto run = [](void* of) -> void* {
      (*static_cast<Function*>(of))();
      return nullptr;
    };
    UNET_CHECK(pthread_create(&handle, nullptr, run, &function) == 0);
  }
  static void join(Handle& handle) { pthread_join(handle, nullptr); }
  static void yield() { ::sched_yield(); }
};

// Cycles of `count` forks. Their joins are not timed.
template <typename Kind>
uint64_t forks(uint64_t count) {
  uint64_t sum = 0;
  auto nothing = [] {};
  for (uint64_t done = 0; done < count; done += kForks) {
    std::array<typename Kind::Handle, kForks> handles{};
    const uint64_t start = cycles();
    for (auto& handle : handles) Kind::fork(handle, nothing);
    sum += cycles() - start;
    for (auto& handle : handles) Kind::join(handle);
  }
  return sum;
}

// Two of them yield in turn.
template <typename Kind>
void yields(uint64_t count) {
  auto half = [count] {
    for (uint64_t i = 0; i < count / 2; ++i) Kind::yield();
  };
  typename Kind::Handle other{};
  Kind::fork(other, half);
  half();
  Kind::join(other);
}

// Round trips: two signals and two waits each.
template <typename Kind>
void ping_pongs(uint64_t count) {
  typename Kind::Mutex mutex;
  typename Kind::Condition ping, pong;
  bool at_pong = false;
  auto answer = [&] {
    const std::lock_guard held(mutex);
    for (uint64_t i = 0; i < count; ++i) {
      while (!at_pong) ping.wait(mutex);
      at_pong = false;
      pong.notify_one();
    }
  };
  typename Kind::Handle other{};
  Kind::fork(other, answer);
  {
    const std::lock_guard held(mutex);
    for (uint64_t i = 0; i < count; ++i) {
      at_pong = true;
      ping.notify_one();
      while (at_pong) pong.wait(mutex);
    }
  }
  Kind::join(other);
}

template <typename Kind>
uint64_t cycles_of(uint32_t operation, uint64_t count) {
  typename Kind::Mutex mutex;
  typename Kind::Handle handle{};
  auto nothing = [] {};
  const uint64_t start = cycles();
  switch (static_cast<Operation>(operation)) {
    case kCall:
      for (uint64_t i = 0; i < count; ++i) procedure();
      break;
    case kFork: return forks<Kind>(count);
    case kForkJoin:
      for (uint64_t i = 0; i < count; ++i) {
        Kind::fork(handle, nothing);
        Kind::join(handle);
      }
      break;
    case kYield: yields<Kind>(count); break;
    case kAcquireRelease:
      for (uint64_t i = 0; i < count; ++i) {
        const std::lock_guard held(mutex);
        asm volatile("" : : : "memory");
      }
      break;
    case kPingPong: ping_pongs<Kind>(count); break;
    case kOperations: break;
  }
  return cycles() - start;
}

// slice.iterations times the operation slice.condition.
class Operations final : public Path {
 public:
  Operations(PathInfo info, bool fibers) : Path(std::move(info)), fibers_(fibers) {}

  Status set_up(const RunContext& context, Environment&) override {
    if (!fibers_ || context.side == Side::b) return {};
    auto scheduler = fiber::Scheduler::create({.threads = 1});
    if (!scheduler) return tl::unexpected(scheduler.error());
    scheduler_ = std::move(*scheduler);
    return {};
  }
  Outcome run(const Slice& slice, RunContext& context) override {
    if (context.side == Side::b) return {};
    if (!fibers_) return {cycles_of<Threads>(slice.condition, slice.iterations), slice.iterations};
    uint64_t took = 0;
    const Status done = scheduler_->run([&] { took = cycles_of<Fibers>(slice.condition, slice.iterations); });
    if (!done) context.control.fail(done.error().text);
    return {took, slice.iterations};
  }
  void tear_down(const RunContext&) override { scheduler_.reset(); }

 private:
  const bool fibers_;
  std::unique_ptr<fiber::Scheduler> scheduler_;
};

// One operation on one path.
struct Measured {
  size_t index;
  uint32_t operation;
  uint64_t iterations = kForks;
  std::vector<Repetition> repetitions = {};
  std::vector<double> values = {};
};

class FiberMeasurement {
 public:
  FiberMeasurement(Session& session, const Benchmark& benchmark, const MeasureOptions& options)
      : session_(session), benchmark_(benchmark), options_(options) {}

  Result<std::vector<Record>> run(const PathIndices& paths) {
    const auto limit = find_limit(session_, benchmark_.limit);
    if (!limit) return tl::unexpected(limit.error());
    call_ = {.index = *limit, .operation = kCall};
    for (const size_t index : paths) {
      for (uint32_t operation = kCall; operation < kOperations; ++operation) {
        if ((index == *limit) == (operation == kCall)) rows_.push_back({.index = index, .operation = operation});
      }
    }
    for (uint32_t i = 0; i < options_.repeat; ++i) {
      if (auto done = repetition(); !done) return tl::unexpected(done.error());
    }
    std::vector<Record> records;
    for (Measured& row : rows_) drop_unusual(row.repetitions, usual_limit(row.repetitions), row.values);
    for (const Measured& row : rows_) records.push_back(record_of(row));
    for (const Measured& row : rows_) add_ratio_to_fibers(row, records);
    return records;
  }

 private:
  struct Value {
    double ns = 0;
    bool disturbed = false;
  };
  // A slice; the next one of this row lasts about as long as it should.
  Result<Value> value_of(Measured& row) {
    for (;;) {
      const Slice slice{.workload = Workload::fibers, .iterations = row.iterations, .condition = row.operation};
      auto result = session_.run(row.index, slice);
      if (!result) return tl::unexpected(result.error());
      const double took = to_ns(result->outcome.cycles);
      const double each = took / static_cast<double>(row.iterations);
      const bool short_slice = took < kOperationSliceNs / 4;
      row.iterations = std::max(static_cast<uint64_t>(kOperationSliceNs / each) / kForks, uint64_t{1}) * kForks;
      if (!short_slice || row.iterations <= slice.iterations) return Value{each, was_disturbed(session_, row.index, *result)};
    }
  }

  Status repetition() {
    const double budget_ns = options_.seconds * 1e9 * static_cast<double>(rows_.size()) / kOperationNames.size() / options_.repeat;
    for (Measured& row : rows_) row.repetitions.emplace_back();
    const Nanoseconds start = monotonic_now();
    const auto spent = [&] { return static_cast<double>(monotonic_now() - start) / budget_ns; };
    const auto enough = [&] {
      return std::all_of(rows_.begin(), rows_.end(),
                         [](const Measured& row) { return row.repetitions.back().values.size() >= kRoundsMin; });
    };
    do {
      for (Measured& row : rows_) {
        const auto before = value_of(call_);
        if (!before) return tl::unexpected(before.error());
        const auto own = value_of(row);
        if (!own) return tl::unexpected(own.error());
        const auto after = value_of(call_);
        if (!after) return tl::unexpected(after.error());
        const bool disturbed = before->disturbed || own->disturbed || after->disturbed;
        if (row.repetitions.back().add({own->ns, before->ns, after->ns, disturbed})) row.values.push_back(own->ns);
      }
    } while (spent() < 1 || (!enough() && spent() < kPatience));
    return {};
  }

  Record record_of(const Measured& row) const {
    Record record = record_without_figures(benchmark_, session_.path(row.index).info(), 0, options_);
    record.metric = kOperationNames[row.operation];
    record.summary = summarize(row.values);
    record.summary.p50 = median_of(row.repetitions, &Repetition::p50);
    record.limit = median_of(row.repetitions, &Repetition::limit);
    record.ratio = ratio_to_limit(row.repetitions, Relation::over);
    record.baseline = benchmark_.limit;
    count_slices(record, row.repetitions);
    return record;
  }

  // Kernel threads over fibers, in the same repetitions.
  void add_ratio_to_fibers(const Measured& row, std::vector<Record>& records) const {
    const std::string& path = session_.path(row.index).info().name;
    const auto fibers = std::find_if(rows_.begin(), rows_.end(), [&](const Measured& other) {
      return other.operation == row.operation && session_.path(other.index).info().name == kFibersPath;
    });
    if (fibers == rows_.end() || path == kFibersPath) return;
    Record record = record_of(row);
    record.ratio = ratio_to_baseline(row.repetitions, fibers->repetitions);
    record.limit = median_of(fibers->repetitions, &Repetition::p50);
    record.baseline = kFibersPath;
    records.push_back(std::move(record));
  }

  Session& session_;
  const Benchmark& benchmark_;
  const MeasureOptions& options_;
  Measured call_{};
  std::vector<Measured> rows_;
};

}  // namespace

void add_fibers(Paths& paths) {
  const auto add = [&](const char* name, Kind kind, const char* what, bool fibers) {
    paths.push_back(std::make_unique<Operations>(PathInfo{.name = name,
                                                          .kind = kind,
                                                          .what = what,
                                                          .setting = kind == Kind::limit ? "" : "all on one core",
                                                          .workloads = {Workload::fibers},
                                                          .only = {"fibers"},
                                                          .shares_cores = kind == Kind::kernel},
                                                 fibers));
  };
  add(kCallPath, Kind::limit, "a procedure call that is not inlined", false);
  add(kFibersPath, Kind::ours, "fibers of a scheduler with one thread (am/rpc/fiber)", true);
  add("kernel-threads", Kind::kernel, "threads of the C library (pthreads)", false);
}

Records measure_fibers(Session& session, const Benchmark& benchmark, uint32_t, const PathIndices& paths, const MeasureOptions& options) {
  return FiberMeasurement(session, benchmark, options).run(paths);
}

}  // namespace unet::bench
