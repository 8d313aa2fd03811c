// miss.cc - how long a core waits for a line that another core has just written: the limit of reading a neighbour's memory.
#include "apps/bench/frame/shared_memory.h"
#include "apps/bench/paths/paths.h"
#include "apps/bench/workloads/chain.h"

namespace unet::bench {

namespace {

class Miss final : public Path {
 public:
  using Path::Path;
  Status prepare(Environment&) override { return memory_.create(kChainWords * sizeof(uint64_t)); }
  Status set_up(const RunContext&, Environment&) override {
    memory_.touch();
    return {};
  }
  Outcome run(const Slice& slice, RunContext& context) override {
    Link link{reinterpret_cast<std::atomic<uint64_t>*>(memory_.data())};
    return Chains(link, slice, context).run();
  }

 private:
  struct Link {
    std::atomic<uint64_t>* words;
    uint64_t read(uint64_t place) const { return words[place * kChainStep].load(std::memory_order_acquire); }
    void write(uint64_t place, uint64_t word) const { words[place * kChainStep].store(word, std::memory_order_release); }
    void poll() const {}
  };
  SharedMemory memory_;
};

}  // namespace

void add_miss_limit(Paths& paths) {
  paths.push_back(std::make_unique<Miss>(
      PathInfo{.name = "limit-miss",
                    .kind = Kind::limit,
                    .what = "a word read that another core has just written: a cache miss between two cores",
                    .setting = "64 words in turn, each in a line of its own that says where the next is",
                    .workloads = {Workload::word_read}}));
}

}  // namespace unet::bench
