// supervisor_origin.h - the program of an NI and its configuration, held open. With it the supervisor can restart what has worked, even if
// the files have been replaced.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "unet/base/result.h"
#include "unet/mapping.h"

namespace unet::unetd {

struct Origin {
  std::string path;          // of the program
  Descriptor file;           // the program; not valid: there was no file
  dev_t device = 0;
  ino_t inode = 0;
  Descriptor configuration;  // contents of the configuration file, in sealed memory; not valid: no such file
  bool named = false;        // by an NI, not by the user that started the supervisor
  bool by_path = true;       // false: executes exactly `file`

  // The file at `path` now, without a configuration. A named program is executed as it was checked.
  static Origin at(const std::string& path, bool named);
  // Duplicates the descriptors.
  Origin again() const;
  bool valid() const noexcept { return file.valid(); }
  bool same_program(const Origin& other) const noexcept { return valid() && device == other.device && inode == other.inode; }

  // An error in words, unless it is a regular file that this process may execute. If it was named, also if another user than root or the
  // supervisor's own could change it.
  Status check() const;
  // Executes the program; returns if that fails.
  void execute(std::vector<std::string> arguments) const;
};

// The path at which a process that was started as `name` can be started again.
std::string path_of(const std::string& name);

// A copy of the configuration file; no descriptor if there is none. Errors: invalid_argument, out_of_memory.
Result<Descriptor> copy_of_configuration(const std::string& file);

}  // namespace unet::unetd
