// takeover_records.cc - records that make no sense, and memory and eventfds of another process.
#include "ni/service/takeover_records.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <string_view>
#include <utility>

#include "ni/service/held_memory.h"

namespace unet::service {

tl::unexpected<Error> wrong_record(const JournalItem& item, const char* what) {
  return fail(Errc::protocol, "the journal of the network interface before this one: record " +
                                  std::to_string(static_cast<uint32_t>(item.key.kind)) + "/" + std::to_string(item.key.a) + "/" +
                                  std::to_string(item.key.b) + ": " + what);
}

Result<SharedMemory> map_again(Descriptor memory, uint64_t bytes) {
  Result<Mapping> mapping = Mapping::map(memory.get(), bytes);
  if (!mapping) return tl::unexpected(mapping.error());
  make_immutable(memory.get());  // the NI before us may have been a release without that
  Result<Descriptor> watch = watch_memory(memory.get());
  if (!watch) return tl::unexpected(watch.error());
  return SharedMemory{std::move(memory), std::move(*mapping), std::move(*watch)};
}

bool make_wake(int descriptor) {
  std::array<char, 64> kind;
  const ssize_t length = ::readlink(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), kind.data(), kind.size());
  if (length >= 0 && std::string_view(kind.data(), static_cast<size_t>(length)) != "anon_inode:[eventfd]") return false;
  const int flags = ::fcntl(descriptor, F_GETFL);
  return flags >= 0 && ::fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) == 0;
}

}  // namespace unet::service
