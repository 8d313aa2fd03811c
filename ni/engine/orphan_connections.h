// orphan_connections.h - what is left of the TCP connections of processes that are gone, until their peers know: resets, closes that were
// begun, and TIME-WAIT; used by IpDatapath, in the engine's thread.
//
// A peer that is to be reset is sent an ACK that it cannot take: RFC 9293, 3.10.7.4 has it answer with one that says what it expects, and
// that is answered with a reset of exactly that number. So nobody has to know where a connection was when its process died. Each further
// ACK is half of the sequence space away from the one before, so that one of two is outside any window. What a peer answers to the reset's
// connection, or that it has been silent each time, ends the entry.
//
// A close that was begun is finished as RFC 9293 has it: our FIN again until it is acknowledged, the peer's FIN acknowledged, TIME-WAIT
// held. Data that comes meanwhile, which nobody will read, is answered by a reset.
//
// What is told here came from memory that a client could write; the service has seen to it that the client had claimed the port.
// Everything is bounded: entries, what one turn does, and how long one stays.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "unet/base/time.h"
#include "unet/limits.h"
#include "unet/wire/address.h"
#include "unet/wire/tcp.h"

namespace unet::engine {

enum class OrphanState : uint8_t { reset, fin_wait_1, fin_wait_2, closing, last_ack, time_wait };

// A connection that its process has left.
struct OrphanedConnection {
  ip::IpAddress local{}, remote{};
  uint16_t local_port = 0, remote_port = 0;
  OrphanState state = OrphanState::reset;
  bool timestamps = false;
  uint32_t send_next = 0;      // behind our FIN, if one was sent
  uint32_t receive_next = 0;
  uint32_t timestamp = 0, timestamp_echo = 0;
  uint32_t age_ms = 0;         // how long ago it was left
  uint32_t spare = 0;
  uint64_t user = 0;           // whose it was (ClaimIp)
};

class OrphanConnections {
 public:
  static constexpr uint32_t kPerPoll = 32;                 // segments of one turn, and
  static constexpr uint32_t kEndsPerPoll = 256;            // entries that end, and
  static constexpr Nanoseconds kPollInterval = 500 * kMicrosecond;  // the next such turn comes so much later: 64,000 segments a second
  static constexpr Nanoseconds kTick = 125 * kMillisecond;
  static constexpr Nanoseconds kTimeWait = 60 * kSecond;   // twice the maximum segment lifetime; FIN-WAIT-2 as long
  static constexpr uint32_t kTries = 5;                    // segments that nobody answers, 1, 2, 4 ... seconds apart

  explicit OrphanConnections(uint64_t seed) noexcept : seed_(seed) {}

  // One of the same ends gives way; and if there are as many as there may be, the oldest of the user who has most, which may be this one:
  // false, a peer learns when it says something.
  bool add(const OrphanedConnection& orphan, Nanoseconds now);
  uint32_t size_of(uint64_t user) const noexcept;
  bool empty() const noexcept { return count_ == 0; }
  uint32_t size() const noexcept { return count_; }

  // A segment that came from `remote`. True: nobody else is to see it; `answer` is what to say, if anything.
  bool handle(const ip::IpAddress& local, const ip::IpAddress& remote, const ip::TcpView& segment, Nanoseconds now,
              std::optional<ip::TcpFields>& answer) noexcept;
  // Whether an endpoint that claims the port may begin a connection with this SYN: not one that the peer could take for the old one's
  // (RFC 6191), nor one that is not over. True: the old one is gone.
  bool may_begin(const ip::IpAddress& local, const ip::IpAddress& remote, const ip::TcpView& syn) noexcept;

  // Whose is left between these ends; nothing: none is.
  std::optional<uint64_t> user_of(const ip::IpAddress& local, uint16_t local_port, const ip::IpAddress& remote,
                                  uint16_t remote_port) const noexcept;
  void forget(const ip::IpAddress& local, uint16_t local_port, const ip::IpAddress& remote, uint16_t remote_port) noexcept;

  // All as they are now.
  void save(std::vector<OrphanedConnection>& into, Nanoseconds now) const;

  struct Due {
    ip::IpAddress local{}, remote{};
    ip::TcpFields fields{};
    uint64_t user = 0;
  };
  // What is to be sent now, one at a time; false: nothing more, or no more for now: next_event(). `ends`: so many entries may end, which
  // are taken from it.
  bool poll(Nanoseconds now, Due& due, uint32_t& ends) noexcept;
  // The last one found no room on its way.
  void put_back(const Due& due, Nanoseconds now) noexcept;
  Nanoseconds next_event() const noexcept { return count_ == 0 ? ~Nanoseconds{0} : std::max(next_at_, paused_until_); }
  // A turn's worth was sent.
  void pause(Nanoseconds now) noexcept { paused_until_ = now + kPollInterval; }

 private:
  static constexpr uint32_t kEnd = ~uint32_t{0};
  static constexpr uint32_t kWheel = 1024;                 // ticks: more than TIME-WAIT
  static constexpr uint32_t kBuckets = 64 * 1024;
  static constexpr uint32_t kBlock = 1024;                 // entries that are made at a time, at addresses that stay
  static constexpr uint16_t kWindow = 16 * 1024;           // that we tell of
  static constexpr uint8_t kAnswersPerTick = 4;            // of one entry to what it cannot take: two of these could talk for ever
  // Of two of them: the wheel stands while nothing on it is due.
  static_assert(kWheel * kTick > 2 * kTimeWait + 2 * kTick);

  struct Entry {
    OrphanedConnection of;
    uint32_t next_hash = kEnd;
    uint32_t next = kEnd, previous = kEnd;                 // in its place of the wheel
    uint32_t newer = kEnd, older = kEnd;                   // of the same user
    uint16_t place = 0;
    uint8_t tries = 0;
    uint8_t answers = 0;                                   // in `answers_tick`
    uint32_t answers_tick = 0;
    bool used = false;
    Nanoseconds until = 0;                                 // TIME-WAIT and FIN-WAIT-2 end then
  };

  uint32_t bucket_of(const ip::IpAddress& local, uint16_t local_port, const ip::IpAddress& remote, uint16_t remote_port) const noexcept;
  uint32_t find(const ip::IpAddress& local, uint16_t local_port, const ip::IpAddress& remote, uint16_t remote_port) const noexcept;
  void drop(uint32_t index) noexcept;
  bool make_room(uint64_t user) noexcept;
  void schedule(uint32_t index, Nanoseconds at) noexcept;
  void unschedule(uint32_t index) noexcept;
  void find_next() noexcept;
  void wait(uint32_t index, OrphanState state, Nanoseconds now) noexcept;
  bool handle_end(uint32_t index, const ip::TcpView& segment, Nanoseconds now, std::optional<ip::TcpFields>& answer) noexcept;
  void acknowledge(Entry& entry, Nanoseconds now, std::optional<ip::TcpFields>& answer) noexcept;
  Entry& at(uint32_t index) noexcept { return blocks_[index / kBlock][index % kBlock]; }
  const Entry& at(uint32_t index) const noexcept { return blocks_[index / kBlock][index % kBlock]; }
  static bool is_newer(const OrphanedConnection& old, const ip::TcpView& syn, uint32_t sequence, uint32_t stamp) noexcept;
  static ip::TcpFields fields_of(const Entry& entry, uint8_t flags, uint32_t sequence) noexcept;

  struct User {
    uint32_t count = 0, oldest = kEnd, newest = kEnd;
  };

  const uint64_t seed_;
  std::unordered_map<uint64_t, User> users_;  // who has any
  std::vector<uint32_t> buckets_;
  std::vector<std::unique_ptr<Entry[]>> blocks_;
  std::vector<uint32_t> wheel_;
  uint32_t free_ = kEnd;
  uint32_t count_ = 0;
  uint64_t tick_ = 0;          // the place that is being looked at
  Nanoseconds next_at_ = 0;    // nothing is to be done before
  Nanoseconds paused_until_ = 0;
};

}  // namespace unet::engine
