// program_words.h - the program to run, after a command line's own options; used by unet-run and unet-sockets.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "unet/base/result.h"

namespace unet::apps {

// `rest`: the words that the parser did not take. The program's words are these, or those after `--`. They are not a positional of the
// parser, which would split words in brackets.
inline Result<std::vector<std::string>> program_words(std::vector<std::string> rest) {
  const std::string first = rest.empty() ? "" : rest.front();
  if (first == "--") rest.erase(rest.begin());
  else if (first.starts_with("-")) return fail(Errc::invalid_argument, "there is no option " + first);
  if (rest.empty()) return fail(Errc::invalid_argument, "a program is required");
  return rest;
}

}  // namespace unet::apps
