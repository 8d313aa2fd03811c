// endpoint_ip.cc - IP of an endpoint: its channel, its claims, and the NI's configuration.
#include <unistd.h>

#include <utility>

#include "unet/connection.h"
#include "unet/layer_endpoint.h"

namespace unet {
namespace {

constexpr uint32_t kInfosMax = kPortsMax * kIpAddressesMax;

// Reads the next record from the memory that the service sent.
template <typename T>
bool read_next(int descriptor, off_t& at, T& into) {
  if (::pread(descriptor, static_cast<void*>(&into), sizeof into, at) != static_cast<ssize_t>(sizeof into)) return false;
  at += static_cast<off_t>(sizeof into);
  return true;
}

Result<IpConfiguration> read_configuration(const Answer& answer) {
  const auto sizes = answer.reply.ip_configuration;
  const auto bad = [] { return fail(Errc::protocol, "the NI sent an invalid IP configuration"); };
  if (answer.descriptors.size() != 1 || sizes.addresses > kInfosMax || sizes.interfaces > kPortsMax ||
      sizes.routes > kPortsMax * kIpRoutesMax) {
    return bad();
  }
  const int memory = answer.descriptors[0].get();
  IpConfiguration configuration;
  off_t at = 0;
  for (uint32_t i = 0; i < sizes.addresses; ++i) {
    control::IpAddressInfo info;
    if (!read_next(memory, at, info)) return bad();
    configuration.addresses.push_back(
        {.address = info.address, .prefix = info.prefix, .tentative = info.tentative != 0, .port = info.port});
  }
  for (uint32_t i = 0; i < sizes.interfaces; ++i) {
    control::IpInterfaceInfo info;
    if (!read_next(memory, at, info)) return bad();
    configuration.interfaces.push_back({.port = info.port, .mtu = info.mtu, .gateway4 = info.gateway4, .gateway6 = info.gateway6});
  }
  for (uint32_t i = 0; i < sizes.routes; ++i) {
    control::IpRouteInfo info;
    if (!read_next(memory, at, info)) return bad();
    configuration.routes.push_back({.network = info.network, .prefix = info.prefix, .port = info.port, .gateway = info.gateway});
  }
  return configuration;
}

}  // namespace

Result<Channel> LayerEndpoint::open_ip() {
  if (emulated()) {
    return fail(Errc::invalid_argument, "an emulated endpoint has no IP channel: create one with queues of its own for that");
  }
  auto answer = connection_->call(request_for<control::OpenIp>(control::Op::open_ip, id_));
  if (!answer) return tl::unexpected(answer.error());
  auto channel = adopt(std::move(*answer));
  if (channel) own_.find(*channel)->longest = kIpMessageMax;
  return channel;
}

Result<IpClaimed> LayerEndpoint::claim_ip(const IpClaim& claim, Nanoseconds timeout) {
  auto request = request_for<control::ClaimIp>(control::Op::claim_ip, id_);
  request.claim = claim;
  auto answer = connection_->call(request, timeout);
  if (!answer) return tl::unexpected(answer.error());
  const auto& made = answer->reply.claim_ip;
  return IpClaimed{.claim = made.claim, .port = static_cast<uint16_t>(made.port), .plenty = made.plenty != 0};
}

Status LayerEndpoint::release_ip(uint32_t claim, Nanoseconds timeout) {
  channels().linger();  // without this, the NI would see the last messages come from an unclaimed port
  auto request = request_for<control::ReleaseIp>(control::Op::release_ip, id_);
  request.claim = claim;
  auto answer = connection_->call(request, timeout);
  if (!answer) return tl::unexpected(answer.error());
  return {};
}

Status LayerEndpoint::set_ip_claim(uint32_t claim, AcceptsNewFlows accepts_new_flows, Nanoseconds timeout) {
  auto request = request_for<control::SetIpClaim>(control::Op::set_ip_claim, id_);
  request.claim = claim;
  request.accepts_new_flows = static_cast<uint32_t>(accepts_new_flows);
  auto answer = connection_->call(request, timeout);
  if (!answer) return tl::unexpected(answer.error());
  return {};
}

Status LayerEndpoint::own_ip_flow(uint32_t claim, const ip::IpAddress& local, uint16_t local_port, const ip::IpAddress& remote,
                             uint16_t remote_port, Nanoseconds timeout) {
  auto request = request_for<control::OwnIpFlow>(control::Op::own_ip_flow, id_);
  request.claim = claim;
  request.local = local;
  request.local_port = local_port;
  request.remote = remote;
  request.remote_port = remote_port;
  auto answer = connection_->call(request, timeout);
  if (!answer) return tl::unexpected(answer.error());
  return {};
}

Result<SocketTableView> LayerEndpoint::open_sockets() {
  const auto table = static_cast<uint32_t>(socket_tables_.size());
  // An embedded NI ends with its process: no service is left to read the table or to end the connections.
  if (own_.embedded()) return fail(Errc::unavailable, "an embedded NI ends with its process");
  if (table == kSocketTablesMax) return fail(Errc::already_exists, "this endpoint has as many tables of sockets as it may");
  auto answer = connection_->call(request_for<control::OpenSockets>(control::Op::open_sockets, id_));
  if (!answer) return tl::unexpected(answer.error());
  const SocketTableGeometry geometry = SocketTableGeometry::of_table(table);
  if (answer->descriptors.size() != 1 || answer->reply.sockets.table != table) {
    return fail(Errc::protocol, "the NI sent no table of sockets");
  }
  auto mapping = Mapping::map(answer->descriptors[0].get(), geometry.total);
  if (!mapping) return tl::unexpected(mapping.error());
  socket_tables_.push_back(std::move(*mapping));
  return SocketTableView(socket_tables_.back().data(), geometry);
}

// Whether a user wants to see the state of its sockets.
bool Endpoint::sockets_asked() const noexcept {
  if (socket_tables_.empty()) return false;
  const auto& header = *reinterpret_cast<const SocketTableHeader*>(socket_tables_.front().data());
  return header.asked.load(std::memory_order_relaxed) != header.told.load(std::memory_order_relaxed);
}

Result<IpConfiguration> LayerEndpoint::ip_configuration() {
  auto answer = connection_->call(request_for<control::GetIpConfiguration>(control::Op::ip_configuration, id_));
  if (!answer) return tl::unexpected(answer.error());
  return read_configuration(*answer);
}

Result<PendingId> LayerEndpoint::start_ip_configuration() {
  channels().opening(1);
  return begin_pending(connection_->send(request_for<control::GetIpConfiguration>(control::Op::ip_configuration, id_), false));
}

std::optional<Result<IpConfiguration>> LayerEndpoint::poll_ip_configuration(PendingId pending) {
  auto answer = poll_answer(pending);
  if (!answer) return std::nullopt;
  end_pending(pending);
  if (!*answer) return Result<IpConfiguration>(tl::unexpected(answer->error()));
  return read_configuration(**answer);
}

}  // namespace unet
