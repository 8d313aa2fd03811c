// transfer.h - the bytes of one peer after the other: calls or answers it, moves both directions, and ends; used by main.cc.
//
// Handlers only change this state and write to an Output that never waits. step() sends.
#pragma once

#include <optional>
#include <string>

#include "am/endpoint.h"
#include "apps/unetcat/halves.h"
#include "apps/unetcat/options.h"
#include "apps/unetcat/protocol.h"
#include "apps/unetcat/streams.h"

namespace unet::unetcat {

class Transfer {
 public:
  Transfer(am::Endpoint& endpoint, Input& input, Output& output, const Options& options);
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // Begins to wait for a peer: at our name, or at the name of the other side.
  void begin();
  // Does what can be done now; returns whether anything was. Call it after each poll of the endpoint.
  bool step();
  // Ends the transfer early.
  void give_up(Reason reason, const std::string& text);
  void fail(const std::string& text);
  // Tells the peer the end, and makes ready for the next begin().
  void finish();
  // Nothing has connected within the time that the options allow.
  bool no_peer() const noexcept { return no_peer_; }

  bool over() const noexcept { return state_ == State::over; }
  const std::string& failure() const noexcept { return failure_; }  // a sentence; empty: all bytes have arrived
  // Returns whether there is a peer that takes and sends bytes.
  bool open() const noexcept { return state_ == State::open; }
  // Returns whether step() would read standard input.
  bool wants_input() const noexcept;
  // Returns when step() has to be called although nothing has happened.
  Nanoseconds due() const noexcept { return due_; }
  const std::string& peer() const noexcept { return peer_; }
  const Tally& sent() const noexcept { return sending_.tally(); }
  const Tally& received() const noexcept { return receiving_.tally(); }
  Nanoseconds began() const noexcept { return began_; }

 private:
  enum class State : uint8_t {
    listening,  // no peer has said hello
    calling,    // the name of the other side is to be mapped, or it is busy
    called,     // we have said hello
    open,       // both sides know each other
    over,
  };
  static constexpr am::Index kPeer = 0;

  template <void (Transfer::*kMember)(am::Token&)>
  void handle(uint8_t index, int16_t arguments) noexcept {
    const auto run = [](am::Token& token, void* self) { (static_cast<Transfer*>(self)->*kMember)(token); };
    endpoint_.set_handler(index, am::Handler{run, this, arguments});
  }
  void on_hello(am::Token& token);
  void on_heard(am::Token& token);
  void on_data(am::Token& token);
  void on_grant(am::Token& token);
  void on_end(am::Token& token);
  void on_done(am::Token& token);
  void on_abort(am::Token& token);
  bool of_peer(const am::Token& token) noexcept { return open() && token.source() == source_; }
  void check(Breach breach);

  uint32_t flags() const noexcept;
  bool call();
  void call_later(const std::string& why);
  void open_with(const am::Token& token, uint32_t theirs);
  bool move();
  bool send_input();
  bool send_end();
  bool confirm();
  std::string lost() const;

  am::Endpoint& endpoint_;
  Input& input_;
  Output& output_;
  const Options& options_;

  State state_ = State::over;
  std::string failure_;
  bool no_peer_ = false;
  std::optional<Reason> reason_;  // to tell the peer
  std::string peer_;              // its name or host
  uint64_t source_ = 0;           // Token::source() of its messages
  Nanoseconds due_ = kNever, give_up_at_ = kNever, began_ = 0;
  bool sends_ = false, receives_ = false, hashes_ = false;
  bool connecting_ = false, input_ended_ = false, done_told_ = false;
  uint64_t input_left_;           // bytes
  uint64_t written_before_ = 0;   // bytes that the output has of earlier peers
  Sending sending_;
  Receiving receiving_;
};

}  // namespace unet::unetcat
