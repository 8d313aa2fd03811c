// endpoint_atomics.cc - the calls of libfabric for atomic operations on the memory of peers.
#include "fabric/endpoint.h"
#include "fabric/info.h"

namespace unet::fabric {
namespace {

// Local memory of a call, as pieces of bytes.
class Data {
 public:
  Data(const fi_ioc* pieces, size_t count, size_t size) noexcept : count_(std::min(count, kIovMax)), fits_(count <= kIovMax) {
    for (size_t i = 0; i < count_; ++i) {
      pieces_[i] = {pieces[i].addr, pieces[i].count * size};
      data_ += pieces[i].count;
    }
  }
  bool is(size_t count) const noexcept { return fits_ && data_ == count; }
  size_t count() const noexcept { return data_; }
  std::span<const iovec> pieces() const noexcept { return {pieces_.data(), count_}; }

 private:
  std::array<iovec, kIovMax> pieces_{};
  size_t count_, data_ = 0;
  bool fits_;
};

struct Local {
  const fi_ioc* pieces = nullptr;
  size_t count = 0;
};
struct Remote {
  fi_addr_t peer;
  uint64_t address, key;
};

// `flags` of a call with flags; the endpoint's with kDefault.
constexpr uint64_t kDefault = uint64_t{1} << 63;

ssize_t call(fid_ep* endpoint, AtomicKind kind, Local operands, Local compare, Local result, const Remote& remote, fi_datatype datatype,
             fi_op operation, void* context, uint64_t flags = kDefault, uint64_t data = 0, bool is_silent = false) noexcept {
  const size_t size = atomic_size(kind, operation, datatype);
  if (size == 0) return -FI_EOPNOTSUPP;
  const Data from(operands.pieces, operands.count, size), with(compare.pieces, compare.count, size), to(result.pieces, result.count, size);
  // A read has no operands; the result tells how much it reads.
  const size_t count = operation == FI_ATOMIC_READ ? to.count() : from.count();
  const bool fits = count != 0 && count <= kAtomicBytes / size && (operation == FI_ATOMIC_READ || from.is(count)) &&
                    (kind == AtomicKind::update || to.is(count)) && (kind != AtomicKind::compare || with.is(count));
  if (!fits) return -FI_EINVAL;
  return locked(endpoint, [&](Endpoint& at) {
    const uint64_t all_flags = flags == kDefault ? at.default_flags(FI_TRANSMIT) : flags;
    AtomicCall all{.call = {.pieces = from.pieces(), .address = remote.address, .key = remote.key, .data = data, .flags = all_flags,
                            .context = context, .is_silent = is_silent},
                   .compare = with.pieces(),
                   .result = to.pieces(),
                   .kind = kind,
                   .operation = operation,
                   .datatype = datatype,
                   .count = count};
    return at.remote(remote.peer, all.call, [&](RemoteMemory& memory) { return memory.atomic(all); });
  });
}

ssize_t call_message(fid_ep* endpoint, AtomicKind kind, const fi_msg_atomic& message, Local compare, Local result,
                     uint64_t flags) noexcept {
  if ((flags & ~kCallFlags) != 0) return -FI_EBADFLAGS;
  if (message.rma_iov_count != 1) return -FI_EINVAL;
  const Local operands{message.msg_iov, message.op == FI_ATOMIC_READ ? 0 : message.iov_count};
  return call(endpoint, kind, operands, compare, result, {message.addr, message.rma_iov->addr, message.rma_iov->key}, message.datatype,
              message.op, message.context, flags, message.data);
}

template <AtomicKind kKind>
int is_valid(fid_ep*, fi_datatype datatype, fi_op operation, size_t* count) {
  const size_t size = atomic_size(kKind, operation, datatype);
  if (size == 0) return -FI_EOPNOTSUPP;
  *count = kAtomicBytes / size;
  return 0;
}

fi_ioc data(const void* memory, size_t count) noexcept { return {const_cast<void*>(memory), count}; }

}  // namespace

fi_ops_atomic atomic_calls = {
    .size = sizeof(fi_ops_atomic),
    .write = [](fid_ep* endpoint, const void* memory, size_t count, void*, fi_addr_t to, uint64_t address, uint64_t key,
                fi_datatype datatype, fi_op operation, void* context) {
      const fi_ioc one = data(memory, count);
      return call(endpoint, AtomicKind::update, {&one, 1}, {}, {}, {to, address, key}, datatype, operation, context);
    },
    .writev = [](fid_ep* endpoint, const fi_ioc* pieces, void**, size_t count, fi_addr_t to, uint64_t address, uint64_t key,
                 fi_datatype datatype, fi_op operation, void* context) {
      return call(endpoint, AtomicKind::update, {pieces, count}, {}, {}, {to, address, key}, datatype, operation, context);
    },
    .writemsg = [](fid_ep* endpoint, const fi_msg_atomic* message, uint64_t flags) {
      return call_message(endpoint, AtomicKind::update, *message, {}, {}, flags);
    },
    .inject = [](fid_ep* endpoint, const void* memory, size_t count, fi_addr_t to, uint64_t address, uint64_t key, fi_datatype datatype,
                 fi_op operation) {
      const fi_ioc one = data(memory, count);
      return call(endpoint, AtomicKind::update, {&one, 1}, {}, {}, {to, address, key}, datatype, operation, nullptr, FI_INJECT, 0, true);
    },
    .readwrite = [](fid_ep* endpoint, const void* memory, size_t count, void*, void* result, void*, fi_addr_t to, uint64_t address,
                    uint64_t key, fi_datatype datatype, fi_op operation, void* context) {
      const fi_ioc one = data(memory, count), got = data(result, count);
      return call(endpoint, AtomicKind::fetch, {&one, 1}, {}, {&got, 1}, {to, address, key}, datatype, operation, context);
    },
    .readwritev = [](fid_ep* endpoint, const fi_ioc* pieces, void**, size_t count, fi_ioc* results, void**, size_t result_count,
                     fi_addr_t to, uint64_t address, uint64_t key, fi_datatype datatype, fi_op operation, void* context) {
      return call(endpoint, AtomicKind::fetch, {pieces, count}, {}, {results, result_count}, {to, address, key}, datatype, operation,
                  context);
    },
    .readwritemsg = [](fid_ep* endpoint, const fi_msg_atomic* message, fi_ioc* results, void**, size_t result_count, uint64_t flags) {
      return call_message(endpoint, AtomicKind::fetch, *message, {}, {results, result_count}, flags);
    },
    .compwrite = [](fid_ep* endpoint, const void* memory, size_t count, void*, const void* compare, void*, void* result, void*,
                    fi_addr_t to, uint64_t address, uint64_t key, fi_datatype datatype, fi_op operation, void* context) {
      const fi_ioc one = data(memory, count), with = data(compare, count), got = data(result, count);
      return call(endpoint, AtomicKind::compare, {&one, 1}, {&with, 1}, {&got, 1}, {to, address, key}, datatype, operation, context);
    },
    .compwritev = [](fid_ep* endpoint, const fi_ioc* pieces, void**, size_t count, const fi_ioc* compare, void**, size_t compare_count,
                     fi_ioc* results, void**, size_t result_count, fi_addr_t to, uint64_t address, uint64_t key, fi_datatype datatype,
                     fi_op operation, void* context) {
      return call(endpoint, AtomicKind::compare, {pieces, count}, {compare, compare_count}, {results, result_count}, {to, address, key},
                  datatype, operation, context);
    },
    .compwritemsg = [](fid_ep* endpoint, const fi_msg_atomic* message, const fi_ioc* compare, void**, size_t compare_count, fi_ioc* results,
                       void**, size_t result_count, uint64_t flags) {
      return call_message(endpoint, AtomicKind::compare, *message, {compare, compare_count}, {results, result_count}, flags);
    },
    .writevalid = is_valid<AtomicKind::update>,
    .readwritevalid = is_valid<AtomicKind::fetch>,
    .compwritevalid = is_valid<AtomicKind::compare>,
};

}  // namespace unet::fabric
