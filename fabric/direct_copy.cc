// direct_copy.cc - see direct_copy.h.
#include "fabric/direct_copy.h"

#include <sys/uio.h>
#include <unistd.h>

#include <array>

#include "fabric/info.h"
#include "unet/base/keyed_random.h"

namespace unet::fabric {

OwnIdentity::OwnIdentity() : secret_(std::make_unique<Secret>()) {
  KeyedRandom random(0);
  for (uint64_t& word : secret_->words) word = random.next();
}

Identity OwnIdentity::identity() const noexcept {
  return {.process = static_cast<uint64_t>(::getpid()), .address = reinterpret_cast<uintptr_t>(secret_.get()),
          .secret = {secret_->words[0], secret_->words[1]}};
}

void PeerMemory::find(const Identity& identity, int process) noexcept {
  identity_ = identity;
  found_ = process > 0 && identity.process == static_cast<uint64_t>(process) && read({}, 0, 0);
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

}  // namespace unet::fabric
