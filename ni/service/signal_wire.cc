// signal_wire.cc - parse and emit.
#include "ni/service/signal_wire.h"

#include <cstring>
#include <type_traits>

#include "unet/control.h"

namespace unet::service {
namespace {

template <typename T>
constexpr size_t body_size() {
  return std::is_empty_v<T> ? 0 : sizeof(T);
}

bool printable(std::string_view text) {
  for (const char c : text) {
    if (c < ' ' || c > '~') return false;
  }
  return true;
}

template <size_t N>
bool fits(const WireText<N>& text) {
  return text.length <= N;
}
bool name_ok(const WireName& name) { return fits(name) && control::valid_name(name.view()); }

bool valid(const Resolve& b) { return name_ok(b.host); }
bool valid(const Resolved& b) { return name_ok(b.host); }
bool valid(const ConnectBody& b) { return name_ok(b.target) && name_ok(b.host) && b.tag != 0; }
bool valid(const AcceptedBody& b) { return b.tag != 0 && b.connect_tag != 0; }
bool valid(const Rejected& b) { return fits(b.text) && printable(b.text.view()) && b.code != 0 && b.code <= uint32_t(Errc::system); }
bool valid(const Close& b) {
  return b.from_tag != 0 && b.reason >= uint32_t(control::CloseReason::closed_by_peer) &&
         b.reason <= uint32_t(control::CloseReason::wire_lost);
}
bool valid(const Closed& b) { return b.to_tag != 0; }
bool valid(const Keepalive& b) { return b.count <= Keepalive::kChannels; }
bool valid(const Received&) { return true; }
bool valid(const Confirm&) { return true; }
bool valid(const Alive&) { return true; }
bool valid(const Goodbye&) { return true; }

template <typename T>
std::optional<Signal> parse_body(const SignalHeader& header, Bytes body) {
  T value{};
  if (body.size() != body_size<T>()) return std::nullopt;
  if constexpr (!std::is_empty_v<T>) std::memcpy(&value, body.data(), sizeof value);
  if (!valid(value)) return std::nullopt;
  return Signal{header, value};
}

}  // namespace

std::optional<Signal> parse_signal(Bytes message) noexcept {
  SignalHeader header;
  if (message.size() < sizeof header || message.size() > engine::kSignalMax) return std::nullopt;
  std::memcpy(&header, message.data(), sizeof header);
  if (header.version != kSignalVersion || header.length != message.size()) return std::nullopt;
  if (header.from_incarnation == 0 || header.lost_after_ms == 0) return std::nullopt;
  const Bytes body = message.subspan(sizeof header);
  switch (static_cast<SignalType>(header.type)) {
    case SignalType::resolve: return parse_body<Resolve>(header, body);
    case SignalType::resolved: return parse_body<Resolved>(header, body);
    case SignalType::connect: return parse_body<ConnectBody>(header, body);
    case SignalType::received: return parse_body<Received>(header, body);
    case SignalType::accepted: return parse_body<AcceptedBody>(header, body);
    case SignalType::rejected: return parse_body<Rejected>(header, body);
    case SignalType::confirm: return parse_body<Confirm>(header, body);
    case SignalType::close: return parse_body<Close>(header, body);
    case SignalType::closed: return parse_body<Closed>(header, body);
    case SignalType::keepalive: return parse_body<Keepalive>(header, body);
    case SignalType::alive: return parse_body<Alive>(header, body);
    case SignalType::goodbye: return parse_body<Goodbye>(header, body);
  }
  return std::nullopt;
}

uint32_t emit_signal(std::span<std::byte, engine::kSignalMax> to, SignalHeader header, const SignalBody& body) noexcept {
  return std::visit(
      [&](const auto& value) {
        using T = std::decay_t<decltype(value)>;
        constexpr size_t size = sizeof(SignalHeader) + body_size<T>();
        static_assert(size <= engine::kSignalMax);
        header.version = kSignalVersion;
        header.type = static_cast<uint8_t>(body.index() + 1);
        header.length = static_cast<uint16_t>(size);
        std::memcpy(to.data(), &header, sizeof header);
        if constexpr (!std::is_empty_v<T>) std::memcpy(to.data() + sizeof header, &value, sizeof value);
        return static_cast<uint32_t>(size);
      },
      body);
}

}  // namespace unet::service
