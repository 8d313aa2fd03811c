// captures.cc - a capture's memory and engines, from its start to its end.
#include "ni/service/captures.h"

#include <bit>
#include <string>
#include <utility>

#include "ni/service/journal_records.h"
#include "ni/service/log.h"
#include "unet/capture_memory.h"

namespace unet::service {
namespace {

constexpr uint32_t kOfOthersMax = 4;  // captures of all users but root and the NI's own: each costs the engine a test per frame
constexpr Nanoseconds kEvery = 100 * kMillisecond;  // between starts by ordinary users, as each makes the engine scan channels

void mark_ended(std::byte* memory) { reinterpret_cast<CaptureHeader*>(memory)->ended.store(1, std::memory_order_release); }

}  // namespace

Status Captures::has_room(const ClientRecord& client, bool of_operator, Nanoseconds now) {
  uint32_t of_others = 0, of_user = 0;
  for (const auto& [number, capture] : captures_) {
    of_others += capture.of_operator ? 0 : 1;
    of_user += capture.user == client.who.uid ? 1 : 0;
  }
  if (captures_.size() == kCapturesMax || (!of_operator && (of_others >= kOfOthersMax || of_user != 0))) {
    return fail(Errc::quota_exceeded, "too many captures run: " + std::to_string(kCapturesMax) + " at a time, " +
                                          std::to_string(kOfOthersMax) + " of ordinary users, one of each (unetctl capture list)");
  }
  if (!of_operator) {
    if (now < next_) return fail(Errc::unavailable, "captures are being started too fast; try again in a moment");
    next_ = now + kEvery;
  }
  return persistence_.takes(1);
}

Result<CaptureRecord*> Captures::create(const ClientRecord& client, uint64_t owner, bool of_operator,
                                        const control::CaptureStart& packet, Nanoseconds now) {
  if (Status status = has_room(client, of_operator, now); !status) return tl::unexpected(status.error());
  const uint64_t memory = kCapturePage + uint64_t{packet.bytes};
  const Usage wanted{.memory = memory};
  if (Status status = charges_.take_memory(client, wanted); !status) return tl::unexpected(status.error());
  Result<SharedMemory> shared = create_charged("unet-capture", memory);
  if (!shared) {
    charges_.give_back(client.who.uid, wanted);
    return tl::unexpected(shared.error());
  }
  uint32_t number = 0;
  while (captures_.count(number) != 0) ++number;
  CaptureRecord& capture = captures_[number];
  capture.capture = number;
  capture.client = client.index;
  capture.owner = owner;
  capture.of_operator = of_operator;
  capture.user = client.who.uid;
  capture.pid = client.who.pid;
  capture.port = packet.port;
  if (packet.header.endpoint != kAny) capture.endpoint = packet.header.endpoint;
  if (packet.channel != kAny) capture.channel = packet.channel;
  capture.snap_length = packet.snap_length;
  capture.bytes = packet.bytes;
  capture.memory = memory;
  capture.shared = std::move(*shared);
  persistence_.put(JournalKind::capture, number, 0, CaptureValue{}, {capture.shared.descriptor.get()});
  log::info("capture {} of user {} (pid {}) begins: port {}, endpoint {}", number, capture.user, capture.pid,
            capture.port < 0 ? "any" : std::to_string(capture.port), capture.endpoint ? std::to_string(*capture.endpoint) : "any");
  return &capture;
}

void Captures::start(CaptureRecord& capture, uint32_t engines) {
  capture.engines = engines;
  if (const int writers = std::popcount(engines); writers > 1) {
    capture.writer = std::make_unique<engine::CaptureWriter>();
    capture.writer->engines.store(static_cast<uint32_t>(writers), std::memory_order_relaxed);
  }
  commands_.push_each(engines, engine::StartCapture{.capture = capture.capture,
                                                    .memory = capture.shared.mapping.data(),
                                                    .bytes = capture.bytes,
                                                    .snap_length = capture.snap_length,
                                                    .port = capture.port,
                                                    .endpoint = capture.endpoint.value_or(kAny),
                                                    .channel = capture.channel.value_or(kAny),
                                                    .writer = capture.writer.get()});
}

void Captures::on_endpoint_assigned(uint32_t endpoint, uint32_t engine) {
  for (auto& [number, capture] : captures_) {
    if (capture.endpoint == endpoint && !capture.stopping) start(capture, 1u << engine);
  }
}

CaptureRecord* Captures::find(uint32_t number) {
  const auto at = captures_.find(number);
  return at == captures_.end() || at->second.stopping ? nullptr : &at->second;
}

void Captures::stop(CaptureRecord& capture) {
  if (capture.stopping) return;
  capture.stopping = true;
  if (capture.engines == 0) {
    mark_ended(capture.shared.mapping.data());
    unserved_.push_back(capture.capture);  // it ends later, as callers still use the record
  }
  commands_.push_each(capture.engines, engine::StopCapture{.capture = capture.capture});
}

void Captures::stop_of_client(uint32_t client) {
  for (auto& [number, capture] : captures_) {
    if (capture.client == client) stop(capture);
  }
}

void Captures::stop_of_endpoint(uint32_t endpoint) {
  for (auto& [number, capture] : captures_) {
    if (capture.endpoint == endpoint) stop(capture);
  }
}

void Captures::on_stopped(uint32_t engine, uint32_t number) {
  const auto at = captures_.find(number);
  if (at == captures_.end()) return;
  at->second.engines &= ~(1u << engine);
  if (at->second.engines == 0) forget(number);  // else another engine still writes
}

void Captures::end_unserved() {
  for (const uint32_t number : std::exchange(unserved_, {})) forget(number);
}

// No engine has it.
void Captures::forget(uint32_t number) {
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

bool Captures::end_inherited(JournalItem& item) {
  if (CaptureValue value; !item.read(value) || item.descriptors.size() != 1) return false;
  const Result<Mapping> header = Mapping::map(item.descriptors[0].get(), kCapturePage);
  if (!header) return false;
  mark_ended(header->data());
  persistence_.erase(JournalKind::capture, item.key.a, item.key.b);
  return true;
}

}  // namespace unet::service
