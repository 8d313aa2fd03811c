// dhcp_client.h - the DHCP client: obtains and keeps a lease of an IPv4 address (RFC 2131, 4.4), without I/O and clock; used by Host.
//
//   init --discover--> selecting --offer--> requesting --ack--> bound --T1--> renewing --T2--> rebinding
//     ^                                        | nak, silence     ^               | ack           | ack
//     |                                        |                  +---------------+---------------+
//     +----------------------------------------+---- nak, the lease's end, another host has the address
//
// The first valid offer is taken. The owner checks the address for conflicts (RFC 5227) before it uses it, and reports one by
// handle_conflict(). A lease counts from the time of the request. Implausible times from a server are corrected. Replies for another
// address, station or transaction are ignored.
#pragma once

#include <cstdint>
#include <optional>

#include "unet/base/time.h"
#include "unet/wire/dhcp.h"

namespace unet::ip {

struct DhcpLease {
  IpAddress address{}, server{};
  uint8_t prefix = 0;
  std::optional<IpAddress> router{};
  uint16_t mtu = 0;  // 0: not stated
  uint32_t name_server_count = 0;
  std::array<IpAddress, kNameServersMax> name_servers{};
  bool operator==(const DhcpLease&) const = default;
};

// A lease for the next instance of the host: remaining times, ~0 for infinite.
struct LeaseCheckpoint {
  DhcpLease lease{};
  Nanoseconds renew_in = 0, rebind_in = 0, end_in = 0;
};

struct DhcpCounters {
  uint64_t sent = 0, ignored = 0;                      // messages; ignored: for another client, or unexpected in this state
  uint64_t leases = 0, renewed = 0, refused = 0, lost = 0, declined = 0;
};

class DhcpClient {
 public:
  enum class State : uint8_t { init, selecting, requesting, bound, renewing, rebinding };

  // Starts within a second of `now`, randomized by `seed`: sooner than RFC 2131, 4.4.1 asks of hosts that start together.
  DhcpClient(const MacAddress& own, uint16_t size_max, uint64_t seed, Nanoseconds now) noexcept;

  void handle_reply(const DhcpReply& reply, Nanoseconds now) noexcept;
  // checkpoint(): the current lease with its remaining times. resume(): continues the lease of the previous instance, if it has not ended;
  // it is renewed when that instance would have.
  std::optional<LeaseCheckpoint> checkpoint(Nanoseconds now) const noexcept;
  void resume(const LeaseCheckpoint& checkpoint, Nanoseconds now) noexcept;
  // Another host has the leased address: declines it, and starts again after ten seconds (RFC 2131, 3.1.5), or after a minute if more than
  // ten conflicted in a row (RFC 5227, 2.1.1).
  void handle_conflict(Nanoseconds now) noexcept;

  struct Message {
    DhcpFields fields{};
    std::optional<IpAddress> to{};  // the server; nullopt: broadcast
  };
  // The message to send now; false: none before next_event(). Ends a lease that has expired.
  bool poll_message(Nanoseconds now, Message& message) noexcept;
  Nanoseconds next_event() const noexcept { return next_; }

  State state() const noexcept { return state_; }
  const std::optional<DhcpLease>& lease() const noexcept { return lease_; }
  const DhcpCounters& counters() const noexcept { return counters_; }

 private:
  void restart(Nanoseconds wait, Nanoseconds now) noexcept;
  void advance(Nanoseconds now) noexcept;
  void begin(State state, Nanoseconds now) noexcept;
  void take_ack(const DhcpReply& reply, Nanoseconds now) noexcept;
  bool is_awaited(const DhcpReply& reply) const noexcept;
  Nanoseconds back_off() noexcept;
  Nanoseconds after(Nanoseconds time, uint32_t seconds) const noexcept;
  uint16_t seconds_since_start(Nanoseconds now) const noexcept;

  const MacAddress own_;
  const uint16_t size_max_;
  uint64_t random_;
  State state_ = State::init;
  Nanoseconds next_;
  uint32_t tries_ = 0;             // of the present state's message
  uint32_t failures_ = 0;          // restarts since the last lease
  uint32_t transaction_ = 0;
  Nanoseconds started_ = 0;        // when the first discover was sent
  Nanoseconds asked_ = 0;          // when the first request was sent: the lease counts from then
  IpAddress wanted_{}, server_{};  // of the accepted offer, or of the lease
  std::optional<DhcpLease> lease_;
  Nanoseconds renew_ = 0, rebind_ = 0, end_ = 0;
  bool decline_ = false;           // decline `wanted_` first
  uint32_t conflicts_ = 0;         // addresses in conflict in a row
  DhcpCounters counters_;
};

}  // namespace unet::ip
