// endpoint.h - the object of fi_endpoint(): an endpoint of Active Messages, and what sends and receives by it.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <memory>
#include <optional>

#include "fabric/address_vector.h"
#include "fabric/domain.h"
#include "fabric/outbox.h"
#include "fabric/peers.h"
#include "fabric/provider.h"
#include "fabric/receiver.h"
#include "fabric/remote_memory.h"
#include "fabric/reports.h"
#include "fabric/sender.h"

namespace unet::fabric {

// fi_ops_domain::endpoint.
int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint, void* context);

// The flags of calls that send, or that use the memory of peers.
constexpr uint64_t kCallFlags =
    FI_REMOTE_CQ_DATA | FI_COMPLETION | FI_MORE | FI_FENCE | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;

// The calls of a program, in endpoint_messages.cc.
extern fi_ops_msg message_calls;
extern fi_ops_tagged tagged_calls;
extern fi_ops_rma remote_calls;     // endpoint_remote.cc
extern fi_ops_atomic atomic_calls;  // endpoint_atomics.cc

class Endpoint : public fid_ep {
 public:
  Endpoint(Domain& domain, const fi_info& info, std::unique_ptr<am::Endpoint> messages, Address own, void* context);
  // Sends what is left, for a moment.
  ~Endpoint();

  DomainLock& lock() noexcept { return domain_.lock(); }
  Domain& domain() noexcept { return domain_; }

  // ---- set-up, without the lock

  int bind(struct fid& object, uint64_t flags);
  int enable();
  const Address& address() const noexcept { return own_; }
  uint32_t address_format() const noexcept { return address_format_; }
  // The flags of calls without flags; FI_TRANSMIT or FI_RECV.
  uint64_t& default_flags(uint64_t direction) noexcept { return direction == FI_RECV ? receive_flags_ : transmit_flags_; }

  // ---- calls of the program, with the lock

  size_t least_room() const noexcept { return least_room_; }
  void set_least_room(size_t bytes) noexcept;

  ssize_t send(fi_addr_t to, SendCall& call) {
    Peer* const peer = __builtin_expect(parts_ != nullptr, 1) ? parts_->peers.get(to) : nullptr;
    if (__builtin_expect(peer == nullptr, 0)) return -FI_EINVAL;
    if (__builtin_expect(peer->takes_sends, 1)) {
      call.peer = peer;
      if (const ssize_t sent = parts_->sender.send(call); __builtin_expect(sent != -FI_EAGAIN, 1)) return sent;
    }
    return send_later(*peer, call);
  }
  ssize_t receive(fi_addr_t from, ReceiveCall& call);
  // `of`: a function of RemoteMemory.
  template <typename Call>
  ssize_t remote(fi_addr_t to, RemoteCall& call, const Call& of) {
    if (parts_ == nullptr) return -FI_EOPBADSTATE;
    if (is_fenced(to, call.flags)) return -FI_EAGAIN;
    call.peer = parts_->peers.get(to);
    if (call.peer == nullptr) return -FI_EINVAL;
    ssize_t done = -FI_EAGAIN;
    if (call.peer->state == Peer::State::open) done = of(parts_->memory);
    if (done != -FI_EAGAIN) return done;
    progress();
    const int opened = parts_->peers.open(*call.peer);
    return opened != 0 ? opened : of(parts_->memory);
  }
  // Whether a call with these flags must wait for the ends of others (FI_FENCE).
  bool is_fenced(fi_addr_t to, uint64_t flags) { return (flags & FI_FENCE) != 0 && has_operations(to); }
  ssize_t cancel(const void* context);
  // The address vector has no longer this number for this target.
  void forget(fi_addr_t number, const std::string& target) {
    if (parts_ != nullptr) parts_->peers.forget(number, target);
  }

  // ---- progress, with the lock

  // Returns the number of messages that have arrived.
  uint32_t progress() {
    if (__builtin_expect(parts_ == nullptr, 0)) return 0;
    const uint32_t arrived = messages_->poll();
    if (__builtin_expect(parts_->peers.has_work() || !is_settled(), 0)) settle();
    return arrived;
  }
  // The program may free the memory of a region.
  void close(const MemoryRegion& region) noexcept {
    if (parts_ != nullptr && domain_.is_own_process()) parts_->incoming.close(region);
  }
  // Whether progress() would find a message.
  bool has_message() const noexcept { return parts_ != nullptr && messages_->has_message(); }
  // Whether the program has not polled the endpoint since the last call. With a full completion queue it is false: arrivals must wait.
  bool is_left_alone() noexcept;
  // See am::Endpoint::arm().
  bool arm(Nanoseconds& limit);
  // Returns the descriptor, or a negative error.
  int descriptor();

 private:
  // What exists from fi_enable() on.
  struct Parts {
    Parts(am::Endpoint& endpoint, AddressVector& vector, const Address& own, MemoryRegions& regions, const Reports& sends,
          const Reports& receives, const RemoteMemory::Queues& remote)
        : peers(endpoint, vector, own), outbox(endpoint), outgoing(endpoint, peers, regions), incoming(endpoint, peers, outbox),
          sender(endpoint, peers, outgoing, sends), receiver(endpoint, peers, outbox, outgoing, incoming, receives),
          memory(endpoint, peers, outbox, outgoing, incoming, regions, remote) {
      sender.set_receiver(receiver);
    }
    Peers peers;
    Outbox outbox;
    Outgoing outgoing;
    Incoming incoming;
    Sender sender;
    Receiver receiver;
    RemoteMemory memory;
  };
  int bind_queue(CompletionQueue& queue, uint64_t flags);
  int bind_counter(Counter& counter, uint64_t flags);
  ssize_t send_later(Peer& peer, SendCall& call);
  bool has_operations(fi_addr_t with);
  void settle();
  bool is_settled() const noexcept {
    return !parts_->outgoing.has_work() && !parts_->incoming.has_work() && parts_->outbox.empty() && parts_->sender.empty();
  }

  Domain& domain_;
  std::unique_ptr<am::Endpoint> messages_;
  Address own_;  // fixed by enable()
  const uint32_t address_format_;
  const bool directed_;  // receives may name a source
  uint64_t transmit_flags_, receive_flags_;
  size_t least_room_ = 64;
  AddressVector* vector_ = nullptr;
  Reports sends_, receives_;
  RemoteMemory::Queues remote_;
  uint32_t polls_seen_ = 0;  // by is_left_alone()
  std::unique_ptr<Parts> parts_;
};

// Runs a call of the program under the lock.
template <typename Call>
ssize_t locked(fid_ep* fid, const Call& call) noexcept {
  Endpoint& endpoint = *static_cast<Endpoint*>(fid);
  const Locked held(endpoint.lock());
  return guarded([&]() -> ssize_t { return call(endpoint); });
}

}  // namespace unet::fabric
