// endpoint_messages.cc - the calls of libfabric that send and receive messages, with and without tags.
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include "fabric/endpoint.h"
#include "fabric/info.h"

namespace unet::fabric {
namespace {

constexpr uint64_t kReceiveFlags = FI_COMPLETION | FI_MORE | FI_MULTI_RECV;
constexpr uint64_t kTaggedReceiveFlags = FI_COMPLETION | FI_MORE | FI_PEEK | FI_CLAIM | FI_DISCARD;

std::span<const iovec> pieces_of(const iovec* pieces, size_t count) noexcept { return {pieces, count}; }

size_t length_of(std::span<const iovec> pieces) noexcept {
  size_t length = 0;
  for (const iovec& piece : pieces) length += piece.iov_len;
  return length;
}

// ---- sends

// `flags` beside the endpoint's.
ssize_t send(fid_ep* endpoint, fi_addr_t to, SendCall&& call, uint64_t flags = 0) noexcept {
  if (__builtin_expect(call.pieces.size() > kIovMax, 0)) return -FI_EINVAL;
  return locked(endpoint, [&](Endpoint& of) {
    call.flags = of.default_flags(FI_TRANSMIT) | flags;
    return of.send(to, call);
  });
}

// A send without a completion, of which the bytes may be used again at once.
ssize_t inject(fid_ep* endpoint, fi_addr_t to, SendCall&& call, uint64_t flags = 0) noexcept {
  if (__builtin_expect(call.pieces[0].iov_len > kEagerMax, 0)) return -FI_EINVAL;
  call.is_silent = true;
  call.flags = FI_INJECT | flags;
  return locked(endpoint, [&](Endpoint& of) { return of.send(to, call); });
}

template <typename Message>
ssize_t send_message(fid_ep* endpoint, const Message& message, SendCall&& call, uint64_t flags) noexcept {
  if ((flags & ~kCallFlags) != 0) return -FI_EBADFLAGS;
  call.pieces = pieces_of(message.msg_iov, message.iov_count);
  if (call.pieces.size() > kIovMax || ((flags & FI_INJECT) != 0 && length_of(call.pieces) > kEagerMax)) return -FI_EINVAL;
  call.data = message.data;
  call.flags = flags;
  call.context = message.context;
  return locked(endpoint, [&](Endpoint& of) { return of.is_fenced(message.addr, flags) ? -FI_EAGAIN : of.send(message.addr, call); });
}

// ---- receives

ssize_t receive(fid_ep* endpoint, fi_addr_t from, ReceiveCall&& call) noexcept {
  if (__builtin_expect(call.pieces.size() > kIovMax, 0)) return -FI_EINVAL;
  return locked(endpoint, [&](Endpoint& of) {
    call.flags = of.default_flags(FI_RECV) & ~(call.is_tagged ? uint64_t{FI_MULTI_RECV} : 0);
    if ((call.flags & FI_MULTI_RECV) != 0 && call.pieces.size() != 1) return ssize_t{-FI_EINVAL};
    return of.receive(from, call);
  });
}

ssize_t receive_message(fid_ep* endpoint, const fi_msg* message, uint64_t flags) noexcept {
  if ((flags & ~kReceiveFlags) != 0) return -FI_EBADFLAGS;
  const auto pieces = pieces_of(message->msg_iov, message->iov_count);
  if (pieces.size() > kIovMax || ((flags & FI_MULTI_RECV) != 0 && pieces.size() != 1)) return -FI_EINVAL;
  ReceiveCall call{.pieces = pieces, .flags = flags, .context = message->context};
  return locked(endpoint, [&](Endpoint& of) { return of.receive(message->addr, call); });
}

ssize_t receive_tagged_message(fid_ep* endpoint, const fi_msg_tagged* message, uint64_t flags) noexcept {
  if ((flags & ~kTaggedReceiveFlags) != 0) return -FI_EBADFLAGS;
  if ((flags & FI_DISCARD) != 0 && (flags & (FI_PEEK | FI_CLAIM)) == 0) return -FI_EBADFLAGS;
  const auto pieces = pieces_of(message->msg_iov, message->iov_count);
  if (pieces.size() > kIovMax) return -FI_EINVAL;
  ReceiveCall call{.selector = {.tag = message->tag, .ignore = message->ignore}, .pieces = pieces, .flags = flags,
                         .context = message->context, .is_tagged = true};
  return locked(endpoint, [&](Endpoint& of) { return of.receive(message->addr, call); });
}

iovec piece(const void* memory, size_t length) noexcept { return {const_cast<void*>(memory), length}; }

}  // namespace

fi_ops_msg message_calls = {
    .size = sizeof(fi_ops_msg),
    .recv = [](fid_ep* endpoint, void* memory, size_t length, void*, fi_addr_t from, void* context) {
      const iovec one = piece(memory, length);
      return receive(endpoint, from, {.pieces = {&one, 1}, .context = context});
    },
    .recvv = [](fid_ep* endpoint, const iovec* pieces, void**, size_t count, fi_addr_t from, void* context) {
      return receive(endpoint, from, {.pieces = pieces_of(pieces, count), .context = context});
    },
    .recvmsg = receive_message,
    .send = [](fid_ep* endpoint, const void* memory, size_t length, void*, fi_addr_t to, void* context) {
      const iovec one = piece(memory, length);
      return send(endpoint, to, {.pieces = {&one, 1}, .context = context});
    },
    .sendv = [](fid_ep* endpoint, const iovec* pieces, void**, size_t count, fi_addr_t to, void* context) {
      return send(endpoint, to, {.pieces = pieces_of(pieces, count), .context = context});
    },
    .sendmsg = [](fid_ep* endpoint, const fi_msg* message, uint64_t flags) { return send_message(endpoint, *message, {}, flags); },
    .inject = [](fid_ep* endpoint, const void* memory, size_t length, fi_addr_t to) {
      const iovec one = piece(memory, length);
      return inject(endpoint, to, {.pieces = {&one, 1}});
    },
    .senddata = [](fid_ep* endpoint, const void* memory, size_t length, void*, uint64_t data, fi_addr_t to, void* context) {
      const iovec one = piece(memory, length);
      return send(endpoint, to, {.pieces = {&one, 1}, .data = data, .context = context}, FI_REMOTE_CQ_DATA);
    },
    .injectdata = [](fid_ep* endpoint, const void* memory, size_t length, uint64_t data, fi_addr_t to) {
      const iovec one = piece(memory, length);
      return inject(endpoint, to, {.pieces = {&one, 1}, .data = data}, FI_REMOTE_CQ_DATA);
    },
};

fi_ops_tagged tagged_calls = {
    .size = sizeof(fi_ops_tagged),
    .recv = [](fid_ep* endpoint, void* memory, size_t length, void*, fi_addr_t from, uint64_t tag, uint64_t ignore, void* context) {
      const iovec one = piece(memory, length);
      const Selector selector{.tag = tag, .ignore = ignore};
      return receive(endpoint, from, {.selector = selector, .pieces = {&one, 1}, .context = context, .is_tagged = true});
    },
    .recvv = [](fid_ep* endpoint, const iovec* pieces, void**, size_t count, fi_addr_t from, uint64_t tag, uint64_t ignore, void* context) {
      const Selector selector{.tag = tag, .ignore = ignore};
      return receive(endpoint, from, {.selector = selector, .pieces = pieces_of(pieces, count), .context = context, .is_tagged = true});
    },
    .recvmsg = receive_tagged_message,
    .send = [](fid_ep* endpoint, const void* memory, size_t length, void*, fi_addr_t to, uint64_t tag, void* context) {
      const iovec one = piece(memory, length);
      return send(endpoint, to, {.pieces = {&one, 1}, .tag = tag, .context = context, .is_tagged = true});
    },
    .sendv = [](fid_ep* endpoint, const iovec* pieces, void**, size_t count, fi_addr_t to, uint64_t tag, void* context) {
      return send(endpoint, to, {.pieces = pieces_of(pieces, count), .tag = tag, .context = context, .is_tagged = true});
    },
    .sendmsg = [](fid_ep* endpoint, const fi_msg_tagged* message, uint64_t flags) {
      return send_message(endpoint, *message, {.tag = message->tag, .is_tagged = true}, flags);
    },
    .inject = [](fid_ep* endpoint, const void* memory, size_t length, fi_addr_t to, uint64_t tag) {
      const iovec one = piece(memory, length);
      return inject(endpoint, to, {.pieces = {&one, 1}, .tag = tag, .is_tagged = true});
    },
    .senddata = [](fid_ep* endpoint, const void* memory, size_t length, void*, uint64_t data, fi_addr_t to, uint64_t tag, void* context) {
      const iovec one = piece(memory, length);
      return send(endpoint, to, {.pieces = {&one, 1}, .tag = tag, .data = data, .context = context, .is_tagged = true}, FI_REMOTE_CQ_DATA);
    },
    .injectdata = [](fid_ep* endpoint, const void* memory, size_t length, uint64_t data, fi_addr_t to, uint64_t tag) {
      const iovec one = piece(memory, length);
      return inject(endpoint, to, {.pieces = {&one, 1}, .tag = tag, .data = data, .is_tagged = true}, FI_REMOTE_CQ_DATA);
    },
};

}  // namespace unet::fabric
