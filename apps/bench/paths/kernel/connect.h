// connect.h - the workload `connect` of the kernel's stream sockets: socket, connect and accept.
#pragma once

#include <sys/socket.h>

#include "apps/bench/frame/path.h"

namespace unet::bench {

// A listening socket, opened before the fork: side B accepts, side A connects to its address.
class KernelListener {
 public:
  KernelListener() = default;
  KernelListener(const KernelListener&) = delete;
  KernelListener& operator=(const KernelListener&) = delete;
  ~KernelListener();

  // AF_UNIX (a name the kernel chooses, in no directory) or AF_INET (TCP on loopback). `busy`: accept() is polled.
  Status open(int family, bool busy);
  Outcome run(const Slice& slice, RunContext& context);

 private:
  int fd_ = -1;
  bool busy_ = false;
  sockaddr_storage address_{};
  socklen_t length_ = 0;
};

}  // namespace unet::bench
