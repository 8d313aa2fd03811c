// packets.h - records between an agent and its runners, one in a packet of a socket; used by both.
#pragma once

#include <array>
#include <cstddef>

#include "am/rpc/task/record.h"

namespace unet::agent {

enum class Sent : uint8_t { yes, full, closed };

// Never waits.
Sent send_packet(int socket, const rpc::TaskRecord& record) noexcept;

// Where a packet is received.
class Packet {
 public:
  enum class Got : uint8_t { record, none, closed };
  // Never waits. The record is valid until the next call.
  Got receive(int socket) noexcept;
  const rpc::TaskRecord& record() const noexcept { return record_; }

 private:
  struct Head {
    uint32_t type, a, b;
  };
  friend Sent send_packet(int socket, const rpc::TaskRecord& record) noexcept;
  std::array<std::byte, sizeof(Head) + rpc::kRecordMax> bytes_;
  rpc::TaskRecord record_;
};

}  // namespace unet::agent
