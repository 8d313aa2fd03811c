// endpoint_remote.cc - the calls of libfabric that read and write the memory of peers.
#include "fabric/endpoint.h"
#include "fabric/info.h"

namespace unet::fabric {
namespace {

using Function = ssize_t (RemoteMemory::*)(const RemoteCall& call);

// `flags` beside the endpoint's.
ssize_t call(Function of, fid_ep* endpoint, fi_addr_t to, RemoteCall arguments, uint64_t flags = 0) noexcept {
  if (arguments.pieces.size() > kIovMax) return -FI_EINVAL;
  return locked(endpoint, [&](Endpoint& at) {
    if (!arguments.is_silent) arguments.flags |= at.default_flags(FI_TRANSMIT);
    arguments.flags |= flags;
    return at.remote(to, arguments, [&](RemoteMemory& memory) { return (memory.*of)(arguments); });
  });
}

ssize_t call_message(Function of, fid_ep* endpoint, const fi_msg_rma& message, uint64_t flags) noexcept {
  if ((flags & ~kCallFlags) != 0) return -FI_EBADFLAGS;
  if (message.iov_count > kIovMax || message.rma_iov_count != 1) return -FI_EINVAL;
  const std::span<const iovec> pieces(message.msg_iov, message.iov_count);
  size_t length = 0;
  for (const iovec& piece : pieces) length += piece.iov_len;
  if (message.rma_iov->len != length || ((flags & FI_INJECT) != 0 && length > kEagerMax)) return -FI_EINVAL;
  RemoteCall arguments{.pieces = pieces, .address = message.rma_iov->addr, .key = message.rma_iov->key, .data = message.data,
                       .flags = flags, .context = message.context};
  return locked(endpoint, [&](Endpoint& at) {
    return at.remote(message.addr, arguments, [&](RemoteMemory& memory) { return (memory.*of)(arguments); });
  });
}

ssize_t inject(fid_ep* endpoint, const void* memory, size_t length, uint64_t data, fi_addr_t to, uint64_t address, uint64_t key,
               uint64_t flags) noexcept {
  if (length > kEagerMax) return -FI_EINVAL;
  const iovec one{const_cast<void*>(memory), length};
  return call(&RemoteMemory::write, endpoint, to,
              {.pieces = {&one, 1}, .address = address, .key = key, .data = data, .flags = FI_INJECT, .is_silent = true}, flags);
}

}  // namespace

fi_ops_rma remote_calls = {
    .size = sizeof(fi_ops_rma),
    .read = [](fid_ep* endpoint, void* memory, size_t length, void*, fi_addr_t from, uint64_t address, uint64_t key, void* context) {
      const iovec one{memory, length};
      return call(&RemoteMemory::read, endpoint, from, {.pieces = {&one, 1}, .address = address, .key = key, .context = context});
    },
    .readv = [](fid_ep* endpoint, const iovec* pieces, void**, size_t count, fi_addr_t from, uint64_t address, uint64_t key,
                void* context) {
      return call(&RemoteMemory::read, endpoint, from, {.pieces = {pieces, count}, .address = address, .key = key, .context = context});
    },
    .readmsg = [](fid_ep* endpoint, const fi_msg_rma* message, uint64_t flags) {
      return call_message(&RemoteMemory::read, endpoint, *message, flags);
    },
    .write = [](fid_ep* endpoint, const void* memory, size_t length, void*, fi_addr_t to, uint64_t address, uint64_t key, void* context) {
      const iovec one{const_cast<void*>(memory), length};
      return call(&RemoteMemory::write, endpoint, to, {.pieces = {&one, 1}, .address = address, .key = key, .context = context});
    },
    .writev = [](fid_ep* endpoint, const iovec* pieces, void**, size_t count, fi_addr_t to, uint64_t address, uint64_t key, void* context) {
      return call(&RemoteMemory::write, endpoint, to, {.pieces = {pieces, count}, .address = address, .key = key, .context = context});
    },
    .writemsg = [](fid_ep* endpoint, const fi_msg_rma* message, uint64_t flags) {
      return call_message(&RemoteMemory::write, endpoint, *message, flags);
    },
    .inject = [](fid_ep* endpoint, const void* memory, size_t length, fi_addr_t to, uint64_t address, uint64_t key) {
      return inject(endpoint, memory, length, 0, to, address, key, 0);
    },
    .writedata = [](fid_ep* endpoint, const void* memory, size_t length, void*, uint64_t data, fi_addr_t to, uint64_t address, uint64_t key,
                    void* context) {
      const iovec one{const_cast<void*>(memory), length};
      return call(&RemoteMemory::write, endpoint, to,
                  {.pieces = {&one, 1}, .address = address, .key = key, .data = data, .context = context}, FI_REMOTE_CQ_DATA);
    },
    .injectdata = [](fid_ep* endpoint, const void* memory, size_t length, uint64_t data, fi_addr_t to, uint64_t address, uint64_t key) {
      return inject(endpoint, memory, length, data, to, address, key, FI_REMOTE_CQ_DATA);
    },
};

}  // namespace unet::fabric
