// views.h - the parts of an NI's report, as tables for people or as JSON.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace unet::unetctl {

// The names of the views that are commands: endpoints, channels, names, counters, drops, clients, users, held, ports, hosts.
const std::vector<std::string>& view_names();

// A member that is an object; an empty object if it is missing.
const nlohmann::json& part(const nlohmann::json& object, const char* key);
// Makes a text that a client chose safe to print: no terminal command passes.
std::string printable(std::string text);

// Whether the NI is being drained.
bool is_draining(const nlohmann::json& report);

// An endpoint's name for messages: "endpoint 3 (echo)".
std::string name_of(const nlohmann::json& endpoint);

// The part of the report that the view shows.
nlohmann::json select(const nlohmann::json& report, const std::string& view);

// The view as text.
std::string show(const nlohmann::json& report, const std::string& view);

}  // namespace unet::unetctl
