// relays.h - connections of this process that another process uses, too: a child that has inherited one, or whoever was sent one. The stack
// is this process's, so its helper carries the bytes between the connection and a Unix socket pair, whose other end the other process has.
// Used by the helper and by forks.cc and passing.cc, under the host's lock.
//
// A link leads to each child: by it the child asks for a connection that it wants to use, and tells which it has closed. Until then, or
// its end, the connections that it has inherited stay open, as a descriptor of the kernel's would.
#pragma once

#include <poll.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ipstack/preload/host.h"

namespace unet::preload {

// What a child says by its link; with `take` comes the descriptor that the bytes are to be carried to.
struct LinkMessage {
  enum class Kind : uint32_t { take, take_unused, end, close } kind = Kind::take;
  int32_t socket = -1;  // as the parent's stack numbers it
};

class Relays {
 public:
  explicit Relays(int helper_event) noexcept : sleeper_(helper_event) {}
  Relays(const Relays&) = delete;
  Relays& operator=(const Relays&) = delete;

  bool empty() const noexcept { return links_.empty() && relays_.empty(); }
  // A child has the other end of `fd`, and all connections that are open.
  void add_link(int fd, std::span<File* const> connections);
  // Carries bytes between the file, which has a connection, and `fd`, which is this object's from now on. `used` false: the other process
  // has it only because nobody closed it. While it sends nothing, and this process has the connection, too, what comes is this one's.
  void add_relay(File& file, int fd, bool used);

  // What the helper is to poll, behind what is there.
  void append(std::vector<pollfd>& to) const;
  // What poll() has said of them; and whatever can be carried.
  void serve(std::span<const pollfd> ready);
  // In a child: closes what was the parent's.
  void forget() noexcept;

 private:
  struct Link {
    uint64_t number = 0;  // unlike all others
    int fd = -1;
    std::vector<File*> held{};
  };
  struct Relay {
    int fd = -1;
    File* file = nullptr;
    bool ended_in = false, ended_out = false;  // no more comes from the pair; from the connection
    bool wants_out = false;                    // the pair had no room
    bool used = true;
    bool told_end = false;                     // by shutdown(), which ends it for all that have it
    bool seems_closed = false;                 // unless a link tells otherwise
    uint64_t link = 0;                         // of the child that has asked for it; 0: it was passed
  };
  bool serve_link(Link& link);
  bool carry(Relay& relay, bool hung_up);
  static bool carry_in(Relay& relay);
  static bool carry_out(Relay& relay);
  void drop(Relay& relay) noexcept;
  static void let_go(File& file);

  std::vector<Link> links_;
  uint64_t last_link_ = 0;
  std::vector<Relay> relays_;
  Sleeper sleeper_;  // wakes the helper
};

}  // namespace unet::preload
