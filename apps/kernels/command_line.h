// command_line.h - the options of a kernel: its own and the common ones; used by every kernel: in Split-C, by MPI, serial.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace unet::kernels {

struct CommonOptions {
  uint64_t seed = 1;
  uint32_t repeat = 3;         // measured runs
  bool verify = true;
  std::string json;            // file for the records; "-": stdout; empty: no file
};

struct Parsed {
  std::optional<CommonOptions> options;   // empty: the program ends with `status`
  int status = 0;
};

class CommandLine {
 public:
  // `about` is the first line of --help, `lesson` the text below the options.
  CommandLine(const std::string& about, const std::string& lesson);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Each variable holds its default, and must live until parse() returns. `help` omits the default, which parse() adds.
  void number(const std::string& name, uint32_t& value, uint32_t least, uint32_t most, const std::string& help);
  void number(const std::string& name, uint64_t& value, uint64_t least, uint64_t most, const std::string& help);
  void number(const std::string& name, double& value, double least, double most, const std::string& help);
  void flag(const std::string& name, bool& value, const std::string& help);
  void choice(const std::string& name, std::string& value, const std::vector<std::string>& which, const std::string& help);
  // Removes --seed: the benchmark defines the input.
  void fix_input();

  // `speaks`: this rank prints help and complaints.
  Parsed parse(int argc, char** argv, bool speaks);

 private:
  struct App;
  std::unique_ptr<App> app_;
};

// Prints that options do not go together. Returns the program's exit status.
int usage_error(const char* program, const std::string& what, bool speaks);

}  // namespace unet::kernels
