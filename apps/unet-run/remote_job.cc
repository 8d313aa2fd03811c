// remote_job.cc - parses the file of hosts, and reads the files of a job.
#include "apps/unet-run/remote_job.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "apps/task_secret.h"
#include "ni/service/names.h"
#include "unet/control.h"

namespace unet::run {
namespace {

std::string last_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string hexadecimal(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace

Result<std::vector<rpc::JobHost>> read_hosts(const std::string& file, uint32_t wanted) {
  std::ifstream from(file);
  if (!from) return fail_errno("open(" + file + ")", errno);
  std::vector<rpc::JobHost> hosts;
  uint32_t number = 0, tasks = 0;
  for (std::string line; std::getline(from, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, count, more;
    if (!(words >> name)) continue;
    rpc::JobHost host{name, 1};
    if (words >> count) {
      const auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), host.tasks);
      if (error != std::errc() || end != count.data() + count.size()) host.tasks = 0;
    }
    if (!control::valid_name(name) || host.tasks == 0 || host.tasks > rpc::kTasksMax || words >> more) {
      return fail(Errc::invalid_argument, file + ':' + std::to_string(number) + ": write a host's name, and optionally its tasks, 1 to " +
                                              std::to_string(rpc::kTasksMax));
    }
    tasks += host.tasks;
    const auto same = std::find_if(hosts.begin(), hosts.end(), [&](const rpc::JobHost& other) { return other.name == name; });
    if (same == hosts.end()) hosts.push_back(std::move(host));
    else same->tasks += host.tasks;
  }
  if (hosts.empty()) return fail(Errc::invalid_argument, file + ": there is no host in it");
  if (wanted == 0) return hosts;
  if (wanted > tasks) {
    return fail(Errc::invalid_argument, "-n " + std::to_string(wanted) + ": the hosts of " + file + " take " + std::to_string(tasks) +
                                            " tasks; write a number behind a host for more");
  }
  for (auto host = hosts.begin(); host != hosts.end(); ++host) {
    host->tasks = std::min(host->tasks, wanted);
    wanted -= host->tasks;
    if (wanted != 0) continue;
    hosts.erase(host + 1, hosts.end());
    break;
  }
  return hosts;
}

Result<FileStream> FileStream::open(const std::vector<std::string>& paths, bool program, std::vector<rpc::JobFile>& files) {
  FileStream stream;
  uint64_t begin = 0;
  for (const std::string& path : paths) {
    File file{.path = path, .descriptor = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), .begin = begin};
    if (!file.descriptor.valid()) return fail_errno("open(" + path + ")", errno);
    struct stat found {};
    if (fstat(file.descriptor.get(), &found) != 0) return fail_errno("fstat(" + path + ")", errno);
    if (!S_ISREG(found.st_mode)) return fail(Errc::invalid_argument, path + " is not a regular file, so it cannot be brought along");
    file.bytes = static_cast<uint64_t>(found.st_size);
    begin += file.bytes + sizeof(be32);
    files.push_back({last_part(path), file.bytes, (found.st_mode & 0111) != 0 || (program && files.empty())});
    stream.files_.push_back(std::move(file));
  }
  return stream;
}

Status FileStream::read_from(const File& file, uint64_t at, MutableBytes bytes) {
  while (!bytes.empty()) {
    const ssize_t size = pread(file.descriptor.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return fail_errno("read(" + file.path + ")", errno);
    if (size == 0) return fail(Errc::unavailable, file.path + " became shorter while it was read");
    at += static_cast<uint64_t>(size);
    bytes = bytes.subspan(static_cast<size_t>(size));
  }
  return {};
}

// Several hosts read at places of their own, so the sum may need bytes that the caller does not.
Status FileStream::sum_to_end(File& file) {
  std::vector<std::byte> part(rpc::kRecordMax);
  while (file.summed < file.bytes) {
    const MutableBytes bytes = MutableBytes(part).first(std::min<uint64_t>(part.size(), file.bytes - file.summed));
    if (const Status got = read_from(file, file.summed, bytes); !got) return got;
    file.crc = crc32c(file.crc, bytes.data(), bytes.size());
    file.summed += bytes.size();
  }
  return {};
}

Status FileStream::read(uint64_t offset, MutableBytes bytes) {
  for (File& file : files_) {
    const uint64_t end = file.begin + file.bytes;
    if (bytes.empty() || offset >= end + sizeof(be32)) continue;
    const uint64_t at = offset - file.begin;
    if (at < file.bytes) {
      const MutableBytes part = bytes.first(std::min<uint64_t>(bytes.size(), file.bytes - at));
      if (const Status got = read_from(file, at, part); !got) return got;
      if (at == file.summed) {
        file.crc = crc32c(file.crc, part.data(), part.size());
        file.summed += part.size();
      }
      offset += part.size();
      bytes = bytes.subspan(part.size());
    }
    if (bytes.empty()) continue;
    if (const Status summed = sum_to_end(file); !summed) return summed;
    const be32 sum(~file.crc);
    const Bytes part = as_bytes(&sum, sizeof sum).subspan(offset - end);
    const size_t size = std::min(part.size(), bytes.size());
    std::copy_n(part.begin(), size, bytes.begin());
    offset += size;
    bytes = bytes.subspan(size);
  }
  return {};
}

std::vector<std::string> files_to_bring(const Options& options, bool& program) {
  program = !options.remote.in_place && options.program[0].find('/') != std::string::npos;
  std::vector<std::string> paths;
  if (program) paths.push_back(options.program[0]);
  paths.insert(paths.end(), options.remote.files.begin(), options.remote.files.end());
  return paths;
}

Result<rpc::JobSpec> describe_job(const Options& options) {
  const RemoteOptions& remote = options.remote;
  Result<std::vector<rpc::JobHost>> hosts = read_hosts(remote.hosts, options.size);
  if (!hosts) return tl::unexpected(hosts.error());
  rpc::JobSpec job{.hosts = std::move(*hosts), .arity = remote.arity, .program = options.program, .directory = remote.directory};
  for (const std::string& each : remote.environment) {
    if (each.find('=') != std::string::npos) {
      job.environment.push_back(each);
    } else if (const char* const value = std::getenv(each.c_str())) {
      job.environment.push_back(each + '=' + value);
    } else {
      return fail(Errc::invalid_argument, "--env " + service::in_quotes(each) + ": that variable is not set; write NAME=VALUE");
    }
  }
  job.secret = hexadecimal(apps::random_key()) + hexadecimal(apps::random_key());
  return job;
}

}  // namespace unet::run
