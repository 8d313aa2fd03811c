// dhcp_client.h - how a host gets an IPv4 address from a server, and keeps it (RFC 2131, 4.4), as a machine without I/O and clock; used by
// the stack of a host.
//
//   init --discover--> selecting --offer--> requesting --ack--> bound --T1--> renewing --T2--> rebinding
//     ^                                        | nak, silence     ^               | ack           | ack
//     |                                        |                  +---------------+---------------+
//     +----------------------------------------+---- nak, the lease's end, somebody else has the address
//
// The first good offer is taken. Whether anybody else has the address its owner looks (RFC 5227), before it uses it, and says so by
// handle_conflict(). A lease counts from the moment at which it was asked for. What a server says about time is believed as far as it makes
// sense; who answers an address that was not asked for, another station, or another transaction is not heard.
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
  uint16_t mtu = 0;  // 0: the server does not say
  uint32_t name_server_count = 0;
  std::array<IpAddress, kNameServersMax> name_servers{};
  bool operator==(const DhcpLease&) const = default;
};

// A lease for a host that goes on with it: times from then on, ~0 for ever.
struct DhcpKept {
  DhcpLease lease{};
  Nanoseconds renew_in = 0, rebind_in = 0, end_in = 0;
};

struct DhcpCounters {
  uint64_t sent = 0, ignored = 0;                      // messages; ignored: not for us, or not now
  uint64_t leases = 0, renewed = 0, refused = 0, lost = 0, declined = 0;
};

class DhcpClient {
 public:
  enum class State : uint8_t { init, selecting, requesting, bound, renewing, rebinding };

  // Begins within a second of `now`, as `seed` has it: less than RFC 2131, 4.4.1 asks hosts to wait that start together.
  DhcpClient(const MacAddress& own, uint16_t size_max, uint64_t seed, Nanoseconds now) noexcept;

  void handle_reply(const DhcpReply& reply, Nanoseconds now) noexcept;
  // The lease as it is now; and one that the client before this one had, whose time is not over: it is renewed when that one would have.
  std::optional<DhcpKept> kept(Nanoseconds now) const noexcept;
  void resume(const DhcpKept& kept, Nanoseconds now) noexcept;
  // Somebody else has the lease's address: it is declined, and after ten seconds another is asked for (RFC 2131,
  // 3.1.5), after a minute if there were more than ten in a row (RFC 5227, 2.1.1).
  void handle_conflict(Nanoseconds now) noexcept;

  struct Message {
    DhcpFields fields{};
    std::optional<IpAddress> to{};  // the server; nothing: everybody
  };
  // What to send now; false: nothing before next_event(). Ends a lease whose time is over.
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
  uint32_t tries_ = 0;             // of the state's message
  uint32_t failures_ = 0;          // beginnings since the last lease
  uint32_t transaction_ = 0;
  Nanoseconds started_ = 0;        // the first discover
  Nanoseconds asked_ = 0;          // the first request of the transaction: from then on a lease counts
  IpAddress wanted_{}, server_{};  // of the offer that was taken, or of the lease
  std::optional<DhcpLease> lease_;
  Nanoseconds renew_ = 0, rebind_ = 0, end_ = 0;
  bool decline_ = false;           // `wanted_` is to be declined first
  uint32_t conflicts_ = 0;         // addresses in a row that somebody else had
  DhcpCounters counters_;
};

}  // namespace unet::ip
