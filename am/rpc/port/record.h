// record.h - the records that spaces of message ports exchange, and their encoding; used by PortRouter and PortSpace.
//
// Numbers in a record are indices of tables of the receiver (`to`) or of the sender (`from`). The receiver checks each against the peer
// that it belongs to, so a peer can only name what it has a part in. Secrets travel in attach records, descriptors and state records alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "unet/base/bytes.h"

namespace unet::rpc {

constexpr uint32_t kRightsMax = 16;              // rights in a message
constexpr uint32_t kRecordMax = 16 * 1024;       // bytes of an encoded record: a medium message

// A secret of 128 bits. It proves the right to send to a message port, or to claim an offered receive right.
struct PortKey {
  uint64_t first = 0, second = 0;
  // Takes the same time for any two keys.
  bool operator==(const PortKey& other) const noexcept { return ((first ^ other.first) | (second ^ other.second)) == 0; }
};

// Why a right is of no use, or a call failed.
enum class PortError : uint8_t {
  none = 0,
  dead_name = 1,    // the receive right is gone
  bad_right = 2,    // the right is forged, or this receive right was claimed before
  no_room = 3,      // a limit of a space is reached
  not_found = 4,    // no right is published under this name
  unreachable = 5,  // the process that the message port or right was in is gone
  too_long = 6,     // the receiver takes no message of this length
  lost = 7,         // the new home does not know this sender: a process died while the message port moved
};
constexpr uint8_t kPortErrorMax = static_cast<uint8_t>(PortError::lost);
std::string_view to_string(PortError error) noexcept;

enum class RecordKind : uint8_t {
  attach = 1,       // holder -> home: counts this right, and asks for a way to send by it
  attached = 2,     // home -> holder: the answer
  refused = 3,      // home -> holder: the right is dead; also without a question
  moved = 4,        // former home -> holder: attach at the new home
  detach = 5,       // holder -> home: the right is gone
  message = 6,      // holder -> home: a message, or a piece of it
  ack = 7,          // home -> holder: messages before `sequence` are in the queue
  done = 8,         // receiver of a right -> its sender: the right is attached, or refused
  claim = 9,        // new home -> former home: a program has received the receive right
  state = 10,       // former home -> new home: the answer, followed by a sender record for each right that may send
  sender = 11,
  opened = 12,      // former home -> new home: all queued messages have been sent
  sender_gone = 13, // former home -> new home: this sender will not attach
  look_up = 14,     // asks for the right that is published under a name
  found = 15,       // the answer
};

struct RecordFlags {
  static constexpr uint8_t kFirst = 1;      // attach: this right was never attached before
  static constexpr uint8_t kReceive = 2;    // attach: by an offered receive right
  static constexpr uint8_t kTransfer = 4;   // attach: by the former home, for the queued messages
  static constexpr uint8_t kPiece = 1;      // message: `offset` is present
  static constexpr uint8_t kAckNow = 2;     // message: the sender waits for an ack of this piece
  static constexpr uint8_t kEventShift = 4; // message of a transfer: the upper bits are a PortEvent
  static constexpr uint8_t kArmed = 1;      // state: the program has asked for no_more_senders
  static constexpr uint8_t kWait = 1;       // ack: no room; send nothing until an ack without this flag
};

// A right on its way. Its space is named as the sender of the record names it; without "@host" it is on the host of that sender.
struct RightDescriptor {
  bool receive = false;
  PortError error = PortError::none;  // otherwise the right is dead already, and the fields below mean nothing
  uint32_t number = 0;                // of the message port at its home
  uint32_t transit = 0;               // number for the done record
  PortKey key{};
  std::string space{};
};

// The fields that a kind does not list in record.cc are zero, and are not encoded.
struct Record {
  RecordKind kind{};
  uint8_t flags = 0;
  PortError error = PortError::none;
  uint32_t to = 0, from = 0;
  uint32_t number = 0;    // of a message port; state: its queue limit
  uint32_t total = 0;     // bytes of a whole message
  uint32_t offset = 0;    // ack: bytes of message `sequence` that have arrived
  uint64_t sequence = 0;
  uint64_t stream = 0;    // identifies a holder's right at each home of the message port; only the holder and homes know it
  PortKey key{};
  std::string name{};
  std::vector<RightDescriptor> rights{};
  Bytes body{};           // not owned
};

// Returns the encoded size without the body.
uint32_t head_size(const Record& record);
// Writes head and body to `to`, which has room for both. Returns the size.
uint32_t encode_record(const Record& record, std::byte* to);
// Returns nothing if the bytes are no record. Reads each byte once, since a local peer may change them; `body` points into `from`.
std::optional<Record> decode_record(Bytes from);

}  // namespace unet::rpc
