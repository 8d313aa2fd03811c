// ports.h - the NI's ports, with log lines and link changes of their wires; used by Service.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ni/wire_state.h"
#include "unet/base/result.h"
#include "unet/wire/ethernet.h"

namespace unet::service {

struct PortInfo {
  MacAddress address{};
  uint32_t mtu = 0;
  std::string description;
  uint32_t engine = 0;  // owner of the port, or of its first queue; each further queue belongs to the next engine
  uint32_t queues = 1;
  std::shared_ptr<WireState> state;  // null: the wire reports no log lines and link changes
  uint32_t state_changes = 0;        // changes that clients know of
};

class Ports {
 public:
  explicit Ports(std::vector<PortInfo> ports) noexcept : ports_(std::move(ports)) {}

  size_t size() const noexcept { return ports_.size(); }
  bool empty() const noexcept { return ports_.empty(); }
  const PortInfo& operator[](size_t port) const noexcept { return ports_[port]; }
  const std::vector<PortInfo>& all() const noexcept { return ports_; }

  // Adds the wires' descriptors to `epoll`, with `key` and the port's number as data. When one is ready, call on_ready() for its port.
  Status watch(int epoll, uint64_t key) const;
  void on_ready(size_t port) { ports_[port].state->look(); }
  // Logs the wires' lines. True: an interface has changed since the last call.
  bool poll();

  uint32_t mtu_now(uint32_t port) const noexcept;
  bool is_up(uint32_t port) const noexcept;
  std::string link_text(uint32_t port) const;  // for reports

 private:
  std::vector<PortInfo> ports_;
};

}  // namespace unet::service
