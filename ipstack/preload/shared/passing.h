// passing.h - sockets that processes pass to one another by Unix sockets (SCM_RIGHTS); used by data_calls.cc for descriptors that are not
// ours.
//
// The kernel would pass the shadow of a socket, which is of no use. Other descriptors are passed instead:
//
// A connection stays with this process's stack, and ends with this process. The receiver gets an end of a Unix socket pair with the
// connection's addresses in its name (socket_proxies.h). A process without this library can use it, too, but for its names and options.
//
// For a listener or a datagram socket it is the end of a channel (share_channel.h). The first packet describes the socket (description.h).
// For one that is not this process's own yet, or is bound only, it is a file in memory with the description. A receiver with this library
// joins the claim of its port, and gets what comes to this process, too; to others it is of no use. A dual socket is passed without its
// kernel part, as there is one descriptor to pass.
#pragma once

#include <sys/socket.h>

#include <vector>

#include "ipstack/preload/runtime.h"

namespace unet::preload {

// A message to be sent, with others instead of our descriptors, which are closed with it.
class StandIns {
 public:
  // Looks for descriptors of ours, and finds others for them.
  explicit StandIns(const msghdr& message);
  ~StandIns();
  StandIns(const StandIns&) = delete;
  StandIns& operator=(const StandIns&) = delete;

  // 0, or -errno: there is no other descriptor to be had.
  int error() const noexcept { return error_; }
  // The message to be sent.
  const msghdr& message() const noexcept { return message_; }
  // The message was sent: its receiver has its connections, too.
  void sent();

 private:
  struct Shared {
    File* file;  // held
    int end;     // of the pair or the channel, for this process
  };
  int pass(int fd);
  int pass_connection(File& file);
  int pass_joined(File& file);
  static int pass_description(const File& file);

  std::vector<std::byte> control_;
  msghdr message_;
  std::vector<int> passed_;
  std::vector<Shared> shared_;
  int error_ = 0;
};

// Does it pass descriptors of ours? One look, for what has no control data.
bool passes_sockets(const msghdr& message) noexcept;
// sendmsg() of one that does: how much, or -errno.
ssize_t pass_sockets(int fd, const msghdr& message, int flags);

// Makes sockets of ours from what has come with a message instead of them. `peeks`: the message is still to be received.
void take_sockets(const msghdr& message, bool peeks);

}  // namespace unet::preload
