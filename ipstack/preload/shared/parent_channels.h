// parent_channels.h - this process's channels to the processes whose sockets it inherited, or was passed; used by forks.cc, passing.cc and
// the helper under the runtime's lock. What is at their other ends: socket_proxies.h.
//
// Each process has channels of its own: with fork() a child gets one to its parent, and for each channel of the parent's another that leads
// where that one does. So it does not need those who are between. A channel is there as long as a socket is that came by it.
#pragma once

#include <poll.h>

#include <memory>
#include <span>
#include <vector>

#include "ipstack/preload/file.h"
#include "ipstack/preload/shared/share_channel.h"

namespace unet::preload {

struct ParentChannel {
  explicit ParentChannel(int end) noexcept : fd(end) {}
  ~ParentChannel();
  ParentChannel(const ParentChannel&) = delete;
  ParentChannel& operator=(const ParentChannel&) = delete;

  bool send(ParentMessage::Kind kind, int socket, int descriptor = -1, bool may_wait = false) const noexcept;
  // It leads nowhere any longer, or to the same by another descriptor.
  void renew(int end) noexcept;

  int fd;  // -1: whom it led to is gone
  // What has been said to ParentMessage::move of the socket `awaited`.
  struct Answer {
    bool came = false;
    bool movable = false;
    int memory = -1;  // the stream; -1: it stays, if it is not `movable`
  };
  int awaited = -1;
  Answer answer{};
};

class ParentChannels {
 public:
  static constexpr size_t kMost = 12;  // that are protected from a program which closes all descriptors that it finds

  // nullptr: there are too many, which is said; the descriptor is closed. The last place is for a child's channel to its parent.
  std::shared_ptr<ParentChannel> add(int fd, bool to_parent = false);
  std::vector<std::shared_ptr<ParentChannel>> all() const;

  // What the helper is to poll.
  void append(std::vector<pollfd>& to) const;
  // Takes in what has come for our listeners and datagram sockets.
  void process();
  // When this process ends: what it is handed goes back, and no more comes.
  void end();

  // Of those whose socket it is the first that is still there; nullptr: none.
  static const File::Origin* origin_of(const File& file) noexcept;
  // The program serves a socket that came from elsewhere, or has closed it.
  static void send_to_all(const File& file, ParentMessage::Kind kind) noexcept;
  // Waits for what is said to ParentMessage::move or owned, under the lock, for a second at most. The file in memory is the caller's.
  static ParentChannel::Answer await_move(const File::Origin& origin);
  static constexpr Nanoseconds kMovesWithin = kSecond;  // a parent that is not stopped answers much sooner
  // Says move or owned, to be answered in that time.
  static bool ask(ParentMessage::Kind kind, const File::Origin& origin, int descriptor = -1) noexcept;
  // Those of its connections that nobody has accepted go back to where they came from, or end.
  static void give_back(File& listener) noexcept;
  // One of those, which is another's: it goes back.
  static void refuse(const File::PendingAccept& handed) noexcept;
  // Says to whom it is from what becomes of it. False: he does not hear it, and it is his.
  static bool answer(const File::PendingAccept& handed, ParentMessage::Kind kind) noexcept;

 private:
  static bool process(const std::shared_ptr<ParentChannel>& channel);
  static void handle(const std::shared_ptr<ParentChannel>& channel, std::span<const std::byte> message, int fd);
  static void handle_datagrams(const ParentChannel& channel, const ChildMessage& handed, std::span<const std::byte> behind);
  static void handle_want(const ParentChannel& channel, int socket);
  static void handle_move(ParentChannel& channel, const ChildMessage& handed, int fd);
  static File* find(const ParentChannel& channel, int socket, bool served = true) noexcept;

  std::vector<std::weak_ptr<ParentChannel>> channels_;
};

}  // namespace unet::preload
