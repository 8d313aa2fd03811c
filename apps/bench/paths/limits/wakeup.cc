// wakeup.cc - how fast the kernel wakes a sleeping process on another core: an eventfd each way.
#include <sys/eventfd.h>
#include <unistd.h>

#include "apps/bench/paths/kernel/sockets.h"
#include "apps/bench/paths/paths.h"
#include "apps/bench/workloads/messages.h"

namespace unet::bench {

namespace {

struct EventLink {
  static constexpr bool kLossless = true;
  int out;
  int in;
  RunContext& context;

  bool send(const std::byte*, size_t) {
    const uint64_t one = 1;
    if (write(out, &one, sizeof(one)) == sizeof(one)) return true;
    context.control.fail("write to an eventfd failed");
    return false;
  }
  bool receive(std::byte*, size_t) {
    uint64_t count = 0;
    while (read(in, &count, sizeof(count)) < 0) {
      if (context.stop.raised()) return false;
      if (errno == EINTR || errno == EAGAIN) continue;
      context.control.fail("read from an eventfd failed");
      return false;
    }
    return true;
  }
  // It carries no stream.
  size_t send_burst(const std::byte*, size_t, size_t) { return 0; }
  size_t receive_burst(std::byte*, size_t, size_t) { return 0; }
  bool flush() { return true; }
};

class EventFd final : public Path {
 public:
  using Path::Path;
  ~EventFd() override {
    for (int fd : fds_) {
      if (fd >= 0) close(fd);
    }
  }
  // It carries a signal, no payload: the size of the message does not matter to it.
  Status prepare(Environment&) override {
    for (int& fd : fds_) {
      fd = eventfd(0, EFD_CLOEXEC);
      if (fd < 0) return fail_errno("eventfd", errno);
    }
    return {};
  }
  Outcome run(const Slice& slice, RunContext& context) override {
    const bool a = context.side == Side::a;
    EventLink link{fds_[a ? 0 : 1], fds_[a ? 1 : 0], context};
    if (a) set_polling(link.in, polls_in(slice, context.side));
    Slice empty = slice;
    empty.size = 0;
    return run_on_link(link, empty, buffers_, context);
  }

 private:
  int fds_[2] = {-1, -1};
  MessageBuffers buffers_{1};
};

}  // namespace

void add_wakeup_limits(Paths& paths) {
  paths.push_back(std::make_unique<EventFd>(PathInfo{
      .name = "limit-eventfd",
      .kind = Kind::limit,
      .what = "an eventfd wakes a process that sleeps in read()",
      .setting = "no payload; side B blocks in read, side A polls for the answer",
      .workloads = {Workload::wakeup, Workload::idle},
      .abilities = {Ability::sleeps},
      .only = {"wakeup", "idle"}}));
}

}  // namespace unet::bench
