// file_path.cc - the file, the loops of both sides, and the ways of the kernel: one process, a pipe, and shared memory with two semaphores.
#include "apps/bench/paths/files/file_path.h"

#include <fcntl.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "apps/bench/frame/environment.h"
#include "apps/bench/frame/shared_memory.h"
#include "apps/bench/paths/kernel/sockets.h"
#include "apps/bench/paths/kernel/stream_link.h"
#include "apps/bench/paths/paths.h"

namespace unet::bench {

FilePath::~FilePath() {
  if (file_ >= 0) close(file_);
  if (null_ >= 0) close(null_);
}

Status FilePath::prepare(Environment& environment) {
  if (is_on_one_core_) {
    if (auto prepared = one_core_.prepare(environment.cores(), info_); !prepared) return prepared;
  }
  file_ = memfd_create("unet-bench", MFD_CLOEXEC);
  null_ = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (file_ < 0 || null_ < 0) return fail_errno("memfd_create, open", errno);
  const std::vector<std::byte> content(kFileBytes, std::byte{'u'});
  if (write(file_, content.data(), content.size()) != static_cast<ssize_t>(content.size())) return fail_errno("write to a file", errno);
  return prepare_way(environment);
}

bool FilePath::read_block(std::byte* into, size_t size, const RunContext& context) {
  const ssize_t n = pread(file_, into, size, static_cast<off_t>(offset_));
  offset_ = (offset_ + size) % kFileBytes;
  if (n == static_cast<ssize_t>(size)) return true;
  context.control.fail("a file is shorter than it was");
  return false;
}

bool FilePath::write_block(const std::byte* block, size_t size, const RunContext& context) {
  if (write(null_, block, size) == static_cast<ssize_t>(size)) return true;
  context.control.fail("write to /dev/null failed");
  return false;
}

Outcome FilePath::run(const Slice& slice, RunContext& context) {
  offset_ = 0;
  if (!is_on_one_core_) return run_part(slice, context);
  return one_core_.run(context, [&] { return run_part(slice, context); });
}

// As stream() in workloads/messages.h. Both sides may be on one core, so they yield while they wait for a stage.
Outcome FilePath::run_part(const Slice& slice, RunContext& context) {
  auto& stage = context.control.stage;
  const auto wait_for = [&](StreamStage wanted) {
    return yield_until(context.stop, [&] { return stage.load(std::memory_order_acquire) >= wanted; });
  };
  if (context.side == Side::b) {
    uint64_t taken = 0;
    const auto take = [&](uint64_t count) {
      for (uint64_t i = 0; i < count && take_block(slice.size, context); ++i) ++taken;
    };
    stage.store(StreamStage::ready, std::memory_order_release);
    take(slice.warm_up);
    stage.store(StreamStage::warm, std::memory_order_release);
    take(slice.iterations);
    stage.store(StreamStage::received, std::memory_order_release);
    return {.messages = taken < slice.warm_up ? 0 : taken - slice.warm_up};
  }
  const auto send = [&](uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      if (!send_block(slice.size, context)) return false;
    }
    return true;
  };
  if (!wait_for(StreamStage::ready) || !send(slice.warm_up) || !wait_for(StreamStage::warm)) return {};
  const uint64_t start = cycles();
  if (!send(slice.iterations) || !wait_for(StreamStage::received)) return {};
  return {.cycles = cycles() - start};
}

namespace {

// Side A does all of the job.
class FileAlone final : public FilePath {
 public:
  using FilePath::FilePath;

 private:
  bool send_block(size_t size, const RunContext& context) override {
    return read_block(block_.data(), size, context) && write_block(block_.data(), size, context);
  }
  bool take_block(size_t, const RunContext&) override { return true; }
  std::vector<std::byte> block_ = std::vector<std::byte>(kMessageMax);
};

class FilePipe final : public FilePath {
 public:
  using FilePath::FilePath;

 private:
  Status prepare_way(Environment& environment) override { return open_kernel_pair(Transport::pipe, false, environment, pair_); }
  bool send_block(size_t size, const RunContext& context) override {
    RunContext run = context;
    return read_block(block_.data(), size, context) && StreamLink{pair_.end_of(Side::a), run, rest_}.send(block_.data(), size);
  }
  bool take_block(size_t size, const RunContext& context) override {
    RunContext run = context;
    return StreamLink{pair_.end_of(Side::b), run, rest_}.receive(block_.data(), size) && write_block(block_.data(), size, context);
  }

  KernelPair pair_;
  std::vector<std::byte> block_ = std::vector<std::byte>(kMessageMax), rest_;
};

// One block of shared memory, and two semaphores that say whether it may be written or read.
class FileMemory final : public FilePath {
 public:
  using FilePath::FilePath;

 private:
  struct Shared {
    sem_t may_write, may_read;
    alignas(4096) std::byte block[64 * 1024];
  };
  Status prepare_way(Environment&) override {
    if (auto made = memory_.create(sizeof(Shared)); !made) return made;
    shared_ = new (memory_.data()) Shared;
    if (sem_init(&shared_->may_write, 1, 1) != 0 || sem_init(&shared_->may_read, 1, 0) != 0) return fail_errno("sem_init", errno);
    return {};
  }
  static bool wait_for(sem_t& semaphore, const RunContext& context) {
    while (sem_wait(&semaphore) != 0) {
      if (context.stop.raised()) return false;
    }
    return true;
  }
  bool send_block(size_t size, const RunContext& context) override {
    return wait_for(shared_->may_write, context) && read_block(shared_->block, size, context) && sem_post(&shared_->may_read) == 0;
  }
  bool take_block(size_t size, const RunContext& context) override {
    return wait_for(shared_->may_read, context) && write_block(shared_->block, size, context) && sem_post(&shared_->may_write) == 0;
  }

  SharedMemory memory_;
  Shared* shared_ = nullptr;
};

}  // namespace

void add_file_paths(Paths& paths) {
  const auto info_of = [](std::string name, Kind kind, std::string what, std::string setting) {
    return PathInfo{.name = std::move(name),
                    .kind = kind,
                    .what = std::move(what),
                    .setting = std::move(setting),
                    .workloads = {Workload::bandwidth},
                    .abilities = {Ability::messages, Ability::sleeps},
                    .only = {"pipe"}};
  };
  paths.push_back(std::make_unique<FileAlone>(
      info_of("limit-file", Kind::limit, "one process reads a file and writes it to /dev/null", "pread and write of each block"), false));
  add_unet_files(paths);
  for (const bool one_core : {false, true}) {
    const std::string suffix = one_core ? "-one-core" : "", where = one_core ? ", both on one core" : "";
    paths.push_back(std::make_unique<FilePipe>(
        info_of("file-pipe" + suffix, Kind::kernel, "a file by a pipe to a process that writes it to /dev/null" + where, "blocking"),
        one_core));
    paths.push_back(std::make_unique<FileMemory>(
        info_of("file-memory" + suffix, Kind::kernel, "a file by shared memory, likewise" + where,
                "one block; two POSIX semaphores: may be written, may be read"),
        one_core));
  }
}

}  // namespace unet::bench
