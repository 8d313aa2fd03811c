// supervisor_origin.h - what a network interface is started from, held open: its program and the configuration that it reads; used by the
// supervisor, which can so start again what has worked, whatever is put in its place.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "unet/base/result.h"
#include "unet/mapping.h"

namespace unet::unetd {

struct Origin {
  std::string path;          // of the program
  Descriptor file;           // the program; not valid: nothing was there
  dev_t device = 0;
  ino_t inode = 0;
  Descriptor configuration;  // what the configuration file said, in sealed memory; not valid: there is no such file
  bool named = false;        // by a network interface, and not by who started the supervisor
  bool by_path = true;       // false: it is exactly `file` that is executed

  // Whatever is at `path` now, without a configuration. What was named is executed as it was looked at.
  static Origin at(const std::string& path, bool named);
  // The same files.
  Origin again() const;
  bool valid() const noexcept { return file.valid(); }
  bool same_program(const Origin& other) const noexcept { return valid() && device == other.device && inode == other.inode; }

  // An error in words if it is no regular file that this process may execute; of one that was named, also if another user than root or
  // the supervisor's own could change it.
  Status check() const;
  // Becomes the program; returns if that fails.
  void execute(std::vector<std::string> arguments) const;
};

// The path by which a process that was started as `name` can be started again.
std::string path_of(const std::string& name);

// What the configuration file says now; no descriptor if there is none. Errors: invalid_argument, out_of_memory.
Result<Descriptor> copy_of_configuration(const std::string& file);

}  // namespace unet::unetd
