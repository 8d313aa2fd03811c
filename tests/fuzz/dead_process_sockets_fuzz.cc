// dead_process_sockets_fuzz.cc - the socket tables of a dead process, which the process could write: the service reads them, and the engine
// takes over the connections. Only connections of ports that the process had claimed are accepted; all of them end, whatever peers send;
// every segment sent is valid.
//
// Input: a byte of claims, then steps of one byte and arguments: a record in a table, raw bytes there, or a count of records. After the
// step that ends the process: segments of peers, time, or a takeover by another NI.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "ni/service/dead_process.h"
#include "tests/fuzz/fuzz_input.h"
#include "unet/base/check.h"
#include "unet/wire/ip.h"

using namespace unet;

namespace {

constexpr uint64_t kOwner = 7;
constexpr uint32_t kTables = 2, kPlaces = 16;  // places that the input writes; more may be read
constexpr Nanoseconds kLongest = 5 * 60 * kSecond;  // limit of every orphaned connection

const std::array kAddresses{*ip::parse_address("10.0.0.1"), *ip::parse_address("10.0.0.2"), *ip::parse_address("fd00::1"),
                            *ip::parse_address("fd00::2"), *ip::parse_address("239.1.2.3"), *ip::parse_address("127.0.0.1"),
                            *ip::parse_address("ff05::1"), ip::IpAddress{}};

struct Claims {
  std::vector<IpClaim> all;
  explicit Claims(uint8_t choice) {
    all.push_back({.protocol = ip::Protocol::kTcp, .port = 80, .ports = static_cast<uint16_t>((choice & 1) != 0 ? 3 : 1)});
    if ((choice & 2) != 0) all.push_back({.protocol = ip::Protocol::kTcp, .local = kAddresses[0], .port = 90});
    if ((choice & 4) != 0) {
      all.push_back({.protocol = ip::Protocol::kTcp, .port = 65'535, .remote = kAddresses[(choice & 8) != 0 ? 1 : 3], .remote_port = 4});
    }
    if ((choice & 16) != 0) all.push_back({.protocol = ip::Protocol::kUdp, .port = 70, .ports = 30});
  }
  bool has(const engine::OrphanedConnection& orphan) const {
    return std::any_of(all.begin(), all.end(), [&](const IpClaim& each) {
      return each.protocol == ip::Protocol::kTcp && orphan.local_port >= each.port && orphan.local_port < each.port + each.ports &&
             (each.local.is_unspecified() || each.local == orphan.local) &&
             (each.remote.is_unspecified() || each.remote == orphan.remote) &&
             (each.remote_port == 0 || each.remote_port == orphan.remote_port);
    });
  }
};

SocketRecord record_of(FuzzInput& input) {
  static constexpr uint16_t kPorts[] = {80, 81, 90, 65'535};
  const auto ends = input.take<uint8_t>(), how = input.take<uint8_t>();
  SocketRecord record;
  record.protocol = (how & 1) != 0 ? input.take<uint8_t>() : uint8_t{ip::Protocol::kTcp};
  record.state = static_cast<uint8_t>(how >> 4);
  record.flags = (how & 2) != 0 ? input.take<uint8_t>() : uint8_t{SocketFlags::kClosed | SocketFlags::kFinSent};
  record.local = kAddresses[ends & 7];
  record.remote = kAddresses[ends >> 3 & 7];
  record.local_port = kPorts[ends >> 6];
  record.remote_port = input.take<uint8_t>() & 7;
  record.receive_next = input.take<uint32_t>();
  record.send_next = input.take<uint32_t>();
  record.send_unacknowledged = record.send_next - ((how & 4) != 0 ? input.take<uint8_t>() : 1u);
  record.timestamp = record.timestamp_echo = (how & 8) != 0 ? input.take<uint32_t>() : 0u;
  return record;
}

std::vector<service::SharedMemory> make_tables() {
  std::vector<service::SharedMemory> tables;
  for (uint32_t i = 0; i < kTables; ++i) {
    tables.push_back(std::move(*service::create_shared("unet-fuzz", SocketTableGeometry::of_table(i).total)));
  }
  return tables;
}

SocketTableView view_of(const service::SharedMemory& memory, uint32_t table) {
  return {const_cast<std::byte*>(memory.mapping.data()), SocketTableGeometry::of_table(table)};
}

// Runs the steps before the process ends.
void write(FuzzInput& input, const std::vector<service::SharedMemory>& tables) {
  while (!input.empty()) {
    const auto step = input.take<uint8_t>();
    const uint32_t table = step >> 2 & 1, place = step >> 3 & (kPlaces - 1);
    const SocketTableView view = view_of(tables[table], table);
    switch (step & 3) {
      case 0: {
        view.slot(place).write(record_of(input));
        const uint32_t used = std::max(view.header().used.load(std::memory_order_relaxed), place + 1);
        view.header().used.store(used, std::memory_order_relaxed);
        break;
      }
      case 1: {
        const std::vector<std::byte> bytes = input.take_bytes(sizeof(SocketSlot));
        if (!bytes.empty()) std::memcpy(reinterpret_cast<std::byte*>(&view.slot(place)), bytes.data(), bytes.size());
        break;
      }
      case 2: view.header().used.store(input.take<uint32_t>(), std::memory_order_relaxed); break;
      default: return;
    }
  }
}

class Remains {
 public:
  explicit Remains(const Claims& claims) : claims_(claims) {}

  void take(const engine::OrphanedConnection& orphan) {
    UNET_CHECK(claims_.has(orphan));
    UNET_CHECK(orphan.local.is_ipv4() == orphan.remote.is_ipv4() && orphan.local_port != 0 && orphan.remote_port != 0 &&
               orphan.user == kOwner);
    UNET_CHECK(orphans_->add(orphan, now_));
    known_.push_back(orphan);
  }
  void arrive(FuzzInput& input) {
    if (known_.empty()) return;
    engine::OrphanedConnection& of = known_[input.take<uint8_t>() % known_.size()];
    const auto how = input.take<uint8_t>();
    ip::TcpView segment;
    segment.source_port = of.remote_port;
    segment.destination_port = of.local_port;
    segment.sequence.value = of.receive_next + static_cast<uint32_t>((how & 1) != 0 ? input.take<int8_t>() : 0);
    segment.acknowledgement.value = of.send_next + static_cast<uint32_t>((how & 2) != 0 ? input.take<int8_t>() : 0);
    segment.flags = (how & 4) != 0 ? input.take<uint8_t>() : uint8_t{ip::TcpFlags::kAck};
    segment.window = 1000;
    segment.options.has_timestamps = (how & 8) != 0;
    segment.options.timestamp = of.timestamp_echo + static_cast<uint32_t>((how & 16) != 0 ? input.take<int8_t>() : 0);
    static constexpr std::array<std::byte, 32> kData{};
    segment.payload = Bytes(kData).first((how & 32) != 0 ? input.take<uint8_t>() % kData.size() : 0);
    if ((how & 64) != 0) {
      // An application of this NI opens the port again.
      std::swap(segment.source_port, segment.destination_port);
      segment.flags = ip::TcpFlags::kSyn;
      if (orphans_->may_begin(of.local, of.remote, segment)) UNET_CHECK(!user_of(of));
      return;
    }
    std::optional<ip::TcpFields> answer;
    const bool taken = orphans_->handle(of.local, of.remote, segment, now_, answer);
    UNET_CHECK(taken || !answer);
    if (!taken) UNET_CHECK(!user_of(of));
    if (!answer) return;
    UNET_CHECK(!segment.has(ip::TcpFlags::kRst));  // a reset gets no answer
    UNET_CHECK(answer->source_port == of.local_port && answer->destination_port == of.remote_port);
    sound(*answer);
  }
  // Lets time pass; due segments leave, or find no room.
  void pass(Nanoseconds time, bool room = true) {
    now_ += time;
    uint32_t ends = engine::OrphanConnections::kEndsPerPoll;
    engine::OrphanConnections::Due due;
    for (uint32_t i = 0; i < engine::OrphanConnections::kPerPoll && orphans_->poll(now_, due, ends); ++i) {
      UNET_CHECK(due.user == kOwner);
      UNET_CHECK(claims_.has({.local = due.local, .remote = due.remote, .local_port = due.fields.source_port,
                              .remote_port = due.fields.destination_port}));
      sound(due.fields);
      if (!room) return orphans_->put_back(due, now_);
    }
  }
  void take_over() {
    std::vector<engine::OrphanedConnection> all;
    orphans_->save(all, now_);
    UNET_CHECK(all.size() == orphans_->size() && all.size() == orphans_->size_of(kOwner));
    orphans_ = std::make_unique<engine::OrphanConnections>(2);
    for (const engine::OrphanedConnection& each : all) {
      UNET_CHECK(each.state <= engine::OrphanState::time_wait && claims_.has(each));
      UNET_CHECK(orphans_->add(each, now_));
    }
  }
  void end() {
    for (const Nanoseconds longest = now_ + kLongest; !orphans_->empty();) {
      UNET_CHECK(orphans_->next_event() < longest);
      pass(std::max(orphans_->next_event(), now_ + 1) - now_);
    }
    UNET_CHECK(orphans_->next_event() == ~Nanoseconds{0});
  }

 private:
  std::optional<uint64_t> user_of(const engine::OrphanedConnection& of) const {
    return orphans_->user_of(of.local, of.local_port, of.remote, of.remote_port);
  }
  static void sound(const ip::TcpFields& fields) {
    std::array<std::byte, ip::kTcpHeaderMax> head;
    ip::TcpView view;
    UNET_CHECK(ip::parse_tcp(Bytes(head).first(ip::emit_tcp(head.data(), fields)), view) == ip::TcpError::none);
    UNET_CHECK(!view.has(ip::TcpFlags::kSyn) && view.has(ip::TcpFlags::kAck | ip::TcpFlags::kRst));
  }

  const Claims& claims_;
  std::unique_ptr<engine::OrphanConnections> orphans_ = std::make_unique<engine::OrphanConnections>(1);
  std::vector<engine::OrphanedConnection> known_;
  Nanoseconds now_ = 1000 * kSecond;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput input(data, std::min<size_t>(size, 2048));
  const Claims claims(input.take<uint8_t>());
  Remains orphans(claims);
  service::DeadProcessesOfUser of_user;
  {
    std::vector<service::SharedMemory> tables = make_tables();
    write(input, tables);
    of_user.add(service::DeadProcess(1000, kOwner, 1, std::move(tables), claims.all));
  }
  for (const IpClaim& each : claims.all) UNET_CHECK(of_user.has_claimed(each) == (each.protocol == ip::Protocol::kTcp));
  uint32_t looked_at = 0, most = kTables;
  for (uint32_t i = 0; i < kTables; ++i) most += SocketTableGeometry::of_table(i).sockets;
  for (bool more = true; more; ++looked_at) {
    UNET_CHECK(looked_at <= most);
    std::optional<engine::OrphanedConnection> orphan;
    more = of_user.front().next(orphan);
    if (orphan) orphans.take(*orphan);
  }
  of_user.pop_front();
  UNET_CHECK(of_user.empty());
  for (const IpClaim& each : claims.all) UNET_CHECK(!of_user.has_claimed(each));
  for (int takeovers = 0; !input.empty();) {
    const auto step = input.take<uint8_t>();
    switch (step & 7) {
      case 0:
        if (++takeovers <= 3) orphans.take_over();  // costs as much time as a hundred other steps
        break;
      case 1: orphans.pass(kMillisecond << (step >> 4), (step & 8) != 0); break;
      case 2: orphans.pass((step >> 3) * kSecond); break;
      default: orphans.arrive(input); break;
    }
  }
  orphans.end();
  return 0;
}
