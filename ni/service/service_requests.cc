// service_requests.cc - the check of each request and the part that handles it; hello.
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include "ni/service/journal_records.h"
#include "ni/service/log.h"
#include "ni/service/service.h"
#include "unet/base/bytes.h"

namespace unet::service {

using control::Op;

namespace {

template <size_t N>
bool lies(const control::Text<N>& text) {
  return text.length > N;
}
template <typename Packet>
bool lies(const Packet&) {
  return false;
}
bool lies(const control::Hello& p) { return lies(p.program); }
bool lies(const control::Bind& p) { return lies(p.name); }
bool lies(const control::Connect& p) { return lies(p.target); }
bool lies(const control::Upgrade& p) { return lies(p.program); }

// A libunet of another release may have another hello, but its version stands where ours does.
bool of_another_version(Bytes packet) {
  uint32_t version = 0;
  if (packet.size() < offsetof(control::Hello, version) + sizeof version) return false;
  std::memcpy(&version, packet.data() + offsetof(control::Hello, version), sizeof version);
  return version != control::kVersion;
}

}  // namespace

template <typename Packet, typename Part>
void Service::dispatch(Part& part, ClientRecord& client, Bytes bytes) {
  static_assert(std::is_trivially_copyable_v<Packet> && sizeof(Packet) <= control::kPacketMax);
  if (bytes.size() != sizeof(Packet)) return clients_.protocol_error(client, "a request of a wrong length");
  Packet packet;
  std::memcpy(static_cast<void*>(&packet), bytes.data(), sizeof packet);
  if (lies(packet)) return clients_.protocol_error(client, "a text longer than its room");
  ++counters_.requests;
  part.handle(client, packet);
}

void Service::on_packet(ClientRecord& client, Bytes bytes) {
  uint32_t op = 0;
  if (bytes.size() < sizeof(control::Header)) return clients_.protocol_error(client, "a packet shorter than a header");
  std::memcpy(&op, bytes.data() + offsetof(control::Header, op), sizeof op);
  if (!client.greeted && op != static_cast<uint32_t>(Op::hello)) return clients_.protocol_error(client, "a request before hello");
  if (static_cast<Op>(op) == Op::hello && !client.greeted && of_another_version(bytes)) {
    control::Hello hello{};
    std::memcpy(static_cast<void*>(&hello), bytes.data(), offsetof(control::Hello, program));
    ++counters_.requests;
    return handle(client, hello);
  }
  switch (static_cast<Op>(op)) {
    case Op::hello: return dispatch<control::Hello>(*this, client, bytes);
    case Op::create_endpoint: return dispatch<control::CreateEndpoint>(endpoint_requests_, client, bytes);
    case Op::create_emulated: return dispatch<control::CreateEmulated>(endpoint_requests_, client, bytes);
    case Op::destroy_endpoint: return dispatch<control::DestroyEndpoint>(endpoint_requests_, client, bytes);
    case Op::bind: return dispatch<control::Bind>(endpoint_requests_, client, bytes);
    case Op::unbind: return dispatch<control::Unbind>(endpoint_requests_, client, bytes);
    case Op::connect: return dispatch<control::Connect>(channels_, client, bytes);
    case Op::accept: return dispatch<control::Accept>(channels_, client, bytes);
    case Op::reject: return dispatch<control::Reject>(channels_, client, bytes);
    case Op::close_channel: return dispatch<control::CloseChannel>(channels_, client, bytes);
    case Op::expose: return dispatch<control::Expose>(endpoint_requests_, client, bytes);
    case Op::peer_region: return dispatch<control::PeerRegion>(endpoint_requests_, client, bytes);
    case Op::open_ip: return dispatch<control::OpenIp>(ip_requests_, client, bytes);
    case Op::claim_ip: return dispatch<control::ClaimIp>(ip_requests_, client, bytes);
    case Op::release_ip: return dispatch<control::ReleaseIp>(ip_requests_, client, bytes);
    case Op::set_ip_claim: return dispatch<control::SetIpClaim>(ip_requests_, client, bytes);
    case Op::own_ip_flow: return dispatch<control::OwnIpFlow>(ip_requests_, client, bytes);
    case Op::ip_configuration: return dispatch<control::GetIpConfiguration>(ip_requests_, client, bytes);
    case Op::open_sockets: return dispatch<control::OpenSockets>(ip_requests_, client, bytes);
    case Op::list_sockets: return dispatch<control::ListSockets>(ip_requests_, client, bytes);
    case Op::get_descriptor: return dispatch<control::GetDescriptor>(endpoint_requests_, client, bytes);
    case Op::report: return dispatch<control::Report>(*this, client, bytes);
    case Op::policy_reload: return dispatch<control::PolicyReload>(operation_, client, bytes);
    case Op::drain: return dispatch<control::Drain>(operation_, client, bytes);
    case Op::capture_start: return dispatch<control::CaptureStart>(capture_requests_, client, bytes);
    case Op::capture_stop: return dispatch<control::CaptureStop>(capture_requests_, client, bytes);
    case Op::upgrade: return dispatch<control::Upgrade>(operation_, client, bytes);
    case Op::connect_request:
    case Op::channel_opened:
    case Op::channel_closed:
    case Op::ip_changed:
      break;
  }
  clients_.protocol_error(client, "an unknown request");
}

Status Service::greet(ClientRecord& client, const control::Hello& packet) {
  if (packet.version != control::kVersion) {
    if (now_ >= next_refusal_log_) {
      next_refusal_log_ = now_ + kSecond;
      log::info("pid {} of user {} speaks version {} of the control protocol, and not {}: its libunet is of another release",
                client.who.pid, client.who.uid, packet.version, control::kVersion);
    }
    return fail(Errc::protocol, "this network interface speaks version " + std::to_string(control::kVersion) +
                                    " of the control protocol, not " + std::to_string(packet.version) +
                                    ": use a libunet of the same release");
  }
  if (client.rights.none()) {
    return fail(Errc::not_permitted, "the policy of this network interface gives user " + std::to_string(client.who.uid) +
                                         " no right to use it: its administrator can add a [[rule]]");
  }
  if (Status status = persistence_.takes(2); !status) return status;
  Result<SharedMemory> page = create_shared("unet-client", sizeof(ClientPage));
  if (!page) return tl::unexpected(page.error());
  Result<Descriptor> wake = create_eventfd();
  if (!wake) return tl::unexpected(wake.error());
  client.page = std::move(*page);
  client.wake = std::move(*wake);
  return engines_.attach(client);
}

void Service::handle(ClientRecord& client, const control::Hello& packet) {
  if (client.greeted) return clients_.protocol_error(client, "a second hello");
  if (Status status = greet(client, packet); !status) {
    clients_.fail_request(client, packet.header, status.error());
    return clients_.drop(client, status.error().text);
  }
  client.program = std::string(packet.program.view());
  client.greeted = true;
  persistence_.changed(JournalKind::client_state, client.index);
  persistence_.put(JournalKind::page, client.index, 0, PageValue{}, {client.page.descriptor.get(), client.wake.get()});
  control::Reply reply = make_reply(packet.header);
  reply.hello = {.version = control::kVersion, .client = client.index};
  const bool sent = clients_.send_packet(client, reply, {client.page.descriptor.get(), client.wake.get()});
  if (!sent) clients_.drop(client, "no descriptors for its page");
  client.page.descriptor.reset();
}

}  // namespace unet::service
