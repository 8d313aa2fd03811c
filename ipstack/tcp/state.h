// state.h - the states of a connection (RFC 9293, figure 5) and the transitions between them; used by Connection and by tools that show it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace unet::tcp {

enum class State : uint8_t {
  closed, listen, syn_sent, syn_received, established, fin_wait_1, fin_wait_2, close_wait, closing, last_ack, time_wait,
};
constexpr uint32_t kStates = 11;

constexpr std::string_view to_string(State state) noexcept {
  switch (state) {
    case State::closed: return "CLOSED";
    case State::listen: return "LISTEN";
    case State::syn_sent: return "SYN-SENT";
    case State::syn_received: return "SYN-RECEIVED";
    case State::established: return "ESTABLISHED";
    case State::fin_wait_1: return "FIN-WAIT-1";
    case State::fin_wait_2: return "FIN-WAIT-2";
    case State::close_wait: return "CLOSE-WAIT";
    case State::closing: return "CLOSING";
    case State::last_ack: return "LAST-ACK";
    case State::time_wait: return "TIME-WAIT";
  }
  return "?";
}

namespace detail {
constexpr uint16_t steps(std::initializer_list<State> to) noexcept {
  uint16_t bits = 1;  // any state may step to CLOSED: resets and timeouts
  for (const State each : to) bits = static_cast<uint16_t>(bits | 1 << static_cast<int>(each));
  return bits;
}
constexpr std::array<uint16_t, kStates> kSteps{
    steps({State::listen, State::syn_sent}),                                 // CLOSED
    steps({State::syn_received}),                                            // LISTEN
    steps({State::established, State::syn_received}),                        // SYN-SENT
    steps({State::established}),                                             // SYN-RECEIVED: never back to LISTEN
    steps({State::fin_wait_1, State::close_wait}),                           // ESTABLISHED
    steps({State::fin_wait_2, State::closing, State::time_wait}),            // FIN-WAIT-1
    steps({State::time_wait}),                                               // FIN-WAIT-2
    steps({State::last_ack}),                                                // CLOSE-WAIT
    steps({State::time_wait}),                                               // CLOSING
    steps({}),                                                               // LAST-ACK
    steps({}),                                                               // TIME-WAIT
};
}  // namespace detail

constexpr bool may_step(State from, State to) noexcept {
  return (detail::kSteps[static_cast<size_t>(from)] >> static_cast<int>(to) & 1) != 0;
}

// The handshake is over: SND.UNA, RCV.NXT and the rest are known.
constexpr bool is_synchronized(State state) noexcept { return state >= State::established; }
// The application has not closed its direction: data may be queued.
constexpr bool may_send(State state) noexcept { return state == State::established || state == State::close_wait; }
// The application has closed its direction, and our FIN is not acknowledged.
constexpr bool is_ending(State state) noexcept {
  return state == State::fin_wait_1 || state == State::closing || state == State::last_ack;
}
// The peer's FIN has not arrived.
constexpr bool may_receive(State state) noexcept {
  return state == State::established || state == State::fin_wait_1 || state == State::fin_wait_2;
}

}  // namespace unet::tcp
