// side.h - one side of two Active Message endpoints that measure: its handlers, and the loops of each workload over them; the
// paths am-* use it, whatever lies between the two.
#pragma once

#include <memory>
#include <string>

#include "am/endpoint.h"
#include "apps/bench/frame/one_core.h"
#include "apps/bench/paths/unet/endpoints.h"
#include "apps/bench/workloads/put.h"

namespace unet::bench {

class AmSide {
 public:
  // `yields`: side B gives its core away between polls, as an engine shares it. `services`: processes that serve it. Errors: as
  // am::Endpoint::create() and expose().
  static Result<std::unique_ptr<AmSide>> create(Context& context, bool yields, std::vector<int> services);

  // Whether messages of this size fit.
  static Status fits(Workload workload, uint32_t size);

  // Side B binds `name` and lets side A in; side A maps `target`, which may not be there yet. Both at once.
  Status serve(const std::string& name, const StopFlag& stop);
  Status connect(const std::string& target, const ConnectOptions& options, const StopFlag& stop);

  // `one_core`: both sides do the slice on one core, and wait in am::Endpoint::wait(); nullptr: they poll on two cores.
  Outcome run(const Slice& slice, RunContext& context, OneCore* one_core = nullptr);

 private:
  // How a message of a slice travels.
  enum class Category : uint8_t { as_short, as_medium, as_long };

  AmSide(std::unique_ptr<am::Endpoint> endpoint, bool yields, std::vector<int> services);
  void install_handlers();
  static Category category_of(const Slice& slice);

  template <typename Ready>
  bool poll_until(const StopFlag& stop, Ready ready);
  bool arrive_until(uint64_t count, const RunContext& context);
  void keep_polling();
  void settle(const RunContext& context);

  void take(am::Token& token);
  void answer(am::Token& token);
  std::span<const uint32_t> words(const std::byte* of) const { return {reinterpret_cast<const uint32_t*>(of), size_ / sizeof(uint32_t)}; }
  bool request(uint8_t handler);
  bool requests(uint8_t handler, uint64_t first, uint64_t count);
  bool store(uint8_t handler, uint64_t offset, size_t size);
  bool stores(PutCursor& cursor, uint64_t first, uint64_t count);

  bool trips(uint64_t count, RunContext& context);
  Outcome run_loops(const Slice& slice, RunContext& context);
  Outcome round_trips_of(const Slice& slice, RunContext& context);
  Outcome serve_trips(const Slice& slice, RunContext& context);
  template <typename Send, typename Intact>
  Outcome stream_of(const Slice& slice, RunContext& context, Send send, Intact intact);
  bool holds_last(uint64_t stores) const;
  Outcome map_many(const Slice& slice, RunContext& context);
  Outcome lossy(const Slice& slice, RunContext& context);
  Outcome overheads(const Slice& slice, RunContext& context);
  Outcome gets(const Slice& slice, RunContext& context);

  std::unique_ptr<am::Endpoint> endpoint_;
  const bool yields_;
  bool sleeps_ = false;   // in this part of the slice
  const std::vector<int> services_;
  std::string target_;  // side A's, and how it connects to it
  ConnectOptions options_;
  MutableBytes segment_;
  MessageBuffers buffers_{kBlockMax};
  Category category_ = Category::as_short;
  size_t size_ = 0;       // of the slice's messages
  uint64_t arrived_ = 0;  // in this slice
  uint64_t sum_ = 0;      // of their numbers
};

}  // namespace unet::bench
