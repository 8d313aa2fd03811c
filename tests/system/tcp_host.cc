// tcp_host.cc - ipstack's TCP on an interface of this network namespace, beside a kernel without an address there; for tcp_linux.py.
//
// Usage: tcp_host INTERFACE CAPTURE LOSS SEED ADDRESS/PREFIX... -- echo PORT
//        tcp_host INTERFACE CAPTURE LOSS SEED ADDRESS/PREFIX... -- call ADDRESS PORT BYTES CONNECTIONS
//
// `echo` echoes on any number of connections to the port. It prints `ready`, and the outcome of each connection: `closed BYTES`, `reset`,
// `timed_out`. `call` opens CONNECTIONS at once, sends BYTES on each and checks the echo. It prints `done` or an error, and ends. LOSS is
// the share of frames lost in either direction, chosen by SEED.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "ipstack/ip/host.h"
#include "ipstack/tcp/connection.h"
#include "ipstack/tcp/reset.h"
#include "tests/system/packet_wire.h"
#include "unet/wire/checksum.h"

using namespace unet;
using namespace unet::ip;

namespace {

constexpr uint32_t kChunk = 2048, kChunks = 65536, kRecords = 65536;
constexpr uint16_t kFirstPort = 20'000;

std::byte pattern(uint64_t place) { return static_cast<std::byte>(place * 31 + place / 251 + place / 65521); }

const char* name_of(tcp::Error error) {
  switch (error) {
    case tcp::Error::none: return "none";
    case tcp::Error::not_connected: return "not_connected";
    case tcp::Error::exists: return "exists";
    case tcp::Error::closing: return "closing";
    case tcp::Error::refused: return "refused";
    case tcp::Error::reset: return "reset";
    case tcp::Error::timed_out: return "timed_out";
    case tcp::Error::aborted: return "aborted";
    case tcp::Error::unreachable: return "unreachable";
  }
  return "";
}

struct Plan {
  bool echo = false;
  uint16_t port = 0;
  IpAddress peer{};
  uint64_t bytes = 0;
  uint32_t connections = 0;
};

struct Talk {
  Talk(const tcp::Options& options, const tcp::Resources& resources, const IpAddress& peer_, uint16_t port)
      : connection(options, resources, port), peer(peer_) {}
  tcp::Connection connection;
  IpAddress peer;
  std::vector<std::byte> held;  // of an echo: received, not sent back yet
  uint64_t written = 0, read = 0;
  bool shut = false, told = false, wrong = false;
};

class Program {
 public:
  Program(const char* interface, const char* capture, double loss, uint64_t seed, const HostOptions& options, const Plan& plan)
      : wire_(interface), capture_(capture), loss_(loss), random_(seed), host_(with_wire(options), monotonic_now()), plan_(plan),
        chunks_(kChunk, kChunks), records_(kRecords), resources_{chunks_, records_, counters_} {
    for (const HostAddress& each : options.addresses) own_.push_back(each.address);
    for (const bool ipv4 : {true, false}) {
      tcp::Options& o = options_[ipv4 ? 0 : 1];
      o.mss = static_cast<uint16_t>(wire_.mtu() - (ipv4 ? kIpv4Bytes : kIpv6Bytes) - 20);
      if (!ipv4) o.default_mss = 1220;
      o.time_wait = kSecond;
    }
  }

  int run() {
    while (true) {
      const Nanoseconds now = monotonic_now();
      Nanoseconds next = host_.next_event();
      for (const Talk& each : talks_) next = std::min(next, each.connection.next_timer());
      const Nanoseconds left = next <= now ? 0 : std::min((next - now) / kMillisecond + 1, Nanoseconds{100});
      pollfd wanted[] = {{wire_.descriptor(), POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
      ::poll(wanted, 2, static_cast<int>(left));
      if (wanted[1].revents != 0) return 0;
      receive();
      begin();
      for (Talk& each : talks_) {
        each.connection.handle_timer(monotonic_now());
        act(each);
        send_segments(each);
      }
      send_frames();
      tell();
      if (!plan_.echo && begun_ && talks_.empty()) return wrong_ == 0 ? (std::printf("done\n"), 0) : 1;
      std::fflush(stdout);
    }
  }

 private:
  HostOptions with_wire(HostOptions options) const {
    options.mac = wire_.mac();
    options.mtu = wire_.mtu();
    options.buffers = 1024;
    options.claim = false;  // ip_linux.py tests duplicate address detection, which takes seconds
    return options;
  }
  const tcp::Options& options_for(const IpAddress& peer) const { return options_[peer.is_ipv4() ? 0 : 1]; }
  bool lost() { return std::uniform_real_distribution<>(0, 1)(random_) < loss_; }

  // Called when all addresses are assigned.
  void begin() {
    if (begun_) return;
    for (const IpAddress& each : own_) {
      if (host_.state_of(each) != Host::AddressState::assigned) return;
    }
    begun_ = true;
    std::printf("ready\n");
    for (uint32_t i = 0; i < plan_.connections; ++i) {
      talks_.emplace_back(options_for(plan_.peer), resources_, plan_.peer, static_cast<uint16_t>(kFirstPort + i));
      talks_.back().connection.connect(plan_.port, {static_cast<uint32_t>(random_())}, monotonic_now());
    }
  }

  void receive() {
    std::vector<std::byte> frame(65536);
    for (size_t size; (size = wire_.receive(frame)) != 0;) {
      if (lost()) continue;
      const Bytes bytes = Bytes(frame).first(size);
      const Nanoseconds now = monotonic_now();
      capture_.add(bytes, now);
      Arrival arrival;
      if (!host_.handle_frame(bytes, now, arrival) || arrival.kind != Arrival::Kind::packet) continue;
      if (arrival.packet.protocol == Protocol::kTcp) take_segment(arrival.packet, now);
      else host_.refuse_protocol(arrival, now);
    }
  }

  void take_segment(const IpView& packet, Nanoseconds now) {
    const auto length = static_cast<uint32_t>(packet.payload.size());
    const uint64_t sum = pseudo_header_sum(packet.from, packet.to, Protocol::kTcp, length);
    TcpView view;
    if (checksum_fold(checksum_add(sum, packet.payload)) != 0 || parse_tcp(packet.payload, view) != TcpError::none) {
      std::printf("a segment that is none\n");
      return;
    }
    Talk* talk = find(packet.from, view);
    if (talk != nullptr && talk->connection.yields_to(view)) {
      talks_.remove_if([&](const Talk& each) { return &each == talk; });
      talk = nullptr;
    }
    const bool asks = view.has(TcpFlags::kSyn) && !view.has(TcpFlags::kAck) && !view.has(TcpFlags::kRst);
    if (talk == nullptr && plan_.echo && begun_ && view.destination_port == plan_.port && asks) {
      talk = &talks_.emplace_back(options_for(packet.from), resources_, packet.from, plan_.port);
      talk->connection.listen({static_cast<uint32_t>(random_())});
    }
    if (talk == nullptr) {
      if (const auto answer = tcp::reset_for(view)) send_segment(packet.from, *answer, {});
      return;
    }
    talk->connection.handle_segment(view, now);
    act(*talk);
    send_segments(*talk);
    send_frames();
  }

  Talk* find(const IpAddress& peer, const TcpView& view) {
    const auto at = std::find_if(talks_.begin(), talks_.end(), [&](const Talk& each) {
      return each.peer == peer && each.connection.local_port() == view.destination_port &&
             each.connection.remote_port() == view.source_port && each.connection.state() != tcp::State::closed;
    });
    return at == talks_.end() ? nullptr : &*at;
  }

  void act(Talk& talk) {
    if (plan_.echo) echo(talk);
    else call(talk);
    const bool open = talk.connection.state() == tcp::State::established || talk.connection.state() == tcp::State::close_wait;
    const bool through = plan_.echo ? talk.connection.readiness().ended && talk.connection.readable() == 0 && talk.held.empty()
                                    : talk.written == plan_.bytes;
    if (talk.shut || !open || !through) return;
    talk.shut = true;
    talk.connection.shutdown();
  }

  void echo(Talk& talk) {
    while (true) {
      if (talk.held.empty()) {
        talk.held.resize(65536);
        talk.held.resize(talk.connection.receive(talk.held).bytes);
        talk.read += talk.held.size();
        if (talk.held.empty()) return;
      }
      const uint32_t sent = talk.connection.send(talk.held).bytes;
      if (sent == 0) return;
      talk.held.erase(talk.held.begin(), talk.held.begin() + sent);
    }
  }

  void call(Talk& talk) {
    while (talk.written < plan_.bytes && talk.connection.writable() != 0) {
      std::vector<std::byte> data(std::min<uint64_t>(16384, plan_.bytes - talk.written));
      for (size_t i = 0; i < data.size(); ++i) data[i] = pattern(talk.written + i);
      const uint32_t sent = talk.connection.send(data).bytes;
      if (sent == 0) break;
      talk.written += sent;
    }
    std::vector<std::byte> data(65536);
    for (uint32_t bytes; (bytes = talk.connection.receive(data).bytes) != 0; talk.read += bytes) {
      for (uint32_t i = 0; i < bytes; ++i) talk.wrong = talk.wrong || data[i] != pattern(talk.read + i);
    }
  }

  void send_segments(Talk& talk) {
    tcp::Segment segment;
    while (talk.connection.poll_segment(monotonic_now(), std::max(talk.connection.mss(), 1u), segment)) {
      std::array<Bytes, 8> pieces;
      std::vector<std::byte> payload;
      const uint32_t count = talk.connection.gather(segment, pieces);
      for (uint32_t i = 0; i < count; ++i) payload.insert(payload.end(), pieces[i].begin(), pieces[i].end());
      send_segment(talk.peer, segment.fields, payload);
      send_frames();
    }
  }

  void send_segment(const IpAddress& peer, const TcpFields& fields, Bytes payload) {
    std::array<std::byte, kTcpHeaderMax> header;
    const uint32_t size = emit_tcp(header.data(), fields);
    const IpAddress from = host_.source_for(peer).value_or(IpAddress{});
    const auto length = static_cast<uint32_t>(size + payload.size());
    const uint64_t sum = checksum_add(checksum_add(pseudo_header_sum(from, peer, Protocol::kTcp, length), header.data(), size), payload);
    const uint16_t checksum = checksum_fold(sum);
    std::memcpy(header.data() + offsetof(TcpHeader, checksum), &checksum, sizeof checksum);
    const IpFields ip{.from = from, .to = peer, .protocol = Protocol::kTcp};
    static_cast<void>(host_.send(ip, Bytes(header).first(size), payload, monotonic_now()));  // TCP repeats what is dropped
  }

  void send_frames() {
    std::vector<std::byte> frame(host_.frame_max());
    while (true) {
      const Nanoseconds now = monotonic_now();
      const uint32_t length = host_.poll_frame(now, frame);
      if (length == 0) return;
      if (lost()) continue;
      capture_.add(Bytes(frame).first(length), now);
      wire_.send(Bytes(frame).first(length));
    }
  }

  // Reports each ended connection once, and removes it when it has nothing left to do.
  void tell() {
    for (Talk& each : talks_) {
      const tcp::Readiness ready = each.connection.readiness();
      if (each.told || !ready.closed || each.connection.readable() != 0) continue;
      each.told = true;
      const bool whole = each.connection.error() == tcp::Error::none && !each.wrong && (plan_.echo || each.read == plan_.bytes);
      if (whole && plan_.echo) std::printf("closed %llu\n", static_cast<unsigned long long>(each.read));
      if (whole) continue;
      ++wrong_;
      const char* const why = each.wrong ? "other bytes" : name_of(each.connection.error());
      if (plan_.echo) std::printf("%s\n", why);
      else std::printf("%s after %llu bytes\n", why, static_cast<unsigned long long>(each.read));
    }
    talks_.remove_if([](const Talk& each) { return each.told && each.connection.state() == tcp::State::closed; });
  }

  PacketWire wire_;
  Capture capture_;
  const double loss_;
  std::mt19937_64 random_;
  Host host_;
  const Plan plan_;
  std::array<tcp::Options, 2> options_;
  tcp::ChunkPool chunks_;
  tcp::RecordPool records_;
  tcp::Counters counters_;
  tcp::Resources resources_;
  std::vector<IpAddress> own_;
  std::list<Talk> talks_;
  bool begun_ = false;
  uint32_t wrong_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  UNET_CHECK(argc > 7);
  HostOptions options;
  int i = 5;
  for (; i < argc && std::string(argv[i]) != "--"; ++i) {
    const std::string text = argv[i];
    const size_t slash = text.find('/');
    options.addresses.push_back({*parse_ip(text.substr(0, slash)), static_cast<uint8_t>(std::stoi(text.substr(slash + 1)))});
  }
  Plan plan;
  plan.echo = std::string(argv[++i]) == "echo";
  if (!plan.echo) plan.peer = *parse_ip(argv[++i]);
  plan.port = static_cast<uint16_t>(std::stoi(argv[++i]));
  if (!plan.echo) {
    plan.bytes = std::stoull(argv[++i]);
    plan.connections = static_cast<uint32_t>(std::stoul(argv[++i]));
  }
  return Program(argv[1], argv[2], std::atof(argv[3]), std::stoull(argv[4]), options, plan).run();
}
