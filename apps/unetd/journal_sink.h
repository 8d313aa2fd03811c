// journal_sink.h - log lines as records of systemd's journal, with fields that journalctl selects by: PRIORITY, UNET_HOST, UNET_SOCKET.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <spdlog/sinks/sink.h>

namespace unet::unetd {

constexpr const char* kJournalSocket = "/run/systemd/journal/socket";

// Whether standard error leads to the journal, as systemd says in $JOURNAL_STREAM.
bool logs_to_journal() noexcept;

// Each record has `fields`, names with their values. nullptr: nothing listens at `socket`. The sink never waits: a journal that does not
// read loses records. A message that cannot be sent for another reason goes to standard error.
std::shared_ptr<spdlog::sinks::sink> journal_sink(const std::string& socket, std::vector<std::pair<std::string, std::string>> fields);

}  // namespace unet::unetd
