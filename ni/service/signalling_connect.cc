// signalling_connect.cc - the connecting side: find the host, ask for the endpoint, wait for its answer.
#include <algorithm>

#include "ni/service/names.h"
#include "ni/service/signalling.h"
#include "ni/service/signalling_times.h"

namespace unet::service {

using control::CloseReason;

uint64_t Signalling::connect(std::string_view host, std::string_view target, Tag local_tag, uint32_t pid, Nanoseconds timeout,
                             Nanoseconds now) {
  const uint64_t id = next_id_++;
  begin_connect(id, host, target, local_tag, pid, timeout, now);
  return id;
}

void Signalling::begin_connect(uint64_t id, std::string_view host, std::string_view target, Tag local_tag, uint32_t pid,
                               Nanoseconds timeout, Nanoseconds now) {
  Connect& connect = connects_[id];
  connect.host = std::string(host);
  connect.target = std::string(target);
  connect.local_tag = local_tag;
  connect.pid = pid;
  connect.started = now;
  connect.deadline = now + timeout;
  connect.resolve_deadline = now + std::min(timeout, kResolveFor);
  connect.interval = kFirstInterval;
  const auto fixed = fixed_hosts_.find(host);
  const auto learned = hosts_.find(host);
  if (fixed != fixed_hosts_.end() || learned != hosts_.end()) {
    connect.state = Connect::State::requesting;
    connect.remote = fixed != fixed_hosts_.end() ? fixed->second : learned->second;
  }
  repeat_connect(id, connect, now);
}

// Sends the message of the state, and sets the timer for its repetition.
void Signalling::repeat_connect(uint64_t id, Connect& connect, Nanoseconds now) {
  if (connect.attempts++ > 0) ++counters_.repeated;
  if (connect.state == Connect::State::resolving) {
    Resolve body;
    body.host.set(connect.host);
    for (uint32_t port = 0; port < options_.port_mtus.size(); ++port) send({port, kBroadcast}, id, body);
  } else if (connect.remote.port < options_.port_mtus.size()) {
    ConnectBody body{};
    body.tag = static_cast<uint32_t>(connect.local_tag);
    body.mtu = options_.port_mtus[connect.remote.port];
    body.pid = connect.pid;
    body.target.set(connect.target);
    body.host.set(options_.host);
    send(connect.remote, id, body);
  }
  const Nanoseconds limit = connect.state == Connect::State::resolving ? connect.resolve_deadline : connect.deadline;
  set_timer(connect.timer, std::min(now + connect.interval, std::max(limit, now + 1)), TimerKind::connect, id);
  connect.interval = doubled(connect.interval);
}

void Signalling::on_connect_timer(Connects::iterator at, Nanoseconds now) {
  Connect& connect = at->second;
  const std::string whom = in_quotes(connect.target + "@" + connect.host);
  switch (connect.state) {
    case Connect::State::resolving:
      if (now < connect.resolve_deadline) break;
      return fail_connect(at, Errc::not_found, "no network interface answered to the host name " + in_quotes(connect.host) +
                                                   ": is it running (unetd --host " + connect.host + ") on the same wire?", now);
    case Connect::State::requesting:
      if (now >= connect.deadline) {
        return fail_connect(at, Errc::timed_out, "host " + in_quotes(connect.host) + " does not answer", now);
      }
      if (connect.attempts < kAttemptsBeforeResolve || connect.heard || fixed_hosts_.count(connect.host) != 0) break;
      hosts_.erase(connect.host);
      connect.state = Connect::State::resolving;
      connect.attempts = 0;
      connect.interval = kFirstInterval;
      connect.resolve_deadline = std::min(connect.deadline, now + kResolveFor);
      break;
    case Connect::State::waiting:
      if (now < connect.deadline) break;
      return fail_connect(at, Errc::timed_out, "the endpoint " + whom + " did not accept the channel in time", now);
  }
  repeat_connect(at->first, connect, now);
}

// Ends a connect, and tells the remote NI, which may know of it.
void Signalling::forget_connect(Connects::iterator at, Nanoseconds now) {
  const Connect& connect = at->second;
  if (connect.state != Connect::State::resolving || connect.heard) {
    start_closing({.remote = connect.remote,
                   .number = at->first,
                   .local_tag = connect.local_tag,
                   .remote_tag = Tag{0},
                   .reason = CloseReason::closed_by_peer}, now);
  }
  set_timer(at->second.timer, 0, TimerKind::connect, at->first);
  connects_.erase(at);
}

void Signalling::fail_connect(Connects::iterator at, Errc code, std::string text, Nanoseconds now) {
  events_.push_back(ConnectFailed{at->first, {code, std::move(text)}});
  forget_connect(at, now);
}

void Signalling::cancel(uint64_t connect, Nanoseconds now) {
  if (const auto at = connects_.find(connect); at != connects_.end()) forget_connect(at, now);
}

void Signalling::handle(Peer& peer, const SignalHeader&, const Resolved& body, Nanoseconds now) {
  bool wanted = false;
  for (auto& [id, connect] : connects_) {
    if (connect.state != Connect::State::resolving || connect.host != body.host.view()) continue;
    wanted = true;
    connect.state = Connect::State::requesting;
    connect.remote = peer.address;
    connect.attempts = 0;
    connect.interval = kFirstInterval;
    repeat_connect(id, connect, now);
  }
  // Only awaited answers count: no host may fill the tables, or change another host's address, by an unrequested message.
  if (!wanted) return;
  peer.host = std::string(body.host.view());
  if (hosts_.size() < kPeersMax || hosts_.count(peer.host) != 0) hosts_[peer.host] = peer.address;
}

void Signalling::handle(Peer& peer, const SignalHeader& header, const Received&, Nanoseconds now) {
  const auto at = connects_.find(header.number);
  if (at == connects_.end() || at->second.state == Connect::State::resolving || at->second.remote != peer.address) {
    ++counters_.unexpected;
    return;
  }
  Connect& connect = at->second;
  connect.heard = true;
  if (connect.state == Connect::State::waiting) return;
  connect.state = Connect::State::waiting;
  connect.interval = kLastInterval;
  set_timer(connect.timer, std::min(now + kLastInterval, connect.deadline), TimerKind::connect, at->first);
}

void Signalling::handle(Peer& peer, const SignalHeader& header, const AcceptedBody& body, Nanoseconds now) {
  const Tag local{uint32_t{body.connect_tag}}, remote{uint32_t{body.tag}};
  const auto at = connects_.find(header.number);
  const bool ours = at != connects_.end() && at->second.local_tag == local &&
                    at->second.state != Connect::State::resolving && at->second.remote == peer.address;
  if (ours) {
    attach(peer, local, {.peer = peer.id, .remote_tag = remote, .number = header.number, .request = 0}, now);
    events_.push_back(Connected{at->first, peer.address, remote});
    set_timer(at->second.timer, 0, TimerKind::connect, at->first);
    connects_.erase(at);
  }
  const auto channel = channels_.find(static_cast<uint32_t>(local));
  if (channel != channels_.end() && channel->second.peer == peer.id && channel->second.remote_tag == remote &&
      channel->second.number == header.number) {
    return send(peer.address, header.number, Confirm{});
  }
  if (at != connects_.end() && !ours) return;  // this NI is resolving the host again, and will repeat the request there
  ++counters_.unexpected;
  send(peer.address, header.number,
       Close{.to_tag = body.tag, .from_tag = body.connect_tag, .reason = static_cast<uint32_t>(CloseReason::closed_by_peer)});
}

void Signalling::handle(Peer& peer, const SignalHeader& header, const Rejected& body, Nanoseconds) {
  const auto at = connects_.find(header.number);
  if (at == connects_.end() || at->second.state == Connect::State::resolving || at->second.remote != peer.address) {
    ++counters_.unexpected;
    return;
  }
  set_timer(at->second.timer, 0, TimerKind::connect, at->first);
  events_.push_back(ConnectFailed{at->first, {static_cast<Errc>(static_cast<uint32_t>(body.code)), std::string(body.text.view())}});
  connects_.erase(at);
}

}  // namespace unet::service
