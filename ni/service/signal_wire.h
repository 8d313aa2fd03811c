// signal_wire.h - the messages NIs exchange about channels: layout, one checked parse, emit; used by signalling.
//
// A message is the payload of a frame with tag 0. The frame's crc has been verified before it comes here. After a change
// here or in unet/wire/frame.h change tools/wireshark/unet.lua as well (tests/system/wireshark.py compares).
//
//   0         1      2        4            8                  16                24       32
//   +---------+------+--------+------------+------------------+-----------------+--------+------
//   | version | type | length | lost_after | from_incarnation | to_incarnation  | number | body
//   +---------+------+--------+------------+------------------+-----------------+--------+------
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "ni/engine/mailbox.h"
#include "unet/base/bytes.h"
#include "unet/limits.h"

namespace unet::service {

constexpr uint8_t kSignalVersion = 1;

// The order of SignalBody's alternatives.
enum class SignalType : uint8_t {
  resolve = 1,
  resolved = 2,
  connect = 3,
  received = 4,
  accepted = 5,
  rejected = 6,
  confirm = 7,
  close = 8,
  closed = 9,
  keepalive = 10,
  alive = 11,
  goodbye = 12,
};

struct SignalHeader {
  uint8_t version;            // kSignalVersion
  uint8_t type;               // SignalType
  be16 length;                // bytes of the whole message
  be32 lost_after_ms;         // the sender may be given up when it was silent for so long
  be64 from_incarnation;      // of the sending NI
  be64 to_incarnation;        // of the receiving NI as the sender knows it; 0: not known
  be64 number;                // number of the connect that it is about; 0: none
};
static_assert(sizeof(SignalHeader) == 32);

// A name or a sentence; only `length` bytes count.
template <size_t N>
struct WireText {
  uint8_t length = 0;
  char bytes[N] = {};

  std::string_view view() const noexcept { return {bytes, length <= N ? length : N}; }
  void set(std::string_view text) noexcept {
    length = static_cast<uint8_t>(text.size() < N ? text.size() : N);
    std::memcpy(bytes, text.data(), length);
  }
};
using WireName = WireText<kNameMax>;
static_assert(sizeof(WireName) == 64);

struct Resolve { WireName host; };
struct Resolved { WireName host; };
struct ConnectBody {
  be32 tag;          // frames for the connecting endpoint carry it
  be32 mtu;          // of the connecting NI's port
  be32 pid;          // of the connecting process, for people
  WireName target;
  WireName host;     // of the connecting NI
};
struct Received {};
struct AcceptedBody {
  be32 tag;          // frames for the accepting endpoint carry it
  be32 connect_tag;  // from the connect
};
struct Rejected {
  be32 code;         // Errc
  WireText<255> text;
};
struct Confirm {};
struct Close {
  be32 to_tag;       // the receiving NI's tag; 0: the sender does not know it, `number` names the connect
  be32 from_tag;     // the sending NI's tag
  be32 reason;       // control::CloseReason
};
struct Closed {
  be32 to_tag;       // the tags of the close, the other way round
  be32 from_tag;
};
struct KnownChannel {
  be32 from_tag;     // the sender's
  be32 to_tag;       // the receiver's
};
struct Keepalive {
  static constexpr uint32_t kChannels = 40;
  be32 count;
  std::array<KnownChannel, kChannels> channels;  // the first `count` of them
};
struct Alive {};
struct Goodbye {};

static_assert(sizeof(ConnectBody) == 140 && sizeof(AcceptedBody) == 8 && sizeof(Rejected) == 260 && sizeof(Close) == 12);
static_assert(sizeof(Closed) == 8 && sizeof(KnownChannel) == 8 && sizeof(Keepalive) == 324);
static_assert(sizeof(SignalHeader) + sizeof(Keepalive) <= engine::kSignalMax);

using SignalBody = std::variant<Resolve, Resolved, ConnectBody, Received, AcceptedBody, Rejected, Confirm, Close, Closed,
                                Keepalive, Alive, Goodbye>;

struct Signal {
  SignalHeader header;
  SignalBody body;
};

// Checks everything that needs no table: version, type, lengths, names, reasons. Nothing if the message is malformed.
std::optional<Signal> parse_signal(Bytes message) noexcept;

// Writes a message and returns its length; type, length and version of the header are filled in.
uint32_t emit_signal(std::span<std::byte, engine::kSignalMax> to, SignalHeader header, const SignalBody& body) noexcept;

}  // namespace unet::service
