// impaired_wire.cc - two veth pairs, and small programs of the kernel's virtual machine that hand frames from one to the other.
#include "apps/bench/machine/impaired_wire.h"

#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "apps/bench/machine/command.h"
#include "unet/base/time.h"

namespace unet::bench {

namespace {

// linux/bpf.h of Linux 6.6 and later; older headers do not name it.
constexpr uint32_t kTcxIngress = 46;
constexpr int32_t kRedirect = 23, kRandom = 7, kDrop = 2;  // BPF_FUNC_redirect, BPF_FUNC_get_prandom_u32, TCX_DROP

long bpf(int command, bpf_attr& attributes) { return syscall(SYS_bpf, command, &attributes, sizeof attributes); }

constexpr bpf_insn instruction(int code, unsigned to, unsigned from, int16_t skip, int32_t value) {
  bpf_insn of{};
  of.code = static_cast<uint8_t>(code);
  of.dst_reg = to & 15;
  of.src_reg = from & 15;
  of.off = skip;
  of.imm = value;
  return of;
}
// One instruction each, of registers r0 to r10.
constexpr bpf_insn move_number(unsigned to, int32_t value) { return instruction(BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, value); }
constexpr bpf_insn load_word(unsigned to, unsigned address) { return instruction(BPF_LDX | BPF_W | BPF_MEM, to, address, 0, 0); }
constexpr bpf_insn jump_if_less(unsigned left, unsigned right, int16_t skip) {
  return instruction(BPF_JMP | BPF_JLT | BPF_X, left, right, skip, 0);
}
constexpr bpf_insn call(int32_t function) { return instruction(BPF_JMP | BPF_CALL, 0, 0, 0, function); }
constexpr bpf_insn leave() { return instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0); }
// Two: the address of byte `offset` of a table's value.
constexpr bpf_insn table_address(unsigned to, int table) {
  return instruction(BPF_LD | BPF_DW | BPF_IMM, to, BPF_PSEUDO_MAP_VALUE, 0, table);
}
constexpr bpf_insn table_offset(int32_t offset) { return instruction(0, 0, 0, 0, offset); }

Status ip_in(const std::string& name, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"ip", "-n", name});
  auto done = run_command(arguments);
  return done ? Status{} : Status(tl::unexpected(done.error()));
}

// The process that the detour leads through: what comes by a tap is written back to it, after a while. Ends with its parent.
class Detour {
 public:
  Detour(const std::array<int, 2>& taps, const std::atomic<uint32_t>& delay_us, const std::atomic<uint32_t>& held)
      : taps_(taps), delay_us_(delay_us), held_(held) {}

  [[noreturn]] void run(pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    signal(SIGINT, SIG_IGN);
    const sched_param first{.sched_priority = 1};
    sched_setscheduler(0, SCHED_FIFO, &first);  // the measuring processes never sleep: without it a frame could be milliseconds late
    while (true) {
      wait();
      for (size_t i = 0; i < 2; ++i) take(i);
      for (Queue& queue : queues_) give(queue);
    }
  }

 private:
  struct Frame {
    Nanoseconds due;
    int tap;
    uint32_t bytes;
    std::array<std::byte, 1600> data;
  };
  // In the order in which they are due, as all of a queue wait equally long.
  struct Queue {
    std::vector<Frame> frames = std::vector<Frame>(kFramesMax);
    uint32_t first = 0, end = 0;
    bool empty() const { return first == end; }
  };
  static constexpr uint32_t kFramesMax = 16 * 1024;  // more than that are lost, as in a router's queue
  static constexpr int kTakenAtOnce = 64;

  void wait() {
    pollfd polled[2] = {{taps_[0], POLLIN, 0}, {taps_[1], POLLIN, 0}};
    Nanoseconds due = ~Nanoseconds{0};
    for (const Queue& queue : queues_) {
      if (!queue.empty()) due = std::min(due, queue.frames[queue.first % kFramesMax].due);
    }
    const Nanoseconds now = monotonic_now(), left = due > now ? due - now : 0;
    const timespec time{static_cast<time_t>(left / kSecond), static_cast<long>(left % kSecond)};
    if (ppoll(polled, 2, due == ~Nanoseconds{0} ? nullptr : &time, nullptr) < 0 && errno != EINTR) _exit(1);
  }
  bool is_late() {
    random_ = random_ * 6364136223846793005 + 1442695040888963407;
    return static_cast<uint32_t>(random_ >> 32) < held_.load(std::memory_order_relaxed);
  }
  void take(size_t which) {
    for (int i = 0; i < kTakenAtOnce; ++i) {
      const Nanoseconds delay = delay_us_.load(std::memory_order_relaxed) * kMicrosecond;
      const bool late = delay != 0 && is_late();
      Queue& queue = queues_[2 * which + (late ? 1 : 0)];
      Frame& frame = queue.frames[queue.end % kFramesMax];
      const bool full = queue.end - queue.first == kFramesMax;
      const ssize_t bytes = read(taps_[which], full ? lost_.data() : frame.data.data(), frame.data.size());
      if (bytes <= 0) return;
      if (full) continue;
      frame.due = monotonic_now() + delay + (late ? ImpairedWire::kLateBy * kMicrosecond : 0);
      frame.tap = taps_[which];
      frame.bytes = static_cast<uint32_t>(bytes);
      ++queue.end;
    }
  }
  void give(Queue& queue) {
    for (const Nanoseconds now = monotonic_now(); !queue.empty(); ++queue.first) {
      const Frame& frame = queue.frames[queue.first % kFramesMax];
      if (frame.due > now) return;
      if (write(frame.tap, frame.data.data(), frame.bytes) < 0 && errno != EAGAIN) _exit(1);
    }
  }

  const std::array<int, 2> taps_;
  const std::atomic<uint32_t>&delay_us_, &held_;
  std::array<Queue, 4> queues_;  // of each tap: in time, late
  std::array<std::byte, 1600> lost_;
  uint64_t random_ = 1;
};

}  // namespace

struct ImpairedWire::Thresholds {
  std::atomic<uint32_t> loss, late;  // a frame is lost, or takes the detour, if a random number of 32 bits is below it
  std::atomic<uint32_t> delay_us, held;  // for the detour's process: how long it holds each, and the share that is late
};

ImpairedWire::ImpairedWire(ImpairedWire&& other) noexcept
    : cable_(std::move(other.cable_)), table_(std::move(other.table_)), thresholds_(std::exchange(other.thresholds_, nullptr)),
      taps_(std::move(other.taps_)), attached_(std::move(other.attached_)), owner_(std::exchange(other.owner_, 0)),
      late_(std::exchange(other.late_, 0)) {}

ImpairedWire::~ImpairedWire() {
  if (thresholds_ != nullptr) munmap(thresholds_, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
  if (owner_ != getpid() || late_ <= 0) return;
  kill(late_, SIGKILL);
  waitpid(late_, nullptr, 0);
}

void ImpairedWire::set(const Impairment& impairment) {
  const auto threshold = [](double share) { return static_cast<uint32_t>(std::clamp(share, 0.0, 1.0) * UINT32_MAX); };
  thresholds_->loss.store(threshold(impairment.loss), std::memory_order_relaxed);
  thresholds_->held.store(threshold(impairment.late), std::memory_order_relaxed);
  thresholds_->delay_us.store(impairment.delay_us, std::memory_order_relaxed);
  // Where all are delayed all take the detour.
  thresholds_->late.store(threshold(impairment.delay_us != 0 ? 1 : impairment.late), std::memory_order_relaxed);
}

Status ImpairedWire::make_table() {
  bpf_attr attributes{};
  attributes.map_type = BPF_MAP_TYPE_ARRAY;
  attributes.key_size = sizeof(uint32_t);
  attributes.value_size = sizeof(Thresholds);
  attributes.max_entries = 1;
  attributes.map_flags = BPF_F_MMAPABLE;
  table_ = Descriptor(static_cast<int>(bpf(BPF_MAP_CREATE, attributes)));
  if (table_.get() < 0) return fail_errno("a table for the kernel's programs (bpf)", errno);
  void* const memory = mmap(nullptr, static_cast<size_t>(sysconf(_SC_PAGESIZE)), PROT_READ | PROT_WRITE, MAP_SHARED, table_.get(), 0);
  if (memory == MAP_FAILED) return fail_errno("mmap of a table of the kernel's programs", errno);
  thresholds_ = static_cast<Thresholds*>(memory);
  return {};
}

Status ImpairedWire::load_and_attach(const void* instructions, size_t count, const std::string& interface) {
  static constexpr char kLicense[] = "GPL";
  bpf_attr load{};
  load.prog_type = BPF_PROG_TYPE_SCHED_CLS;
  load.insns = reinterpret_cast<uint64_t>(instructions);
  load.insn_cnt = static_cast<uint32_t>(count);
  load.license = reinterpret_cast<uint64_t>(kLicense);
  const Descriptor program(static_cast<int>(bpf(BPF_PROG_LOAD, load)));
  if (program.get() < 0) return fail_errno("loading a program into the kernel (bpf)", errno);
  bpf_attr link{};
  link.link_create.prog_fd = static_cast<uint32_t>(program.get());
  link.link_create.target_fd = if_nametoindex(interface.c_str());
  link.link_create.attach_type = kTcxIngress;
  Descriptor attached(static_cast<int>(bpf(BPF_LINK_CREATE, link)));
  if (attached.get() < 0) return fail_errno("attaching a program to " + interface + " (needs Linux 6.6)", errno);
  attached_.push_back(std::move(attached));
  return {};
}

// Frames that arrive at `interface` leave by `to`, or by `late`, or not at all.
Status ImpairedWire::attach(const std::string& interface, const std::string& to, const std::string& late) {
  const auto out = static_cast<int32_t>(if_nametoindex(to.c_str())), detour = static_cast<int32_t>(if_nametoindex(late.c_str()));
  const bpf_insn program[] = {
      call(kRandom),
      table_address(1, table_.get()),
      table_offset(offsetof(Thresholds, loss)),
      load_word(1, 1),
      jump_if_less(0, 1, 13),  // lost
      call(kRandom),
      table_address(1, table_.get()),
      table_offset(offsetof(Thresholds, late)),
      load_word(1, 1),
      jump_if_less(0, 1, 4),   // late
      move_number(1, out),
      move_number(2, 0),
      call(kRedirect),
      leave(),
      move_number(1, detour),  // late:
      move_number(2, 0),
      call(kRedirect),
      leave(),
      move_number(0, kDrop),   // lost:
      leave(),
  };
  return load_and_attach(program, std::size(program), interface);
}

// All that arrive at `interface` leave by `to`.
Status ImpairedWire::attach(const std::string& interface, const std::string& to) {
  const auto out = static_cast<int32_t>(if_nametoindex(to.c_str()));
  const bpf_insn program[] = {move_number(1, out), move_number(2, 0), call(kRedirect), leave()};
  return load_and_attach(program, std::size(program), interface);
}

Status ImpairedWire::open_late(const std::string& name, Descriptor& tap) {
  tap = Descriptor(open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (tap.get() < 0) return fail_errno("open(/dev/net/tun)", errno);
  ifreq request{};
  std::strncpy(request.ifr_name, name.c_str(), IFNAMSIZ - 1);
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  if (ioctl(tap.get(), TUNSETIFF, &request) != 0) return fail_errno("making the interface " + name, errno);
  return {};
}

Status ImpairedWire::start_late() {
  const std::array<int, 2> taps{taps_[0].get(), taps_[1].get()};
  owner_ = getpid();
  late_ = fork();
  if (late_ < 0) return fail_errno("fork", errno);
  if (late_ == 0) Detour(taps, thresholds_->delay_us, thresholds_->held).run(owner_);
  return {};
}

Result<ImpairedWire> ImpairedWire::create(NamespacePair& namespaces) {
  ImpairedWire wire;
  auto cable = namespaces.add_veth_with_middle();
  if (!cable) return tl::unexpected(cable.error());
  wire.cable_ = cable->cable;
  auto scope = NamespaceScope::enter(namespaces.name_b());
  if (!scope) return tl::unexpected(scope.error());
  if (auto made = wire.make_table(); !made) return tl::unexpected(made.error());
  const std::array<std::string, 2> late{"late-b", "late-a"};
  for (size_t i = 0; i < late.size(); ++i) {
    if (auto opened = wire.open_late(late[i], wire.taps_[i]); !opened) return tl::unexpected(opened.error());
    if (auto up = ip_in(namespaces.name_b(), {"link", "set", late[i], "up"}); !up) return tl::unexpected(up.error());
  }
  const std::string &a = cable->middle_a, &b = cable->middle_b;
  for (const Status& attached :
       {wire.attach(a, b, late[0]), wire.attach(b, a, late[1]), wire.attach(late[0], b), wire.attach(late[1], a)}) {
    if (!attached) return tl::unexpected(attached.error());
  }
  wire.set({});
  if (auto started = wire.start_late(); !started) return tl::unexpected(started.error());
  return wire;
}

}  // namespace unet::bench
