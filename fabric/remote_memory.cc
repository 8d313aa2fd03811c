// remote_memory.cc - see remote_memory.h.
#include "fabric/remote_memory.h"

#include <rdma/fi_errno.h>

#include "fabric/info.h"
#include "fabric/protocol.h"

namespace unet::fabric {
namespace {

constexpr int kRejected = FI_EKEYREJECTED;  // no such key, not these bytes, or not this access

// The words of a message, in order.
class Words {
 public:
  explicit Words(std::initializer_list<uint32_t> first) noexcept {
    for (const uint32_t word : first) words_[count_++] = word;
  }
  Words& wide(uint64_t value) noexcept {
    words_[count_++] = static_cast<uint32_t>(value);
    words_[count_++] = static_cast<uint32_t>(value >> 32);
    return *this;
  }
  operator std::span<const uint32_t>() const noexcept { return {words_.data(), count_}; }

 private:
  std::array<uint32_t, am::kArgumentsMax> words_{};
  size_t count_ = 0;
};

uint32_t flags_of(const RemoteCall& call) noexcept { return (call.flags & FI_REMOTE_CQ_DATA) != 0 ? uint32_t{MessageFlags::kData} : 0; }

Words read_request(const Fetch& fetch, uint32_t token) noexcept {
  Words words{fetch.in_pieces ? uint32_t{MessageFlags::kPieces} : 0, token};
  return words.wide(fetch.envelope.address).wide(fetch.key).wide(fetch.envelope.length);
}

void reply_done(am::Token& token, uint32_t operation, int error) {
  token.reply_short(Handlers::kDone, std::array{operation, static_cast<uint32_t>(error)});
}
void refuse(am::Token& token, uint32_t fetch) {
  token.reply_short(Handlers::kRefused, std::array{fetch, static_cast<uint32_t>(kRejected)});
}

}  // namespace

RemoteMemory::RemoteMemory(am::Endpoint& endpoint, Peers& peers, Outbox& outbox, Outgoing& outgoing, Incoming& incoming,
                           MemoryRegions& regions, const Queues& queues)
    : endpoint_(endpoint), peers_(peers), outbox_(outbox), outgoing_(outgoing), incoming_(incoming), regions_(regions), queues_(queues) {
  endpoint_.set_handler(Handlers::kWrite, on_write, this);
  endpoint_.set_handler(Handlers::kWriteFrom, on_write_from, this);
  endpoint_.set_handler(Handlers::kRead, on_read, this);
  endpoint_.set_handler(Handlers::kGranted, on_granted, this);
  endpoint_.set_handler(Handlers::kRefused, on_refused, this);
  endpoint_.set_handler(Handlers::kAtomic, on_atomic, this);
}

// The memory that a peer names; a null pointer: it may not.
MutableBytes RemoteMemory::part(uint64_t key, uint64_t address, uint64_t length, uint64_t access, MemoryRegion*& region) noexcept {
  region = regions_.find(key);
  const auto found = region != nullptr ? region->part(address, length, access) : std::nullopt;
  if (!found) region = nullptr;
  return found.value_or(MutableBytes());
}

void RemoteMemory::count_write(const Written& write) {
  if (Counter* const counter = write.region->writes()) counter->add(true);
  if (queues_.peer_writes.counter != nullptr) queues_.peer_writes.counter->add(true);
  if (!write.has_data || queues_.peer_writes.queue == nullptr) return;
  queues_.peer_writes.queue->add({.flags = FI_REMOTE_WRITE | FI_RMA | FI_REMOTE_CQ_DATA, .length = write.length, .data = write.data});
}

// ---- writes

Outgoing::Operation* RemoteMemory::begin(const RemoteCall& call, std::span<const iovec> pieces, uint32_t& token) {
  Outgoing::Operation* const operation = outgoing_.begin(*call.peer, pieces, !pieces.empty() && (call.flags & FI_INJECT) != 0, token);
  if (operation == nullptr) return nullptr;
  operation->reports = &queues_.writes;
  operation->context = call.context;
  operation->flags = call.flags;
  operation->kind = FI_RMA | FI_WRITE;
  operation->is_silent = call.is_silent;
  return operation;
}

ssize_t RemoteMemory::write(const RemoteCall& call) {
  const Buffer from(call.pieces);
  const size_t length = from.size();
  if (!call.is_silent && !queues_.writes.has_room(call.flags)) return -FI_EAGAIN;
  if (call.peer->is_self) return write_to_self(call, length);
  const bool is_early = length <= call.peer->part_max();
  uint32_t token = 0;
  const Outgoing::Operation* const operation = begin(call, is_early ? std::span<const iovec>() : call.pieces, token);
  if (operation == nullptr) return -FI_EAGAIN;
  Words words{flags_of(call), token};
  words.wide(call.address).wide(call.key).wide(call.data);
  const am::Index index = call.peer->index;
  am::Outcome sent = am::Outcome::not_sent;
  if (!is_early) {
    const bool is_one_piece = operation->buffer.is_one_piece();
    Words all{flags_of(call) | (is_one_piece ? 0u : MessageFlags::kPieces), token};
    all.wide(call.address).wide(call.key).wide(call.data).wide(length).wide(reinterpret_cast<uintptr_t>(operation->buffer.address()));
    sent = endpoint_.request_now(index, Handlers::kWriteFrom, {}, all);
  } else if (from.is_one_piece() || length == 0) {  // nothing can be reserved for no bytes
    sent = endpoint_.request_now(index, Handlers::kWrite, as_bytes(from.address(), length), words);
  } else if (const MutableBytes room = endpoint_.reserve_now(index, static_cast<uint32_t>(length), 8); !room.empty()) {
    from.read(0, room.first(length));
    sent = endpoint_.commit(Handlers::kWrite, static_cast<uint32_t>(length), words);
  }
  if (sent != am::Outcome::sent) outgoing_.drop(token);
  return outcome(sent);
}

void RemoteMemory::on_write(am::Token& token, void* context) {
  RemoteMemory& memory = *static_cast<RemoteMemory*>(context);
  if (memory.peers_.sender(token) == nullptr || token.arguments().size() != 8) return;
  const Bytes payload = token.payload();
  MemoryRegion* region = nullptr;
  const uint64_t key = token.wide(4);
  const MutableBytes to = memory.part(key, token.wide(2), payload.size(), FI_REMOTE_WRITE, region);
  if (region == nullptr) return reply_done(token, token.argument(1), kRejected);
  if (!payload.empty()) std::memcpy(to.data(), payload.data(), payload.size());
  reply_done(token, token.argument(1), 0);
  memory.count_write({region, key, token.wide(6), payload.size(), (token.argument(0) & MessageFlags::kData) != 0});
}

void RemoteMemory::on_write_from(am::Token& token, void* context) {
  RemoteMemory& memory = *static_cast<RemoteMemory*>(context);
  Peer* const peer = memory.peers_.sender(token);
  if (peer == nullptr || token.arguments().size() != 12) return;
  MemoryRegion* region = nullptr;
  const uint64_t key = token.wide(4), length = token.wide(8);
  const MutableBytes to = memory.part(key, token.wide(2), length, FI_REMOTE_WRITE, region);
  if (region == nullptr) return reply_done(token, token.argument(1), kRejected);
  const Envelope envelope{.peer = peer, .data = token.wide(6), .length = length, .address = token.wide(10), .token = token.argument(1),
                          .flags = static_cast<uint8_t>(token.argument(0) & MessageFlags::kKnown)};
  memory.incoming_.fetch({.owner = &memory, .envelope = envelope, .is_answered = true, .to = Buffer(to.data(), to.size()),
                          .region = region->serial(), .key = key}, &token);
}

ssize_t RemoteMemory::write_to_self(const RemoteCall& call, size_t length) {
  MemoryRegion* region = nullptr;
  const MutableBytes to = part(call.key, call.address, length, FI_REMOTE_WRITE, region);
  const Completion completion{.context = call.context, .flags = FI_RMA | FI_WRITE};
  if (region == nullptr) {
    queues_.writes.fail(completion, kRejected);
    return 0;
  }
  Buffer(call.pieces).read(0, to);
  queues_.writes.succeed(call.flags, completion, call.is_silent);
  count_write({region, call.key, call.data, length, (call.flags & FI_REMOTE_CQ_DATA) != 0});
  return 0;
}

// ---- reads

ssize_t RemoteMemory::read(const RemoteCall& call) {
  Buffer to(call.pieces);
  const size_t length = to.size();
  if (!queues_.reads.has_room(call.flags)) return -FI_EAGAIN;
  if (call.peer->is_self) return read_from_self(call, length);
  const Envelope envelope{.peer = call.peer, .length = length, .address = call.address};
  const auto token = incoming_.expect({.owner = this, .envelope = envelope, .to = std::move(to), .key = call.key,
                                       .in_pieces = !call.peer->memory.is_found(), .context = call.context, .flags = call.flags});
  if (!token) return -FI_EAGAIN;
  const Fetch& fetch = *incoming_.find(call.peer, *token);
  Words words = read_request(fetch, *token);
  if (incoming_.share(*token, fetch)) words.wide(reinterpret_cast<uintptr_t>(fetch.to.address()));
  const am::Outcome sent = endpoint_.request_now(call.peer->index, Handlers::kRead, {}, words);
  if (sent != am::Outcome::sent) incoming_.drop(*token);
  return outcome(sent);
}

void RemoteMemory::on_read(am::Token& token, void* context) {
  RemoteMemory& memory = *static_cast<RemoteMemory*>(context);
  Peer* const peer = memory.peers_.sender(token);
  if (peer == nullptr || (token.arguments().size() != 8 && token.arguments().size() != 10)) return;
  const uint32_t fetch = token.argument(1);
  MemoryRegion* region = nullptr;
  const uint64_t key = token.wide(4), length = token.wide(6);
  const MutableBytes from = memory.part(key, token.wide(2), length, FI_REMOTE_READ, region);
  if (region == nullptr) return refuse(token, fetch);
  if (memory.queues_.peer_reads.counter != nullptr) memory.queues_.peer_reads.counter->add(true);
  if (length <= peer->part_max()) {
    token.reply_medium(Handlers::kPiece, from, std::array{fetch, 0u, 0u});
  } else if ((token.argument(0) & MessageFlags::kPieces) == 0) {
    token.reply_short(Handlers::kGranted, Words{fetch}.wide(reinterpret_cast<uintptr_t>(from.data())));
    const Buffer all(from.data(), from.size());
    if (token.arguments().size() == 10) peer->memory.help(fetch, all, token.wide(8));
  } else {
    if (!memory.outgoing_.begin_read(*peer, {from.data(), from.size()}, *region, fetch)) refuse(token, fetch);
  }
}

void RemoteMemory::on_granted(am::Token& token, void* context) {
  RemoteMemory& memory = *static_cast<RemoteMemory*>(context);
  if (token.arguments().size() != 3) return;
  const uint32_t own = token.argument(0);
  Fetch* const fetch = memory.incoming_.find(memory.peers_.sender(token), own);
  const uint64_t address = token.wide(1);
  if (fetch == nullptr || fetch->is_answered || fetch->source != 0 || address == 0) return;
  memory.incoming_.copy(own, *fetch, address, token);
}

void RemoteMemory::ask_pieces(Fetch& fetch, uint32_t token, am::Token* message) {
  if (std::exchange(fetch.in_pieces, true)) return incoming_.end(token, FI_EIO);
  fetch.source = 0;
  Peer& peer = *fetch.envelope.peer;
  peer.memory.forget();  // the kernel does not allow it any more
  outbox_.answer(peer, message, Handlers::kRead, read_request(fetch, token));
}

void RemoteMemory::on_refused(am::Token& token, void* context) {
  RemoteMemory& memory = *static_cast<RemoteMemory*>(context);
  if (token.arguments().size() != 2 || memory.incoming_.find(memory.peers_.sender(token), token.argument(0)) == nullptr) return;
  memory.incoming_.end(token.argument(0), kRejected);
}

// A read of ours has its bytes, or a write of a peer.
void RemoteMemory::fetched(const Fetch& fetch, int error) {
  if (fetch.region != 0) {
    MemoryRegion* const region = regions_.find(fetch.key, fetch.region);
    if (error != 0 || region == nullptr) return;
    return count_write({region, fetch.key, fetch.envelope.data, static_cast<size_t>(fetch.envelope.length),
                        (fetch.envelope.flags & MessageFlags::kData) != 0});
  }
  const Completion completion{.context = fetch.context, .flags = fetch.is_atomic ? FI_ATOMIC | FI_READ : FI_RMA | FI_READ};
  if (error != 0) {
    queues_.reads.fail(completion, error);
  } else {
    queues_.reads.succeed(fetch.flags, completion);
  }
}

ssize_t RemoteMemory::read_from_self(const RemoteCall& call, size_t length) {
  MemoryRegion* region = nullptr;
  const MutableBytes from = part(call.key, call.address, length, FI_REMOTE_READ, region);
  const Completion completion{.context = call.context, .flags = FI_RMA | FI_READ};
  if (region == nullptr) {
    queues_.reads.fail(completion, kRejected);
    return 0;
  }
  Buffer(call.pieces).write(0, from);
  queues_.reads.succeed(call.flags, completion);
  return 0;
}

// ---- atomic operations

// Applies a call to memory of this process. `operands`: those, and behind them what is compared.
int RemoteMemory::apply(const AtomicCall& call, uint64_t bytes, Bytes operands, MutableBytes result) {
  const uint64_t access = (call.operation == FI_ATOMIC_READ ? 0 : FI_REMOTE_WRITE) | (call.kind == AtomicKind::update ? 0 : FI_REMOTE_READ);
  MemoryRegion* region = nullptr;
  const MutableBytes to = part(call.call.key, call.call.address, bytes, access, region);
  if (region == nullptr) return kRejected;
  const std::byte* const operand = operands.empty() ? nullptr : operands.data();
  const std::byte* const compare = call.kind == AtomicKind::compare ? operand + bytes : nullptr;
  apply_atomic(call.operation, call.datatype, to.data(), operand, compare, result.data(), call.count);
  const bool has_data = (call.call.flags & FI_REMOTE_CQ_DATA) != 0;
  if (call.operation != FI_ATOMIC_READ) count_write({region, call.call.key, call.call.data, bytes, has_data});
  return 0;
}

ssize_t RemoteMemory::atomic(const AtomicCall& call) {
  const size_t bytes = call.count * atomic_size(call.kind, call.operation, call.datatype);
  const bool fetches = call.kind != AtomicKind::update;
  const RemoteCall& to = call.call;
  if (!to.is_silent && !(fetches ? queues_.reads : queues_.writes).has_room(to.flags)) return -FI_EAGAIN;
  const size_t operand_bytes = call.operation == FI_ATOMIC_READ ? 0 : bytes;
  std::array<std::byte, 2 * kAtomicBytes> operands;
  if (operand_bytes != 0) Buffer(to.pieces).read(0, {operands.data(), bytes});
  if (call.kind == AtomicKind::compare) Buffer(call.compare).read(0, {operands.data() + bytes, bytes});
  const Bytes payload(operands.data(), operand_bytes + (call.kind == AtomicKind::compare ? bytes : 0));
  if (to.peer->is_self) return atomic_to_self(call, bytes, payload);
  uint32_t token = 0;
  if (fetches) {
    const auto expected = incoming_.expect({.owner = this, .envelope = {.peer = to.peer, .length = bytes}, .to = Buffer(call.result),
                                            .is_atomic = true, .context = to.context, .flags = to.flags});
    if (!expected) return -FI_EAGAIN;
    token = *expected;
  } else if (Outgoing::Operation* const operation = begin(to, {}, token)) {
    operation->kind = FI_ATOMIC | FI_WRITE;
  } else {
    return -FI_EAGAIN;
  }
  const auto kind = static_cast<uint32_t>(call.kind), datatype = static_cast<uint32_t>(call.datatype);
  const uint32_t what = static_cast<uint32_t>(call.operation) | datatype << 8 | kind << 16;
  Words words{flags_of(to), token, what, static_cast<uint32_t>(call.count)};
  words.wide(to.address).wide(to.key).wide(to.data);
  const am::Outcome sent = endpoint_.request_now(to.peer->index, Handlers::kAtomic, payload, words);
  if (sent != am::Outcome::sent && fetches) incoming_.drop(token);
  if (sent != am::Outcome::sent && !fetches) outgoing_.drop(token);
  return outcome(sent);
}

void RemoteMemory::on_atomic(am::Token& token, void* context) {
  RemoteMemory& memory = *static_cast<RemoteMemory*>(context);
  if (memory.peers_.sender(token) == nullptr || token.arguments().size() != 10) return;
  const uint32_t what = token.argument(2), own = token.argument(1);
  const AtomicCall call{
      .call = {.address = token.wide(4), .key = token.wide(6), .data = token.wide(8),
               .flags = (token.argument(0) & MessageFlags::kData) != 0 ? FI_REMOTE_CQ_DATA : 0},
      .kind = static_cast<AtomicKind>(what >> 16 & 3), .operation = static_cast<fi_op>(what & 0xFF),
      .datatype = static_cast<fi_datatype>(what >> 8 & 0xFF), .count = token.argument(3)};
  const size_t size = atomic_size(call.kind, call.operation, call.datatype);
  const uint64_t bytes = uint64_t{size} * call.count;
  const uint64_t operand_bytes = call.operation == FI_ATOMIC_READ ? 0 : call.kind == AtomicKind::compare ? 2 * bytes : bytes;
  // The peer may still write its payload, so that is copied before its use.
  std::array<std::byte, 2 * kAtomicBytes> operands;
  std::array<std::byte, kAtomicBytes> result;
  int error = FI_EINVAL;
  if (size != 0 && bytes <= kAtomicBytes && token.payload().size() == operand_bytes) {
    if (operand_bytes != 0) std::memcpy(operands.data(), token.payload().data(), operand_bytes);
    error = memory.apply(call, bytes, {operands.data(), operand_bytes}, call.kind == AtomicKind::update ? MutableBytes() : result);
  }
  if (call.kind == AtomicKind::update) return reply_done(token, own, error);
  if (error != 0) return refuse(token, own);
  token.reply_medium(Handlers::kPiece, {result.data(), static_cast<size_t>(bytes)}, std::array{own, 0u, 0u});
}

ssize_t RemoteMemory::atomic_to_self(const AtomicCall& call, size_t bytes, Bytes operands) {
  const bool fetches = call.kind != AtomicKind::update;
  std::array<std::byte, kAtomicBytes> result;
  const Reports& reports = fetches ? queues_.reads : queues_.writes;
  const Completion completion{.context = call.call.context, .flags = FI_ATOMIC | (fetches ? FI_READ : FI_WRITE)};
  if (const int error = apply(call, bytes, operands, fetches ? MutableBytes(result) : MutableBytes()); error != 0) {
    reports.fail(completion, error);
    return 0;
  }
  if (fetches) Buffer(call.result).write(0, {result.data(), bytes});
  reports.succeed(call.call.flags, completion, call.call.is_silent);
  return 0;
}

}  // namespace unet::fabric
