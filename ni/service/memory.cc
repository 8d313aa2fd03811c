// memory.cc - memfd_create, ftruncate, seals, the immutable flag.
#include "ni/service/memory.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "ni/service/held_memory.h"

namespace unet::service {
namespace {

constexpr unsigned kNoExecSeal = 8;  // MFD_NOEXEC_SEAL, Linux 6.3

tl::unexpected<Error> no_memory(const char* call, uint64_t bytes, int error) {
  std::string text = std::string("the network interface cannot get ") + std::to_string(bytes) + " bytes of shared memory (" +
                     call + ": " + std::error_code(error, std::system_category()).message() + ")";
  if (error == EMFILE || error == ENFILE) text += ": raise its limit of open files (ulimit -n)";
  return fail(Errc::out_of_memory, std::move(text));
}

Result<Descriptor> create(const char* name, uint64_t bytes) {
  Descriptor memory(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | kNoExecSeal));
  if (!memory.valid() && errno == EINVAL) memory = Descriptor(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.valid()) return no_memory("memfd_create", bytes, errno);
  // A holder of a read-only descriptor could open the memory again through /proc.
  if (fchmod(memory.get(), S_IRUSR | S_IWUSR) != 0) return no_memory("fchmod", bytes, errno);
  if (ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0) return no_memory("ftruncate", bytes, errno);
  return memory;
}

Status seal(int descriptor, int seals) {
  if (fcntl(descriptor, F_ADD_SEALS, seals) != 0) return fail_errno("fcntl(F_ADD_SEALS)", errno);
  return {};
}

}  // namespace

// Clients can delay setting the flag by writes, which hold the kernel's lock of the memory. Memory that has the flag is left as it is.
bool make_immutable(int descriptor) {
  int flags = 0;
  if (ioctl(descriptor, FS_IOC_GETFLAGS, &flags) != 0) return false;
  if ((flags & FS_IMMUTABLE_FL) != 0) return true;
  flags |= FS_IMMUTABLE_FL;
  return ioctl(descriptor, FS_IOC_SETFLAGS, &flags) == 0;
}

Result<Descriptor> create_sealed(const char* name, uint64_t bytes) {
  Result<Descriptor> memory = create(name, bytes);
  if (!memory) return memory;
  if (Status status = seal(memory->get(), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL); !status) {
    return tl::unexpected(status.error());
  }
  make_immutable(memory->get());
  return memory;
}

Result<SharedMemory> create_shared(const char* name, uint64_t bytes) {
  Result<Descriptor> memory = create_sealed(name, bytes);
  if (!memory) return tl::unexpected(memory.error());
  Result<Mapping> mapping = Mapping::map(memory->get(), bytes);
  if (!mapping) return fail(Errc::out_of_memory, mapping.error().text);
  return SharedMemory{std::move(*memory), std::move(*mapping)};
}

Result<SharedMemory> create_charged(const char* name, uint64_t bytes) {
  Result<SharedMemory> memory = create_shared(name, bytes);
  if (!memory) return memory;
  Result<Descriptor> watch = watch_memory(memory->descriptor.get());
  if (!watch) return tl::unexpected(watch.error());
  memory->watch = std::move(*watch);
  return memory;
}

Result<Descriptor> create_text(const char* name, std::string_view text) {
  Result<Descriptor> memory = create(name, text.size());
  if (!memory) return memory;
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t n = pwrite(memory->get(), text.data() + written, text.size() - written, static_cast<off_t>(written));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return no_memory("pwrite", text.size(), errno);
    written += static_cast<size_t>(n);
  }
  if (Status status = seal(memory->get(), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL); !status) {
    return tl::unexpected(status.error());
  }
  return memory;
}

namespace {

tl::unexpected<Error> no_descriptor(const char* call, int error) {
  std::string text = std::string(call) + ": " + std::error_code(error, std::system_category()).message();
  if (error == EMFILE || error == ENFILE) text += ": raise the network interface's limit of open files (ulimit -n)";
  return fail(Errc::out_of_memory, std::move(text));
}

}  // namespace

Result<Descriptor> create_eventfd() {
  Descriptor event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event.valid()) return no_descriptor("eventfd", errno);
  return event;
}

Result<Descriptor> create_wake_descriptor(int eventfd) {
  Descriptor sleep(epoll_create1(EPOLL_CLOEXEC));
  if (!sleep.valid()) return no_descriptor("epoll_create1", errno);
  // Edge-triggered: each write is one wake-up, and the counter need not be read.
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {}};
  if (epoll_ctl(sleep.get(), EPOLL_CTL_ADD, eventfd, &event) != 0) return no_descriptor("epoll_ctl", errno);
  return sleep;
}

}  // namespace unet::service
