// orphan_connections.h - ends TCP connections of dead processes: resets, closes that were begun, TIME-WAIT; used by IpDatapath.
//
// Reset: the peer is sent an ACK that it cannot accept. It answers with the sequence number that it expects (RFC 9293, 3.10.7.4), and gets
// a reset with exactly that number. The state at the process's death need not be known. Each further ACK is half of the sequence space away
// from the one before, so that one of two is outside of any window. A reset or SYN of the peer ends the entry, or silence after all tries.
//
// Close: RFC 9293 is followed to its end. Our FIN is repeated until acknowledged, the peer's FIN is acknowledged, TIME-WAIT is kept. New
// data is answered by a reset, as no process will read it.
//
// An orphan's data came from memory that a client could write. The service has checked that the client had claimed the port. Entries, work
// per poll and lifetime are bounded.
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

// A connection of a dead process.
struct OrphanedConnection {
  ip::IpAddress local{}, remote{};
  uint16_t local_port = 0, remote_port = 0;
  OrphanState state = OrphanState::reset;
  bool timestamps = false;
  uint32_t send_next = 0;      // after our FIN, if one was sent
  uint32_t receive_next = 0;
  uint32_t timestamp = 0, timestamp_echo = 0;
  uint32_t age_ms = 0;         // since the process ended
  uint32_t spare = 0;
  uint64_t user = 0;           // of the process (ClaimIp)
};

class OrphanConnections {
 public:
  static constexpr uint32_t kPerPoll = 32;                 // segments of one poll
  static constexpr uint32_t kEndsPerPoll = 256;            // entries that may end in one poll
  static constexpr Nanoseconds kPollInterval = 500 * kMicrosecond;  // between two polls: 64,000 segments a second
  static constexpr Nanoseconds kTick = 125 * kMillisecond;
  static constexpr Nanoseconds kTimeWait = 60 * kSecond;   // twice the maximum segment lifetime; FIN-WAIT-2 as long
  static constexpr uint32_t kTries = 5;                    // unanswered segments, 1, 2, 4 ... seconds apart

  explicit OrphanConnections(uint64_t seed) noexcept : seed_(seed) {}

  // Replaces an entry with the same ends. If the table is full, the oldest entry of the user with most entries goes. False: that is this
  // one; its peer learns of the end when it sends next.
  bool add(const OrphanedConnection& orphan, Nanoseconds now);
  uint32_t size_of(uint64_t user) const noexcept;
  bool empty() const noexcept { return count_ == 0; }
  uint32_t size() const noexcept { return count_; }

  // A segment from `remote`. True: it belongs to an orphan; `answer`: the reply, if any.
  bool handle(const ip::IpAddress& local, const ip::IpAddress& remote, const ip::TcpView& segment, Nanoseconds now,
              std::optional<ip::TcpFields>& answer) noexcept;
  // A claimant of the port may begin a connection with this SYN. False: the peer could take it for the old connection (RFC 6191), or that
  // has not ended. True: the old one was removed.
  bool may_begin(const ip::IpAddress& local, const ip::IpAddress& remote, const ip::TcpView& syn) noexcept;

  // The user of the orphan between these ends; nullopt: none.
  std::optional<uint64_t> user_of(const ip::IpAddress& local, uint16_t local_port, const ip::IpAddress& remote,
                                  uint16_t remote_port) const noexcept;
  void forget(const ip::IpAddress& local, uint16_t local_port, const ip::IpAddress& remote, uint16_t remote_port) noexcept;

  // Appends all orphans in their present state.
  void save(std::vector<OrphanedConnection>& into, Nanoseconds now) const;

  struct Due {
    ip::IpAddress local{}, remote{};
    ip::TcpFields fields{};
    uint64_t user = 0;
  };
  // The next segment to send. False: none, or none before next_event(). `ends`: how many entries may still end; poll() reduces it.
  bool poll(Nanoseconds now, Due& due, uint32_t& ends) noexcept;
  // The last segment could not be sent.
  void put_back(const Due& due, Nanoseconds now) noexcept;
  Nanoseconds next_event() const noexcept { return count_ == 0 ? ~Nanoseconds{0} : std::max(next_at_, paused_until_); }
  // No further poll() in this interval.
  void pause(Nanoseconds now) noexcept { paused_until_ = now + kPollInterval; }

 private:
  static constexpr uint32_t kEnd = ~uint32_t{0};
  static constexpr uint32_t kWheel = 1024;                 // ticks: more than TIME-WAIT
  static constexpr uint32_t kBuckets = 64 * 1024;
  static constexpr uint32_t kBlock = 1024;                 // entries allocated at a time, at fixed addresses
  static constexpr uint16_t kWindow = 16 * 1024;           // the advertised window
  // ACKs of one entry to unacceptable segments: two orphans could exchange ACKs for ever
  static constexpr uint8_t kAnswersPerTick = 4;
  // Twice the interval: the wheel stands still while nothing on it is due.
  static_assert(kWheel * kTick > 2 * kTimeWait + 2 * kTick);

  struct Entry {
    OrphanedConnection of;
    uint32_t next_hash = kEnd;
    uint32_t next = kEnd, previous = kEnd;                 // list of its slot of the wheel
    uint32_t newer = kEnd, older = kEnd;                   // list of the same user
    uint16_t place = 0;
    uint8_t tries = 0;
    uint8_t answers = 0;                                   // in `answers_tick`
    uint32_t answers_tick = 0;
    bool used = false;
    Nanoseconds until = 0;                                 // end of TIME-WAIT or FIN-WAIT-2
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
  std::unordered_map<uint64_t, User> users_;  // only users with entries
  std::vector<uint32_t> buckets_;
  std::vector<std::unique_ptr<Entry[]>> blocks_;
  std::vector<uint32_t> wheel_;
  uint32_t free_ = kEnd;
  uint32_t count_ = 0;
  uint64_t tick_ = 0;          // current slot of the wheel
  Nanoseconds next_at_ = 0;    // nothing is due before
  Nanoseconds paused_until_ = 0;
};

}  // namespace unet::engine
