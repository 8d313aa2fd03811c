// direct_copy.cc - see direct_copy.h.
#include "fabric/direct_copy.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <span>

#include "fabric/info.h"
#include "fabric/slots.h"
#include "unet/base/keyed_random.h"
#include "unet/base/time.h"

namespace unet::fabric {
namespace {

constexpr size_t kClaimsBytes = 2 * SharedCopy::kSlots * sizeof(SharedCopy);
constexpr uint64_t kHelpMost = 4 * 1024 * 1024;  // bytes of one copy that a process writes for its peer
constexpr Nanoseconds kPatience = kSecond / 4;   // how long a peer may take for a chunk when the memory is needed again

}  // namespace

OwnIdentity::OwnIdentity() : secret_(std::make_unique<Secret>()) {
  KeyedRandom random(0);
  for (uint64_t& word : secret_->words) word = random.next();
}

Identity OwnIdentity::identity(int64_t copies) const noexcept {
  return {.process = static_cast<uint64_t>(::getpid()), .address = reinterpret_cast<uintptr_t>(secret_.get()),
          .secret = {secret_->words[0], secret_->words[1]}, .copies = copies};
}

int64_t PeerMemory::offer() noexcept {
  claims_ = {};
  if (is_too_slow_) return -1;
  memory_ = Descriptor(::memfd_create("unet-fi", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  is_offered_ = true;
  if (!memory_.valid() || ::ftruncate(memory_.get(), kClaimsBytes) != 0) return -1;
  if (::fcntl(memory_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return -1;
  if (auto mapped = Mapping::map(memory_.get(), kClaimsBytes)) claims_ = std::move(*mapped);
  return memory_.get();
}

void PeerMemory::find(const Identity& identity, int process) noexcept {
  identity_ = identity;
  const Descriptor handle(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));  // of the process that has the secret afterwards
  found_ = process > 0 && identity.process == static_cast<uint64_t>(process) && is_alive();
  if (identity.copies < 0) return;
  claims_ = {};
  memory_.reset();
  is_offered_ = false;
  if (!found_ || is_too_slow_ || !handle.valid()) return;
  const Descriptor memory(static_cast<int>(::syscall(SYS_pidfd_getfd, handle.get(), identity.copies, 0)));
  if (auto mapped = Mapping::map(memory.get(), kClaimsBytes)) claims_ = std::move(*mapped);
}

void PeerMemory::forget() noexcept {
  stop();
  found_ = false;
  claims_ = {};
  memory_.reset();
}

bool PeerMemory::read(const Buffer& to, uint64_t address, uint64_t length) const noexcept {
  constexpr size_t kOnce = size_t{1} << 30;  // the kernel copies less than 2 GiB at a time
  length = std::min<uint64_t>(length, to.size());
  uint64_t done = 0;
  do {
    uint64_t secret[2];
    std::array<iovec, kIovMax + 1> local{};
    local[0] = {secret, sizeof secret};
    size_t count = 1;
    uint64_t skip = done, here = 0;
    for (const iovec& piece : to.pieces()) {
      if (skip >= piece.iov_len) {
        skip -= piece.iov_len;
        continue;
      }
      const size_t part = std::min({piece.iov_len - skip, length - done - here, kOnce - here});
      if (part == 0) break;
      local[count++] = {static_cast<std::byte*>(piece.iov_base) + skip, part};
      skip = 0;
      here += part;
    }
    const iovec remote[] = {{reinterpret_cast<void*>(identity_.address), sizeof secret}, {reinterpret_cast<void*>(address + done), here}};
    const ssize_t copied = ::process_vm_readv(static_cast<pid_t>(identity_.process), local.data(), count, remote, here != 0 ? 2 : 1, 0);
    if (copied != static_cast<ssize_t>(sizeof secret + here)) return false;
    if (secret[0] != identity_.secret[0] || secret[1] != identity_.secret[1]) return false;
    done += here;
  } while (done < length);
  return true;
}

SharedCopy* PeerMemory::copy(uint32_t number, bool is_own) noexcept {
  const uint32_t at = number % Slots<int>::kMost;
  if (!claims_ || at >= SharedCopy::kSlots) return nullptr;
  return reinterpret_cast<SharedCopy*>(claims_.data()) + (is_own == is_offered_ ? 0 : SharedCopy::kSlots) + at;
}

bool PeerMemory::share(uint32_t number) noexcept {
  SharedCopy* const shared = copy(number, true);
  if (shared != nullptr) shared->begin(number);
  return shared != nullptr;
}

Copied PeerMemory::read_shared(uint32_t number, const Buffer& to, uint64_t address, uint64_t length, uint32_t& front) noexcept {
  if (!found_) return Copied::none;
  if (!can_share(length) || !to.is_one_piece() || to.size() < length) return read(to, address, length) ? Copied::all : Copied::none;
  const uint64_t bytes = SharedCopy::chunk_bytes(length);
  const uint32_t chunks = SharedCopy::chunks_of(length);
  const auto read_chunks = [&](uint32_t first, uint32_t end) {
    const uint64_t at = first * bytes, part = std::min(end * bytes, length) - at;
    return read(to.part(at, part), address + at, part);
  };
  uint32_t written = 0;
  if (SharedCopy* const shared = copy(number, true); shared != nullptr && shared->is_begun(number)) {
    for (; shared->claim_front(number, front, chunks); ++front) {
      if (read_chunks(front, front + 1)) continue;
      shared->close();
      break;
    }
    if (!shared->is_written(written)) return Copied::not_yet;
  }
  // There are more chunks if the peer could not write one, or this process could not read one.
  const uint32_t end = chunks - std::min(written, chunks - front);
  return front == end || read_chunks(front, end) ? Copied::all : Copied::none;
}

void PeerMemory::stop() noexcept {
  if (!claims_) return;
  const std::span<SharedCopy> copies(copy(0, true), SharedCopy::kSlots);
  for (SharedCopy& each : copies) each.close();
  const Nanoseconds start = monotonic_now();
  uint32_t written = 0;
  for (const SharedCopy& each : copies) {
    while (!each.is_written(written) && is_alive()) {
      if (monotonic_now() - start > kPatience) {
        is_too_slow_ = true;
        return void(claims_ = {});
      }
      ::sched_yield();
    }
  }
}

void PeerMemory::help(uint32_t number, const Buffer& from, uint64_t address) noexcept {
  const uint64_t length = from.size(), bytes = SharedCopy::chunk_bytes(length);
  const uint32_t chunks = SharedCopy::chunks_of(length);
  SharedCopy* const shared = can_share(length) ? copy(number, false) : nullptr;
  if (shared == nullptr) return;
  for (uint32_t written = 0; written * bytes < kHelpMost && shared->claim_back(number, written, chunks);) {
    const uint64_t at = (chunks - 1 - written) * bytes;
    const Buffer part = from.part(at, std::min(bytes, length - at));
    const iovec there{reinterpret_cast<void*>(address + at), part.size()};
    const bool is_done = is_alive() && ::process_vm_writev(static_cast<pid_t>(identity_.process), part.pieces().data(), 1, &there, 1, 0) ==
                                           static_cast<ssize_t>(part.size());
    if (is_done) ++written;
    shared->set_written(written, !is_done);
    if (!is_done) return;
  }
}

}  // namespace unet::fabric
