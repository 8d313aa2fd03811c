// liar.h - a hostile client: overwrites all memory it can reach, and sends anything on the control socket; for system tests.
//
// It works in sessions. A session is a connection with an endpoint and channels to a victim; it overwrites their memory at random and with
// plausible lies. Beside it, other connections break the protocol. Memory stays mapped, and is still written, after its session.
#pragma once

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/system/raw_queues.h"

namespace unet {

// The liars' counters, in memory shared with the test.
struct LiarCounters {
  std::atomic<uint64_t> sessions, local_channels, ni_channels, words, descriptors, requests, packets;
};

class Liar {
 public:
  Liar(std::string path, std::string victim, uint32_t seed, LiarCounters& counters)
      : path_(std::move(path)), victim_(std::move(victim)), random_(seed), counters_(counters) {}

  // Runs until `stop` is set, and exits in the middle of a session.
  void run_until(const std::atomic<uint32_t>& stop) {
    stop_ = &stop;
    while (!stopped()) session();
  }

 private:
  static constexpr uint32_t kOldMappings = 12;
  static constexpr int kSoon = 300;  // milliseconds to wait for an answer that may never come

  bool stopped() const { return stop_->load(std::memory_order_relaxed) != 0; }
  uint32_t dice(uint32_t sides) { return static_cast<uint32_t>(random_() % sides); }
  uint64_t word() {
    switch (dice(6)) {
      case 0: return 0;
      case 1: return ~uint64_t{0} >> dice(64);
      case 2: return dice(2 * kMessageMax);
      case 3: return uint64_t{1} << dice(64);
      case 4: return dice(64) * 0x1'0000'0001;
      default: return (uint64_t{random_()} << 32) | random_();
    }
  }
  void count(std::atomic<uint64_t>& counter, uint64_t amount = 1) { counter.fetch_add(amount, std::memory_order_relaxed); }

  // ---- a session

  void session() {
    client_.emplace(path_);
    page_ = page_of(client_->hello());
    if (!page_) return;
    count(counters_.sessions);
    const uint32_t endpoints = 1 + dice(3);
    for (uint32_t i = 0; i < endpoints; ++i) create();
    if (segments_.empty()) return end_session();
    const uint32_t channels = 1 + dice(4);
    for (uint32_t i = 0; i < channels; ++i) connect();
    const uint32_t steps = dice(10) == 0 ? 50'000 : dice(6'000);
    for (uint32_t i = 0; i < steps && !stopped(); ++i) lie();
    if (!stopped()) end_session();
  }
  void create() {
    const EndpointOptions options{.send_depth = 4 + dice(100), .receive_depth = 4 + dice(100), .buffers = 4 + dice(60),
                                  .buffer_size = 256 * (1 + dice(8)), .send_bytes = kMessageMax,
                                  .weight = dice(8) == 0 ? static_cast<uint32_t>(word()) : 1 + dice(kEndpointWeightMax)};
    auto segment = segment_of(options, client_->create(options));
    if (!segment) return;
    for (uint32_t i = 0; i < options.buffers; ++i) segment->give(dice(4) == 0 ? a_buffer(options.buffers) : i);
    const uint32_t id = segment->id;
    segments_.push_back(std::move(*segment));
    if (dice(2) == 0) take_region(client_->call(expose(id, 1 + dice(100'000))));
    if (dice(2) == 0) {
      auto wake = client_->call(RawClient::request<control::GetDescriptor>(control::Op::get_descriptor, id));
      if (wake) keep(std::move(wake->descriptors));
    }
  }
  static control::Expose expose(uint32_t endpoint, uint64_t bytes) {
    auto packet = RawClient::request<control::Expose>(control::Op::expose, endpoint);
    packet.bytes = bytes;
    return packet;
  }
  void take_region(std::optional<RawPacket> reply) {
    if (!reply || reply->code() != Errc::ok || reply->descriptors.size() != 1) return;
    if (auto mapping = Mapping::map(reply->descriptors[0].get(), reply->as<control::Reply>().region.bytes)) {
      regions_.push_back(std::move(*mapping));
    }
    keep(std::move(reply->descriptors));
  }
  void connect() {
    const RawSegment& segment = any(segments_);
    const auto path = dice(2) == 0 ? control::Path::local : control::Path::ni;
    const LocalOptions local{.depth = 4u << dice(5), .data_bytes = 4 * kMessageMax};
    auto reply = client_->answer(client_->start_connect(segment.id, victim_, path, local), kSoon);
    if (!reply || reply->code() != Errc::ok) return;
    const auto info = reply->as<control::Reply>().channel;
    if (info.kind == control::ChannelKind::ni) {
      channels_.push_back({segment.id, info.channel});
      return count(counters_.ni_channels);
    }
    auto channel = local_of(std::move(reply));
    if (!channel) return;
    count(counters_.local_channels);
    locals_.push_back(std::move(*channel));
    auto wanted = RawClient::request<control::PeerRegion>(control::Op::peer_region, segment.id);
    wanted.channel = info.channel;
    take_region(client_->call(wanted, kSoon));
  }
  void end_session() {
    for (RawSegment& each : segments_) bury(std::move(each.mapping));
    for (RawLocal& each : locals_) bury(std::move(each.mapping));
    for (Mapping& each : regions_) bury(std::move(each));
    if (page_) bury(std::move(page_->mapping));
    if (dice(3) == 0) say_nonsense(*client_);
    if (dice(4) == 0) ::shutdown(client_->socket(), dice(2) == 0 ? SHUT_RD : SHUT_WR);
    client_.reset();
    page_.reset();
    segments_.clear();
    locals_.clear();
    regions_.clear();
    channels_.clear();
    kept_.clear();
  }
  void bury(Mapping mapping) {
    if (old_.size() < kOldMappings) old_.push_back(std::move(mapping));
    else old_[dice(kOldMappings)] = std::move(mapping);
  }

  // ---- one lie

  void lie() {
    switch (dice(1'200)) {
      case 0: return request();
      case 1: return break_protocol();
      case 2: return dice(20) == 0 ? flood() : come_and_go();
      case 3: return abuse_descriptors();
      case 4: return dice(8) == 0 ? connect() : listen();
      default: break;
    }
    switch (dice(16)) {
      case 0: return scribble(any(segments_).mapping, 0, any(segments_).mapping.size());
      case 1: return scribble(any(segments_).mapping, 0, kPage);  // credits, flags, counters
      case 2: return scribble(any(segments_).mapping, kPage, any(segments_).geometry.send_data - kPage);  // all queues
      case 3: return scribble(page_->mapping, 0, sizeof(ClientPage));
      case 4: return regions_.empty() ? lie() : scribble(any(regions_), 0, ~uint64_t{0});
      case 5: return old_.empty() ? lie() : scribble(any(old_), 0, ~uint64_t{0});
      case 6: return lie_about_buffers(any(segments_));
      case 7: return lie_about_credits(any(segments_).mapping, 0);
      case 8:
      case 9:
      case 10: return locals_.empty() ? lie_to_engine(any(segments_)) : lie_to_peer(any(locals_));
      case 11: return locals_.empty() ? ring() : scribble(any(locals_).mapping, 0, dice(2) == 0 ? kPage : ~uint64_t{0});
      case 12: return ring();
      default: return lie_to_engine(any(segments_));
    }
  }
  template <typename T>
  T& any(std::vector<T>& of) {
    return of[dice(static_cast<uint32_t>(of.size()))];
  }
  // Overwrites a few words of `bytes` bytes from `from`, within the mapping.
  void scribble(const Mapping& mapping, uint64_t from, uint64_t bytes) {
    bytes = std::min(bytes, mapping.size() - std::min(from, mapping.size()));
    if (bytes < 8) return;
    const uint32_t words = 1 + dice(8);
    for (uint32_t i = 0; i < words; ++i) {
      const uint64_t at = (from + ((uint64_t{random_()} << 32) | random_()) % bytes) / 8 * 8;
      if (at + 8 > mapping.size()) continue;
      reinterpret_cast<std::atomic<uint64_t>*>(mapping.data() + at)->store(word(), std::memory_order_relaxed);
    }
    count(counters_.words, words);
  }
  void lie_about_credits(const Mapping& mapping, uint64_t from) {
    auto* const credit = reinterpret_cast<std::atomic<uint32_t>*>(mapping.data() + from + dice(8) * kCacheLine);
    credit->fetch_add(dice(2) == 0 ? dice(8) : static_cast<uint32_t>(random_()), std::memory_order_relaxed);
    count(counters_.words);
  }
  uint32_t a_buffer(uint32_t buffers) {
    const uint32_t numbers[] = {dice(buffers), dice(buffers), dice(buffers), buffers, 0, static_cast<uint32_t>(random_())};
    return numbers[dice(6)];
  }
  // Not before the engine has taken the earlier ones: it would not find the new ones.
  void lie_about_buffers(RawSegment& segment) {
    if (segment.counter(EndpointCounter::bad_free_descriptor) == 0) return lie_to_engine(segment);
    for (uint32_t i = 1 + dice(6); i != 0; --i) segment.give(a_buffer(segment.geometry.buffers));
    count(counters_.descriptors);
  }
  void ring() {
    if (!page_) return;
    page_->ring(dice(2) == 0 ? any(segments_).doorbell : dice(kEndpointsPerClientMax));
    if (dice(2) == 0) page_->wake();
    if (dice(4) == 0) {
      for (auto& each : page_->page().summary.words) each.store(~uint64_t{0}, std::memory_order_relaxed);
      for (auto& each : page_->page().doorbells) each.store(~uint64_t{0}, std::memory_order_relaxed);
    }
    count(counters_.words);
  }

  uint32_t a_length() {
    const uint32_t lengths[] = {0, kInlineMax, kInlineMax + 1, kMessageMax, kMessageMax + 1, 0xFF'FFFF, dice(5000), dice(5000)};
    return lengths[dice(8)];
  }
  SlotKind a_kind() { return static_cast<SlotKind>(dice(4) != 0 ? dice(8) : dice(256)); }

  // A slot that the engine takes: correct in every field, wrong in one, or noise.
  void lie_to_engine(RawSegment& segment) {
    if (segment.full()) {
      if (dice(20) == 0) segment.fill_queue(a_length(), a_kind());
      return page_->ring(segment.doorbell);
    }
    const uint32_t numbers[] = {dice(3), dice(64), kChannelsPerEndpointMax, static_cast<uint32_t>(random_())};
    uint32_t channel = numbers[dice(4)];
    for (const auto& [endpoint, number] : channels_) {
      if (endpoint == segment.id && dice(3) != 0) channel = number;
    }
    uint64_t words[kInlineMax / 8];
    for (uint64_t& each : words) each = word();
    if (dice(4) == 0) {  // an honest message, so that the victim answers
      segment.send(channel, words, sizeof words, dice(kInlineMax), SlotKind::inline_data);
      return page_->ring(segment.doorbell);
    }
    uint32_t length = a_length();
    SlotKind kind = a_kind();
    if (dice(3) != 0) {
      kind = dice(2) == 0 ? SlotKind::gather : SlotKind::put;
      length = std::min(length, dice(8) == 0 ? length : kMessageMax);
      const auto end = static_cast<uint32_t>(segment.geometry.total);
      const uint32_t offsets[] = {0, end, end - length, end - length + 1, static_cast<uint32_t>(word()), dice(end)};
      const Fragment whole{offsets[dice(6)], dice(8) == 0 ? static_cast<uint32_t>(word()) : length};
      if (kind == SlotKind::gather) {
        GatherDescriptor gather{};
        gather.fragments[dice(kFragmentsMax)] = whole;
        std::memcpy(words, &gather, sizeof gather);
      } else {
        const uint64_t places[] = {0, 0, 100, kMessageMax, ~uint64_t{0}, word()};
        PutDescriptor put{.region_offset = places[dice(6)], .notify = dice(3), .spare = 0, .fragments = {}};
        put.fragments[dice(4)] = whole;
        std::memcpy(words, &put, sizeof put);
      }
    }
    segment.send(channel, words, sizeof words, length, kind);
    page_->ring(segment.doorbell);
    count(counters_.descriptors);
  }

  // A slot for the peer of a local channel: correct, wrong in one field, or noise.
  void lie_to_peer(RawLocal& local) {
    if (dice(16) == 0) return lie_about_credits(local.mapping, 0);
    if (local.full()) {
      if (dice(20) == 0) local.fill_queue(a_length(), a_kind());
      return dice(8) == 0 ? local.wake_peer() : std::this_thread::yield();
    }
    const uint64_t bytes = local.geometry.data_bytes;
    const uint32_t length = a_length();
    const uint64_t offsets[] = {0, bytes, bytes - 1, bytes - length, bytes - length + 1, ~uint64_t{0}, word(), dice(kMessageMax)};
    const uint64_t words[] = {offsets[dice(8)], word()};
    const SlotKind kinds[] = {SlotKind::inline_data, SlotKind::local_data, SlotKind::headed, SlotKind::put_done, SlotKind::in_slots,
                              SlotKind::headed_in_slots, a_kind()};
    local.send(words, sizeof words, length, kinds[dice(std::size(kinds))]);
    if (dice(4) == 0) local.wake_peer();
    count(counters_.descriptors);
  }

  // ---- descriptors

  void keep(std::vector<Descriptor> descriptors) {
    for (Descriptor& each : descriptors) kept_.push_back(std::move(each));
  }
  int a_descriptor() {
    if (page_ && dice(4) == 0) return page_->wake_engine.get();
    if (!locals_.empty() && dice(2) == 0) return any(any(locals_).held).get();
    return kept_.empty() ? client_->socket() : any(kept_).get();
  }
  // Misuses a descriptor that the other side holds, too.
  void abuse_descriptors() {
    const int descriptor = a_descriptor();
    const uint64_t most = ~uint64_t{0} - 1;
    uint64_t drained = 0;
    switch (dice(8)) {
      case 0: static_cast<void>(!::ftruncate(descriptor, dice(2) == 0 ? 0 : 1 << 30)); break;
      case 1: ::fcntl(descriptor, F_ADD_SEALS, 0x10 /* F_SEAL_FUTURE_WRITE */ | F_SEAL_WRITE); break;
      case 2: static_cast<void>(!::fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20)); break;
      case 3:
      case 4: {  // an eventfd: full, or empty and blocking
        if (descriptor == client_->socket()) break;
        const int flags = ::fcntl(descriptor, F_GETFL);
        ::fcntl(descriptor, F_SETFL, flags | O_NONBLOCK);
        if (dice(2) == 0) {
          static_cast<void>(!::write(descriptor, &most, sizeof most));
        } else {
          static_cast<void>(!::read(descriptor, &drained, sizeof drained));
          ::fcntl(descriptor, F_SETFL, flags & ~O_NONBLOCK);
        }
        break;
      }
      case 5: return send_back(descriptor);
      default: break;
    }
    count(counters_.packets);
  }
  // Sends descriptors of the service, such as its connection, back to it.
  void send_back(int descriptor) {
    RawClient other(path_);
    if (!other.connected()) return;
    const int descriptors[] = {descriptor, client_->socket(), other.socket(), STDERR_FILENO};
    const auto hello = RawClient::request<control::Hello>(control::Op::hello);
    other.send_bytes(&hello, sizeof hello, {descriptors, 1 + dice(4)});
    count(counters_.packets);
  }

  // ---- requests and packets

  struct Request {
    control::Op op;
    size_t size;
  };
  static constexpr Request kRequests[] = {
      {control::Op::hello, sizeof(control::Hello)},
      {control::Op::create_endpoint, sizeof(control::CreateEndpoint)},
      {control::Op::destroy_endpoint, sizeof(control::DestroyEndpoint)},
      {control::Op::bind, sizeof(control::Bind)},
      {control::Op::unbind, sizeof(control::Unbind)},
      {control::Op::connect, sizeof(control::Connect)},
      {control::Op::accept, sizeof(control::Accept)},
      {control::Op::reject, sizeof(control::Reject)},
      {control::Op::close_channel, sizeof(control::CloseChannel)},
      {control::Op::expose, sizeof(control::Expose)},
      {control::Op::peer_region, sizeof(control::PeerRegion)},
      {control::Op::get_descriptor, sizeof(control::GetDescriptor)},
      {control::Op::report, sizeof(control::Report)},
      {control::Op::connect_request, sizeof(control::ConnectRequest)},
      {control::Op::channel_opened, sizeof(control::ChannelOpened)},
      {control::Op::channel_closed, sizeof(control::ChannelClosed)},
  };

  // A request of the right size with any contents, possibly for another client's endpoint.
  void request() {
    const Request& what = kRequests[1 + dice(12)];
    if (what.op == control::Op::destroy_endpoint && dice(20) != 0) return;  // rarely: it ends a session
    std::array<uint64_t, control::kPacketMax / 8> bytes{};
    for (uint64_t& each : bytes) each = dice(2) == 0 ? dice(70) : word();
    const uint32_t ids[] = {any(segments_).id, any(segments_).id, dice(64), static_cast<uint32_t>(random_())};
    const control::Header header{what.op, ids[dice(4)], random_()};
    std::memcpy(bytes.data(), &header, sizeof header);
    const std::string texts[] = {victim_, "liar/" + std::to_string(dice(8)), victim_ + "@nowhere", "", "@", "-x", std::string(63, 'x')};
    const std::string& text = texts[dice(7)];
    auto* const body = reinterpret_cast<std::byte*>(bytes.data()) + sizeof header;
    if (what.op == control::Op::bind || what.op == control::Op::connect) {
      const auto length = static_cast<uint16_t>(text.size());
      std::memcpy(body, &length, sizeof length);
      std::memcpy(body + sizeof length, text.data(), text.size());
    }
    client_->send_bytes(bytes.data(), what.size);
    count(counters_.requests);
    if (dice(4) == 0) listen();
  }
  // Takes the service's messages, and keeps some of their descriptors.
  void listen() {
    while (auto in = client_->receive(0)) {
      if (kept_.size() < 32) keep(std::move(in->descriptors));
    }
  }
  // Sends any size, op and content, with or without descriptors.
  void say_nonsense(RawClient& to) {
    const Request& what = kRequests[dice(std::size(kRequests))];
    std::array<std::byte, control::kPacketMax + 64> bytes;
    for (std::byte& each : bytes) each = static_cast<std::byte>(dice(dice(2) == 0 ? 256 : 3));
    const auto op = dice(8) == 0 ? static_cast<uint32_t>(random_()) : static_cast<uint32_t>(what.op);
    std::memcpy(bytes.data(), &op, sizeof op);
    const size_t sizes[] = {what.size, what.size - 1, what.size + 1, dice(24), dice(bytes.size()), bytes.size()};
    const std::vector<int> descriptors(dice(3) == 0 ? 1 + dice(250) : 0, STDERR_FILENO);
    to.send_bytes(bytes.data(), sizes[dice(6)], descriptors);
    count(counters_.packets);
  }
  void break_protocol() {
    RawClient other(path_);
    if (!other.connected() || (dice(2) == 0 && !other.hello())) return;
    for (uint32_t i = dice(4) + 1; i != 0; --i) say_nonsense(other);
    if (dice(2) == 0) static_cast<void>(other.receive(kSoon));
  }
  // Sends requests without end and reads no answers.
  void flood() {
    for (int i = 0; i < 5'000; ++i) {
      const auto op = dice(2) == 0 ? control::Op::report : control::Op::unbind;
      if (!client_->send(RawClient::request<control::Report>(op, any(segments_).id))) break;
      count(counters_.requests);
    }
  }
  // Connections, endpoints and channels that come and go, some without closing.
  void come_and_go() {
    std::vector<RawClient> many;
    for (uint32_t i = 1 + dice(6); i != 0; --i) many.emplace_back(path_);
    for (RawClient& each : many) {
      if (!each.connected() || dice(2) == 0 || !each.hello()) continue;
      const EndpointOptions options{.send_depth = 4, .receive_depth = 4, .buffers = 4, .buffer_size = 256, .send_bytes = kMessageMax};
      const auto created = each.create(options, kSoon);
      if (!created || created->code() != Errc::ok) continue;
      const uint32_t id = created->as<control::Reply>().create_endpoint.endpoint;
      each.start_connect(id, victim_, static_cast<control::Path>(dice(3)), {.depth = 4, .data_bytes = 4 * kMessageMax});
      if (dice(2) == 0) each.send(RawClient::request<control::DestroyEndpoint>(control::Op::destroy_endpoint, id));
    }
    count(counters_.packets, many.size());
  }

  struct NiChannel {
    uint32_t endpoint, channel;
  };

  std::string path_, victim_;
  std::mt19937 random_;
  LiarCounters& counters_;
  const std::atomic<uint32_t>* stop_ = nullptr;
  std::optional<RawClient> client_;
  std::optional<RawPage> page_;
  std::vector<RawSegment> segments_;
  std::vector<RawLocal> locals_;
  std::vector<NiChannel> channels_;  // through the NI
  std::vector<Mapping> regions_;     // its own and its peers'
  std::vector<Mapping> old_;         // of earlier sessions
  std::vector<Descriptor> kept_;
};

}  // namespace unet
