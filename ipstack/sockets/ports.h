// ports.h - the ports that a stack has of its network interface, and which of them are free; used by the stack.
//
// A port for bind() is asked for alone; ports for connect() come in blocks, so that most connections cost no question. Blocks, and what is
// still in use when the stack ends, stay until its network ends: by these claims the network interface knows what it is to finish.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "ipstack/sockets/network.h"

namespace unet::sockets {

class Ports {
 public:
  Ports(Network& network, uint8_t protocol, uint64_t seed) : network_(network), protocol_(protocol), random_(seed) {}
  Ports(const Ports&) = delete;
  Ports& operator=(const Ports&) = delete;

  // The port for one socket at `local` (unspecified: all addresses). 0, or an errno; EADDRINUSE also if it is another socket's of ours.
  // `shared`: a further socket may have it, if all that have it say so.
  int take(const ip::IpAddress& local, uint16_t port, bool shared);
  // Any port, for bind() to port 0; of all addresses. 0, or an errno.
  int take_free(uint16_t& port);
  // One for a connection, which may be another connection's, too: `free(port)` says whether it may be used. 0, or an errno.
  template <typename Free>
  int take_any(Free free, uint16_t& port) {
    for (int round = 0;; ++round) {
      for (uint32_t i = 0; i < pool_.size(); ++i) {
        if (next_ >= pool_.size()) next_ = 0;
        const uint16_t candidate = pool_[next_++];
        if (!is_bound(candidate) && free(candidate)) {
          port = candidate;
          ++uses_[candidate];
          return 0;
        }
      }
      if (const int error = add_block(); error != 0) return error;
    }
  }
  // One more socket has a port that is taken: a connection of a listener's.
  void use(uint16_t port) { ++uses_[port]; }
  void give_back(uint16_t port);

 private:
  static constexpr uint16_t kBlock = 64;

  struct Bound {
    uint32_t claim = 0;
    ip::IpAddress local{};
    bool shared = false;
    bool of_pool = false;  // it was one of a block's, and goes back there
  };
  bool is_bound(uint16_t port) const { return bound_.count(port) != 0; }
  int add_block();

  Network& network_;
  const uint8_t protocol_;
  uint64_t random_;
  std::vector<uint16_t> pool_;            // of blocks, for connections
  size_t next_ = 0;
  std::vector<bool> in_pool_ = std::vector<bool>(65'536);
  std::vector<uint32_t> uses_ = std::vector<uint32_t>(65'536);  // how many sockets have a port
  std::map<uint16_t, Bound> bound_;       // by bind()
};

}  // namespace unet::sockets
