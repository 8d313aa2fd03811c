// handler.h - tokens, handlers and the handler table: the code that a message runs; part of the public API of Active Messages.
#pragma once

#include <array>
#include <cstring>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "am/packet.h"
#include "am/status.h"

namespace unet::am {

class Endpoint;
class Dispatcher;
struct Peer;

using Index = uint32_t;  // an index of the translation table
constexpr Index kNoIndex = ~Index{0};

// The message of the handler that runs; valid until the handler returns. It cannot be copied: a copy could reply twice, or late.
class Token {
 public:
  Token(const Token&) = delete;
  Token& operator=(const Token&) = delete;
  std::span<const uint32_t> arguments() const noexcept { return {fields_.arguments.data(), fields_.count}; }
  uint32_t argument(uint32_t index) const noexcept { return fields_.arguments[index]; }  // index < arguments().size()
  // Returns two arguments as one of 64 bits, the low half first.
  uint64_t wide(uint32_t index) const noexcept { return argument(index) | uint64_t{argument(index + 1)} << 32; }

  // Medium: the bytes as they arrived, until the handler returns. A local peer can still change them, so a program that does not trust its
  // peer copies them before it checks them. Long: the bytes in the segment. Get: the destination. Short: empty.
  MutableBytes payload() const noexcept { return payload_; }
  // Long: the payload's offset in the segment.
  uint64_t offset() const noexcept { return fields_.offset; }

  Kind kind() const noexcept { return fields_.kind; }  // long_reply for a get
  bool is_request() const noexcept { return am::is_request(fields_.kind); }
  // Returns true in a request's handler that has not replied.
  bool can_reply() const noexcept { return is_request() && !replied_; }
  // Returns a number for the sender, unique among all peers that this endpoint ever has.
  uint64_t source() const noexcept;
  // Returns the sender's name as a target for map() here: the name it has bound, plus "@host" if it is on another host; for a reply, the
  // mapped name. Empty if it has none. A peer on another host may claim any name; only its host is certain. Valid while the handler runs.
  std::string_view source_name() const noexcept;
  // Returns the sender's host, as the NI knows it; empty: this one. Valid while the handler runs.
  std::string_view source_host() const noexcept;
  // Returns the user of a process of this host that has connected to us, as the NI sees it (ConnectionRequest::peer_uid); otherwise -1.
  int source_user() const noexcept;
  // Returns the process of a peer of this host and of our user, as the NI sees it; otherwise -1.
  int source_process() const noexcept;
  // The translation that leads to the sender; kNoIndex: none does, as for a request without Endpoint::map_back().
  uint32_t index() const noexcept;
  // Returns the tag of the message.
  uint64_t tag() const noexcept;
  Endpoint& endpoint() const noexcept { return *endpoint_; }

  // Replies to the request; only a request's handler may call these, once. A reply never waits. Outcome: sent, returned (the requester is
  // gone) or bad_call.
  template <typename... Arguments>
  Outcome reply(uint8_t handler, Arguments... arguments);
  Outcome reply_short(uint8_t handler, std::span<const uint32_t> arguments) noexcept;
  // At most kMediumMax bytes.
  Outcome reply_medium(uint8_t handler, Bytes payload, std::span<const uint32_t> arguments) noexcept;
  // Writes at most kLongReplyMax bytes at `offset` of the requester's segment.
  Outcome reply_long(uint8_t handler, uint64_t offset, Bytes payload, std::span<const uint32_t> arguments) noexcept;

 private:
  friend class Dispatcher;
  Token(Endpoint& endpoint, Peer& peer, const PacketFields& fields, Bytes payload) noexcept
      : endpoint_(&endpoint), peer_(&peer), fields_(fields), payload_(const_cast<std::byte*>(payload.data()), payload.size()) {}
  Outcome send(PacketFields& reply, Bytes payload) noexcept;
  Endpoint* endpoint_;
  Peer* peer_;
  const PacketFields& fields_;
  MutableBytes payload_;
  bool replied_ = false;
};

using HandlerFunction = void (*)(Token& token, void* context);

struct Handler {
  HandlerFunction function = nullptr;
  void* context = nullptr;
  int16_t arguments = -1;  // number of arguments that the handler takes; -1: any

  bool takes(uint32_t count) const noexcept { return arguments < 0 || static_cast<uint32_t>(arguments) == count; }
};

// A message of ours that was returned or could not be sent. The error handler runs in poll(), in unmap(), or in the call that could not
// send.
struct Returned {
  ReturnStatus status{};
  Kind kind{};             // kind of the message; long_piece: a piece of a long message
  uint8_t handler = 0;     // the handler index that the message names
  uint32_t index = 0;      // the translation; kNoIndex if the peer does not say which message it was
  std::span<const uint32_t> arguments;
  MutableBytes memory;     // The destination of a returned get; the program may reuse it now. Empty for other messages.
};
using ErrorFunction = void (*)(Endpoint& endpoint, const Returned& returned, void* context);

// ---- typed handlers: void name(Token&, uint32_t, int64_t, ...). An argument of up to 32 bits takes one word, one of 64 bits two.

template <typename T>
constexpr uint32_t words_of() noexcept {
  static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_pointer_v<T>, "arguments are numbers, enumerators or pointers");
  return sizeof(T) <= 4 ? 1 : 2;
}

template <typename T>
void put_argument(uint32_t*& to, T value) noexcept {
  uint32_t words[words_of<T>()] = {};
  std::memcpy(words, &value, sizeof value);
  for (const uint32_t word : words) *to++ = word;
}

// An argument list as words, for the functions without types.
template <typename... Arguments>
class Words {
 public:
  static constexpr uint32_t kCount = (words_of<Arguments>() + ... + 0u);
  static_assert(kCount <= kArgumentsMax, "more than 16 words of arguments");
  explicit Words(Arguments... arguments) noexcept {
    [[maybe_unused]] uint32_t* to = words_.data();
    (put_argument(to, arguments), ...);
  }
  operator std::span<const uint32_t>() const noexcept { return {words_.data(), kCount}; }

 private:
  std::array<uint32_t, kCount + 1> words_;
};

template <typename... Arguments>
Outcome Token::reply(uint8_t handler, Arguments... arguments) {
  return reply_short(handler, Words<Arguments...>(arguments...));
}

namespace detail {

template <typename T>
T get_argument(const Token& token, uint32_t& at) noexcept {
  T value;
  if constexpr (words_of<T>() == 2) {
    const uint64_t word = token.wide(at);
    std::memcpy(&value, &word, sizeof value);
  } else {
    const uint32_t word = token.argument(at);
    std::memcpy(&value, &word, sizeof value);
  }
  at += words_of<T>();
  return value;
}

template <auto kFunction, typename... Arguments>
Handler typed(void (*)(Token&, Arguments...)) noexcept {
  return {.function =
              [](Token& token, void*) {
                [[maybe_unused]] uint32_t at = 0;
                // A braced list evaluates its elements in order.
                const std::tuple<Arguments...> arguments{get_argument<Arguments>(token, at)...};
                std::apply([&](Arguments... each) { kFunction(token, each...); }, arguments);
              },
          .arguments = static_cast<int16_t>((words_of<Arguments>() + ... + 0u))};
}

}  // namespace detail

// Makes a handler with typed arguments. A message with another number of words is returned to its sender (bad_arguments).
template <auto kFunction>
Handler handler_of() noexcept {
  return detail::typed<kFunction>(kFunction);
}

}  // namespace unet::am
