// views.h - the parts of an NI's report, as tables for people or as JSON.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace unet::unetctl {

// The names of all views: endpoints, channels, names, counters, drops, clients, users, held, ports, hosts.
const std::vector<std::string>& view_names();

// An object's part that is an object; an empty one if it has none.
const nlohmann::json& part(const nlohmann::json& object, const char* key);
// What a client calls itself is the client's to choose: nothing in it reaches the terminal as a command.
std::string printable(std::string text);

// Is the NI being drained?
bool is_draining(const nlohmann::json& report);

// An endpoint of the report in words: "endpoint 3 (echo)".
std::string name_of(const nlohmann::json& endpoint);

// The part of the report that the view shows.
nlohmann::json select(const nlohmann::json& report, const std::string& view);

// The same as text.
std::string show(const nlohmann::json& report, const std::string& view);

}  // namespace unet::unetctl
