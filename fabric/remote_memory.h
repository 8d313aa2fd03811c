// remote_memory.h - reads, writes and atomic operations on the registered memory of peers; used by Endpoint.
//
// The process that has the memory does all of it, when it polls: it alone knows its regions. Up to 16 KiB travel with the request or the
// answer, 4 KiB over a wire. More are copied from the other process's memory, or sent in pieces.
#pragma once

#include "fabric/atomic_operation.h"
#include "fabric/incoming.h"
#include "fabric/memory_region.h"
#include "fabric/outgoing.h"
#include "fabric/reports.h"

namespace unet::fabric {

constexpr size_t kAtomicBytes = 4096;  // of one operand

// The arguments of a call. `pieces` are local memory: what is written, or where the result goes.
struct RemoteCall {
  Peer* peer = nullptr;
  std::span<const iovec> pieces;
  uint64_t address = 0, key = 0;  // of the peer's memory
  uint64_t data = 0;
  uint64_t flags = 0;             // FI_INJECT, FI_REMOTE_CQ_DATA, FI_COMPLETION, ...
  void* context = nullptr;
  bool is_silent = false;         // fi_inject_write(): success is told by no queue
};

struct AtomicCall {
  RemoteCall call;                     // pieces: the operands
  std::span<const iovec> compare, result;
  AtomicKind kind = AtomicKind::update;
  fi_op operation{};
  fi_datatype datatype{};
  size_t count = 0;
};

class RemoteMemory final : FetchOwner {
 public:
  struct Queues {
    Reports reads, writes;                 // of our calls
    Reports peer_reads, peer_writes;       // of peers' calls: counters, and the queue for data
  };
  RemoteMemory(am::Endpoint& endpoint, Peers& peers, Outbox& outbox, Outgoing& outgoing, Incoming& incoming, MemoryRegions& regions,
               const Queues& queues);
  RemoteMemory(const RemoteMemory&) = delete;
  RemoteMemory& operator=(const RemoteMemory&) = delete;

  // Return 0 or -FI_EAGAIN. The channel to the peer is open.
  ssize_t write(const RemoteCall& call);
  ssize_t read(const RemoteCall& call);
  ssize_t atomic(const AtomicCall& call);

 private:
  // The end of a write of a peer.
  struct Written {
    MemoryRegion* region;
    uint64_t key;
    uint64_t data;
    size_t length;
    bool has_data;
  };
  static void on_write(am::Token& token, void* memory);
  static void on_write_from(am::Token& token, void* memory);
  static void on_read(am::Token& token, void* memory);
  static void on_granted(am::Token& token, void* memory);
  static void on_refused(am::Token& token, void* memory);
  static void on_atomic(am::Token& token, void* memory);

  MutableBytes part(uint64_t key, uint64_t address, uint64_t length, uint64_t access, MemoryRegion*& region) noexcept;
  void count_write(const Written& write);
  void ask_pieces(Fetch& fetch, uint32_t token, am::Token* message) override;
  bool may_write(const Fetch& fetch) noexcept override { return fetch.region == 0 || regions_.find(fetch.key, fetch.region) != nullptr; }
  void fetched(const Fetch& fetch, int error) override;
  ssize_t write_to_self(const RemoteCall& call, size_t length);
  ssize_t read_from_self(const RemoteCall& call, size_t length);
  ssize_t atomic_to_self(const AtomicCall& call, size_t bytes, Bytes operands);
  int apply(const AtomicCall& call, uint64_t bytes, Bytes operands, MutableBytes result);
  Outgoing::Operation* begin(const RemoteCall& call, std::span<const iovec> pieces, uint32_t& token);

  am::Endpoint& endpoint_;
  Peers& peers_;
  Outbox& outbox_;
  Outgoing& outgoing_;
  Incoming& incoming_;
  MemoryRegions& regions_;
  const Queues& queues_;
};

}  // namespace unet::fabric
