// service_captures.cc - captures of a running NI: who may have which, their memory, and their ends.
//
// The NI touches no file: frames go to memory that the reader has mapped, too, and what the reader does with them is its affair. So a
// full disk, a slow reader or a hostile one costs frames of that capture and nothing else.
#include <bit>
#include <ctime>

#include "ni/service/journal_records.h"
#include "ni/service/log.h"
#include "ni/service/service.h"
#include "unet/base/bytes.h"
#include "unet/capture_memory.h"

namespace unet::service {
namespace {

constexpr uint32_t kNone = ~uint32_t{0};
constexpr uint32_t kOfOthersMax = 4;  // captures of all users but root and the NI's own: each costs the engine a look per frame
constexpr uint32_t kSnapMin = 14;
constexpr Nanoseconds kEvery = 100 * kMillisecond;  // of ordinary users: the engine looks at all channels of the endpoint

uint64_t time_of_day() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<uint64_t>(t.tv_sec) * kSecond + static_cast<uint64_t>(t.tv_nsec);
}

}  // namespace

Status Service::may_capture(ClientRecord& client, const control::CaptureStart& packet) {
  const auto wrong = [](const std::string& why) { return fail(Errc::invalid_argument, "capture: " + why); };
  if (!std::has_single_bit(packet.bytes) || packet.bytes < kCaptureBytesMin || packet.bytes > kCaptureBytesMax) {
    return wrong("the buffer is a power of two of " + std::to_string(kCaptureBytesMin) + " to " + std::to_string(kCaptureBytesMax) +
                 " bytes");
  }
  if (packet.snap_length < kSnapMin) return wrong("at least " + std::to_string(kSnapMin) + " bytes are kept of a frame");
  if (packet.port < -1 || packet.port >= static_cast<int32_t>(ports_.size())) {
    return wrong("there is no port " + std::to_string(packet.port) + ": this network interface has " + std::to_string(ports_.size()));
  }
  const bool operates = is_operator(client.who);
  if (packet.header.endpoint == kNone) {
    if (packet.channel != kNone) return wrong("a channel is one of an endpoint: say which endpoint");
    if (operates) return {};
    return fail(Errc::not_permitted, "only root and user " + std::to_string(options_.own_user) +
                                         ", whose network interface this is, may capture what is others'; name an endpoint of your own");
  }
  const EndpointRecord* endpoint = endpoint_at(packet.header.endpoint);
  const bool known = endpoint != nullptr && !endpoint->detaching &&
                     (operates || owner_of(*client_at(endpoint->client)) == owner_of(client));
  if (known && endpoint->carrier) {
    return wrong("endpoint " + std::to_string(endpoint->id) + " is emulated and has no queues: name endpoint " +
                 std::to_string(*endpoint->carrier) + ", which carries it" +
                 (packet.channel == kNone ? "" : ", and channel " + std::to_string(packet.channel) + " of that"));
  }
  // The same words for "nobody's" and "somebody else's": ids of others are not to be probed.
  if (known) return {};
  return fail(Errc::not_found,
              "endpoint " + std::to_string(packet.header.endpoint) + (operates ? " does not exist" : " is not one of yours"));
}

Result<CaptureRecord*> Service::start_capture(ClientRecord& client, const control::CaptureStart& packet) {
  if (Status status = may_capture(client, packet); !status) return tl::unexpected(status.error());
  uint32_t of_others = 0, of_user = 0;
  const bool operates = is_operator(client.who);
  for (const auto& [number, capture] : captures_) {
    of_others += capture.of_operator ? 0 : 1;
    of_user += capture.user == client.who.uid ? 1 : 0;
  }
  if (captures_.size() == kCapturesMax || (!operates && (of_others >= kOfOthersMax || of_user != 0))) {
    return fail(Errc::quota_exceeded, "too many captures run: " + std::to_string(kCapturesMax) + " at a time, " +
                                          std::to_string(kOfOthersMax) + " of ordinary users, one of each (unetctl capture list)");
  }
  if (!operates) {
    if (now_ < next_capture_) return fail(Errc::unavailable, "captures are being started too fast; try again in a moment");
    next_capture_ = now_ + kEvery;
  }
  if (Status status = persistence_.takes(1); !status) return tl::unexpected(status.error());
  const uint64_t memory = kCapturePage + uint64_t{packet.bytes};
  const Usage wanted{.memory = memory};
  if (Status status = charges_.take_memory(client.who.uid, client.rights, wanted); !status) return tl::unexpected(status.error());
  Result<SharedMemory> shared = create_charged("unet-capture", memory);
  if (!shared) {
    charges_.give_back(client.who.uid, {.memory = memory});
    return tl::unexpected(shared.error());
  }
  uint32_t number = 0;
  while (captures_.count(number) != 0) ++number;
  CaptureRecord& capture = captures_[number];
  capture.capture = number;
  capture.client = client.index;
  capture.owner = owner_of(client);
  capture.of_operator = operates;
  capture.user = client.who.uid;
  capture.pid = client.who.pid;
  capture.port = packet.port;
  if (packet.header.endpoint != kNone) capture.endpoint = packet.header.endpoint;
  if (packet.channel != kNone) capture.channel = packet.channel;
  capture.snap_length = packet.snap_length;
  capture.bytes = packet.bytes;
  capture.memory = memory;
  capture.shared = std::move(*shared);
  return &capture;
}

void Service::handle(ClientRecord& client, const control::CaptureStart& packet) {
  const Result<CaptureRecord*> started = start_capture(client, packet);
  if (!started) return fail_request(client, packet.header, started.error());
  CaptureRecord& capture = **started;
  start_in_engines(capture);
  log::info("capture {} of user {} (pid {}) begins: port {}, endpoint {}", capture.capture, capture.user, capture.pid,
            capture.port < 0 ? "any" : std::to_string(capture.port), capture.endpoint ? std::to_string(*capture.endpoint) : "any");
  auto reply = zeroed<control::Reply>();
  reply.header = packet.header;
  reply.capture = {.capture = capture.capture, .bytes = capture.bytes, .epoch = time_of_day() - now_};
  persistence_.put(JournalKind::capture, capture.capture, 0, CaptureValue{}, {capture.shared.descriptor.get()});
  if (!send_packet(client, reply, {capture.shared.descriptor.get()})) stop_capture(capture);
  capture.shared.descriptor.reset();
}

// An endpoint's frames are its engine's affair, a port's those of the engines that have the port. An endpoint that no engine serves has no
// frames: to look at it is not to decide who will (start_captures_of).
void Service::start_in_engines(CaptureRecord& capture) {
  if (capture.endpoint) {
    const EndpointRecord& endpoint = *endpoint_at(*capture.endpoint);
    if (!endpoint.engine) return;
    capture.engines = 1u << *endpoint.engine;
  } else if (capture.port >= 0) {
    capture.engines = engines_of(ports_[static_cast<uint32_t>(capture.port)]);
  } else {
    capture.engines = (1u << engines()) - 1;
  }
  if (const int writers = std::popcount(capture.engines); writers > 1) {
    capture.writer = std::make_unique<engine::CaptureWriter>();
    capture.writer->engines.store(static_cast<uint32_t>(writers), std::memory_order_relaxed);
  }
  for (uint32_t engine = 0; engine < engines(); ++engine) {
    if ((capture.engines >> engine & 1) == 0) continue;
    push(engine, engine::StartCapture{.capture = capture.capture,
                                      .memory = capture.shared.mapping.data(),
                                      .bytes = capture.bytes,
                                      .snap_length = capture.snap_length,
                                      .port = capture.port,
                                      .endpoint = capture.endpoint.value_or(kNone),
                                      .channel = capture.channel.value_or(kNone),
                                      .writer = capture.writer.get()});
  }
}

// Now an engine serves it.
void Service::start_captures_of(const EndpointRecord& endpoint) {
  for (auto& [number, capture] : captures_) {
    if (capture.endpoint == endpoint.id && !capture.stopping) start_in_engines(capture);
  }
}

void Service::handle(ClientRecord& client, const control::CaptureStop& packet) {
  const auto at = captures_.find(packet.capture);
  const bool operates = is_operator(client.who);
  if (at == captures_.end() || at->second.stopping || (!operates && at->second.owner != owner_of(client))) {
    return fail_request(client, packet.header, {Errc::not_found, "no capture " + std::to_string(packet.capture) +
                                                                     (operates ? " runs" : " of yours runs")});
  }
  stop_capture(at->second);
  ok(client, packet.header);
}

void Service::stop_capture(CaptureRecord& capture) {
  if (capture.stopping) return;
  capture.stopping = true;
  if (capture.engines == 0) {
    reinterpret_cast<CaptureHeader*>(capture.shared.mapping.data())->ended.store(1, std::memory_order_release);
    unserved_captures_.push_back(capture.capture);  // later, as an engine would: callers go on with what they have
  }
  for (uint32_t engine = 0; engine < engines(); ++engine) {
    if ((capture.engines >> engine & 1) != 0) push(engine, engine::StopCapture{.capture = capture.capture});
  }
}

void Service::stop_captures_of(const ClientRecord& client) {
  for (auto& [number, capture] : captures_) {
    if (capture.client == client.index) stop_capture(capture);
  }
}

// Before the engine forgets the endpoint: the next one of its number is somebody else's.
void Service::stop_captures_of(const EndpointRecord& endpoint) {
  for (auto& [number, capture] : captures_) {
    if (capture.endpoint == endpoint.id) stop_capture(capture);
  }
}

void Service::on_capture_stopped(uint32_t engine, uint32_t number) {
  const auto at = captures_.find(number);
  if (at == captures_.end()) return;
  at->second.engines &= ~(1u << engine);
  if (at->second.engines == 0) forget_capture(number);  // else another still writes
}

// No engine has it.
void Service::forget_capture(uint32_t number) {
  CaptureRecord& capture = captures_.at(number);
  log::info("capture {} has ended", number);
  const uid_t user = capture.user;
  const Usage usage{.memory = capture.memory};
  std::vector<Descriptor> watches;
  watches.push_back(std::move(capture.shared.watch));
  persistence_.erase(JournalKind::capture, number);
  captures_.erase(number);
  charges_.give_back(user, usage, std::move(watches));
}

// What it was of and how far it had come went with the engine before us; whoever reads it is told that it has ended.
bool Service::end_capture(JournalItem& item) {
  if (CaptureValue value; !item.read(value) || item.descriptors.size() != 1) return false;
  const Result<Mapping> header = Mapping::map(item.descriptors[0].get(), kCapturePage);
  if (!header) return false;
  reinterpret_cast<CaptureHeader*>(header->data())->ended.store(1, std::memory_order_release);
  persistence_.erase(JournalKind::capture, item.key.a, item.key.b);
  return true;
}

}  // namespace unet::service
