// reset.cc - resets for segments of no connection.
#include "ipstack/tcp/reset.h"

namespace unet::tcp {

std::optional<ip::TcpFields> reset_for(const ip::TcpView& segment) noexcept {
  using Flags = ip::TcpFlags;
  if (segment.has(Flags::kRst)) return std::nullopt;
  ip::TcpFields fields{.source_port = segment.destination_port, .destination_port = segment.source_port};
  // RFC 9293, 3.10.7.1: the peer must find the reset acceptable. SEG.ACK becomes its sequence number; a segment without ACK is acknowledged
  // instead.
  if (segment.has(Flags::kAck)) {
    fields.sequence = segment.acknowledgement;
    fields.flags = Flags::kRst;
  } else {
    fields.acknowledgement = segment.sequence + segment.length();
    fields.flags = Flags::kRst | Flags::kAck;
  }
  return fields;
}

}  // namespace unet::tcp
