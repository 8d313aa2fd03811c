// zero_copy_link.h - TCP sockets of ipstack as Links of workloads.h whose applications make and use every byte: in place, by the stack's
// reserve(), commit(), gather() and consume(), and for comparison in buffers of their own, by send() and recv().
//
// A sender without a copy saves the copy of what it makes, not the making; so what is compared has to make it, too. Each message is the
// eight bytes of its number again and again. The sender writes all of them, and the receiver looks at all of them.
#pragma once

#include <array>
#include <bit>

#include "apps/bench/socket_links.h"

namespace unet::bench {

// What a message has from `offset` on, eight bytes of it.
inline uint64_t made_word(uint64_t number, size_t offset) { return std::rotr(number, static_cast<int>(8 * (offset % 8))); }

// The next `size` bytes of message `number`.
inline void make_bytes(std::byte* to, size_t size, uint64_t number, size_t offset) {
  const uint64_t word = made_word(number, offset);
  size_t i = 0;
  for (; i + sizeof word <= size; i += sizeof word) std::memcpy(to + i, &word, sizeof word);
  std::memcpy(to + i, &word, size - i);
}

// Whether they are those.
inline bool are_bytes(const std::byte* from, size_t size, uint64_t number, size_t offset) {
  const uint64_t word = made_word(number, offset);
  uint64_t wrong = 0, there = 0;
  size_t i = 0;
  for (; i + sizeof word <= size; i += sizeof word) {
    std::memcpy(&there, from + i, sizeof there);
    wrong |= there ^ word;
  }
  there = word;
  std::memcpy(&there, from + i, size - i);
  return (wrong | (there ^ word)) == 0;
}

constexpr const char* kChanged = "bytes of a message arrived changed";

// In buffers of the application's own.
struct MadeTcpLink : TcpLink {
  bool send(const std::byte* data, size_t size) { return send_burst(data, size, 1) == 1; }
  bool receive(std::byte* into, size_t size) { return TcpLink::receive(into, size) && are_made(into, size, 1); }
  size_t send_burst(const std::byte* data, size_t size, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      std::byte* const message = const_cast<std::byte*>(data) + i * size;
      make_bytes(message, size, read_stamp(message, size), 0);
    }
    return TcpLink::send_burst(data, size, count);
  }
  size_t receive_burst(std::byte* into, size_t size, size_t count) {
    const size_t whole = TcpLink::receive_burst(into, size, count);
    return are_made(into, size, whole) ? whole : 0;
  }

 private:
  bool are_made(const std::byte* data, size_t size, size_t count) {
    bool made = true;
    for (size_t i = 0; i < count; ++i) made = are_bytes(data + i * size, size, read_stamp(data + i * size, size), 0) && made;
    if (!made) context.control.fail(kChanged);
    return made;
  }
};

// In the memory that they leave from and have come to. What the workload has of a message is its number.
struct ZeroCopyTcpLink : SocketCalls {
  static constexpr bool kLossless = true;
  static constexpr Nanoseconds kRunEvery = 50 * kMicrosecond;  // as BSD's calls do (calls.cc)
  int s;
  const Clock& clock;              // of `sockets`
  Nanoseconds ran_at = 0;
  size_t offset = 0;               // in the message that is being received,
  uint64_t number = 0;             // as far as it is known

  bool send(const std::byte* data, size_t size) { return send_burst(data, size, 1) == 1; }
  size_t send_burst(const std::byte* data, size_t size, size_t count) {
    for (size_t done = 0; done < size * count;) {
      MutableBytes room;
      const int64_t result = attempt([&] { return sockets.stack().reserve(s, static_cast<uint32_t>(size * count - done), room); });
      if (result < 0 && !may_go_on("reserve", result)) return 0;
      if (result < 0) continue;
      for (size_t at = 0; at < room.size();) {
        const size_t message = (done + at) / size, begun = (done + at) % size, part = std::min(size - begun, room.size() - at);
        make_bytes(room.data() + at, part, read_stamp(data + message * size, size), begun);
        at += part;
      }
      const int64_t sent = sockets.stack().commit(s, static_cast<uint32_t>(room.size()));
      if (sent < 0) return may_go_on("commit", sent), 0;
      done += room.size();
    }
    return count;
  }
  bool flush() { return true; }
  bool receive(std::byte* into, size_t size) { return receive_burst(into, size, 1) == 1; }
  size_t receive_burst(std::byte* into, size_t size, size_t count) {
    while (true) {
      std::array<Bytes, 64> pieces;
      const int64_t result = attempt([&] { return sockets.stack().gather(s, pieces); });
      if (result == 0) return context.control.fail("the stream has ended"), 0;
      if (result < 0 && !may_go_on("gather", result)) return 0;
      if (result < 0) continue;
      size_t whole = 0, used = 0;
      for (size_t i = 0; i < static_cast<size_t>(result) && whole < count; ++i) {
        for (Bytes left = pieces[i]; !left.empty() && whole < count;) {
          const Bytes part = left.first(std::min(left.size(), size - offset));
          if (!use(part, size)) return context.control.fail(kChanged), 0;
          left = left.subspan(part.size());
          used += part.size();
          if (offset != size) continue;
          stamp(into + whole++ * size, size, number);
          offset = 0, number = 0;
        }
      }
      sockets.stack().consume(s, static_cast<uint32_t>(used));
      if (whole != 0) return whole;
    }
  }

 private:
  // What follows of a message. False: it is not what was sent.
  bool use(Bytes part, size_t size) {
    size_t known = 0;  // a number that is cut
    for (; size >= sizeof number && offset < sizeof number && known < part.size(); ++known, ++offset) {
      number |= static_cast<uint64_t>(part[known]) << (8 * offset);
    }
    const bool right = are_bytes(part.data() + known, part.size() - known, number, offset);
    offset += part.size() - known;
    return right;
  }
  // As BSD's calls that do not block do it: what has come may be what is asked for.
  template <typename Try>
  int64_t attempt(Try call) {
    sockets::Stack& stack = sockets.stack();
    const Nanoseconds now = clock.now();
    stack.set_time(now);
    if (now - ran_at > kRunEvery) {
      sockets.turn();
      ran_at = now;
    }
    int64_t result = call();
    if (result != -EAGAIN) return result;
    if (sockets.network().poll_for_answer(stack) != 0) result = call();
    if (result == -EAGAIN && stack.is_due()) stack.run();
    return result;
  }
  bool may_go_on(const char* call, int64_t result) {
    errno = static_cast<int>(-result);
    return may_retry(call);
  }
};

}  // namespace unet::bench
