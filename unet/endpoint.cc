// endpoint.cc - an endpoint's creation and end, and the parts of its data path that are not inline.
#include "unet/endpoint.h"

#include "unet/connection.h"
#include "unet/emulated.h"
#include "unet/upcall_thread.h"

namespace unet {
namespace {

constexpr uint32_t kLookAtSocket = 65536;  // empty polls between checks whether the NI still exists

}  // namespace

Result<Endpoint> Endpoint::create(std::shared_ptr<Connection> connection, const EndpointOptions& options) {
  if (options.emulated != 0 && options.weight != 1) {
    return fail(Errc::invalid_argument, "endpoint options: an emulated endpoint has no weight of its own, as all of a connection share "
                                        "one real endpoint; create one with queues of its own for that");
  }
  if (!valid_options(options)) {
    return fail(Errc::invalid_argument,
                "endpoint options out of range: queue depths " + std::to_string(kQueueDepthMin) + " to " +
                    std::to_string(kQueueDepthMax) + ", buffers " + std::to_string(kQueueDepthMin) + " to " +
                    std::to_string(kBuffersMax) + ", buffer_size " + std::to_string(kBufferSizeMin) + " to " +
                    std::to_string(kBufferSizeMax) + " in multiples of 64, send_bytes at least " +
                    std::to_string(kMessageMax) + ", the segment at most " + std::to_string(kSegmentMax) + " bytes, weight 1 to " +
                    std::to_string(kEndpointWeightMax));
  }
  if (options.emulated != 0) return create_emulated(std::move(connection), options);
  auto request = request_for<control::CreateEndpoint>(control::Op::create_endpoint, 0);
  request.options = options;
  auto answer = connection->call(request);
  if (!answer) return tl::unexpected(answer.error());
  const SegmentGeometry geometry = SegmentGeometry::of(options);
  Result<Mapping> segment = fail(Errc::protocol, "the NI sent no communication segment");
  if (answer->descriptors.size() == 1) segment = Mapping::map(answer->descriptors[0].get(), geometry.total);
  if (!segment) {
    connection->throw_away(answer->reply);
    return tl::unexpected(segment.error());
  }
  const auto& made = answer->reply.create_endpoint;
  auto queues = std::make_unique<NiQueues>(std::move(*segment), geometry, connection->doorbells(), made.doorbell);
  return Endpoint(std::move(connection), made.endpoint, std::move(queues), nullptr);
}

Result<Endpoint> Endpoint::create_emulated(std::shared_ptr<Connection> connection, const EndpointOptions& options) {
  auto carrier = Carrier::of(connection);
  if (!carrier) return tl::unexpected(carrier.error());
  auto answer = connection->call(request_for<control::CreateEmulated>(control::Op::create_emulated, (*carrier)->id()));
  if (!answer) return tl::unexpected(answer.error());
  const uint32_t id = answer->reply.create_endpoint.endpoint;
  auto emulated = std::make_unique<Emulated>(id, std::move(*carrier), options);
  return Endpoint(std::move(connection), id, nullptr, std::move(emulated));
}

Endpoint::Endpoint(std::shared_ptr<Connection> connection, uint32_t id, std::unique_ptr<NiQueues> queues,
                   std::unique_ptr<ChannelSet> emulated)
    : own_(*connection, id, std::move(queues)),
      emulated_(std::move(emulated)),
      last_events_(connection->event_count() - 1),  // forces one check
      connection_(std::move(connection)),
      id_(id),
      upcall_(std::make_unique<UpcallThread>()) {}

Endpoint::Endpoint(Endpoint&& other) noexcept = default;

Endpoint& Endpoint::operator=(Endpoint&& other) noexcept {
  if (this == &other) return *this;
  std::destroy_at(this);
  return *std::construct_at(this, std::move(other));
}

Endpoint::~Endpoint() {
  if (connection_ == nullptr) return;  // moved from
  if (!connection_->is_own()) {
    upcall_->forget();
    return;  // in a forked child only the memory and the descriptors may be released
  }
  stop_upcall();
  channels().linger();
  std::vector<uint64_t> cookies;
  for (const PendingId pending : pending_) {
    cookies.push_back(static_cast<uint64_t>(pending));
    connection_->abandon(cookies.back());
    channels().opened();
  }
  channels().forget_all();
  auto request = request_for<control::DestroyEndpoint>(control::Op::destroy_endpoint, id_);
  if (connection_->call(request, kSecond)) connection_->forget(cookies);
}

MutableBytes Endpoint::peer_region(Channel channel) const noexcept {
  const LocalChannel* const local = own_.local(channel);
  if (local == nullptr) return {};
  return {local->peer_region().data(), local->peer_region().size()};
}

bool Endpoint::receive_any(Message& message) noexcept {
  if (own_.embedded() && !emulated() && own_.receive_or_fetch(message)) return true;
  if (connection_->event_count() != last_events_) process_events();
  if (emulated() ? emulated_->receive(message) : own_.receive(message)) return true;
  if (++empty_polls_ % kLookAtSocket == 0) process_events();
  return false;
}

}  // namespace unet
