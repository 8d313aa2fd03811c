// test_channel.h - memory and descriptors of a local channel, made like the service's; for unit tests and fuzz targets.
#pragma once

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>

#include "unet/base/check.h"
#include "unet/local_channel.h"

namespace unet {

inline Descriptor sealed_memory(uint64_t bytes) {
  Descriptor fd(memfd_create("unet-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  UNET_CHECK(fd.valid() && ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
  UNET_CHECK(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
  return fd;
}

inline Descriptor duplicate(const Descriptor& fd) {
  Descriptor copy(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  UNET_CHECK(copy.valid());
  return copy;
}

inline Mapping map_all(const Descriptor& fd, uint64_t bytes) {
  auto mapping = Mapping::map(fd.get(), bytes);
  UNET_CHECK(mapping);
  return std::move(*mapping);
}

// The descriptor that a sleeping side gets for the eventfd that wakes it (control.h).
inline Descriptor wake_descriptor(const Descriptor& event) {
  Descriptor set(epoll_create1(EPOLL_CLOEXEC));
  epoll_event wanted{.events = EPOLLIN | EPOLLET, .data = {}};
  UNET_CHECK(set.valid() && epoll_ctl(set.get(), EPOLL_CTL_ADD, event.get(), &wanted) == 0);
  return set;
}

// Everything that two sides need. Each opens its own, in its process.
class ChannelParts {
 public:
  explicit ChannelParts(const LocalOptions& options)
      : options_(options), geometry_(LocalGeometry::of(options)), memory_(sealed_memory(geometry_.total)) {
    for (Descriptor& each : event_) {
      each = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
      UNET_CHECK(each.valid());
    }
  }

  std::unique_ptr<LocalChannel> open(uint32_t side, Channel id = Channel{0}) const {
    auto channel = LocalChannel::open(id, info(side), duplicate(memory_), wake_descriptor(event_[side]), duplicate(event_[1 - side]));
    UNET_CHECK(channel);
    return std::move(*channel);
  }
  // Sends the same as the service sends to `side`: the memory, the descriptor on which it sleeps, the one that wakes its peer.
  template <typename Send>
  void hand_over(uint32_t side, Send send) const {
    const Descriptor sleep = wake_descriptor(event_[side]);
    send(memory_.get(), sleep.get(), event_[1 - side].get());
  }
  control::ChannelInfo info(uint32_t side) const {
    control::ChannelInfo info{};
    info.kind = control::ChannelKind::local;
    info.side = side;
    info.local = options_;
    return info;
  }
  // Maps the bytes that both sides share, to inspect or forge them.
  Mapping map() const { return map_all(memory_, geometry_.total); }
  const LocalGeometry& geometry() const { return geometry_; }
  const Descriptor& memory() const { return memory_; }
  // The eventfd that wakes `side`.
  int event(uint32_t side) const { return event_[side].get(); }
  // How often `side` was woken.
  uint64_t wakeups(uint32_t side) const {
    uint64_t count = 0;
    return ::read(event_[side].get(), &count, sizeof count) == sizeof count ? count : 0;
  }

 private:
  LocalOptions options_;
  LocalGeometry geometry_;
  Descriptor memory_;
  Descriptor event_[2];
};

// Both sides of a channel in one process.
struct TestChannel {
  explicit TestChannel(const LocalOptions& options = {.depth = 16, .data_bytes = 4 * kMessageMax})
      : parts(options), sides{parts.open(0, Channel{7}), parts.open(1, Channel{9})} {}
  LocalChannel& operator[](size_t side) { return *sides[side]; }

  ChannelParts parts;
  std::unique_ptr<LocalChannel> sides[2];
};

}  // namespace unet
