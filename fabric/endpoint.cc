// endpoint.cc - set-up, progress and end of an endpoint.
#include "fabric/endpoint.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include "fabric/info.h"
#include "fabric/operations_table.h"
#include "fabric/provider.h"

namespace unet::fabric {
namespace {

constexpr Nanoseconds kLinger = kSecond;         // how long the end of an endpoint waits for its peers
constexpr int kNamesTried = 8;
constexpr Nanoseconds kNap = kMillisecond;       // a sleep with work that waits for room
constexpr uint32_t kWirePacket = am::kPieceMax + 200;  // bytes of most packets on a wire, with their heads: the step of the window

Endpoint& of(fid* fid) noexcept { return *reinterpret_cast<Endpoint*>(fid); }

// ---- tables of functions

int close_endpoint(fid* fid) {
  Endpoint* const endpoint = &of(fid);
  Domain& domain = endpoint->domain();
  {
    const Locked held(domain.lock());
    delete endpoint;
  }
  domain.closed();
  return 0;
}

int bind_endpoint(fid* fid, struct fid* object, uint64_t flags) {
  const Locked held(of(fid).lock());
  return guarded([&] { return of(fid).bind(*object, flags); });
}

int control(fid* fid, int command, void* argument) {
  const Locked held(of(fid).lock());
  uint64_t* const flags = static_cast<uint64_t*>(argument);
  switch (command) {
    case FI_ENABLE: return guarded([&] { return of(fid).enable(); });
    case FI_GETOPSFLAG:
      *flags = of(fid).default_flags(*flags & (FI_TRANSMIT | FI_RECV));
      return 0;
    case FI_SETOPSFLAG:
      of(fid).default_flags(*flags & (FI_TRANSMIT | FI_RECV)) = *flags & ~uint64_t{FI_TRANSMIT | FI_RECV};
      return 0;
    default: return -FI_ENOSYS;
  }
}

int get_option(fid* fid, int level, int name, void* value, size_t* length) {
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV) return -FI_ENOPROTOOPT;
  if (std::exchange(*length, sizeof(size_t)) < sizeof(size_t)) return -FI_ETOOSMALL;
  const Locked held(of(fid).lock());
  *static_cast<size_t*>(value) = of(fid).least_room();
  return 0;
}

int set_option(fid* fid, int level, int name, const void* value, size_t length) {
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV) return -FI_ENOPROTOOPT;
  if (length != sizeof(size_t)) return -FI_EINVAL;
  const Locked held(of(fid).lock());
  of(fid).set_least_room(*static_cast<const size_t*>(value));
  return 0;
}

int get_name(fid* fid, void* to, size_t* length) {
  return guarded([&] { return give(of(fid).address(), of(fid).address_format(), to, length); });
}

fi_ops kFidOps = fid_ops(close_endpoint, bind_endpoint, control);
fi_ops_ep kOps = {
    .size = sizeof(fi_ops_ep),
    .cancel = [](fid* fid, void* context) -> ssize_t {
      const Locked held(of(fid).lock());
      return guarded([&] { return of(fid).cancel(context); });
    },
    .getopt = get_option,
    .setopt = set_option,
    .tx_ctx = [](fid_ep*, int, fi_tx_attr*, fid_ep**, void*) { return -FI_ENOSYS; },
    .rx_ctx = [](fid_ep*, int, fi_rx_attr*, fid_ep**, void*) { return -FI_ENOSYS; },
    .rx_size_left = [](fid_ep*) -> ssize_t { return -FI_ENOSYS; },
    .tx_size_left = [](fid_ep*) -> ssize_t { return -FI_ENOSYS; },
};
fi_ops_cm kNameOps = {
    .size = sizeof(fi_ops_cm),
    .setname = [](fid*, void*, size_t) { return -FI_ENOSYS; },
    .getname = get_name,
    .getpeer = [](fid_ep*, void*, size_t*) { return -FI_ENOSYS; },
    .connect = [](fid_ep*, const void*, const void*, size_t) { return -FI_ENOSYS; },
    .listen = [](fid_pep*) { return -FI_ENOSYS; },
    .accept = [](fid_ep*, const void*, size_t) { return -FI_ENOSYS; },
    .reject = [](fid_pep*, fid*, const void*, size_t) { return -FI_ENOSYS; },
    .shutdown = [](fid_ep*, uint64_t) { return -FI_ENOSYS; },
    .join = [](fid_ep*, const void*, uint64_t, fid_mc**, void*) { return -FI_ENOSYS; },
};

}  // namespace

// ---- set-up

Endpoint::Endpoint(Domain& domain, const fi_info& info, std::unique_ptr<am::Endpoint> messages, Address own, void* context)
    : fid_ep{{FI_CLASS_EP, context, &kFidOps}, &kOps, &kNameOps, &message_calls, &remote_calls, &tagged_calls, &atomic_calls, nullptr},
      domain_(domain), messages_(std::move(messages)), own_(std::move(own)),
      address_format_(info.addr_format == kStringFormat ? kStringFormat : kBinaryFormat), directed_((info.caps & FI_DIRECTED_RECV) != 0),
      transmit_flags_(info.tx_attr != nullptr ? info.tx_attr->op_flags : 0),
      receive_flags_(info.rx_attr != nullptr ? info.rx_attr->op_flags : 0) {
  domain_.opened();
  domain_.add(*this);
}

Endpoint::~Endpoint() {
  const Nanoseconds start = monotonic_now();
  if (parts_ != nullptr && domain_.is_own_process()) {  // a child's copy ends without a word to the peers
    while ((!is_settled() || parts_->outgoing.has_copies()) && monotonic_now() - start < kLinger) progress();
    parts_->peers.forget_memory();
    messages_->flush(kLinger);
  }
  for (const Reports* const each :
       {&sends_, &receives_, &remote_.reads, &remote_.writes, &remote_.peer_reads, &remote_.peer_writes}) {
    if (each->queue != nullptr) each->queue->waiter().remove(*this);
    if (each->counter != nullptr) each->counter->waiter().remove(*this);
  }
  domain_.remove(*this);
  messages_.reset();  // its handlers may still run
  if (vector_ != nullptr) vector_->remove_endpoint(*this);
}

int Endpoint::bind_queue(CompletionQueue& queue, uint64_t flags) {
  if ((flags & ~uint64_t{FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION}) != 0) return -FI_EBADFLAGS;
  for (Reports* const each : {&sends_, &receives_}) {
    if ((flags & (each == &sends_ ? FI_TRANSMIT : FI_RECV)) == 0) continue;
    if (each->queue != nullptr) return -FI_EINVAL;
    each->queue = &queue;
    each->selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
  }
  for (Reports* const each : {&remote_.reads, &remote_.writes}) {
    each->queue = sends_.queue;
    each->selective = sends_.selective;
  }
  remote_.peer_writes.queue = receives_.queue;
  return queue.waiter().add(*this);
}

int Endpoint::bind_counter(Counter& counter, uint64_t flags) {
  const std::pair<uint64_t, Reports*> events[] = {{FI_SEND, &sends_},        {FI_RECV, &receives_},
                                                  {FI_READ, &remote_.reads}, {FI_REMOTE_READ, &remote_.peer_reads},
                                                  {FI_WRITE, &remote_.writes}, {FI_REMOTE_WRITE, &remote_.peer_writes}};
  for (const auto& [event, reports] : events) {
    if ((flags & event) != 0) reports->counter = &counter;
    flags &= ~event;
  }
  if (flags != 0) return -FI_EBADFLAGS;
  return counter.waiter().add(*this);
}

int Endpoint::bind(struct fid& object, uint64_t flags) {
  if (parts_ != nullptr) return -FI_EOPBADSTATE;
  switch (object.fclass) {
    case FI_CLASS_AV:
      if (vector_ != nullptr) vector_->remove_endpoint(*this);
      vector_ = reinterpret_cast<AddressVector*>(&object);
      vector_->add_endpoint(*this);
      return 0;
    case FI_CLASS_CQ: return bind_queue(reinterpret_cast<CompletionQueue&>(object), flags);
    case FI_CLASS_CNTR: return bind_counter(reinterpret_cast<Counter&>(object), flags);
    case FI_CLASS_EQ: return 0;  // nothing is told there
    default: return -FI_EINVAL;
  }
}

int Endpoint::enable() {
  if (parts_ != nullptr) return 0;
  if (vector_ == nullptr) return -FI_ENOAV;
  if ((sends_.queue == nullptr && sends_.counter == nullptr) && (receives_.queue == nullptr && receives_.counter == nullptr)) {
    return -FI_ENOCQ;
  }
  Status bound = messages_->bind(own_.name);
  // Several endpoints may be opened with one fi_info.
  for (int i = 0; !bound && bound.error().code == Errc::already_exists && is_replaceable(own_.name) && i < kNamesTried; ++i) {
    own_.name = new_name();
    bound = messages_->bind(own_.name);
  }
  if (!bound) return failed(FI_LOG_EP_CTRL, bound.error());
  parts_ = std::make_unique<Parts>(*messages_, *vector_, own_, domain_.regions(), sends_, receives_, remote_);
  parts_->receiver.set_least_room(least_room_);
  messages_->set_error_handler(
      [](am::Endpoint&, const am::Returned& returned, void* parts) {
        Parts& to = *static_cast<Parts*>(parts);
        to.peers.note_returned(returned.index);
        if (returned.handler == Handlers::kReady && returned.arguments.size() == 10) to.outgoing.note_returned(returned.arguments[5]);
      },
      parts_.get());
  return 0;
}

void Endpoint::set_least_room(size_t bytes) noexcept {
  least_room_ = bytes;
  if (parts_ != nullptr) parts_->receiver.set_least_room(bytes);
}

// ---- calls of the program

// Makes room and tries again; or opens the channel, and sends when that is open.
ssize_t Endpoint::send_later(Peer& peer, SendCall& call) {
  progress();
  call.peer = &peer;
  if (peer.takes_sends) return parts_->sender.send(call);
  if (const int opened = parts_->peers.open(peer); opened != 0 && opened != -FI_EAGAIN) return opened;
  return parts_->sender.queue(call);
}

ssize_t Endpoint::receive(fi_addr_t from, ReceiveCall& call) {
  if (parts_ == nullptr) return -FI_EOPBADSTATE;
  if (directed_ && from != FI_ADDR_UNSPEC && (call.flags & FI_CLAIM) == 0) {
    call.selector.source = parts_->peers.get(from);
    if (call.selector.source == nullptr) return -FI_EINVAL;
  } else if (directed_ && from != FI_ADDR_UNSPEC && (call.flags & FI_PEEK) != 0) {
    call.selector.source = parts_->peers.get(from);
  }
  if ((call.flags & FI_PEEK) != 0) {
    progress();
    return parts_->receiver.peek(call);
  }
  return (call.flags & FI_CLAIM) != 0 ? parts_->receiver.take_claimed(call) : parts_->receiver.post(call);
}

bool Endpoint::has_operations(fi_addr_t with) {
  progress();
  const Peer* const peer = parts_ != nullptr ? parts_->peers.get(with) : nullptr;
  return peer != nullptr && peer->operations != 0;
}

ssize_t Endpoint::cancel(const void* context) {
  return parts_ != nullptr && parts_->receiver.cancel(context) ? 0 : -FI_ENOENT;
}

// ---- progress

void Endpoint::settle() {
  for (Peer* const lost : parts_->peers.progress()) {
    parts_->outgoing.fail_all(*lost, FI_ECONNRESET);
    parts_->incoming.fail_all(*lost, FI_ECONNRESET);
    parts_->receiver.fail_all(*lost, FI_ECONNRESET);
    parts_->outbox.drop(*lost);
    parts_->sender.fail_all(*lost, FI_ECONNRESET);
  }
  parts_->incoming.progress();
  parts_->outbox.progress();
  parts_->sender.progress();
  parts_->outgoing.progress();
}

bool Endpoint::is_left_alone() noexcept {
  const uint32_t polls = parts_ != nullptr ? parts_->peers.polls() : 0;
  const bool has_room = receives_.queue == nullptr || receives_.queue->has_room();
  return std::exchange(polls_seen_, polls) == polls && has_room;
}

bool Endpoint::arm(Nanoseconds& limit) {
  if (parts_ == nullptr) return true;
  settle();
  if (!is_settled() || parts_->peers.is_opening()) limit = std::min(limit, kNap);
  return messages_->arm(limit);
}

int Endpoint::descriptor() {
  const Result<int> descriptor = messages_->descriptor();
  return descriptor ? *descriptor : failed(FI_LOG_EP_CTRL, descriptor.error());
}

int open_endpoint(fid_domain* fid, fi_info* info, fid_ep** endpoint, void* context) {
  Domain& domain = *static_cast<Domain*>(fid);
  if (info == nullptr || info->ep_attr == nullptr) return -FI_EINVAL;
  if (info->ep_attr->type == FI_EP_MSG || info->ep_attr->type > FI_EP_RDM) return -FI_EOPNOTSUPP;
  if (info->ep_attr->tx_ctx_cnt > 1 || info->ep_attr->rx_ctx_cnt > 1) return -FI_EINVAL;
  return guarded([&]() -> int {
    Address own{new_name(), domain.host()};
    if (info->src_addr != nullptr) {
      const auto given = parse_bytes(info->src_addr, info->src_addrlen, info->addr_format);
      if (!given || given->host != domain.host()) return -FI_EADDRNOTAVAIL;
      own = *given;
    }
    const Locked held(domain.lock());
    auto messages = am::Endpoint::create(domain.context(), {.flow = {.congestion = {.packet = kWirePacket, .first_window = kWirePacket}},
                                                            .same_user_only = true, .other_hosts = true, .both_ways = true});
    if (!messages) return failed(FI_LOG_EP_CTRL, messages.error());
    *endpoint = new Endpoint(domain, *info, std::move(*messages), std::move(own), context);
    return 0;
  });
}

}  // namespace unet::fabric
