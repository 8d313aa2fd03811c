// local_peers.cc - messages that are read in place in local peers' channels, and headers that wait for room in them.
#include "ipstack/sockets/local_peers.h"

#include <algorithm>
#include <cstring>

namespace unet::sockets {
namespace {

// How much may arrive after a message before it is copied out of a local peer's channel (of 256 messages and 4 MiB).
constexpr uint64_t kBehindMessages = 96, kBehindBytes = 1536 * 1024;
constexpr size_t kCopyMax = 64 * 1024;  // small pieces are merged up to this size

bool is_in_place(const LocalStream::Piece& piece) noexcept { return piece.copy.empty(); }

}  // namespace

void LocalPeers::open(uint32_t peer, bool same_user) {
  if (peer >= peers_.size()) peers_.resize(peer + 1);
  peers_[peer] = {.open = true, .same_user = same_user};
}

void LocalPeers::close(uint32_t peer) noexcept {
  peers_[peer] = {};
  std::erase_if(queued_, [&](const Queued& each) { return each.peer == peer; });
}

// ---- input

void LocalPeers::count_arrival(uint32_t peer, uint32_t bytes) {
  LocalPeer& from = peers_[peer];
  ++from.arrived;
  from.bytes += bytes;
  if (!from.kept.empty()) copy_out(from);
}

void LocalPeers::add_piece(uint32_t index, const Message& message, uint32_t before) {
  LocalStream& stream = *sockets_[index].local_stream;
  LocalPeer& from = peers_[stream.local_peer];
  stream.pieces.push_back({.message = message, .taken = before});
  from.kept.push_back({index, stream.life, message.position, from.arrived, from.bytes});
}

void LocalPeers::drop_piece(const LocalStream& stream, const LocalStream::Piece& piece) noexcept {
  if (!piece.copy.empty()) return;
  std::deque<LocalPeer::Kept>& kept = peers_[stream.local_peer].kept;
  if (!kept.empty() && kept.front().position == piece.message.position) kept.pop_front();
  network_.release(stream.local_peer, piece.message);
}

void LocalPeers::drop_pieces(LocalStream& stream) noexcept {
  for (const LocalStream::Piece& piece : stream.pieces) drop_piece(stream, piece);
  stream.pieces.clear();
  stream.unread = 0;
}

// Copies messages that are too old.
void LocalPeers::copy_out(LocalPeer& peer) {
  while (!peer.kept.empty()) {
    const LocalPeer::Kept kept = peer.kept.front();
    if (peer.arrived - kept.arrived <= kBehindMessages && peer.bytes - kept.bytes <= kBehindBytes) return;
    peer.kept.pop_front();
    LocalStream* const stream = sockets_.has(kept.socket) ? sockets_[kept.socket].local_stream.get() : nullptr;
    if (stream == nullptr || stream->life != kept.life) continue;
    const auto first = std::find_if(stream->pieces.begin(), stream->pieces.end(), is_in_place);
    if (first != stream->pieces.end() && first->message.position == kept.position) copy_first(*stream);
  }
}

void LocalPeers::copy_all(LocalStream& stream) {
  while (std::any_of(stream.pieces.begin(), stream.pieces.end(), is_in_place)) copy_first(stream);
}

// Copies the stream's oldest piece that is in place; older ones are copies.
void LocalPeers::copy_first(LocalStream& stream) {
  const auto at = std::find_if(stream.pieces.begin(), stream.pieces.end(), is_in_place);
  const Bytes bytes = at->bytes();
  if (at != stream.pieces.begin() && std::prev(at)->copy.size() + bytes.size() <= kCopyMax) {
    std::prev(at)->copy.insert(std::prev(at)->copy.end(), bytes.begin(), bytes.end());
    drop_piece(stream, *at);
    stream.pieces.erase(static_cast<size_t>(at - stream.pieces.begin()));
    return;
  }
  std::vector<std::byte> copy(bytes.begin(), bytes.end());
  drop_piece(stream, *at);
  at->taken = 0;
  at->copy = std::move(copy);
}

// ---- output

void LocalPeers::send_or_queue(uint32_t peer, const PeerHeader& header) {
  if (peer == Network::kNoLocalPeer) return;  // the peer of a moving stream is gone
  if (network_.send_to_local_peer(peer, bytes_of(header), {}) || queued_.size() >= kQueuedMax) return;
  queued_.push_back({peer, header});
}

void LocalPeers::send_reset(const LocalStream& stream) {
  send_or_queue(stream.local_peer, header_to(stream, PeerKind::kReset));
}

void LocalPeers::flush() noexcept {
  for (size_t i = 0; i < queued_.size();) {
    if (!network_.send_to_local_peer(queued_[i].peer, bytes_of(queued_[i].header), {})) {
      ++i;
      continue;
    }
    queued_[i] = queued_.back();
    queued_.pop_back();
  }
}

bool LocalPeers::send_header(const LocalStream& stream, uint8_t kind, uint32_t value) noexcept {
  const PeerCredit message{header_to(stream, kind), value};
  return network_.send_to_local_peer(stream.local_peer, bytes_of(message).first(value == 0 ? sizeof(PeerHeader) : sizeof message), {});
}

bool LocalPeers::send_header_options(uint32_t peer, HeaderOptions options) noexcept {
  HeaderOptions& told = peers_[peer].told;
  if (told == options) [[likely]] return true;
  const PeerHeaderOptions message{.kind = PeerKind::kHeaderOptions, .hop_limit = options.hop_limit,
                                  .traffic_class = options.traffic_class};
  if (!network_.send_to_local_peer(peer, bytes_of(message), {})) return false;
  told = options;
  return true;
}

uint32_t emit_local_datagram(std::byte* at, const Address& from, const Address& to, uint16_t segment) noexcept {
  const bool four = to.host.is_ipv4();
  const uint8_t bytes = four ? 4 : 16;
  const PeerDatagram head{.kind = PeerKind::kDatagram, .address_bytes = bytes, .segment = segment, .from_port = from.port,
                          .to_port = to.port};
  std::memcpy(at, &head, sizeof head);
  std::byte* const addresses = at + sizeof head;
  if (four) {
    std::memcpy(addresses, from.host.bytes.data() + 12, 4);
    std::memcpy(addresses + 4, to.host.bytes.data() + 12, 4);
  } else {
    std::memcpy(addresses, from.host.bytes.data(), 16);
    std::memcpy(addresses + 16, to.host.bytes.data(), 16);
  }
  return static_cast<uint32_t>(sizeof head) + 2u * bytes;
}

}  // namespace unet::sockets
