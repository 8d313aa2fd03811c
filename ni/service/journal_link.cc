// journal_link.cc - sendmsg and recvmsg of packets of items.
#include "ni/service/journal_link.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace unet::service {
namespace {

constexpr uint32_t kMagic = 0x75'4e'4a'31;

struct PacketHeader {
  uint32_t magic;
  uint32_t last;
};
struct ItemHeader {
  JournalOp op;
  uint32_t size;         // bytes of the value; the next item begins at a multiple of 8
  JournalKey key;
  uint32_t descriptors;  // number of descriptors, the next ones of the packet
  uint32_t spare;
};
static_assert(sizeof(ItemHeader) == 32);

constexpr size_t padded(size_t size) noexcept { return (size + 7) / 8 * 8; }

template <typename T>
void append(std::vector<std::byte>& to, const T& value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  to.insert(to.end(), bytes, bytes + sizeof value);
}

// Whether the error passes: too many descriptors of this user (also of clients) are under way, or memory is short. The other end is not
// dead.
bool passes(int error) noexcept { return error == ETOOMANYREFS || error == ENOBUFS || error == ENOMEM; }

bool is_op(JournalOp op) noexcept { return op >= JournalOp::put && op <= JournalOp::upgraded; }

// Takes the items out of a packet. False: it is invalid.
bool parse(Bytes packet, std::vector<Descriptor>& descriptors, std::vector<JournalItem>& items, bool& last) {
  PacketHeader header;
  if (packet.size() < sizeof header) return false;
  std::memcpy(&header, packet.data(), sizeof header);
  if (header.magic != kMagic || header.last > 1) return false;
  last = header.last == 1;
  size_t used = 0;
  for (packet = packet.subspan(sizeof header); !packet.empty();) {
    ItemHeader item;
    if (packet.size() < sizeof item) return false;
    std::memcpy(&item, packet.data(), sizeof item);
    packet = packet.subspan(sizeof item);
    const bool good = is_op(item.op) && item.size <= JournalLink::kValueMax && padded(item.size) <= packet.size() &&
                      item.descriptors <= JournalLink::kDescriptorsMax && item.descriptors <= descriptors.size() - used;
    if (!good) return false;
    JournalItem& out = items.emplace_back();
    out.op = item.op;
    out.key = item.key;
    out.value.assign(packet.data(), packet.data() + item.size);
    for (uint32_t i = 0; i < item.descriptors; ++i) out.descriptors.push_back(std::move(descriptors[used++]));
    packet = packet.subspan(padded(item.size));
  }
  return used == descriptors.size();
}

std::vector<Descriptor> take_descriptors(msghdr& message) {
  std::vector<Descriptor> descriptors;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      descriptors.emplace_back(fd);
    }
  }
  return descriptors;
}

}  // namespace

Result<std::pair<Descriptor, Descriptor>> JournalLink::make_pair() {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return fail_errno("socketpair", errno);
  return std::pair(Descriptor(pair[0]), Descriptor(pair[1]));
}

bool JournalLink::fits(size_t value, size_t descriptors) const noexcept {
  return std::max(bytes_.size(), sizeof(PacketHeader)) + sizeof(ItemHeader) + padded(value) <= kPacketMax &&
         descriptors_.size() + descriptors <= kPacketDescriptorsMax;
}

void JournalLink::begin_packet() {
  if (bytes_.empty()) append(bytes_, PacketHeader{.magic = kMagic, .last = 0});
}

Status JournalLink::add(JournalOp op, const JournalKey& key, Bytes value, std::span<const int> descriptors) {
  if (value.size() > kValueMax || descriptors.size() > kDescriptorsMax) return fail(Errc::invalid_argument, "a record that is too large");
  if (!fits(value.size(), descriptors.size())) {
    if (Status status = send(false); !status) return status;
  }
  begin_packet();
  append(bytes_, ItemHeader{.op = op, .size = static_cast<uint32_t>(value.size()), .key = key,
                            .descriptors = static_cast<uint32_t>(descriptors.size()), .spare = 0});
  bytes_.insert(bytes_.end(), value.begin(), value.end());
  bytes_.resize(padded(bytes_.size()));
  descriptors_.insert(descriptors_.end(), descriptors.begin(), descriptors.end());
  return {};
}

// One sendmsg() of the packet that was made.
ssize_t JournalLink::transmit(bool last, int flags) {
  begin_packet();
  const PacketHeader header{.magic = kMagic, .last = last ? 1u : 0u};
  std::memcpy(bytes_.data(), &header, sizeof header);
  iovec part{bytes_.data(), bytes_.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kPacketDescriptorsMax * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors_.empty()) {
    const size_t size = descriptors_.size() * sizeof(int);
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(size);
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(rights), descriptors_.data(), size);
  }
  ssize_t n = 0;
  do {
    n = sendmsg(socket_.get(), &message, MSG_NOSIGNAL | flags);
  } while (n < 0 && errno == EINTR);
  return n;
}

Status JournalLink::send(bool last) {
  int error = 0;
  while (transmit(last, 0) < 0) {
    error = errno;
    if (!passes(error)) break;
    pollfd ended{.fd = socket_.get(), .events = 0, .revents = 0};
    if (::poll(&ended, 1, 1) == 1 && (ended.revents & (POLLHUP | POLLERR)) != 0) break;
    error = 0;
  }
  bytes_.clear();
  descriptors_.clear();
  if (error != 0) return fail_errno("sendmsg", error);
  return {};
}

Result<JournalLink::Sent> JournalLink::send_now(bool last) {
  const int error = transmit(last, MSG_DONTWAIT) < 0 ? errno : 0;
  if (error == EAGAIN) return Sent::no_room;
  if (passes(error)) return Sent::no_memory;
  bytes_.clear();
  descriptors_.clear();
  if (error != 0) return fail_errno("sendmsg", error);
  return Sent::all;
}

JournalLink::Received JournalLink::receive(std::vector<JournalItem>& items, bool& last) {
  std::vector<std::byte> room(kPacketMax + sizeof(PacketHeader) + sizeof(ItemHeader) + kValueMax);
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kPacketDescriptorsMax * sizeof(int))> control;
  iovec part{room.data(), room.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t n = 0;
  do {
    n = recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return errno == EAGAIN ? Received::nothing : Received::closed;
  if (n == 0) return Received::closed;
  std::vector<Descriptor> descriptors = take_descriptors(message);
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) return Received::broken;
  return parse({room.data(), static_cast<size_t>(n)}, descriptors, items, last) ? Received::items : Received::broken;
}

}  // namespace unet::service
