// program_words.h - the program that a command line is to run, behind its options; used by unet-run and unet-sockets.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "unet/base/result.h"

namespace unet::apps {

// `rest`: what the parser of the options has left over, from the first word that is none of them. The program's words are these, or what
// follows `--`. They are no positional of the parser's, which would take words in brackets apart.
inline Result<std::vector<std::string>> program_words(std::vector<std::string> rest) {
  const std::string first = rest.empty() ? "" : rest.front();
  if (first == "--") rest.erase(rest.begin());
  else if (first.starts_with("-")) return fail(Errc::invalid_argument, "there is no option " + first);
  if (rest.empty()) return fail(Errc::invalid_argument, "a program is required");
  return rest;
}

}  // namespace unet::apps
