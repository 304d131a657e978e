#include "harness/protocol/safetensors_header.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/protocol/safetensors.hpp"
#include "harness/protocol/utf8.hpp"

namespace fsdp_cts {
namespace {

// In the order of the enumeration.
constexpr std::array<std::string_view, 10> file_dtypes{"F64", "F32", "F16", "BF16", "I64",
                                                       "I32", "I16", "I8",  "U8",   "BOOL"};
// Known to the format, never used between harness and testee.
constexpr std::array<std::string_view, 10> foreign_dtypes{
    "U16", "U32", "U64", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F6_E2M3", "F6_E3M2", "F4", "C64"};

[[noreturn]] void refuse(const std::string& file, const char* code, const std::string& what) {
  throw SafetensorsError(code, file + ": " + what + " [" + code + "]");
}

// Collects claims while the JSON is read, so that duplicate keys are seen before a map could swallow them.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(const std::string& file) : file_(file) {}
  std::vector<TensorClaim> claims;

  bool start_object(std::size_t) override {
    if (place_ == Place::outside) return go(Place::top);
    if (place_ == Place::metadata_value) return go(Place::metadata);
    if (place_ == Place::entry_value) return go(Place::entry);
    return wrong("an object");
  }

  bool key(std::string& name) override {
    if (place_ == Place::metadata) {
      if (!metadata_keys_.insert(name).second)
        refuse(file_, "duplicate_metadata", "key '" + name + "' occurs twice in __metadata__");
      return true;
    }
    if (place_ == Place::entry) return field(name);
    if (name == "__metadata__") {
      if (metadata_seen_) refuse(file_, "duplicate_metadata", "__metadata__ occurs twice");
      metadata_seen_ = true;
      return go(Place::metadata_value);
    }
    if (!names_.insert(name).second) refuse(file_, "duplicate_tensor", "tensor '" + name + "' occurs twice");
    claims.emplace_back().name = name;
    fields_seen_ = 0;
    return go(Place::entry_value);
  }

  bool end_object() override {
    if (place_ == Place::entry && fields_seen_ != 0b111)
      refuse(file_, "field_missing",
             "tensor '" + claims.back().name + "' lacks one of dtype, shape, data_offsets");
    return go(place_ == Place::top ? Place::outside : Place::top);
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::shape) return go(Place::shape_items);
    if (place_ == Place::offsets) return go(Place::offset_items);
    return wrong("a list");
  }

  bool end_array() override {
    if (place_ == Place::offset_items && offsets_read_ != 2)
      refuse(file_, "offsets_type", at_tensor() + "data_offsets must be two whole numbers");
    return go(Place::entry);
  }

  bool number_unsigned(std::uint64_t value) override {
    TensorClaim* claim = claims.empty() ? nullptr : &claims.back();
    if (place_ == Place::shape_items) {
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        refuse(file_, "shape_overflow", at_tensor() + "a dimension exceeds 63 bits");
      claim->shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (place_ != Place::offset_items) return wrong("a number");
    if (offsets_read_ >= 2)
      refuse(file_, "offsets_type", at_tensor() + "data_offsets must be two whole numbers");
    (offsets_read_++ == 0 ? claim->begin : claim->end) = value;
    return true;
  }

  bool number_integer(std::int64_t value) override {
    if (place_ == Place::shape_items)
      refuse(file_, "shape_negative", at_tensor() + "negative dimension " + std::to_string(value));
    return wrong("a negative number");
  }

  bool string(std::string& value) override {
    if (place_ == Place::metadata) return true;
    if (place_ != Place::dtype) return wrong("a string");
    const auto known = std::find(file_dtypes.begin(), file_dtypes.end(), value);
    if (known == file_dtypes.end()) {
      const bool foreign =
          std::find(foreign_dtypes.begin(), foreign_dtypes.end(), value) != foreign_dtypes.end();
      refuse(file_, foreign ? "dtype_unsupported" : "dtype_unknown",
             at_tensor() + "dtype '" + value + (foreign ? "' is not used by this suite" : "' is unknown"));
    }
    claims.back().dtype = static_cast<DType>(known - file_dtypes.begin());
    return go(Place::entry);
  }

  bool null() override { return wrong("null"); }
  bool boolean(bool) override { return wrong("a boolean"); }
  bool number_float(double, const std::string&) override {
    return wrong("a fraction or a number beyond 64 bits");
  }
  bool binary(binary_t&) override { return wrong("bytes"); }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    refuse(file_, "header_json", "header is not JSON at byte " + std::to_string(position));
  }

 private:
  enum class Place {
    outside,
    top,
    metadata_value,
    metadata,
    entry_value,
    entry,
    dtype,
    shape,
    shape_items,
    offsets,
    offset_items
  };

  bool go(Place place) {
    place_ = place;
    return true;
  }

  bool field(const std::string& name) {
    const std::array<std::pair<const char*, Place>, 3> fields{
        {{"dtype", Place::dtype}, {"shape", Place::shape}, {"data_offsets", Place::offsets}}};
    for (unsigned i = 0; i < fields.size(); ++i) {
      if (name != fields[i].first) continue;
      if (fields_seen_ & (1u << i)) refuse(file_, "duplicate_field", at_tensor() + name + " occurs twice");
      fields_seen_ |= 1u << i;
      offsets_read_ = 0;
      return go(fields[i].second);
    }
    refuse(file_, "field_unknown", at_tensor() + "unknown field '" + name + "'");
  }

  [[noreturn]] bool wrong(const char* found) {
    const auto [code, expected] = [this]() -> std::pair<const char*, const char*> {
      switch (place_) {
        case Place::metadata_value:
          return {"metadata_type", "__metadata__ must be an object"};
        case Place::metadata:
          return {"metadata_type", "__metadata__ values must be strings"};
        case Place::entry_value:
          return {"entry_type", "must be an object"};
        case Place::dtype:
          return {"dtype_type", "dtype must be a string"};
        case Place::shape:
        case Place::shape_items:
          return {"shape_type", "shape must be a list of whole numbers"};
        case Place::offsets:
        case Place::offset_items:
          return {"offsets_type", "data_offsets must be two whole numbers"};
        default:
          return {"header_json", "header must be one object"};
      }
    }();
    refuse(file_, code, at_tensor() + expected + ", found " + found);
  }

  std::string at_tensor() const { return claims.empty() ? "" : "tensor '" + claims.back().name + "': "; }

  const std::string& file_;
  Place place_ = Place::outside;
  std::set<std::string> names_, metadata_keys_;
  bool metadata_seen_ = false;
  unsigned fields_seen_ = 0;
  int offsets_read_ = 0;
};

std::uint64_t claimed_size(const TensorClaim& claim, const std::string& file) {
  std::uint64_t size = dtype_size(claim.dtype);
  for (const std::int64_t extent : claim.shape)
    if (__builtin_mul_overflow(size, static_cast<std::uint64_t>(extent), &size))
      refuse(file, "shape_overflow", "tensor '" + claim.name + "': the size of its shape overflows 64 bits");
  return size;
}

}  // namespace

std::string_view safetensors_dtype_name(DType dtype) {
  return file_dtypes.at(static_cast<std::size_t>(dtype));
}

std::uint64_t safetensors_header_length(std::string_view prefix, std::uint64_t file_size,
                                        const std::string& file) {
  if (prefix.size() < safetensors_prefix)
    refuse(file, "too_short", "only " + std::to_string(prefix.size()) + " bytes; a header length takes 8");
  std::uint64_t length = 0;
  std::memcpy(&length, prefix.data(), sizeof length);
  if (length > safetensors_header_limit)
    refuse(file, "header_too_large",
           "header of " + std::to_string(length) + " bytes; at most " +
               std::to_string(safetensors_header_limit));
  if (length > file_size - safetensors_prefix)
    refuse(file, "header_beyond_file",
           "header of " + std::to_string(length) + " bytes in a file of " + std::to_string(file_size));
  return length;
}

std::vector<TensorClaim> parse_safetensors_header(std::string_view header, std::uint64_t data_size,
                                                  const std::string& file) {
  if (header.empty() || header.front() != '{')
    refuse(file, "header_start", "the header does not begin with '{'");
  if (!is_utf8(header)) refuse(file, "header_utf8", "the header is not UTF-8");
  // The JSON reader takes a zero byte for the end and would not look at what follows.
  if (header.find('\0') != std::string_view::npos)
    refuse(file, "header_json", "the header holds a zero byte");

  HeaderReader reader(file);
  nlohmann::json::sax_parse(header.begin(), header.end(), &reader);
  std::vector<TensorClaim> claims = std::move(reader.claims);
  std::sort(claims.begin(), claims.end(), [](const TensorClaim& a, const TensorClaim& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });

  std::uint64_t expected_begin = 0;
  for (const TensorClaim& claim : claims) {
    const std::string place = "tensor '" + claim.name + "' at bytes " + std::to_string(claim.begin) + " to " +
                              std::to_string(claim.end) + ": ";
    if (claim.end < claim.begin) refuse(file, "offsets_reversed", place + "it ends before it begins");
    if (claim.begin < expected_begin)
      refuse(file, "offsets_overlap", place + "it overlaps the tensor before it");
    if (claim.begin > expected_begin)
      refuse(file, "offsets_hole", place + "expected to begin at " + std::to_string(expected_begin));
    const std::uint64_t size = claimed_size(claim, file);
    if (size != claim.end - claim.begin)
      refuse(file, "size_mismatch", place + "its dtype and shape need " + std::to_string(size) + " bytes");
    expected_begin = claim.end;
  }
  if (expected_begin > data_size)
    refuse(file, "data_missing",
           "tensors need " + std::to_string(expected_begin) + " bytes, the file holds " +
               std::to_string(data_size));
  if (expected_begin < data_size)
    refuse(file, "data_trailing",
           std::to_string(data_size - expected_begin) + " bytes behind the last tensor");
  return claims;
}

}  // namespace fsdp_cts
