// eal.cc - starts EAL, DPDK's environment, and collects its log.
#include "drivers/dpdk/eal.h"

#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <stdio_ext.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <vector>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_random.h>

#include "unet/base/time.h"

namespace unet::drivers::eal {

namespace {

// EAL exists once per process, and so does this state.
struct Process {
  std::mutex mutex;
  bool running = false;
  Error failure;        // set when EAL has failed to start; EAL cannot be started again
  EalOptions options;
  bool hugepages = false;
  std::atomic<bool> print{false};
  std::atomic<InterruptLogHook> hook{nullptr};
};

Process& process() {
  static Process* const instance = new Process;  // never destroyed: EAL's thread logs until the process ends
  return *instance;
}

// A port logs in the thread that opens it, so each thread collects its own complaints.
thread_local std::string thread_complaints;

void collect(const char* text, size_t length) {
  while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == ' ')) --length;
  // "eth_dev_configure(): text" and "EAL: text" read better without the first word.
  std::string line(text, length);
  if (line.starts_with("EAL: ")) line.erase(0, 5);
  if (const size_t colon = line.find("(): "); colon != std::string::npos && line.find(' ') > colon) line.erase(0, colon + 4);
  for (char& c : line) {
    if (c == '\n') c = ' ';
  }
  // These lines follow every port that fails, or every memif.
  for (const char* noise : {"mp action callback", "cannot attach the device", "Failed to attach device"}) {
    if (line.find(noise) != std::string::npos) return;
  }
  constexpr size_t kMax = 600;
  if (line.empty() || thread_complaints.size() > kMax) return;
  if (!thread_complaints.empty()) thread_complaints += "; ";
  thread_complaints += line;
}

ssize_t log_write(void*, const char* text, size_t length) {
  Process& p = process();
  if (p.print.load(std::memory_order_relaxed)) {
    [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, text, length);
  }
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof(name));
  if (std::strncmp(name, "eal-intr", 8) == 0) {
    if (const InterruptLogHook hook = p.hook.load(std::memory_order_acquire)) hook(text, length);
    return static_cast<ssize_t>(length);
  }
  const int level = rte_log_cur_msg_loglevel();
  if (level >= 0 && level <= static_cast<int>(RTE_LOG_WARNING)) collect(text, length);
  return static_cast<ssize_t>(length);
}

void redirect_log() {
  static FILE* stream = nullptr;
  if (stream != nullptr) return;
  stream = fopencookie(nullptr, "w", {.read = nullptr, .write = log_write, .seek = nullptr, .close = nullptr});
  if (stream == nullptr) return;
  // The stream has no buffer and no lock. A thread formats a line on its stack and hands it to log_write() whole. So a thread that waits
  // there (memif_gate.h) does not keep others from logging.
  setvbuf(stream, nullptr, _IONBF, 0);
  __fsetlocking(stream, FSETLOCKING_BYCALLER);
  rte_openlog_stream(stream);
}

// libxdp and libbpf write to stderr by default. This sends their lines where EAL's log goes.
int library_print(int level, const char* format, va_list arguments) {
  char text[512];
  const int length = std::vsnprintf(text, sizeof(text), format, arguments);
  if (length <= 0) return 0;
  const size_t used = std::min(sizeof(text) - 1, static_cast<size_t>(length));
  if (level == 0) collect(text, used);  // 0: warnings and errors; 2: verbose
  if (level < 2 && process().print.load(std::memory_order_relaxed)) {
    [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, text, used);
  }
  return 0;
}

void quiet_libraries() {
  using SetPrint = void* (*)(int (*)(int, const char*, va_list));
  const char* const names[][2] = {{"libxdp.so.1", "libxdp_set_print"}, {"libbpf.so.1", "libbpf_set_print"}};
  for (const auto& name : names) {
    void* library = dlopen(name[0], RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;  // not loaded: the port that needs it is not installed either
    if (void* symbol = dlsym(library, name[1])) reinterpret_cast<SetPrint>(symbol)(library_print);
  }
}

// MiB of hugepages of all sizes, free or total by `which`.
uint64_t hugepage_mib(const char* which) {
  uint64_t mib = 0;
  for (const uint64_t size_kib : {uint64_t{2048}, uint64_t{1048576}}) {
    std::ifstream file("/sys/kernel/mm/hugepages/hugepages-" + std::to_string(size_kib) + "kB/" + which);
    uint64_t pages = 0;
    if (file >> pages) mib += pages * size_kib / 1024;
  }
  return mib;
}

uint64_t free_hugepage_mib() { return hugepage_mib("free_hugepages"); }

// EAL makes a run-time directory even when it stores nothing there.
void remove_runtime_directory() {
  const char* directory = rte_eal_get_runtime_dir();
  if (directory == nullptr || directory[0] == 0) return;
  std::string path = directory;
  rmdir(path.c_str());
  if (const size_t slash = path.rfind('/'); slash != std::string::npos) rmdir(path.substr(0, slash).c_str());
}

int any_allowed_core() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    const int here = sched_getcpu();
    if (here >= 0 && CPU_ISSET(here, &set)) return here;
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &set)) return i;
    }
  }
  return 0;
}

// The error code for an errno of rte_eal_init(), as rte_eal.h lists them. EAGAIN comes from a bus or from a missing resource: EAL cannot
// look for VFIO, or cannot start a thread.
Errc code_of(int error) {
  switch (error) {
    case ENOMEM:
    case EMFILE:
    case ENFILE: return Errc::out_of_memory;
    case EACCES:
    case EPERM: return Errc::not_permitted;
    case EINVAL: return Errc::invalid_argument;
    default: return Errc::unavailable;
  }
}

Error eal_failure(int error, bool hugepages) {
  std::string text = "DPDK's EAL does not start: " + std::string(rte_strerror(error));
  if (const std::string more = complaints(); !more.empty()) text += " (" + more + ")";
  if (hugepages) text += "; try hugepages=never";
  else if (error == ENOMEM) text += "; try a smaller memory=MIB, or check `ulimit -v`";
  return {code_of(error), std::move(text)};
}

Status run_eal(Process& p, const EalOptions& options) {
  p.hugepages = options.hugepages == Hugepages::always ||
                (options.hugepages == Hugepages::automatic && free_hugepage_mib() >= options.memory_mib);
  if (options.hugepages == Hugepages::always && free_hugepage_mib() == 0) {
    return fail(Errc::unavailable,
                "DPDK: no free hugepages: reserve some (`sysctl vm.nr_hugepages=256`) or use hugepages=auto");
  }
  if (options.physical && !p.hugepages) {
    return fail(Errc::unavailable, "DPDK: a card without an IOMMU needs " + std::to_string(options.memory_mib) +
                                       " MiB of free hugepages (`sysctl vm.nr_hugepages=256`), or a smaller memory=MIB");
  }
  // net_virtio_user writes to its peer's socket without MSG_NOSIGNAL: a peer that dies must not end this process. A handler of the
  // program's own stays.
  struct sigaction action {};
  if (sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) signal(SIGPIPE, SIG_IGN);
  std::vector<std::string> words = {"unet", "--no-telemetry", "--single-file-segments",
                                    "--file-prefix=unet-" + std::to_string(getpid()),
                                    "--lcores=0@" + std::to_string(any_allowed_core())};
  // EAL refuses --in-memory without hugepages. These two options leave no files either.
  if (p.hugepages) {
    words.push_back("--in-memory");
  } else {
    words.insert(words.end(), {"--no-shconf", "--no-huge", "-m", std::to_string(options.memory_mib)});
  }
  if (!options.pci) words.push_back("--no-pci");
  // EAL would guess from all devices that it may take, and it may take none at the start.
  words.push_back(options.physical ? "--iova-mode=pa" : "--iova-mode=va");
  // Ports are added later, one by one. Allowing only a device that cannot exist keeps EAL from taking all devices that it finds.
  if (options.pci) words.insert(words.end(), {"-a", "ffff:ff:1f.7"});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  redirect_log();
  clear_complaints();
  cpu_set_t affinity;
  const bool restore = sched_getaffinity(0, sizeof(affinity), &affinity) == 0;
  rte_log_set_global_level(RTE_LOG_INFO);
  const int result = rte_eal_init(static_cast<int>(words.size()), arguments.data());
  const int error = rte_errno;
  if (restore) sched_setaffinity(0, sizeof(affinity), &affinity);
  if (result < 0) {
    p.failure = eal_failure(error, p.hugepages);
    return fail(p.failure.code, p.failure.text);
  }
  // DPDK seeds its generator when it is loaded. Without this, processes that fork later would give their ports the same addresses.
  uint64_t seed = 0;
  if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed)) seed = monotonic_now() ^ static_cast<uint64_t>(getpid()) << 40;
  rte_srand(seed);
  remove_runtime_directory();
  quiet_libraries();
  rte_log_set_global_level(RTE_LOG_DEBUG);  // each component's own level decides
  rte_log_set_level_pattern("pmd.net.memif", RTE_LOG_DEBUG);  // memif_gate.h listens to it
  return {};
}

// Returns the thread's EAL number when the thread ends.
struct ThreadRegistration {
  bool mine = false;
  ~ThreadRegistration() {
    if (mine) rte_thread_unregister();
  }
};
thread_local ThreadRegistration thread_registration;

}  // namespace

Status start(const EalOptions& options) {
  Process& p = process();
  const std::lock_guard lock(p.mutex);
  if (options.print_log) p.print.store(true, std::memory_order_relaxed);
  if (!p.failure.text.empty()) {
    return fail(p.failure.code, p.failure.text + "; EAL can be started once per process: restart the program");
  }
  if (!p.running) {
    p.options = options;
    if (Status status = run_eal(p, options); !status) return status;
    p.running = true;
  }
  if (options.pci && !p.options.pci) {
    return fail(Errc::invalid_argument,
                "DPDK: open the PCI port before ports of other kinds: EAL looks at the PCI bus only when it starts");
  }
  if (options.pci && options.physical != p.options.physical) {
    return fail(Errc::invalid_argument, "DPDK: cards with and without an IOMMU cannot be ports of one process");
  }
  if (options.hugepages == Hugepages::always && !p.hugepages) {
    return fail(
        Errc::invalid_argument,
        "DPDK: the first port of this process decided for memory without hugepages: ask for hugepages=always there");
  }
  return {};
}

bool has_failed() {
  Process& p = process();
  const std::lock_guard lock(p.mutex);
  return !p.failure.text.empty();
}

void start_early(const EalOptions& options) {
  const bool takes_none = options.hugepages == Hugepages::never ||
                          (options.hugepages == Hugepages::automatic && hugepage_mib("nr_hugepages") == 0);
  if (takes_none) static_cast<void>(start(options));  // an error is reported to the opener of a port
}

void register_thread() noexcept {
  if (rte_lcore_id() != LCORE_ID_ANY) return;
  if (thread_registration.mine) return;  // EAL refused this thread before
  thread_registration.mine = true;
  if (rte_thread_register() < 0) return;
}

bool uses_hugepages() noexcept { return process().hugepages; }

void clear_complaints() { thread_complaints.clear(); }

std::string complaints() { return thread_complaints; }

void set_interrupt_log_hook(InterruptLogHook hook) noexcept { process().hook.store(hook, std::memory_order_release); }

}  // namespace unet::drivers::eal
