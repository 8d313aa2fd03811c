// host_dhcp.cc - the host's side of DHCP: datagrams of the client's port, and the configuration that follows from a lease.
#include <algorithm>
#include <cstring>

#include "ipstack/ip/host.h"
#include "unet/wire/udp.h"

namespace unet::ip {

bool Host::handle_dhcp(const IpView& packet, bool checked, Nanoseconds now) noexcept {
  be16 port;
  if (!packet.ipv4 || packet.protocol != Protocol::kUdp || packet.payload.size() < kUdpBytes) return false;
  std::memcpy(&port, packet.payload.data() + offsetof(UdpHeader, to), sizeof port);
  if (port != kDhcpClientPort) return false;
  UdpView datagram;
  DhcpReply reply;
  if (parse_udp(packet, checked, datagram) != UdpError::none || datagram.from != kDhcpServerPort || !parse_dhcp(datagram.payload, reply)) {
    return count(HostCounter::bad_dhcp), true;
  }
  const uint64_t before = dhcp_->counters().leases + dhcp_->counters().renewed;
  dhcp_->handle_reply(reply, now);
  if (dhcp_->counters().leases + dhcp_->counters().renewed != before) ++lease_changes_;
  apply_lease(now);
  return true;
}

bool Host::is_dhcp_question(const QuotedPacket& quoted) noexcept {
  be16 port;
  if (quoted.protocol != Protocol::kUdp || !quoted.from.is_ipv4() || quoted.payload.size() < sizeof port) return false;
  std::memcpy(&port, quoted.payload.data() + offsetof(UdpHeader, from), sizeof port);
  return port == kDhcpClientPort;
}

std::optional<LeaseCheckpoint> Host::lease_checkpoint(Nanoseconds now) const noexcept {
  const bool assigned = dhcp_ && lease_ && state_of(lease_->address) == AddressState::assigned;
  return assigned ? dhcp_->checkpoint(now) : std::nullopt;
}

void Host::resume_lease(const LeaseCheckpoint& checkpoint, Nanoseconds now) noexcept {
  if (!dhcp_ || lease_) return;
  dhcp_->resume(checkpoint, now);
  apply_lease(now, false);
}

void Host::apply_lease(Nanoseconds now, bool probe) noexcept {
  const std::optional<DhcpLease>& lease = dhcp_->lease();
  if (lease == lease_) return;
  ++lease_changes_;
  const bool same = lease && lease_ && lease->address == lease_->address && lease->prefix == lease_->prefix;
  if (lease_ && !same) {
    const OwnAddress* const known = addresses_.find(lease_->address);
    if (known != nullptr && known->of_dhcp) remove_address(lease_->address, now);
  }
  if (lease && !same && addresses_.find(lease->address) == nullptr && addresses_.size() < OwnAddresses::kMax) {
    add_address(lease->address, lease->prefix, probe, now);
    addresses_.find(lease->address)->of_dhcp = true;
    routes_.add_prefix(lease->address, lease->prefix);
  }
  // Static configuration has priority.
  routes_.set_gateway4(lease && !options_.gateway4 ? lease->router : options_.gateway4);
  mtu_.by_dhcp = lease && lease->mtu >= kIpv4WholeMin ? std::min<uint32_t>(lease->mtu, options_.mtu) : options_.mtu;
  lease_ = lease;
}

// RFC 2131, 4.4.1: declines a leased address that another host has.
void Host::decline_conflict(Nanoseconds now) noexcept {
  if (!lease_) return;
  const OwnAddress* const leased = addresses_.find(lease_->address);
  if (leased == nullptr || !leased->of_dhcp || leased->claim.state() != AddressClaim::State::conflict) return;
  dhcp_->handle_conflict(now);
  apply_lease(now);
}

uint32_t Host::poll_dhcp(Nanoseconds now, std::byte* frame) noexcept {
  if (!dhcp_) return 0;
  DhcpClient::Message message;
  const bool some = dhcp_->poll_message(now, message);
  apply_lease(now);  // the lease may have ended
  if (!some) return 0;
  const IpAddress none = ipv4_address(0u), all = ipv4_address(~0u), own = message.fields.client;
  std::array<std::byte, kDhcpClientBytes> text;
  emit_dhcp(text.data(), message.fields);
  const IpFields fields{.from = state_of(own) == AddressState::assigned ? own : none, .to = message.to.value_or(all),
                        .protocol = Protocol::kUdp, .hop_limit = options_.hop_limit};
  std::array<std::byte, kUdpBytes> header;
  emit_udp_header(header.data(), fields.from, fields.to, kDhcpClientPort, kDhcpServerPort, text);
  if (message.to) {
    // Unicast by the normal route. A lost message is retransmitted, in the end as a broadcast.
    if (!fields.from.is_unspecified()) send(fields, header, text, now);
    return 0;
  }
  std::byte* const at = frame + kEthernetBytes + kIpv4Bytes;
  std::memcpy(at, header.data(), header.size());
  std::memcpy(at + header.size(), text.data(), text.size());
  return emit_ip_frame(frame, kBroadcast, fields, static_cast<uint32_t>(header.size() + text.size()));
}

}  // namespace unet::ip
