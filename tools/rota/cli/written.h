#pragma once

#include <string>
#include <string_view>

// Where the tool's words go: each write is checked, and no terminal obeys what a file or a driver brought along.

namespace rota::tool {

// To stdout. Throws a Failure where it cannot be written.
void write_out(std::string_view text);

// Throws a Failure where something of what was written to stdout did not arrive.
void flush_out();

// To stderr. Where that is gone, nobody is left to be told.
void write_error(std::string_view text);

// A file of these bytes. Throws a Failure that names it where it cannot be written to its last byte.
void write_file(const std::string& path, std::string_view bytes);

// Throws the same Failure where the file cannot be opened for writing. Leaves what is in it.
void check_writable(const std::string& path);

// What a terminal would obey instead of showing is a question mark; lines and tabs stay.
std::string shown(std::string_view text);

}  // namespace rota::tool
