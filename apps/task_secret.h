// task_secret.h - the secret by which agents and launchers of remote tasks know each other; used by unet-agent and unet-run.
#pragma once

#include <cstdint>
#include <string>

#include "unet/base/result.h"

namespace unet::apps {

// Makes a number from the first line of a file: 16 to 64 bytes. The file must be a regular one of this user or of root, and closed to other
// users. Errors: those of the file; invalid_argument, with what to do.
Result<uint64_t> read_task_secret(const std::string& file);

// A number that no other process can guess.
uint64_t random_key();

}  // namespace unet::apps
