// interface_loss.h - the network interface goes while the program runs, and may come back; used by the helper and the runtime under its
// lock.
//
// Connections end as if this host had been reset. Listeners and datagram sockets wait until the interface is back, and are bound again.
// Meanwhile they are like inherited ones (File::inherited).
#pragma once

#include <algorithm>
#include <vector>

#include "ipstack/preload/file.h"
#include "unet/base/time.h"

namespace unet::preload {

class InterfaceLoss {
 public:
  // Looks whether the interface has gone, and binds sockets again when it is back. Called by the helper.
  void follow();
  // Some sockets wait for the interface.
  bool is_awaited() const noexcept { return !waiting_.empty(); }
  void note_open(Nanoseconds at) noexcept { opened_at_ = at; }

  void forget(const File& file) { std::erase(waiting_, &file); }
  void forget_all() noexcept { waiting_.clear(); }

 private:
  void end_stack();
  void come_back();

  std::vector<File*> waiting_;
  Nanoseconds tried_at_ = 0;   // to open a stack, last
  Nanoseconds opened_at_ = 0;  // the stack
};

}  // namespace unet::preload
