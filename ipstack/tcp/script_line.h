// script_line.h - parses the segments of scripts, and splits lines into words; used by script.cc.
#pragma once

#include <array>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "unet/base/time.h"
#include "unet/wire/tcp.h"

namespace unet::tcp::test {

// An error in a script line, or in the connection's behaviour there. Only scripts throw it.
struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};
[[noreturn]] inline void wrong(const std::string& what) {
  throw Wrong(what);  // tidy: allow throw because scripts are tests
}

inline std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> all;
  for (std::string word; in >> word;) all.push_back(word);
  return all;
}

inline uint64_t number(const std::string& word) {
  char* end = nullptr;
  const uint64_t value = std::strtoull(word.c_str(), &end, 0);
  if (word.empty() || *end != 0) wrong("not a number: " + word);
  return value;
}

inline Nanoseconds duration(const std::string& word) {
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);
  const std::string unit = end;
  const double scale = unit == "us" ? 1e3 : unit == "ms" ? 1e6 : unit == "s" || unit.empty() ? 1e9 : 0;
  if (scale == 0) wrong("not a time: " + word);
  return static_cast<Nanoseconds>(value * scale + 0.5);
}

// All cookies are a prefix of this one.
inline constexpr std::array<std::byte, 16> kCookie{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}, std::byte{5}, std::byte{6}};

// A segment of a script, with relative sequence numbers.
struct Line {
  std::string flags;
  uint32_t from = 0, to = 0;
  bool has_ack = false, has_win = false, has_options = false, has_ts = false, any_ts = false, no_ts = false, has_mss = false;
  bool bad = false, ect = false, ce = false;
  uint32_t ack = 0, win = 0, urg = 0, mss = 0;
  ip::TcpOptions options;
};

inline uint8_t flag_bits(const std::string& flags) {
  static const std::string kNames = "FSRP.UEW";
  uint8_t bits = 0;
  for (const char each : flags) {
    if (each == '-') continue;
    const size_t at = kNames.find(each);
    if (at == std::string::npos) wrong("not flags: " + flags);
    bits = static_cast<uint8_t>(bits | 1 << at);
  }
  return bits;
}

inline std::string flag_names(uint8_t bits) {
  std::string text;
  for (const auto& [bit, name] : {std::pair{1, 'F'}, {2, 'S'}, {4, 'R'}, {8, 'P'}, {32, 'U'}, {64, 'E'}, {128, 'W'}, {16, '.'}}) {
    if ((bits & bit) != 0) text += name;
  }
  return text.empty() ? "-" : text;
}

// "FROM:TO"
inline std::pair<uint32_t, uint32_t> places(const std::string& word) {
  const size_t colon = word.find(':');
  if (colon == std::string::npos) wrong("not FROM:TO: " + word);
  return {static_cast<uint32_t>(number(word.substr(0, colon))), static_cast<uint32_t>(number(word.substr(colon + 1)))};
}

inline void parse_line_options(const std::string& text, Line& line) {
  line.has_options = true;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) {
    const auto w = words(part);
    if (w.empty()) continue;
    if (w[0] == "mss" && w.size() == 2) {
      line.options.mss = static_cast<uint16_t>(number(w[1]));
    } else if (w[0] == "bad") {
      line.bad = true;
    } else if (w[0] == "sackOK") {
      line.options.sack_permitted = true;
    } else if (w[0] == "wscale" && w.size() == 2) {
      line.options.window_scale = static_cast<uint8_t>(number(w[1]));
    } else if (w[0] == "fo") {
      line.options.has_fast_open = true;
      line.options.fast_open_cookie = Bytes(kCookie).first(w.size() < 2 ? 0 : number(w[1]));
    } else if (w[0] == "ts") {
      line.has_ts = true;
      line.any_ts = w.size() != 3;
      line.options.has_timestamps = true;
      if (!line.any_ts) {
        line.options.timestamp = static_cast<uint32_t>(number(w[1]));
        line.options.timestamp_echo = static_cast<uint32_t>(number(w[2]));
      }
    } else if (w[0] == "sack") {
      for (size_t i = 1; i < w.size(); ++i) {
        const auto [left, right] = places(w[i]);
        line.options.sack.at(line.options.sack_count++) = {{left}, {right}};
      }
    } else {
      wrong("unknown option: " + part);
    }
  }
}

// Parses the text after `<` or `>`.
inline Line parse_line(const std::string& text) {
  Line line;
  std::string rest = text;
  if (const size_t open = rest.find('<'); open != std::string::npos) {
    const size_t close = rest.find('>', open);
    if (close == std::string::npos) wrong("no > behind the options");
    parse_line_options(rest.substr(open + 1, close - open - 1), line);
    rest = rest.substr(0, open) + rest.substr(close + 1);
  }
  const auto w = words(rest);
  if (w.size() < 2) wrong("a segment needs FLAGS FROM:TO");
  line.flags = w[0];
  flag_bits(line.flags);
  std::tie(line.from, line.to) = places(w[1]);
  for (size_t i = 2; i < w.size(); ++i) {
    if (w[i] == "nots") {
      line.no_ts = true;
      continue;
    }
    if (w[i] == "ect" || w[i] == "ce") {
      (w[i] == "ect" ? line.ect : line.ce) = true;
      continue;
    }
    if (i + 1 >= w.size()) wrong("nothing behind " + w[i]);
    const auto value = static_cast<uint32_t>(number(w[i + 1]));
    if (w[i] == "ack") {
      line.has_ack = true;
      line.ack = value;
    } else if (w[i] == "win") {
      line.has_win = true;
      line.win = value;
    } else if (w[i] == "urg") {
      line.urg = value;
    } else if (w[i] == "mss") {
      line.has_mss = true;
      line.mss = value;
    } else {
      wrong("unknown word: " + w[i]);
    }
    ++i;
  }
  return line;
}

}  // namespace unet::tcp::test
