// record.h - what launchers, agents and runners of remote tasks say to each other, and the links that carry it.
//
// A job is a tree. The launcher (unet-run) is its root. The agents of the hosts come next, each with a runner that starts the tasks.
// Each pair of parent and child in that tree is an edge. Both ends of an edge say the same records:
//
//   down   start      a: version, b: node; payload: bytes of the specification (u32). The first record of an edge.
//          spec       a piece of the specification (spec.h), which names the hosts, the program and the files
//   bulk   data       a piece of the files: the bytes of each, then their crc32c (u32)
//   bulk   input      a piece of rank 0's standard input; an empty one ends it
//          signal     a: the signal, for each task
//   !      end        the tasks get this signal (a) now, and SIGKILL later
//   up     started    a: the tasks of the subtree, all of which run now
//   bulk   output     a: rank, b: 1 or 2 (standard output, standard error)
//          exited     a: rank, b: ExitStatus
//          failed     a: Reason, b: node; payload: a sentence
//          done       no task of the subtree runs, and no file of it is left. The last record of an edge.
//   both ! credit     a: bytes of bulk records that the sender of this record has consumed
//        ! alive      nothing new
//
// Records marked ! overtake others. At most kWindow bytes of bulk records (cost_of()) are under way in each direction of an edge.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "unet/base/bytes.h"

namespace unet::rpc {

constexpr uint32_t kTaskVersion = 1;
constexpr uint32_t kRecordMax = 16 * 1024;     // bytes of a payload: those of a medium message
constexpr uint32_t kWindow = 256 * 1024;       // bytes
constexpr uint32_t kRecordCost = 128;          // bytes that a bulk record counts for besides its payload, since it takes memory, too
constexpr uint32_t kTaskHostsMax = 1024;
constexpr uint32_t kTasksMax = 4096;           // of a job
constexpr uint32_t kSpecMax = 256 * 1024;      // bytes
constexpr uint32_t kTaskFilesMax = 64;
constexpr uint32_t kSentenceMax = 512;         // bytes

enum class RecordType : uint32_t { start = 1, spec, data, input, signal, end, started, output, exited, failed, done, credit, alive };
constexpr uint32_t kRecordTypeMax = 13;

constexpr bool is_bulk(RecordType type) noexcept {
  return type == RecordType::data || type == RecordType::input || type == RecordType::output;
}

// Bytes of a window that a bulk record with this payload takes.
constexpr uint32_t cost_of(size_t payload) noexcept { return static_cast<uint32_t>(payload) + kRecordCost; }

// Why a job failed. The values go over the wire: only append.
enum class Reason : uint32_t {
  bad_job = 1,         // the agent does not understand the specification
  not_permitted = 2,   // the agent's policy
  too_many = 3,        // the agent has as many tasks as its policy or its memory allows
  no_program = 4,      // the program is not there, or cannot be executed
  file_failed = 5,     // a file could not be written, or came damaged
  unreachable = 6,     // no agent there
  lost = 7,            // an agent ended, or did not answer any more
  lied = 8,            // an agent broke the protocol
  system = 9,          // a system call failed
};
constexpr uint32_t kReasonMax = 9;

std::string_view to_string(Reason reason) noexcept;

struct TaskFailure {
  Reason reason{};
  std::string text;
};

// How a task ended, as in the record `exited`: the exit code, or 256 + the signal.
using ExitStatus = uint32_t;
constexpr ExitStatus kBySignal = 256;
constexpr bool is_exit_status(uint32_t status) noexcept { return status <= 255 || (status > kBySignal && status <= kBySignal + 64); }

using Payload = std::shared_ptr<const std::vector<std::byte>>;  // several edges send the same bytes

struct TaskRecord {
  RecordType type{};
  uint32_t a = 0, b = 0;
  Bytes payload{};
};

// Links carry the records of any number of edges, told apart by a key that the parent draws at random: to know it is the right to speak.
class Links {
 public:
  enum class Id : uint32_t {};
  virtual ~Links() = default;
  // Leads to an agent or a launcher. Never fails at once: the owner of the machine reports that a link is lost.
  virtual Id open(const std::string& target) = 0;
  // The machine sends nothing more over the link. What was sent still arrives.
  virtual void close(Id link) = 0;
  // False: the link has no room now, or is not open yet. The machine tries again in its next process().
  virtual bool send(Id link, uint64_t key, const TaskRecord& record) = 0;
};

}  // namespace unet::rpc
