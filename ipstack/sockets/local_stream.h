// local_stream.h - a stream to an application of the same network interface, as the socket has it; private to ipstack/sockets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "unet/base/bytes.h"
#include "unet/base/time.h"
#include "unet/message.h"

namespace unet::sockets {

constexpr uint32_t kWindowLeast = 64 * 1024, kWindowMost = 0x7FFF'FFFF;

// A stream to an application of the same network interface: a pair of message queues, no TCP (local_stream_messages.cc).
struct LocalStream {
  enum class State : uint8_t { asking, open, closed };  // asking: for the local peer, or for its answer
  // Unread data: in place in the local peer's channel, or copied because others need the room.
  struct Piece {
    Message message{};
    std::vector<std::byte> copy{};
    uint32_t taken = 0;

    Bytes bytes() const noexcept { return (copy.empty() ? message.bytes() : Bytes(copy)).subspan(taken); }
  };
  // In order. An empty one has no memory but what the last pieces needed, if that was little: a std::deque has 600 bytes, always.
  class Pieces {
   public:
    bool empty() const noexcept { return first_ == all_.size(); }
    size_t size() const noexcept { return all_.size() - first_; }
    Piece& operator[](size_t i) noexcept { return all_[first_ + i]; }
    Piece& front() noexcept { return all_[first_]; }
    auto begin() noexcept { return all_.begin() + static_cast<ptrdiff_t>(first_); }
    auto end() noexcept { return all_.end(); }
    auto begin() const noexcept { return all_.begin() + static_cast<ptrdiff_t>(first_); }
    auto end() const noexcept { return all_.end(); }
    void push_back(Piece piece) {
      if (all_.size() == all_.capacity() && first_ > all_.size() / 2) {  // those that are left go to the front instead of more memory
        all_.erase(all_.begin(), begin());
        first_ = 0;
      }
      all_.push_back(std::move(piece));
    }
    void pop_front() noexcept {
      all_[first_++] = {};
      if (empty()) clear();
    }
    void erase(size_t i) { all_.erase(begin() + static_cast<ptrdiff_t>(i)); }
    void clear() noexcept {
      all_.clear();
      first_ = 0;
    }

   private:
    std::vector<Piece> all_;
    size_t first_ = 0;  // those before it have been taken
  };
  // For Stack::info(). Counts data alone.
  struct Traffic {
    uint64_t bytes = 0;
    Nanoseconds last = 0;          // when; 0: never
    uint32_t messages = 0;

    void count(uint32_t more, Nanoseconds now) noexcept {
      bytes += more;
      last = now;
      ++messages;
    }
  };
  // One end moves to another stack (stream_moves.cc). If it is this end: it has asked (asked), the peer has agreed (agreed). If it is the
  // peer's: this end has still to agree (leaving), it has agreed (away). A stream that is_silent() sends nothing.
  enum class Move : uint8_t { none, asked, agreed, leaving, away };
  // Our end of the stream: data may follow; it is to be sent when the channel has room; it has been sent.
  enum class End : uint8_t { none, due, sent };
  State state = State::asking;
  Move move = Move::none;
  bool peer_moves = false;       // the peer answers kMove
  bool resume_due = false;       // kResume is to be sent when the channel has room
  uint32_t local_peer = ~uint32_t{0};
  uint32_t peer_socket = 0;      // its number for the other end, with
  uint32_t peer_life = 0;        // which of those that had the number
  uint32_t life = 0;             // the same of ours
  uint32_t credit = 0;           // bytes that the peer has room for
  uint32_t window = 0;           // bytes that we have promised room for
  uint32_t unread = 0, untold = 0;  // of these: not read yet; read, but the peer does not know
  bool open_due = false, answer_due = false;  // to be told when the channel has room
  bool joined = false;             // it waits for the answer to a question that is older than it
  End end = End::none;
  bool end_came = false;
  Pieces pieces{};
  // Data that the stream has taken and the full channel has not: a writable stream takes some even then. It counts as sent.
  std::vector<std::byte> unsent{};
  bool unsent_urgent = false;      // its last byte
  uint64_t move_token = 0;
  Traffic sent{}, received{};

  bool is_moving() const noexcept { return move != Move::none; }
  bool is_silent() const noexcept { return move != Move::none && move != Move::leaving; }
  // Further data must wait for this.
  bool is_behind() const noexcept { return answer_due || !unsent.empty(); }
  // All that is to be sent is at the peer, with its end.
  bool has_left() const noexcept { return state == State::open && end == End::sent; }
  // Both ends have said that they send no more: nothing is left of it but what was not read.
  bool is_over() const noexcept { return state == State::closed || (end == End::sent && end_came); }
};

}  // namespace unet::sockets
