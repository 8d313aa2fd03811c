// sockets_read.cc - maps the socket tables that the NI hands out, read-only, and reads them.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>

#include "apps/unetctl/sockets.h"
#include "unet/connection.h"

namespace unet::unetctl {
namespace {

constexpr Nanoseconds kWait = 500 * kMillisecond;  // for the processes' answers
constexpr useconds_t kLookAgain = 2'000;           // microseconds between polls
constexpr uint32_t kNoEndpoint = ~uint32_t{0};

class ReadMapping {
 public:
  ReadMapping(int descriptor, uint64_t bytes) : bytes_(bytes) {
    struct stat status {};
    if (::fstat(descriptor, &status) != 0 || static_cast<uint64_t>(status.st_size) < bytes) return;
    void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor, 0);
    if (at != MAP_FAILED) memory_ = static_cast<std::byte*>(at);
  }
  ReadMapping(const ReadMapping&) = delete;
  ReadMapping& operator=(const ReadMapping&) = delete;
  ~ReadMapping() {
    if (memory_ != nullptr) ::munmap(memory_, bytes_);
  }
  std::byte* get() const noexcept { return memory_; }

 private:
  std::byte* memory_ = nullptr;
  uint64_t bytes_;
};

struct SocketsTable {
  size_t process = 0;
  uint32_t number = 0;
  std::unique_ptr<ReadMapping> memory{};
  SocketTableView view() const { return SocketTableView(memory->get(), SocketTableGeometry::of_table(number)); }
};

}  // namespace

Result<SocketList> list_sockets(const std::string& socket) {
  const auto connection = Connection::open("unix:" + socket, "unetctl");
  if (!connection) return tl::unexpected(connection.error());
  SocketList list;
  std::vector<SocketsTable> tables;
  control::ListSockets request{};
  request.header.op = control::Op::list_sockets;
  request.header.endpoint = kNoEndpoint;
  while (true) {
    Result<Answer> answer = (*connection)->call(request);
    if (!answer) return tl::unexpected(answer.error());
    const auto& found = answer->reply.sockets;
    if (found.endpoint == kNoEndpoint) break;
    if (answer->descriptors.size() != 1 || found.table >= kSocketTablesMax) {
      return fail(Errc::protocol, "the network interface sent an invalid table of sockets");
    }
    if (found.table == 0) {
      list.processes.push_back({.pid = found.pid, .uid = found.uid, .endpoint = found.endpoint,
                                .program = std::string(found.program.view()), .asked = found.asked});
    }
    if (list.processes.empty()) return fail(Errc::protocol, "the network interface sent a second table before the first");
    const SocketTableGeometry geometry = SocketTableGeometry::of_table(found.table);
    tables.push_back({.process = list.processes.size() - 1, .number = found.table,
                      .memory = std::make_unique<ReadMapping>(answer->descriptors[0].get(), geometry.total)});
    if (tables.back().memory->get() == nullptr) return fail(Errc::out_of_memory, "a table of sockets cannot be mapped");
    request.header.endpoint = found.endpoint;
    request.table = found.table;
  }
  const Nanoseconds until = monotonic_now() + kWait;
  for (bool all = false; !all && monotonic_now() < until;) {
    all = true;
    for (const SocketsTable& table : tables) {
      Process& process = list.processes[table.process];
      if (table.number != 0 || process.answered) continue;
      process.answered = table.view().header().told.load(std::memory_order_acquire) >= process.asked;
      all = all && process.answered;
    }
    if (!all) ::usleep(kLookAgain);
  }
  list.now = monotonic_now();
  for (const SocketsTable& table : tables) {
    const SocketTableView view = table.view();
    read_table(view, socket_table_begin(table.number), table.process, list);
    if (table.number != 0) continue;
    StackRow stack{.process = table.process};
    for (size_t i = 0; i < kSocketStackCounters.size() + kSocketTcpCounters.size(); ++i) {
      stack.counters.push_back(view.header().counters[i].load(std::memory_order_relaxed));
    }
    list.stacks.push_back(std::move(stack));
  }
  return list;
}

}  // namespace unet::unetctl
