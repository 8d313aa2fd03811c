// script_link.h - a peer behind a link with a rate, for the step `flow` of scripts; used by script.cc.
#pragma once

#include <deque>
#include <map>

#include "ipstack/tcp/script_line.h"

namespace unet::tcp::test {

class Link {
 public:
  // Parses RATE RTT [drop N] [mark N]; ignores other words.
  void configure(const std::vector<std::string>& w) {
    rate_ = number(w.at(1));
    trip_ = number(w.at(2)) * kMillisecond;
    drop_ = mark_ = 0;
    for (size_t i = 3; i + 1 < w.size(); i += 2) {
      if (w[i] == "drop") drop_ = number(w[i + 1]);
      if (w[i] == "mark") mark_ = number(w[i + 1]);
    }
  }

  // A segment [from, to) enters the link; sequence numbers count from 1.
  void enter(uint32_t from, uint32_t to, Nanoseconds now) {
    free_at_ = std::max(free_at_, now) + (to - from + 40) * kSecond / rate_;
    ++passed_;
    if (drop_ != 0 && passed_ % drop_ == 0) return;
    arrivals_.push_back({std::max(free_at_ + trip_, arrivals_.empty() ? 0 : arrivals_.back().at), from, to,
                         mark_ != 0 && passed_ % mark_ == 0});
  }

  Nanoseconds next() const { return arrivals_.empty() ? ~Nanoseconds{0} : arrivals_.front().at; }

  // The next ACK.
  Line take(uint32_t sequence) {
    const Arrival arrival = arrivals_.front();
    arrivals_.pop_front();
    uint32_t& to = pieces_[arrival.from];
    to = std::max(to, arrival.to);
    while (!pieces_.empty() && pieces_.begin()->first <= next_) {
      next_ = std::max(next_, pieces_.begin()->second);
      pieces_.erase(pieces_.begin());
    }
    Line line{.flags = arrival.marked ? ".E" : ".", .from = sequence, .to = sequence, .has_ack = true, .ack = next_, .options = {}};
    for (auto piece = pieces_.begin(); piece != pieces_.end();) {
      ip::SackBlock block{{piece->first}, {piece->second}};
      while (++piece != pieces_.end() && piece->first <= block.right.value) block.right.value = std::max(block.right.value, piece->second);
      if (line.options.sack_count < 3) line.options.sack[line.options.sack_count++] = block;
    }
    return line;
  }

 private:
  struct Arrival {
    Nanoseconds at;
    uint32_t from, to;
    bool marked;
  };

  uint64_t rate_ = 1, drop_ = 0, mark_ = 0, passed_ = 0;
  Nanoseconds trip_ = 0, free_at_ = 0;
  uint32_t next_ = 1;
  std::deque<Arrival> arrivals_;
  std::map<uint32_t, uint32_t> pieces_;  // received out of order, behind next_
};

}  // namespace unet::tcp::test
