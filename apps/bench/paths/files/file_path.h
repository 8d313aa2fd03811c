// file_path.h - the job of the paths `file-*`: side A reads a file in blocks, side B writes them to /dev/null; how a block goes from one to
// the other is the path's. After "Pipes vs. shared memory" (the programs piper and mem).
#pragma once

#include "apps/bench/frame/one_core.h"
#include "apps/bench/workloads/messages.h"

namespace unet::bench {

class FilePath : public Path {
 public:
  FilePath(PathInfo info, bool one_core) : Path(std::move(info)), is_on_one_core_(one_core) {}
  ~FilePath() override;

  Status fits(Workload, uint32_t size) const override {
    return size != 0 && kFileBytes % size == 0 ? Status{} : fail(Errc::unavailable, "takes blocks of a power of two");
  }
  Status prepare(Environment& environment) override;
  Outcome run(const Slice& slice, RunContext& context) override;

 protected:
  static constexpr size_t kFileBytes = 4 << 20;

  // Makes what both sides inherit.
  virtual Status prepare_way(Environment&) { return {}; }
  // Side A: reads a block, and sends it. Side B: waits for a block, and writes it. False: stopped, or failed and said so.
  virtual bool send_block(size_t size, const RunContext& context) = 0;
  virtual bool take_block(size_t size, const RunContext& context) = 0;

  // The next block of the file, which begins again at its end; a block to /dev/null.
  bool read_block(std::byte* into, size_t size, const RunContext& context);
  bool write_block(const std::byte* block, size_t size, const RunContext& context);

 private:
  Outcome run_part(const Slice& slice, RunContext& context);

  const bool is_on_one_core_;
  OneCore one_core_;
  int file_ = -1, null_ = -1;
  size_t offset_ = 0;  // in the file
};

// The path file-local*: through a local channel of U-Net.
void add_unet_files(Paths& paths);

}  // namespace unet::bench
