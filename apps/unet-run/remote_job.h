// remote_job.h - the job of unet-run --hosts: hosts from a file, the program, and the stream of the files that it brings.
#pragma once

#include <string>
#include <vector>

#include "am/rpc/task/spec.h"
#include "apps/unet-run/options.h"
#include "unet/base/bytes.h"
#include "unet/base/crc32c.h"
#include "unet/base/result.h"
#include "unet/mapping.h"

namespace unet::run {

// Reads a line for each host: its name, and optionally the number of tasks; # begins a comment. `wanted`: tasks in all, the first hosts
// first; 0: as many as the file has. Errors: invalid_argument, with file and line.
Result<std::vector<rpc::JobHost>> read_hosts(const std::string& file, uint32_t wanted);

// Reads the files of a job one after another, each with its check sum behind it.
class FileStream {
 public:
  // Opens the file of each path, and describes it in `files`. The first one is a program if `program` is set. Errors: those of the files.
  static Result<FileStream> open(const std::vector<std::string>& paths, bool program, std::vector<rpc::JobFile>& files);
  // Fills `bytes` from `offset` on. Errors: a file cannot be read, or is shorter now.
  Status read(uint64_t offset, MutableBytes bytes);

 private:
  struct File {
    std::string path;
    Descriptor descriptor;
    uint64_t begin = 0, bytes = 0;       // in the stream
    uint64_t summed = 0;                 // bytes in `crc`
    uint32_t crc = kCrc32cStart;
  };
  static Status read_from(const File& file, uint64_t at, MutableBytes bytes);
  static Status sum_to_end(File& file);
  std::vector<File> files_;
};

// The job without its files. Errors: those of read_hosts() and of variables that are not set.
Result<rpc::JobSpec> describe_job(const Options& options);
// The paths of the files to bring, the program's first if it is one of them.
std::vector<std::string> files_to_bring(const Options& options, bool& program);

}  // namespace unet::run
