#include "checkpoint/manifest.hpp"

#include <cstdio>
#include <cstdlib>
#include <limits>
#include <sstream>
#include <system_error>

#include "checkpoint/files.hpp"
#include "fsdp/errors.hpp"

namespace fsdp::checkpoint {
namespace {

constexpr const char* kFirstLine = "fsdp-checkpoint 1\n";

/// A name as one word: what would end it, and the percent sign, as %XX. An empty one is "%".
std::string word(const std::string& name) {
  if (name.empty()) return "%";
  std::string result;
  for (const char c : name) {
    if (static_cast<unsigned char>(c) <= ' ' || c == '%') {
      char escaped[4];
      std::snprintf(escaped, sizeof escaped, "%%%02X", static_cast<unsigned>(static_cast<unsigned char>(c)));
      result += escaped;
    } else {
      result += c;
    }
  }
  return result;
}

std::string unescaped(const std::string& word) {
  if (word == "%") return "";
  std::string result;
  for (size_t i = 0; i < word.size(); ++i) {
    if (word[i] != '%') {
      result += word[i];
    } else {
      result += static_cast<char>(std::strtol(word.substr(i + 1, 2).c_str(), nullptr, 16));
      i += 2;
    }
  }
  return result;
}

std::string hexadecimal(uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

/// `piece <file> <offset> <bytes> <checksum> <parameter> <value> <dtype> <dim> <start> <length> <shape…>`
bool read_piece(std::istream& words, Piece& piece) {
  std::string file, parameter, value, sum, dtype;
  auto& layout = piece.layout;
  if (!(words >> file >> piece.offset >> piece.bytes >> sum >> parameter >> value >> dtype >> layout.dim >>
        layout.start >> layout.length))
    return false;
  for (int64_t size; words >> size;) layout.global_shape.push_back(size);
  piece.file = unescaped(file);
  piece.key = {unescaped(parameter), unescaped(value)};
  piece.checksum = std::strtoull(sum.c_str(), nullptr, 16);
  const auto known = dtype_of(dtype);
  if (known) piece.dtype = *known;
  return words.eof() && known;
}

bool read_lines(const std::string& text, Manifest& manifest) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    if (kind == "generation") {
      words >> manifest.generation;
    } else if (kind == "file") {
      std::string name;
      int64_t bytes = 0;
      words >> name >> bytes;
      manifest.files[unescaped(name)] = bytes;
    } else if (kind == "piece") {
      Piece piece{};
      if (!read_piece(words, piece)) return false;
      manifest.tensors[piece.key].push_back(std::move(piece));
    }
  }
  return true;
}

}  // namespace

std::string file_name(int64_t generation, int64_t rank, int64_t ranks) {
  return std::to_string(generation) + "." + std::to_string(rank) + "-of-" + std::to_string(ranks) +
         ".safetensors";
}

int64_t generation_of(const std::string& file_name) {
  long long generation = 0, rank = 0, ranks = 0;
  int end = 0;
  if (std::sscanf(file_name.c_str(), "%lld.%lld-of-%lld.safetensors%n", &generation, &rank, &ranks, &end) !=
      3)
    return 0;
  const auto rest = end > 0 ? file_name.substr(static_cast<size_t>(end)) : "?";
  return rest.empty() || rest == ".tmp" ? generation : 0;
}

std::string lines_of(const std::string& file, int64_t bytes, const std::vector<Piece>& pieces) {
  std::ostringstream lines;
  lines << "file " << word(file) << ' ' << bytes << '\n';
  for (const auto& piece : pieces) {
    const auto& layout = piece.layout;
    lines << "piece " << word(piece.file) << ' ' << piece.offset << ' ' << piece.bytes << ' '
          << hexadecimal(piece.checksum) << ' ' << word(piece.key.parameter) << ' ' << word(piece.key.value)
          << ' ' << safetensors_dtype(piece.dtype) << ' ' << layout.dim << ' ' << layout.start << ' '
          << layout.length;
    for (const auto size : layout.global_shape) lines << ' ' << size;
    lines << '\n';
  }
  return lines.str();
}

std::string manifest_text(int64_t generation, const std::vector<std::string>& lines) {
  auto text = kFirstLine + ("generation " + std::to_string(generation)) + "\n";
  for (const auto& of_rank : lines) text += of_rank;
  return text + "end " + hexadecimal(checksum(text.data(), text.size())) + "\n";
}

Manifest manifest_of(int64_t generation, const std::vector<std::string>& lines) {
  Manifest manifest{.generation = generation, .files = {}, .tensors = {}};
  for (const auto& of_rank : lines) read_lines(of_rank, manifest);
  return manifest;
}

Manifest read_manifest(const std::filesystem::path& folder) {
  const auto path = folder / kManifestName;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    throw RuntimeError(
        path.string() +
        " is not there: the folder holds no checkpoint, or its first one was never completed.");
  }
  const auto text = read_text(path);
  if (!text.starts_with(kFirstLine)) {
    throw RuntimeError(path.string() + " is no manifest of this version: its first line is not \"" +
                       std::string(kFirstLine).substr(0, std::string(kFirstLine).size() - 1) + "\".");
  }
  const auto damaged = [&] {
    return RuntimeError(path.string() + " is damaged: its checksum does not fit.");
  };
  const auto end = text.rfind("end ");
  if (end == std::string::npos || text.substr(end) != "end " + hexadecimal(checksum(text.data(), end)) + "\n")
    throw damaged();

  Manifest manifest;
  if (!read_lines(text.substr(0, end), manifest)) throw damaged();
  for (const auto& [name, bytes] : manifest.files) {
    if (generation_of(name) != manifest.generation) throw damaged();
  }
  for (const auto& [name, bytes] : manifest.files) {
    const auto file = folder / name;
    const auto size = std::filesystem::file_size(file, error);
    if (error) throw RuntimeError(file.string() + " is missing: " + error.message() + ".");
    if (static_cast<int64_t>(size) != bytes) {
      throw RuntimeError(file.string() + " has " + std::to_string(size) + " bytes, the manifest says " +
                         std::to_string(bytes) + ".");
    }
  }
  return manifest;
}

}  // namespace fsdp::checkpoint
