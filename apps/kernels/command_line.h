// command_line.h - the options of a kernel: its own, and those that all kernels have; used by every kernel: in Split-C, by MPI, serial.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace unet::kernels {

struct CommonOptions {
  uint64_t seed = 1;
  uint32_t repeat = 3;         // times that it is measured
  bool verify = true;
  std::string json;            // file for the records; "-": stdout; empty: none
};

struct Parsed {
  std::optional<CommonOptions> options;   // none: the program ends with `status`
  int status = 0;
};

class CommandLine {
 public:
  // `about` is the first line of --help, `lesson` what stands below the options.
  CommandLine(const std::string& about, const std::string& lesson);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Each variable holds its default, and must live until parse() returns. `help` names no default: that is added.
  void number(const std::string& name, uint32_t& value, uint32_t least, uint32_t most, const std::string& help);
  void number(const std::string& name, uint64_t& value, uint64_t least, uint64_t most, const std::string& help);
  void number(const std::string& name, double& value, double least, double most, const std::string& help);
  void flag(const std::string& name, bool& value, const std::string& help);
  void choice(const std::string& name, std::string& value, const std::vector<std::string>& which, const std::string& help);
  // There is no --seed: a benchmark says what the input is.
  void fix_input();

  // `speaks`: this rank is the one that prints help and complaints.
  Parsed parse(int argc, char** argv, bool speaks);

 private:
  struct App;
  std::unique_ptr<App> app_;
};

// What a program says of options that do not go together. Returns its exit status.
int usage_error(const char* program, const std::string& what, bool speaks);

}  // namespace unet::kernels
