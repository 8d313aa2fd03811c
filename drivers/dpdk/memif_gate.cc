// memif_gate.cc - the handshake between EAL's interrupt thread and the engine, for memif ports.
#include "drivers/dpdk/memif_gate.h"

#include <fcntl.h>
#include <linux/membarrier.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include <rte_interrupts.h>
#include <rte_memory.h>

#include "drivers/dpdk/dpdk_port.h"
#include "drivers/dpdk/eal.h"
#include "drivers/dpdk/memif_greeting.h"

namespace unet::drivers {

namespace {

struct Gate {
  std::mutex mutex;  // guards the two lists
  std::vector<DpdkPort*> ports;
  std::vector<std::pair<DpdkPort*, MemifGate::Task>> tasks;  // at most one per port
  bool closed = false;   // interrupt thread only: between a log line and the next turn
  bool in_task = false;  // interrupt thread only
  MemifGreeting greeting;  // interrupt thread only
  int event = -1;       // wakes the interrupt thread for its next turn
  bool ready = false;
};

Gate& gate() {
  static Gate* const instance = new Gate;  // the interrupt thread lives as long as the process
  return *instance;
}

struct SavedDescriptor {
  int number;  // EAL's descriptor
  int copy;    // our copy
};

struct SavedDescriptors {
  std::mutex mutex;
  std::vector<SavedDescriptor> all;
};

SavedDescriptors& saved_descriptors() {
  static SavedDescriptors* const instance = new SavedDescriptors;
  return *instance;
}

bool same_file(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

void nap(long nanoseconds) noexcept {
  const timespec time{0, nanoseconds};
  nanosleep(&time, nullptr);  // tidy: allow sleep because EAL's interrupt thread waits here for the engine, never the engine
}

void ask_for_turn() noexcept {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(gate().event, &one, sizeof(one));
}

// Afterwards every thread of the process has seen our stores, and we see the stores that it made before ours.
void fence_all_threads() noexcept {
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0) return;
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) == 0) return;
  nap(20'000'000);  // the kernel or a sandbox lacks the call: this is far longer than a store stays in a core
}

// Empty if the address is of another family.
// The id of a memif client, if DPDK's log line says that its connection has ended. The line does not name the socket.
std::optional<uint32_t> ended_client(std::string_view line) noexcept {
  constexpr std::string_view kEnded = "memif_disconnect(): Disconnected, id: ";
  if (!line.starts_with(kEnded) || line.find("role: client") == line.npos) return {};
  uint32_t id = 0;
  const char* const digits = line.data() + kEnded.size();
  if (std::from_chars(digits, line.data() + line.size(), id).ptr == digits) return {};
  return id;
}

std::string_view path_in(const sockaddr_un& address) noexcept {
  if (address.sun_family != AF_UNIX) return {};
  return {address.sun_path, strnlen(address.sun_path, sizeof(address.sun_path))};
}

}  // namespace

Status MemifGate::prepare() {
  Gate& g = gate();
  const std::lock_guard lock(g.mutex);
  if (g.ready) return {};
  syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
  if (g.event < 0) g.event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (g.event < 0) return fail_errno("eventfd", errno);
  rte_intr_handle* handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
  if (handle == nullptr || rte_intr_fd_set(handle, g.event) != 0 || rte_intr_type_set(handle, RTE_INTR_HANDLE_EXT) != 0 ||
      rte_intr_callback_register(handle, &MemifGate::on_turn, nullptr) != 0) {
    return fail(Errc::system, "DPDK: its interrupt thread handles no events");
  }
  eal::set_interrupt_log_hook(&MemifGate::on_log);
  g.ready = true;
  return {};
}

void MemifGate::add(DpdkPort& port) {
  Gate& g = gate();
  const std::lock_guard lock(g.mutex);
  g.ports.push_back(&port);
  g.tasks.reserve(g.ports.size());
}

void MemifGate::remove(DpdkPort& port) noexcept {
  Gate& g = gate();
  const std::lock_guard lock(g.mutex);
  g.ports.erase(std::remove(g.ports.begin(), g.ports.end(), &port), g.ports.end());
  std::erase_if(g.tasks, [&](const auto& task) { return task.first == &port; });
}

void MemifGate::post(DpdkPort& port, Task task) noexcept {
  Gate& g = gate();
  {
    const std::lock_guard lock(g.mutex);
    port.memif_->task_done.store(false, std::memory_order_relaxed);
    g.tasks.emplace_back(&port, task);
  }
  ask_for_turn();
}

bool MemifGate::wait(DpdkPort& port, Nanoseconds timeout) noexcept {
  for (const Nanoseconds end = monotonic_now() + timeout; !port.memif_->task_done.load(std::memory_order_acquire); nap(100'000)) {
    if (monotonic_now() > end) return false;
  }
  return true;
}

void MemifGate::stop_listening(DpdkPort& port) noexcept {
  Gate& g = gate();
  const std::lock_guard lock(g.mutex);
  const bool shared = std::any_of(g.ports.begin(), g.ports.end(), [&](const DpdkPort* other) {
    return other != &port && other->memif_->listener.descriptor() == port.memif_->listener.descriptor();
  });
  if (shared) {
    port.memif_->listener.leave();
  } else {
    port.memif_->listener.retire();
  }
}

// Runs in the interrupt thread, before DPDK acts on a message of a control socket.
void MemifGate::on_log(const char* line, size_t length) {
  Gate& g = gate();
  MemoryDescriptors::restore();
  const std::string_view text(line, length);
  if (!text.starts_with("memif_")) return;
  if (const auto id = ended_client(text); id && !g.in_task) {
    const std::lock_guard lock(g.mutex);
    for (DpdkPort* port : g.ports) {
      if (port->memif_->client && port->memif_->id == *id) port->memif_->server_ended.store(true, std::memory_order_release);
    }
  }
  g.greeting.on_log(text);
  if (g.closed) return;
  g.closed = true;
  const std::lock_guard lock(g.mutex);
  for (DpdkPort* port : g.ports) port->closed_.fetch_or(kGate, std::memory_order_relaxed);
  fence_all_threads();
  for (DpdkPort* port : g.ports) {
    while (port->busy_.load(std::memory_order_acquire) != 0) nap(20'000);  // the engine's thread may be preempted on our core
  }
  ask_for_turn();
}

// Runs in the interrupt thread, after the message that closed the gate, or for a task.
void MemifGate::on_turn(void*) {
  Gate& g = gate();
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t ignored = ::read(g.event, &count, sizeof(count));
  if (g.closed) {
    MemoryDescriptors::restore();
    g.closed = false;
    const std::lock_guard lock(g.mutex);
    // release: an engine that sees the gate open also sees what this thread has done to the port.
    for (DpdkPort* port : g.ports) port->closed_.fetch_and(~kGate, std::memory_order_release);
  }
  for (;;) {
    std::pair<DpdkPort*, Task> next{nullptr, nullptr};
    {
      const std::lock_guard lock(g.mutex);
      if (g.tasks.empty()) return;
      next = g.tasks.front();
      g.tasks.erase(g.tasks.begin());
    }
    g.in_task = true;
    next.second(*next.first);
    g.in_task = false;
    // A later task of this port may wait already. Then this task's waiter has given up, and only the later task sets task_done.
    const std::lock_guard lock(g.mutex);
    if (std::any_of(g.tasks.begin(), g.tasks.end(), [&](const auto& task) { return task.first == next.first; })) continue;
    next.first->memif_->task_done.store(true, std::memory_order_release);
  }
}

void MemoryDescriptors::save() {
  SavedDescriptors& saved = saved_descriptors();
  const std::lock_guard lock(saved.mutex);
  rte_memseg_walk(
      [](const rte_memseg_list*, const rte_memseg* segment, void* all) {
        auto& list = *static_cast<std::vector<SavedDescriptor>*>(all);
        const int number = rte_memseg_get_fd_thread_unsafe(segment);
        const bool known = std::any_of(list.begin(), list.end(), [&](const SavedDescriptor& s) { return s.number == number; });
        if (number >= 0 && !known) list.push_back({number, fcntl(number, F_DUPFD_CLOEXEC, 0)});
        return 0;
      },
      &saved.all);
}

bool MemoryDescriptors::restore() noexcept {
  SavedDescriptors& saved = saved_descriptors();
  const std::lock_guard lock(saved.mutex);
  bool good = true;
  for (const SavedDescriptor& descriptor : saved.all) {
    struct stat now{}, memory{};
    if (fstat(descriptor.copy, &memory) != 0) {
      good = false;
    } else if (fstat(descriptor.number, &now) != 0) {
      // Duplicate at that number or above, so as not to replace a file that another thread has opened there since.
      const int put = fcntl(descriptor.copy, F_DUPFD_CLOEXEC, descriptor.number);
      if (put >= 0 && put != descriptor.number) close(put);
      good = put == descriptor.number && good;
    } else {
      good = same_file(now, memory) && good;
    }
  }
  return good;
}

namespace {

// Finds a listener of this process with that name, or returns -1.
int find_listener(const std::string& socket) noexcept {
  // Descriptors are small numbers, so try each one.
  for (int fd = 0; fd < 4096; ++fd) {
    int listening = 0;
    socklen_t size = sizeof(listening);
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || listening == 0) continue;
    sockaddr_un name{};
    size = sizeof(name);
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) continue;
    if (path_in(name) == socket) return fd;
  }
  return -1;
}

}  // namespace

void MemifListener::adopt(const std::string& socket) {
  descriptor_ = find_listener(socket);
  struct stat directory{}, file{};
  if (geteuid() != 0 || stat(socket.substr(0, socket.rfind('/') + 1).c_str(), &directory) != 0 || directory.st_uid == 0) return;
  // Check and chown by one descriptor: the directory's owner may replace the file at any time.
  const int path = open(socket.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (path < 0) return;
  if (fstat(path, &file) == 0 && S_ISSOCK(file.st_mode)) {
    static_cast<void>(!fchownat(path, "", directory.st_uid, static_cast<gid_t>(-1), AT_EMPTY_PATH));
  }
  close(path);
}

bool MemifListener::is_taken(const std::string& socket) noexcept {
  if (find_listener(socket) >= 0) return false;
  struct stat status{};
  return lstat(socket.c_str(), &status) == 0;
}

void MemifListener::retire() noexcept {
  if (descriptor_ < 0) return;
  const int silent = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (silent >= 0) {
    dup2(silent, descriptor_);
    close(silent);
  }
  descriptor_ = -1;
}

void MemifListener::remove_stale_file(const std::string& path) noexcept {
  struct stat status{};
  sockaddr_un name{};
  if (path.size() >= sizeof(name.sun_path) || stat(path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return;
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  // Connect a socket of another type: a living server refuses it (EPROTOTYPE) without noticing.
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  const bool refused = connect(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name)) != 0 && errno == ECONNREFUSED;
  close(fd);
  if (refused) unlink(path.c_str());
}

}  // namespace unet::drivers
