// parent_channels.h - this process's channels to the processes from which it inherited or received sockets; used by forks.cc, passing.cc
// and the helper under the runtime's lock. The other ends are in socket_proxies.h.
//
// Each process has channels of its own: with fork() a child gets one to its parent, and for each channel of the parent's another that leads
// where that one does. Processes in between may therefore end. A channel lasts as long as a socket that came by it.
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
  // Closes the channel (-1), or replaces its descriptor by one that leads to the same process.
  void renew(int end) noexcept;

  int fd;  // -1: the process at the other end is gone
  // The answer to ParentMessage::move of the socket `awaited`.
  struct Answer {
    bool came = false;
    bool movable = false;
    int memory = -1;  // memory with the stream; -1 and not `movable`: the connection stays
  };
  int awaited = -1;
  Answer answer{};
};

class ParentChannels {
 public:
  static constexpr size_t kMost = 12;  // each has a place in OwnDescriptors

  // Adds a channel. nullptr: there are too many; it prints a message and closes the descriptor. The last place is reserved for a child's
  // channel to its parent.
  std::shared_ptr<ParentChannel> add(int fd, bool to_parent = false);
  std::vector<std::shared_ptr<ParentChannel>> all() const;
  // Before fork() or exec: makes a channel for the new process to each process at the other ends. `end` is for the new process.
  struct Forked {
    std::shared_ptr<ParentChannel> channel;  // of this process, to the same one
    int end = -1;
  };
  std::vector<Forked> fork() const;

  // Appends the descriptors that the helper polls.
  void append(std::vector<pollfd>& to) const;
  // Processes the messages for our listeners and datagram sockets.
  void process();
  // When this process ends: returns connections and datagrams that arrive by the channels, and stops further messages.
  void end();

  // The first owner of the socket that is still there; nullptr: none.
  static const File::Origin* origin_of(const File& file) noexcept;
  // Sends to all owners of the socket.
  static void send_to_all(const File& file, ParentMessage::Kind kind) noexcept;
  // Waits for the answer to move or owned, for a second at most. The caller then owns Answer::memory. The lock stays taken, as another
  // thread would adopt the same socket.
  static ParentChannel::Answer await_move(const File::Origin& origin);
  static constexpr Nanoseconds kMovesWithin = kSecond;  // a parent that is not stopped answers much sooner
  // Sends move or owned, to be answered within kMovesWithin.
  static bool ask(ParentMessage::Kind kind, const File::Origin& origin, int descriptor = -1) noexcept;
  // Gives back the connections that the program has not accepted, or ends them.
  static void give_back(File& listener) noexcept;
  // Gives one connection back.
  static void refuse(const File::PendingAccept& handed) noexcept;
  // Answers the process that sent the connection. False: the answer cannot be sent, and that process keeps the connection.
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
