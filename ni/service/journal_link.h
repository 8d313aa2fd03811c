// journal_link.h - packets between a network interface and its supervisor: records, descriptors beside them, orders; used by both ends.
//
// A record has a key, a value and up to four descriptors. A packet carries records and orders, many together; a step of several packets
// takes effect with its last packet, or not at all. Integers are in host order.
//
//   NI -> supervisor   hello (first), put and erase, ready, upgrade, stop, released
//   supervisor -> NI   put (once, all that the NI before it had), release, refused or upgraded
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "unet/base/bytes.h"
#include "unet/base/result.h"
#include "unet/limits.h"
#include "unet/mapping.h"

namespace unet::service {

// Raised when the value of any record changes, or the meaning of what an engine keeps (ni/engine/engine_checkpoint.h).
constexpr uint32_t kJournalFormat = 15;

// The next NI reads records in this order: a record comes after those to which it refers.
enum class JournalKind : uint32_t {
  ni = 1,          // a 0; descriptors: Kept memory, listening socket if there is one
  ni_state,        // a 0
  policy,          // a 0; descriptor: text of the policy in force
  client,          // a: client; descriptor: its socket
  client_state,
  page,            // descriptors: page, eventfd that wakes the engine
  segment,         // a: endpoint; descriptor: memory
  region,          // descriptor: memory
  wake,            // descriptor: eventfd
  endpoint,
  channel,         // a: endpoint, b: number
  request,         // b: its id
  output,          // a: client, b: number in order; descriptors: its own
  upgrade,         // a: client, b: cookie: the client asked for this takeover
  capture,         // a: its number; descriptor: memory
  ip_claim,        // a: endpoint, b: its number
  socket_table,    // a: endpoint, b: which of its tables; descriptor: memory
  ip_lease,        // a: port
  ip_host,         // a: port
  orphans,         // a 0; descriptor: text of connections that the engine has not ended yet of processes that are gone
  held_memory,     // b: its id; descriptors: watches, one or two
};

struct JournalKey {
  JournalKind kind;
  uint32_t a;
  uint64_t b;
  friend auto operator<=>(const JournalKey&, const JournalKey&) = default;
};
static_assert(sizeof(JournalKey) == 16);

enum class JournalOp : uint32_t {
  put = 1,
  erase = 2,
  hello = 3,     // value: JournalHello
  ready = 4,     // the NI serves clients
  upgrade = 5,   // value: path of the program, or nothing
  stop = 6,      // the NI stops, and all clients know: the supervisor keeps nothing
  release = 7,   // the NI must end, and leave everything to the next one
  released = 8,  // the NI's wires are closed; it sends nothing more
  refused = 9,   // answer to upgrade; value: the reason, as text
  upgraded = 10, // answer to upgrade: the new NI serves clients
};

struct JournalHello {
  uint32_t format;
  uint32_t user;     // the owner of the network interface
  char version[32];  // version of the program, zero-terminated
  char socket[104];  // path of the listening socket, zero-terminated
};
static_assert(sizeof(JournalHello) == 144 && sizeof(JournalHello::socket) > kSocketPathMax);

struct JournalItem {
  JournalOp op{};
  JournalKey key{};
  std::vector<std::byte> value;
  std::vector<Descriptor> descriptors;

  // The value, if it is exactly a T.
  template <typename T>
  bool read(T& into) const noexcept {
    static_assert(std::is_trivially_copyable_v<T>);
    if (value.size() != sizeof into) return false;
    std::memcpy(static_cast<void*>(&into), value.data(), sizeof into);
    return true;
  }
};

class JournalLink {
 public:
  static constexpr size_t kValueMax = 2048;
  static constexpr size_t kDescriptorsMax = 4;    // of one item
  static constexpr size_t kPacketMax = 48 * 1024;
  static constexpr size_t kPacketDescriptorsMax = 128;

  explicit JournalLink(Descriptor socket) noexcept : socket_(std::move(socket)) {}

  // Both ends of a new link.
  static Result<std::pair<Descriptor, Descriptor>> make_pair();
  // Adds to the packet that is being made. The descriptors must stay open until it is sent.
  Status add(JournalOp op, const JournalKey& key, Bytes value = {}, std::span<const int> descriptors = {});
  // Sends the packet. `last`: it ends the step, which takes effect. Waits until the other end has room.
  Status send(bool last);

  // For callers that must not wait. The packet is sent, or stays for another call: once the other end has read (`no_room`; poll() tells),
  // or once the kernel has memory again (`no_memory`; nothing tells). After an error nothing stays.
  enum class Sent { all, no_room, no_memory };
  Result<Sent> send_now(bool last);
  // add() will not have to send first.
  bool fits(size_t value, size_t descriptors) const noexcept;

  enum class Received { items, nothing, closed, broken };
  // Appends the items of the next packet; `last`: it ends a step. broken: the packet is invalid, and the other end cannot be trusted.
  Received receive(std::vector<JournalItem>& items, bool& last);

  // Items were added since the last packet.
  bool pending() const noexcept { return !bytes_.empty(); }
  int descriptor() const noexcept { return socket_.get(); }

 private:
  ssize_t transmit(bool last, int flags);
  void begin_packet();

  Descriptor socket_;
  std::vector<std::byte> bytes_;
  std::vector<int> descriptors_;
};

}  // namespace unet::service
