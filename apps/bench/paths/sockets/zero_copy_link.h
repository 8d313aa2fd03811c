// zero_copy_link.h - TCP sockets of ipstack as Links (workloads/messages.h) of applications that make and use every byte: in place, by
// the stack's reserve(), commit(), gather() and consume(), and for comparison in their own buffers, by send() and recv().
//
// A sender without a copy still has to make the bytes, so the links that it is compared with make them, too. Each message repeats the eight
// bytes of its number. The sender writes all of them, and the receiver looks at all of them.
#pragma once

#include <array>
#include <bit>

#include "apps/bench/paths/sockets/links.h"

namespace unet::bench {

// Eight bytes of a message from `offset` on.
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

// The message that is being received. For a cut message only the number is stored: its bytes have been looked at.
struct ArrivingMessage {
  size_t offset = 0;    // in it,
  uint64_t number = 0;  // as far as it is known

  // Looks at `bytes`, takes them off, and puts the numbers of messages that end in them where those begin in `into`, until there are
  // `count`; `whole` counts them. False: they are not what was sent.
  bool look_at(Bytes& bytes, std::byte* into, size_t size, size_t count, size_t& whole) {
    while (!bytes.empty() && whole < count) {
      const Bytes part = bytes.first(std::min(bytes.size(), size - offset));
      if (!is_right(part, size)) return false;
      bytes = bytes.subspan(part.size());
      if (offset != size) continue;
      stamp(into + whole++ * size, size, number);
      offset = 0, number = 0;
    }
    return true;
  }

 private:
  bool is_right(Bytes part, size_t size) {
    size_t known = 0;
    if (offset == 0 && part.size() >= sizeof number) {
      number = read_stamp(part.data(), part.size());
      known = offset = sizeof number;
    }
    // The number itself is cut: take it byte by byte.
    for (; size >= sizeof number && offset < sizeof number && known < part.size(); ++known, ++offset) {
      number |= static_cast<uint64_t>(part[known]) << (8 * offset);
    }
    const bool right = are_bytes(part.data() + known, part.size() - known, number, offset);
    offset += part.size() - known;
    return right;
  }
};

// In buffers of the application's own.
struct MadeTcpLink : TcpLink {
  ArrivingMessage arriving = {};

  bool send(const std::byte* data, size_t size) { return send_burst(data, size, 1) == 1; }
  bool receive(std::byte* into, size_t size) {
    if (!TcpLink::receive(into, size)) return false;
    return are_bytes(into, size, read_stamp(into, size), 0) || (context.control.fail(kChanged), false);
  }
  size_t send_burst(const std::byte* data, size_t size, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      std::byte* const message = const_cast<std::byte*>(data) + i * size;
      make_bytes(message, size, read_stamp(message, size), 0);
    }
    return TcpLink::send_burst(data, size, count);
  }
  // The rest of a cut message is received behind its place. Its beginning, already looked at, is not copied there: reading in place pays
  // no such copy either.
  size_t receive_burst(std::byte* into, size_t size, size_t count) {
    while (true) {
      std::byte* const to = into + arriving.offset;
      const ssize_t n = sockets.recv(s, to, size * count - arriving.offset, MSG_DONTWAIT);
      if (n == 0) return context.control.fail("the stream has ended"), 0;
      if (n < 0 && !may_retry("recv")) return 0;
      if (n < 0) continue;
      size_t whole = 0;
      Bytes bytes(to, static_cast<size_t>(n));
      if (!arriving.look_at(bytes, into, size, count, whole)) return context.control.fail(kChanged), 0;
      if (whole != 0) return whole;
    }
  }
};

// Messages made and read in the memory of the stack. The workload passes only the number of a message.
struct ZeroCopyTcpLink : SocketCalls {
  static constexpr bool kLossless = true;
  static constexpr Nanoseconds kRunEvery = 50 * kMicrosecond;  // as BSD's calls do (calls.cc)
  int s;
  const Clock& clock;              // of `sockets`
  Nanoseconds ran_at = 0;
  ArrivingMessage arriving = {};

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
      if (sent < 0 && !may_go_on("commit", sent)) return 0;
      if (sent > 0) done += static_cast<size_t>(sent);  // what did not go is made again, in room of its own
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
        Bytes left = pieces[i];
        if (!arriving.look_at(left, into, size, count, whole)) return context.control.fail(kChanged), 0;
        used += pieces[i].size() - left.size();
      }
      sockets.stack().consume(s, static_cast<uint32_t>(used));
      if (whole != 0) return whole;
    }
  }

 private:
  // On -EAGAIN it polls the network once and tries again, as non-blocking BSD calls do.
  template <typename Try>
  int64_t attempt(Try call) {
    sockets::Stack& stack = sockets.stack();
    const Nanoseconds now = clock.now();
    stack.set_time(now);
    if (now - ran_at > kRunEvery) {
      sockets.poll_network();
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
