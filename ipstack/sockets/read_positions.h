// read_positions.h - of the few sockets that have them: where a peek begins (SO_PEEK_OFF), and where the urgent byte is; used by the stack.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

#include "ipstack/sockets/slab.h"
#include "ipstack/sockets/socket.h"
#include "unet/base/bytes.h"

namespace unet::sockets {

// The last urgent byte that a stream's peer has told of, until it has been passed in the stream.
struct Urgent {
  uint32_t before = 0;  // bytes to be read before it, which may not have come
  bool taken = false;   // by Stack::receive_urgent()
};

// Copies a piece of a stream into `into`, without the first `skip` bytes; `skip` is then less by those of them that the piece had. Returns
// how many bytes were copied.
inline size_t copy_behind(Bytes piece, size_t& skip, MutableBytes into) noexcept {
  const size_t before = std::min(skip, piece.size()), count = std::min(piece.size() - before, into.size());
  copy_bytes(into.data(), piece.data() + before, count);
  skip -= before;
  return count;
}

class ReadPositions {
 public:
  explicit ReadPositions(Slab<Socket>& sockets) noexcept : sockets_(sockets) {}

  uint32_t peek_offset(uint32_t index) const noexcept { return sockets_[index].peeks_behind ? peek_offsets_.at(index) : 0; }
  void set_peek_offset(uint32_t index, std::optional<uint32_t> offset) {
    sockets_[index].peeks_behind = offset.has_value();
    if (offset) peek_offsets_[index] = *offset;
    else peek_offsets_.erase(index);
  }
  void count_peeked(uint32_t index, size_t bytes) noexcept {
    if (sockets_[index].peeks_behind) [[unlikely]] peek_offsets_.at(index) += static_cast<uint32_t>(bytes);
  }
  void count_read(uint32_t index, size_t bytes) noexcept {
    const Socket& socket = sockets_[index];
    if (socket.urgent) [[unlikely]] count_read_urgent(index, static_cast<uint32_t>(bytes));
    if (!socket.peeks_behind) [[likely]] return;
    uint32_t& offset = peek_offsets_.at(index);
    offset -= std::min(offset, static_cast<uint32_t>(bytes));
  }

  // Only for a socket that has an urgent byte (Socket::urgent).
  Urgent& urgent(uint32_t index) noexcept { return urgents_.at(index); }
  const Urgent& urgent(uint32_t index) const noexcept { return urgents_.at(index); }
  void set_urgent(uint32_t index, uint32_t before) {
    urgents_[index] = {.before = before};
    sockets_[index].urgent = true;
  }
  void forget_urgent(uint32_t index) noexcept {
    if (!sockets_[index].urgent) [[likely]] return;
    sockets_[index].urgent = false;
    urgents_.erase(index);
  }
  // The next byte of the stream is the urgent one, which a read of the stream leaves out.
  bool is_passed_over(uint32_t index) const noexcept {
    const Socket& socket = sockets_[index];
    return socket.urgent && !socket.urgent_inline && urgents_.at(index).before == 0;
  }

  // A read behind `skip` bytes would begin with the urgent byte: it has come, and the stream leaves it out.
  bool is_urgent_next(uint32_t index, size_t skip) const noexcept {
    const Socket& socket = sockets_[index];
    return socket.urgent && !socket.urgent_inline && urgents_.at(index).before == skip && socket.unread() > skip;
  }
  // A read behind `skip` bytes, of a stream with an urgent byte, fills this part of the room: it stops before that byte.
  MutableBytes room_to_urgent(uint32_t index, MutableBytes room, size_t skip) const noexcept {
    const size_t before = urgents_.at(index).before;
    return before > skip ? room.first(std::min(room.size(), before - skip)) : room;
  }

  // The socket is no more.
  void forget(uint32_t index) noexcept {
    if (sockets_[index].peeks_behind) peek_offsets_.erase(index);
    forget_urgent(index);
  }

 private:
  void count_read_urgent(uint32_t index, uint32_t bytes) noexcept {
    Urgent& urgent = urgents_.at(index);
    if (bytes > urgent.before) return forget_urgent(index);
    urgent.before -= bytes;
  }

  Slab<Socket>& sockets_;
  std::map<uint32_t, uint32_t> peek_offsets_;
  std::map<uint32_t, Urgent> urgents_;
};

}  // namespace unet::sockets
