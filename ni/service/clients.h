// clients.h - the control connections: their table, packets to them, their ends; used by Service and its parts.
//
// Packets that the socket does not take wait here, up to a maximum. While packets of a client wait, its requests are not read. A client
// that ends stays in the table until the service has taken back all that it had.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <initializer_list>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ni/service/charges.h"
#include "ni/service/listener.h"
#include "ni/service/number_pool.h"
#include "ni/service/persistence.h"
#include "ni/service/records.h"
#include "ni/service/service_options.h"
#include "unet/base/bytes.h"

namespace unet::service {

// All bytes are set: padding carries nothing of the NI's memory.
inline control::Reply make_reply(const control::Header& header) {
  auto reply = zeroed<control::Reply>();
  reply.header = header;
  return reply;
}

class Clients {
 public:
  static constexpr Nanoseconds kHelloFor = 10 * kSecond;  // a connection that says nothing
  static constexpr Nanoseconds kScanEvery = 200 * kMillisecond;  // of held memory, and of ended connections with unread descriptors
  static constexpr Nanoseconds kFlushAgain = 10 * kMillisecond;  // an answer for which there were no descriptors

  // Sockets are added to `epoll` with the client's number as data. `policy` gives clients their rights. `now`: the time of the poll().
  Clients(int epoll, const Nanoseconds& now, const Policy& policy, ServiceCounters& counters, Charges& charges,
          Persistence& persistence) noexcept
      : epoll_(epoll), now_(now), policy_(policy), counters_(counters), charges_(charges), persistence_(persistence) {}

  // The process at the other end of a socket.
  Result<Credentials> credentials_of(int socket) const { return peer_credentials(socket, unknown_user_); }
  // Errors: quota_exceeded, system.
  Status add(Descriptor socket, Credentials who);
  ClientRecord* at(uint32_t index) const;  // nullptr: there is none
  const std::map<uint32_t, std::unique_ptr<ClientRecord>>& all() const noexcept { return clients_; }

  // False: the descriptors could not be had. The client got an error instead; the caller undoes what the client asked for.
  bool send(ClientRecord& client, Bytes packet, std::initializer_list<int> descriptors = {});
  template <typename Packet>
  bool send_packet(ClientRecord& client, const Packet& packet, std::initializer_list<int> descriptors = {}) {
    static_assert(std::is_trivially_copyable_v<Packet>);
    return send(client, as_bytes(&packet, sizeof packet), descriptors);
  }
  void ok(ClientRecord& client, const control::Header& header, std::initializer_list<int> descriptors = {});
  void fail_request(ClientRecord& client, const control::Header& header, const Error& error);
  void flush(ClientRecord& client);
  // Watches the socket for what the client waits for: requests, room, or nothing. Call after a change of `deferred`.
  void watch_for_room(ClientRecord& client);

  // Ends clients that do not say hello, sends packets for which there were no descriptors, and scans what ended clients still hold.
  void poll();
  void scan_soon() noexcept { next_scan_ = 0; }
  void schedule_scan();
  Nanoseconds next_timeout() const noexcept;

  // Ends the connection now. next_dropped() returns the client later, so that callers can go on with its record.
  void drop(ClientRecord& client, std::string_view why);
  void drop_all(std::string_view why);
  void protocol_error(ClientRecord& client, std::string_view what);
  bool has_dropped() const noexcept { return !dropped_.empty(); }
  bool has_dropped(uint32_t index) const { return dropped_.count(index) != 0; }
  ClientRecord* next_dropped();  // nullptr: there is none
  void remove(ClientRecord& client);

  // A takeover (takeover_clients.cc): records of clients, their state, pages and packets. The engines do not know a restored client.
  bool save(const JournalKey& key);  // false: it is gone
  Status restore(JournalItem& item);

 private:
  Status watch(uint32_t index, Descriptor socket, Credentials who);
  bool reads_descriptors(const ClientRecord& client);
  void announce(ClientRecord& client);
  void end_silent();
  void flush_starved();
  void end_socket(ClientRecord& client);
  void scan_ended();
  Status restore_client(JournalItem& item);
  Status restore_state(const JournalItem& item);
  Status restore_page(JournalItem& item);
  Status restore_output(JournalItem& item);

  const int epoll_;
  const Nanoseconds& now_;
  const Policy& policy_;
  ServiceCounters& counters_;
  Charges& charges_;
  Persistence& persistence_;
  const std::optional<uid_t> unknown_user_ = unknown_user();
  std::map<uint32_t, std::unique_ptr<ClientRecord>> clients_;
  NumberPool free_{0, kClientsMax};
  std::set<uint32_t> dropped_;
  Nanoseconds next_hello_ = ~Nanoseconds{0};  // when a client must have said hello
  Nanoseconds next_flush_ = ~Nanoseconds{0};  // of clients that are starved
  // By user: our ends of connections that are over, while the client has not read all descriptors.
  std::list<std::pair<uid_t, PacketSocket>> unread_ends_;
  Nanoseconds next_scan_ = ~Nanoseconds{0};  // of unread_ends_ and of held memory
};

}  // namespace unet::service
